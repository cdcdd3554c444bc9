"""`tidings database`: bring the tables to the revision of a release."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import say, translate
from tidings.cli.options import JsonOption, YesOption, make_group
from tidings.cli.output import print_answer
from tidings.cli.session import Session, command, fail

if TYPE_CHECKING:
    from tidings.core.db.database import Database
    from tidings.settings.settings import Settings

app = make_group("Upgrade or downgrade the tables.")


@app.command("upgrade")
@command
async def upgrade(session: Session, as_json: JsonOption = False) -> None:
    """Bring the tables up to date. Every other command does this by itself."""
    _show_revision(await _migrate(session.settings, None), as_json=as_json)


@app.command("downgrade")
@command
async def downgrade(
    session: Session,
    revision: Annotated[str, typer.Argument(help='An earlier revision, or "base" to remove all tables.')],
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take the tables back to an earlier revision. Deletes the data of newer tables."""
    settings = session.settings
    if not yes:
        typer.confirm(say("This deletes the data of newer tables. Go on?"), abort=True)
    _show_revision(await _migrate(settings, revision), as_json=as_json)


def _show_revision(revision: str | None, *, as_json: bool) -> None:
    shown = revision or "base"
    print_answer({"revision": shown}, say("The tables are at revision {revision}.", revision=shown), as_json=as_json)


async def _migrate(settings: "Settings", revision: str | None) -> str | None:
    from tidings.core.db.database import find_revision, open_database
    from tidings.storage import find_database_url, prepare_data_dir
    from tidings.wiring.opening import prepare_tables

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


async def _downgrade(database: "Database", revision: str) -> None:
    from alembic.util import CommandError

    from tidings.core.db.database import downgrade_database

    try:
        await downgrade_database(database, revision=revision)
    except CommandError as error:
        fail(say("there is no such revision ({reason}); nothing was changed", reason=translate(str(error))))
