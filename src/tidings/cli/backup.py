"""`tidings backup` and `tidings restore`: everything in the database into a file, and back."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from tidings import __version__
from tidings.announce.schedule.pauses import Pauses, keep_pauses, read_pauses
from tidings.announce.site.table import SiteRecords, sites
from tidings.cli.announce.announce import JsonOption
from tidings.cli.session import Exit, fail, is_terminal, load_settings, run
from tidings.core.backup.backup import Restored, check_restorable, count_rows, restore_backup, write_backup
from tidings.core.backup.file import BackupError, BackupReader, Header, Totals, open_backup
from tidings.core.clock import SystemClock, to_text
from tidings.core.db.database import Database, open_database
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.redaction import Redactor
from tidings.settings import Settings
from tidings.storage import find_database_url, open_key_ring, prepare_data_dir
from tidings.wiring import load_tables

# Whoever has one of these has something to lose.
_PRECIOUS = ("sites", "ledger", "executions")


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write it. An older backup of this name is replaced.")],
    as_json: JsonOption = False,
) -> None:
    """Write everything in the database to a file, while the service runs or not. The master key is not in it."""
    settings = load_settings()

    async def work() -> tuple[Header, Totals]:
        if settings.database_url is None and not settings.data_dir.is_dir():
            fail(f"there is nothing to back up: {settings.data_dir} is not there (TIDINGS_DATA_DIR)")
        with _expect_trouble("no backup was written"), _show_progress("writing") as on_progress:
            async with _open_database(settings) as database:
                return await write_backup(
                    database, file, clock=SystemClock(), release=__version__, on_progress=on_progress
                )

    header, totals = run(work)
    if as_json:
        typer.echo(json.dumps(_describe(file, header, totals.rows)))
        return
    size = file.stat().st_size / 1_000_000
    typer.echo(f"Wrote {_count(totals.rows)} at revision {header.revision} to {file} ({size:,.1f} MB).")
    typer.echo(f"The master key is not in it. Keep a copy of {_name_key(settings)} in another place.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `tidings backup` has written.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace what the database holds now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Put a backup into the database: all of it, or nothing. Tidings must not run meanwhile.

    The backup may come from SQLite or PostgreSQL and from an older release. What is paused now stays paused.
    """
    settings = load_settings()

    async def work() -> tuple[Header, Restored, Pauses, str | None]:
        with _expect_trouble("nothing was changed"), open_backup(file) as reader:
            restored, pauses = await _restore(settings, reader, replace=replace, yes=yes)
        return reader.header, restored, pauses, await _find_key_trouble(settings)

    header, restored, pauses, trouble = run(work)
    if as_json:
        typer.echo(json.dumps({**_describe(file, header, restored.rows), "keyTrouble": trouble}))
    else:
        _tell_restored(header, restored, pauses)
    if trouble is not None:
        typer.echo(f"tidings: {trouble}", err=True)


async def _restore(settings: Settings, reader: BackupReader, *, replace: bool, yes: bool) -> tuple[Restored, Pauses]:
    clock, data_dir = SystemClock(), settings.data_dir
    async with _open_store(settings) as (database, process_lock):
        await check_restorable(database, reader, process_lock=process_lock, data_dir=data_dir, clock=clock)
        held = await count_rows(database)
        _require_consent(held, replace=replace, yes=yes, reader=reader)
        pauses = await read_pauses(database) if "schedules" in held else Pauses()
        with _show_progress("restoring") as on_progress:
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


def _require_consent(held: Mapping[str, int], *, replace: bool, yes: bool, reader: BackupReader) -> None:
    """Check the whole file before a person is asked, so that a yes is not for nothing."""
    precious = {name: held[name] for name in _PRECIOUS if name in held}
    if precious and not replace:
        fail(f"the database already holds {_count(precious)}; --replace puts the backup in their place")
    with _show_progress("checking") as on_progress:
        reader.check(on_progress)
    if precious and not yes:
        made = to_text(reader.header.made_at)
        typer.confirm(f"{_count(held)} will be replaced by the backup of {made}. Go on?", abort=True, err=True)


