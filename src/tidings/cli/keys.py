"""`tidings keys`: master keys that encrypt what is stored, and IndexNow keys."""

import secrets
from collections import Counter
from typing import Annotated

import typer

from tidings.cli.session import load_settings, open_session, run
from tidings.core.master_key import new_master_key

app = typer.Typer(help="Make and rotate keys.", no_args_is_help=True, rich_markup_mode=None)


@app.command("new")
def new(
    indexnow: Annotated[bool, typer.Option("--indexnow", help="Make an IndexNow key instead of a master key.")] = False,
) -> None:
    """Make a key and print it; nothing is changed."""
    typer.echo(secrets.token_hex(16) if indexnow else new_master_key())


@app.command("rotate")
def rotate() -> None:
    """Encrypt everything stored with the newest master key: the first in COOKIE_MASTER_KEY (`k2:NEW,k1:OLD`)."""
    settings = load_settings()

    async def work() -> int:
        async with open_session(settings) as installation:
            return await installation.sites.rotate_keys() + await installation.cookies.rotate_keys()

    typer.echo(f"{run(work):,} stored keys were encrypted anew.")


@app.command("status")
def status() -> None:
    """Show which master keys are in use, by their ids."""
    settings = load_settings()

    async def work() -> tuple[str, dict[str, int]]:
        async with open_session(settings) as installation:
            counts = Counter(await installation.sites.count_key_ids())
            counts.update(await installation.cookies.count_key_ids())
            return installation.keys.current_id, counts

    current, counts = run(work)
    typer.echo(f"New values are encrypted with {current}.")
    for key_id, count in counts.items():
        typer.echo(f"{key_id}: {count:,} values" + ("" if key_id == current else "; run `tidings keys rotate`"))
