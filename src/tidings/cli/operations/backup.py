"""`tidings backup` and `tidings restore`: the whole database into a file, and back."""

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings import __version__
from tidings.cli.language import say
from tidings.cli.options import YesOption
from tidings.cli.output import print_json, show, show_bar
from tidings.cli.session import Session, answering, fail
from tidings.core.clock import SystemClock, to_text

if TYPE_CHECKING:
    from tidings.announce.schedule.pauses import Pauses
    from tidings.core.backup.backup import Restored
    from tidings.core.backup.file import BackupReader, Header
    from tidings.settings.settings import Settings

# A database with rows in one of these tables is replaced only after a confirmation.
_PRECIOUS = ("sites", "ledger", "executions")


@answering
async def backup(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The file to write. An older backup of this name is replaced.")],
    without_ledger: Annotated[
        bool, typer.Option("--without-ledger", help="Leave out the accepted pages, by far the largest table.")
    ] = False,
) -> None:
    """Write the whole database to a file, without the master key.

    The service may run meanwhile.
    """
    from tidings.core.backup.backup import write_backup

    settings = session.settings
    if settings.database_url is None and not settings.data_dir.is_dir():
        fail("there is nothing to back up: {path} does not exist (TIDINGS_DATA_DIR)", path=settings.data_dir)
    session.outcome = say("no backup was written")
    database = await session.open_database()
    with show_bar(say("writing"), enabled=session.is_watched) as on_progress:
        try:
            header, totals = await write_backup(
                database,
                file,
                clock=SystemClock(),
                release=__version__,
                without=("ledger",) if without_ledger else (),
                on_progress=on_progress,
            )
        except OSError as error:
            # Show the final name instead of the temporary one, which the user does not know.
            error.filename = str(file)
            raise
    session.outcome = None
    if session.as_json:
        print_json(_describe(file, header, totals.rows))
        return
    show(
        "Wrote {rows} at revision {revision} to {file} ({size} MB).",
        rows=_count(totals.rows),
        revision=header.revision,
        file=file,
        size=f"{file.stat().st_size / 1_000_000:,.1f}",
    )
    show("The master key is not in it. Keep a copy of {key} in another place.", key=_name_key(settings))


@answering
async def restore(
    session: Session,
    file: Annotated[Path, typer.Argument(help="A file that `tidings backup` has written.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the data that the database holds.")] = False,
    yes: YesOption = False,
) -> None:
    """Put a backup into the database: all of it, or nothing.

    Stop the service first. The backup may come from SQLite or PostgreSQL, and from an older release. Sites that are
    paused now stay paused.
    """
    from tidings.cli.failures import describe_system_error, join_clauses
    from tidings.core.backup.file import open_backup

    session.outcome = say("nothing was changed")
    try:
        reader = session.enter_context(open_backup(file))
    except OSError as error:
        fail(join_clauses(describe_system_error(error), session.outcome))
    restored, pauses = await _restore(session, reader, replace=replace, yes=yes)
    session.outcome = None
    problem = await _find_key_problem(session)
    if session.as_json:
        print_json({**_describe(file, reader.header, restored.rows), "keyTrouble": problem})
    else:
        _print_restored(reader.header, restored, pauses)
    if problem is not None:
        typer.echo(f"tidings: {problem}", err=True)


async def _restore(session: Session, reader: "BackupReader", *, replace: bool, yes: bool) -> "tuple[Restored, Pauses]":
    from tidings.announce.schedule.pauses import Pauses, keep_pauses, read_pauses
    from tidings.core.backup.backup import check_restorable, count_rows, restore_backup
    from tidings.core.process_lock import ProcessLock
    from tidings.storage import prepare_data_dir

    clock, data_dir = SystemClock(), session.settings.data_dir
    prepare_data_dir(data_dir)
    database = await session.open_database()
    with contextlib.closing(ProcessLock(data_dir)) as process_lock:
        await check_restorable(database, reader, process_lock=process_lock, data_dir=data_dir, clock=clock)
        held = await count_rows(database)
        _require_consent(session, held, replace=replace, yes=yes, reader=reader)
        pauses = await read_pauses(database) if "schedules" in held else Pauses()
        with show_bar(say("restoring"), enabled=session.is_watched) as on_progress:
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


def _require_consent(
    session: Session, held: Mapping[str, int], *, replace: bool, yes: bool, reader: "BackupReader"
) -> None:
    """Ask before data is replaced. The whole file is checked before that."""
    precious = {name: held[name] for name in _PRECIOUS if name in held}
    if precious and not replace:
        fail("the database already holds {rows}; --replace puts the backup in their place", rows=_count(precious))
    with show_bar(say("checking"), enabled=session.is_watched) as on_progress:
        reader.check(on_progress)
    if precious and not yes:
        made = to_text(reader.header.made_at)
        question = say("{rows} will be replaced by the backup of {time}. Go on?", rows=_count(held), time=made)
        typer.confirm(question, abort=True, err=True)


async def _find_key_problem(session: Session) -> str | None:
    """Why the present master key cannot read the stored keys and cookies; None if it can, or if there are none."""
    from sqlalchemy import select

    from tidings.announce.site.table import SiteRecords, sites
    from tidings.collect.crawl.cookies.table import check_cookie_keys, cookies
    from tidings.core.secrets.master_key import KeyRingError
    from tidings.core.secrets.redaction import Redactor
    from tidings.storage import open_key_ring

    settings, database = session.settings, await session.open_database()
    secrets = select(sites.c.id).where(sites.c.indexnow_key.is_not(None)).union_all(select(cookies.c.cookie_name))
    if not await database.fetch(secrets.limit(1)):
        return None
    place = _name_key(settings)
    advice = say(
        "put the key of the installation that made the backup into {place} before you start Tidings", place=place
    )
    # Do not create a key, which would prevent the right one from being used.
    if settings.master_key is None and not (settings.data_dir / "master.key").exists():
        return say("the stored secrets cannot be read, because there is no master key here; {advice}", advice=advice)
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
    show("Restored {rows}, as of {time}.", rows=_count(restored.rows), time=to_text(header.made_at))
    show("Every row was read back and is as in the backup.")
    if restored.revision != header.revision:
        show("The tables were brought from revision {old} to {new}.", old=header.revision, new=restored.revision)
    if restored.interrupted:
        show(
            "{count} {count:execution that ran then is|executions that ran then are} marked as interrupted.",
            count=restored.interrupted,
        )
    show("The tokens of the API are those of the backup too.")
    if pauses.everything or pauses.sites:
        paused = say("Everything") if pauses.everything else ", ".join(pauses.sites)
        show("{sites} is still paused; `tidings resume` lets it run again.", sites=paused)


def _count(rows: Mapping[str, int]) -> str:
    """Such as `1,204 rows (2 sites, 1,200 accepted pages, 2 executions)`."""
    known = []
    if "sites" in rows:
        known.append(say("{count} {count:site|sites}", count=rows["sites"]))
    if "ledger" in rows:
        known.append(say("{count} accepted {count:page|pages}", count=rows["ledger"]))
    if "executions" in rows:
        known.append(say("{count} {count:execution|executions}", count=rows["executions"]))
    total = say("{count} {count:row|rows}", count=sum(rows.values()))
    return say("{total} ({known})", total=total, known=say(", ").join(known)) if known else total


def _describe(file: Path, header: "Header", rows: Mapping[str, int]) -> dict[str, Any]:
    return {
        "file": str(file),
        "release": header.release,
        "revision": header.revision,
        "madeAt": to_text(header.made_at),
        "rows": dict(rows),
    }
