"""`tidings backup` and `tidings restore`: the whole database into a file, and back."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings import __version__
from tidings.cli.language import say, translate
from tidings.cli.options import JsonOption, YesOption
from tidings.cli.output import print_json, show_bar
from tidings.cli.session import (
    Exit,
    Session,
    command,
    describe_database_error,
    describe_system_error,
    fail,
    is_watched,
    join_clauses,
)
from tidings.core.clock import SystemClock, to_text

if TYPE_CHECKING:
    from tidings.announce.schedule.pauses import Pauses
    from tidings.core.backup.backup import Restored
    from tidings.core.backup.file import BackupReader, Header
    from tidings.core.db.database import Database
    from tidings.settings.settings import Settings

# A database with rows in one of these tables is replaced only after a confirmation.
_PRECIOUS = ("sites", "ledger", "executions")


@command
async def backup(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The file to write. An older backup of this name is replaced.")],
    without_ledger: Annotated[
        bool, typer.Option("--without-ledger", help="Leave out the accepted pages, by far the largest table.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the whole database to a file, without the master key.

    The service may run meanwhile.
    """
    from tidings.core.backup.backup import write_backup

    settings = session.settings
    if settings.database_url is None and not settings.data_dir.is_dir():
        fail(say("there is nothing to back up: {path} does not exist (TIDINGS_DATA_DIR)", path=settings.data_dir))
    with (
        _expect_errors(file, say("no backup was written")),
        show_bar(say("writing"), enabled=is_watched()) as on_progress,
    ):
        async with _open_database(settings) as database:
            header, totals = await write_backup(
                database,
                file,
                clock=SystemClock(),
                release=__version__,
                without=("ledger",) if without_ledger else (),
                on_progress=on_progress,
            )
    if as_json:
        print_json(_describe(file, header, totals.rows))
        return
    size = file.stat().st_size / 1_000_000
    typer.echo(
        say(
            "Wrote {rows} at revision {revision} to {file} ({size} MB).",
            rows=_count(totals.rows),
            revision=header.revision,
            file=file,
            size=f"{size:,.1f}",
        )
    )
    typer.echo(say("The master key is not in it. Keep a copy of {key} in another place.", key=_name_key(settings)))