@asynccontextmanager
async def _open_store(settings: Settings) -> AsyncIterator[tuple[Database, ProcessLock]]:
    """The database as it is, without bringing its tables up to date."""
    prepare_data_dir(settings.data_dir)
    process_lock = ProcessLock(settings.data_dir)
    try:
        async with _open_database(settings) as database:
            yield database, process_lock
    finally:
        process_lock.close()


@asynccontextmanager
async def _open_database(settings: Settings) -> AsyncIterator[Database]:
    load_tables()
    database = open_database(find_database_url(settings))
    try:
        yield database
    finally:
        await database.close()


async def _find_key_trouble(settings: Settings) -> str | None:
    """Why the stored keys cannot be read with the present master key; None where they can, or there are none."""
    # One site for each master key that has encrypted any.
    examples = select(func.min(sites.c.id)).where(sites.c.indexnow_key.is_not(None)).group_by(sites.c.encryption_key_id)
    advice = f"put the key of the installation that made the backup into {_name_key(settings)} before you start Tidings"
    async with _open_database(settings) as database:
        async with database.read() as connection:
            names = list((await connection.execute(examples)).scalars())
        if not names:
            return None
        # One that is made now would only stand in the way of the right one.
        if settings.master_key is None and not (settings.data_dir / "master.key").exists():
            return f"the stored API keys cannot be read, because there is no master key here; {advice}"
        try:
            keys, _ = open_key_ring(settings, redactor=Redactor())
            for name in names:
                await SiteRecords(database, keys=keys, clock=SystemClock()).find(name)
        except KeyRingError as error:
            return f"the stored API keys cannot be read ({error}); {advice}"
    return None


def _name_key(settings: Settings) -> str:
    return "COOKIE_MASTER_KEY" if settings.master_key is not None else str(settings.data_dir / "master.key")


def _tell_restored(header: Header, restored: Restored, pauses: Pauses) -> None:
    typer.echo(f"Restored {_count(restored.rows)}, as of {to_text(header.made_at)}.")
    if restored.revision != header.revision:
        typer.echo(f"The tables were brought from revision {header.revision} to {restored.revision}.")
    if restored.interrupted:
        typer.echo(f"{restored.interrupted:,} executions that ran at that moment are marked as interrupted.")
    typer.echo("Tokens of the API are those of the backup, too.")
    if pauses.everything or pauses.sites:
        what = "Everything" if pauses.everything else ", ".join(pauses.sites)
        typer.echo(f"{what} is still paused; `tidings resume` lets it run again.")


def _count(rows: Mapping[str, int]) -> str:
    """Such as `1,204 rows (2 sites, 1,200 ledger, 2 executions)`, with what people know by name."""
    known = ", ".join(f"{rows[name]:,} {name}" for name in _PRECIOUS if name in rows)
    return f"{sum(rows.values()):,} rows" + (f" ({known})" if known else "")


def _describe(file: Path, header: Header, rows: Mapping[str, int]) -> dict[str, Any]:
    return {
        "file": str(file),
        "release": header.release,
        "revision": header.revision,
        "madeAt": to_text(header.made_at),
        "rows": dict(rows),
    }


@contextmanager
def _expect_trouble(outcome: str) -> Iterator[None]:
    """What can be expected to go wrong ends the command with one line that says what came of it."""
    try:
        yield
    except BackupError as error:
        fail(str(error))
    except DBAPIError as error:
        # The statement's values may hold secrets, so only the driver's own words are shown.
        fail(f"the database does not work ({' '.join(str(error.orig).split())}); {outcome}", code=Exit.FAILED)
    except OSError as error:
        fail(f"{error.strerror or error} ({error.filename or 'the disk'}); {outcome}", code=Exit.FAILED)


@contextmanager
def _show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where somebody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_terminal()) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
