"""`tidings database` and `tidings ledger`: care for what is stored."""

import json
from datetime import datetime
from typing import Annotated

import typer

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.corrections import forget_since
from tidings.cli.announce.announce import JsonOption, require_site
from tidings.cli.session import fail, load_settings, open_session, run
from tidings.core.clock import parse_timestamp
from tidings.core.db.database import Database, downgrade_database, find_revision, open_database
from tidings.storage import find_database_url, prepare_data_dir
from tidings.wiring import prepare_tables

database_app = typer.Typer(help="Bring the tables up or down.", no_args_is_help=True, rich_markup_mode=None)
ledger_app = typer.Typer(help="Correct what counts as announced.", no_args_is_help=True, rich_markup_mode=None)


@database_app.command("upgrade")
def upgrade(as_json: JsonOption = False) -> None:
    """Bring the tables up to date. Every command does this by itself."""
    _tell_revision(_migrate(None), as_json=as_json)


@database_app.command("downgrade")
def downgrade(
    revision: Annotated[str, typer.Argument(help='An earlier revision, or "base" to remove all tables.')],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take the tables back to an earlier revision. What newer tables hold is deleted."""
    if not yes:
        typer.confirm("Data in newer tables will be deleted. Go on?", abort=True)
    _tell_revision(_migrate(revision), as_json=as_json)


def _tell_revision(revision: str | None, *, as_json: bool) -> None:
    shown = revision or "base"
    typer.echo(json.dumps({"revision": shown}) if as_json else f"The tables are at revision {shown}.")


def _migrate(revision: str | None) -> str | None:
    settings = load_settings()

    async def work() -> str | None:
        prepare_data_dir(settings.data_dir)
        database = open_database(find_database_url(settings))
        try:
            if revision is None:
                await prepare_tables(database)
            else:
                await _downgrade(database, revision)
            return await find_revision(database)
        finally:
            await database.close()

    return run(work)


async def _downgrade(database: Database, revision: str) -> None:
    from alembic.util import CommandError

    try:
        await downgrade_database(database, revision=revision)
    except CommandError as error:
        fail(f"there is no such revision ({error}); nothing was changed")


@ledger_app.command("forget")
def forget(
    site: Annotated[str, typer.Argument(help="The site's id.")],
    since: Annotated[str, typer.Option("--since", help="A moment such as 2026-11-15T10:00Z, or a day.")],
    channel: Annotated[ChannelChoice, typer.Option("--channel", help="On which channel.")] = ChannelChoice.ALL,
    as_json: JsonOption = False,
) -> None:
    """Undo a bad run: what was announced since then counts as not announced, and is due again."""
    settings = load_settings()
    moment = _parse_moment(since)

    async def work() -> int:
        async with open_session(settings) as installation:
            found = await require_site(installation, site)
            return await forget_since(
                found, moment, channel=channel, database=installation.database, executions=installation.executions
            )

    forgotten = run(work)
    if as_json:
        typer.echo(json.dumps({"forgotten": forgotten}))
    else:
        typer.echo(f"{forgotten:,} entries are forgotten; their pages are due again.")


def _parse_moment(text: str) -> datetime:
    moment = parse_timestamp(text)
    if moment is None:
        fail("--since: it must be a moment such as 2026-11-15T10:00Z, or a day such as 2026-11-15")
    return moment
