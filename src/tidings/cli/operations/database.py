"""`tidings database`: bring the tables to the revision of a release."""

from typing import Annotated

import typer

from tidings.cli.language import say, translate
from tidings.cli.options import YesOption, make_group
from tidings.cli.session import Session, answering, fail

app = make_group("Upgrade or downgrade the tables.")


@app.command("upgrade")
@answering
async def upgrade(session: Session) -> None:
    """Bring the tables up to date. Every other command does this by itself."""
    await _migrate(session, None)


@app.command("downgrade")
@answering
async def downgrade(
    session: Session,
    revision: Annotated[str, typer.Argument(help='An earlier revision, or "base" to remove all tables.')],
    yes: YesOption = False,
) -> None:
    """Take the tables back to an earlier revision. Deletes the data of newer tables."""
    from tidings.core.db.revisions import list_revisions

    if revision not in ("base", *list_revisions()):
        fail("there is no revision {revision}; nothing was changed", revision=revision)
    if not yes:
        typer.confirm(say("This deletes the data of newer tables. Go on?"), abort=True)
    await _migrate(session, revision)


async def _migrate(session: Session, revision: str | None) -> None:
    """Bring the tables to this revision, by default the newest."""
    from alembic.util import CommandError

    from tidings.core.db.revisions import downgrade_database, find_revision
    from tidings.storage import prepare_data_dir
    from tidings.wiring.opening import prepare_tables

    prepare_data_dir(session.settings.data_dir)
    database = await session.open_database()
    try:
        await (prepare_tables(database) if revision is None else downgrade_database(database, revision=revision))
    except CommandError as error:
        fail("there is no such revision ({reason}); nothing was changed", reason=translate(str(error)))
    shown = await find_revision(database) or "base"
    session.answer({"revision": shown}, "The tables are at revision {revision}.", revision=shown)