@command
async def restore(
    session: Session,
    file: Annotated[Path, typer.Argument(help="A file that `tidings backup` has written.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the data that the database holds.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put a backup into the database: all of it, or nothing.

    Stop the service first. The backup may come from SQLite or PostgreSQL, and from an older release. Sites that are
    paused now stay paused.
    """
    settings = session.settings
    with _expect_errors(file, say("nothing was changed")), _open_backup(file) as reader:
        restored, pauses = await _restore(settings, reader, replace=replace, yes=yes)
    problem = await _find_key_problem(settings)
    if as_json:
        print_json({**_describe(file, reader.header, restored.rows), "keyTrouble": problem})
    else:
        _print_restored(reader.header, restored, pauses)
    if problem is not None:
        typer.echo(f"tidings: {problem}", err=True)


async def _restore(
    settings: "Settings", reader: "BackupReader", *, replace: bool, yes: bool
) -> "tuple[Restored, Pauses]":
    from tidings.announce.schedule.pauses import Pauses, keep_pauses, read_pauses
    from tidings.core.backup.backup import check_restorable, count_rows, restore_backup
    from tidings.core.process_lock import ProcessLock
    from tidings.storage import prepare_data_dir

    clock, data_dir = SystemClock(), settings.data_dir
    prepare_data_dir(data_dir)
    process_lock = ProcessLock(data_dir)
    try:
        async with _open_database(settings) as database:
            await check_restorable(database, reader, process_lock=process_lock, data_dir=data_dir, clock=clock)
            held = await count_rows(database)
            _require_consent(held, replace=replace, yes=yes, reader=reader)
            pauses = await read_pauses(database) if "schedules" in held else Pauses()
            with show_bar(say("restoring"), enabled=is_watched()) as on_progress:
                restored = await restore_backup(
                    database,
                    reader,
                    process_lock=process_lock,
                    data_dir=data_dir,
                    clock=clock,
                    protect=() if replace else _PRECIOUS,
                    also=partial(keep_pauses, pauses=pauses, database=database, clock=clock),
                    on_progress=on_progress,
                )
        return restored, pauses
    finally:
        process_lock.close()


def _require_consent(held: Mapping[str, int], *, replace: bool, yes: bool, reader: "BackupReader") -> None:
    """Ask before data is replaced. The whole file is checked before that."""
    precious = {name: held[name] for name in _PRECIOUS if name in held}
    if precious and not replace:
        fail(say("the database already holds {rows}; --replace puts the backup in their place", rows=_count(precious)))
    with show_bar(say("checking"), enabled=is_watched()) as on_progress:
        reader.check(on_progress)
    if precious and not yes:
        made = to_text(reader.header.made_at)
        question = say("{rows} will be replaced by the backup of {time}. Go on?", rows=_count(held), time=made)
        typer.confirm(question, abort=True, err=True)


@asynccontextmanager
async def _open_database(settings: "Settings") -> "AsyncIterator[Database]":
    """The database as it is; its tables are not brought up to date."""
    from tidings.core.db.database import open_database
    from tidings.storage import find_database_url
    from tidings.wiring.opening import load_tables

    load_tables()
    database = open_database(find_database_url(settings))
    try:
        yield database
    finally:
        await database.close()


async def _find_key_problem(settings: "Settings") -> str | None:
    """Why the present master key cannot read the stored keys and cookies; None if it can, or if there are none."""
    from sqlalchemy import select

    from tidings.announce.site.table import SiteRecords, sites
    from tidings.collect.crawl.cookies.table import check_cookie_keys, cookies
    from tidings.core.secrets.master_key import KeyRingError
    from tidings.core.secrets.redaction import Redactor
    from tidings.storage import open_key_ring

    secrets = select(sites.c.id).where(sites.c.indexnow_key.is_not(None)).union_all(select(cookies.c.cookie_name))
    advice = say(
        "put the key of the installation that made the backup into {place} before you start Tidings",
        place=_name_key(settings),
    )
    async with _open_database(settings) as database:
        async with database.read() as connection:
            if (await connection.execute(secrets.limit(1))).first() is None:
                return None
        # Do not create a key, which would prevent the right one from being used.
        if settings.master_key is None and not (settings.data_dir / "master.key").exists():
            return say(
                "the stored secrets cannot be read, because there is no master key here; {advice}", advice=advice
            )
        try:
            keys, _ = open_key_ring(settings, redactor=Redactor())
            await SiteRecords(database, keys=keys, clock=SystemClock()).check_keys()
            await check_cookie_keys(database, keys=keys)
        except KeyRingError as error:
            return say("the stored secrets cannot be read ({reason}); {advice}", reason=error, advice=advice)
    return None


def _name_key(settings: "Settings") -> str:
    return "COOKIE_MASTER_KEY" if settings.master_key is not None else str(settings.data_dir / "master.key")


def _print_restored(header: "Header", restored: "Restored", pauses: "Pauses") -> None:
    typer.echo(say("Restored {rows}, as of {time}.", rows=_count(restored.rows), time=to_text(header.made_at)))
    typer.echo(say("Every row was read back and is as in the backup."))
    if restored.revision != header.revision:
        revisions = {"old": header.revision, "new": restored.revision}
        typer.echo(say("The tables were brought from revision {old} to {new}.", **revisions))
    if restored.interrupted:
        count = f"{restored.interrupted:,}"
        typer.echo(
            say(
                "{count} {count:execution that ran then is|executions that ran then are} marked as interrupted.",
                count=count,
            )
        )
    typer.echo(say("The tokens of the API are those of the backup too."))
    if pauses.everything or pauses.sites:
        paused = say("Everything") if pauses.everything else ", ".join(pauses.sites)
        typer.echo(say("{sites} is still paused; `tidings resume` lets it run again.", sites=paused))


def _count(rows: Mapping[str, int]) -> str:
    """Such as `1,204 rows (2 sites, 1,200 accepted pages, 2 executions)`."""
    total = say("{count} {count:row|rows}", count=f"{sum(rows.values()):,}")
    known = say(", ").join(_count_precious(name, f"{rows[name]:,}") for name in _PRECIOUS if name in rows)
    return say("{total} ({known})", total=total, known=known) if known else total


def _count_precious(table: str, count: str) -> str:
    match table:
        case "sites":
            return say("{count} {count:site|sites}", count=count)
        case "ledger":
            return say("{count} accepted {count:page|pages}", count=count)
        case _:
            return say("{count} {count:execution|executions}", count=count)


def _describe(file: Path, header: "Header", rows: Mapping[str, int]) -> dict[str, Any]:
    return {
        "file": str(file),
        "release": header.release,
        "revision": header.revision,
        "madeAt": to_text(header.made_at),
        "rows": dict(rows),
    }


@contextmanager
def _open_backup(file: Path) -> "Iterator[BackupReader]":
    """The backup to restore. A file that cannot be opened is bad input."""
    from tidings.core.backup.file import open_backup

    with ExitStack() as stack:
        try:
            reader = stack.enter_context(open_backup(file))
        except OSError as error:
            fail(join_clauses(describe_system_error(error), say("nothing was changed")))
        yield reader


@contextmanager
def _expect_errors(file: Path, outcome: str) -> Iterator[None]:
    """End the command with one line for an expected error. `outcome` describes the result of the work."""
    from sqlalchemy.exc import DBAPIError

    from tidings.core.backup.file import BackupError

    try:
        yield
    except BackupError as error:
        fail(translate(str(error)))
    except DBAPIError as error:
        fail(join_clauses(describe_database_error(error), outcome), code=Exit.FAILED)
    except OSError as error:
        if str(error.filename).endswith(".part"):
            # Show the final name instead of the temporary one, which the user does not know.
            error.filename = str(file)
        error.filename = error.filename or say("the disk")
        fail(join_clauses(describe_system_error(error), outcome), code=Exit.FAILED)
