"""`tidings keys`: master keys that encrypt what is stored, and IndexNow keys."""

import json
import secrets
from collections import Counter
from typing import Annotated

import typer

from tidings.cli.announce.announce import JsonOption
from tidings.cli.session import load_settings, open_session, run
from tidings.core.secrets.master_key import new_master_key

app = typer.Typer(help="Make and rotate keys.", no_args_is_help=True, rich_markup_mode=None)


@app.command("new")
def new(
    indexnow: Annotated[bool, typer.Option("--indexnow", help="Make an IndexNow key instead of a master key.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it; nothing is changed."""
    key = secrets.token_hex(16) if indexnow else new_master_key()
    typer.echo(json.dumps({"key": key}) if as_json else key)


@app.command("rotate")
def rotate(as_json: JsonOption = False) -> None:
    """Encrypt everything stored with the newest master key: the first in COOKIE_MASTER_KEY (`k2:NEW,k1:OLD`)."""
    settings = load_settings()

    async def work() -> int:
        async with open_session(settings) as installation:
            return await installation.sites.rotate_keys() + await installation.cookies.rotate_keys()

    rotated = run(work)
    typer.echo(json.dumps({"rotated": rotated}) if as_json else f"{rotated:,} stored keys were encrypted anew.")


@app.command("status")
def status(as_json: JsonOption = False) -> None:
    """Show which master keys are in use, by their ids."""
    settings = load_settings()

    async def work() -> tuple[str, dict[str, int]]:
        async with open_session(settings) as installation:
            counts = Counter(await installation.sites.count_key_ids())
            counts.update(await installation.cookies.count_key_ids())
            return installation.keys.current_id, counts

    current, counts = run(work)
    if as_json:
        typer.echo(json.dumps({"current": current, "values": dict(counts)}))
        return
    typer.echo(f"New values are encrypted with {current}.")
    for key_id, count in counts.items():
        typer.echo(f"{key_id}: {count:,} values" + ("" if key_id == current else "; run `tidings keys rotate`"))
