"""The audit from its first check to its last. It is read-only: no key, no table and no log line is made by it.

First the master key is read and the stored secrets are opened with it; then every place is searched for them, for the
secrets of the settings, and for whatever looks like one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from tidings.audit.modes import check_modes
from tidings.audit.places import (
    check_backups,
    check_database_files,
    check_logs,
    check_repository,
    expand_folders,
    list_data_files,
)
from tidings.audit.report import Check, CheckName, Notes, Report
from tidings.audit.sealed import open_sealed
from tidings.audit.separation import check_one_writer
from tidings.audit.strength import MasterKey, check_master_key, check_tokens
from tidings.audit.tables import reflect_tables, scan_tables
from tidings.audit.traces import KnownSecret, TraceFinder
from tidings.core.db.database import DatabaseUrlError, ReadableDatabase, open_read_only_database
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is audited. `secrets` are those of the settings. `tokens` are those of them that open the API, each under
    the name that a finding calls it by, such as `the admin token`. `package` is the folder of Tidings' own code."""

    data_dir: Path
    database_url: Secret
    package: Path
    repository: Path
    master_key: Secret | None = None
    secrets: Sequence[KnownSecret] = ()
    tokens: Mapping[str, Secret] = field(default_factory=dict)
    backups: Sequence[Path] = ()


async def inspect(subject: Subject) -> Report:
    """Make every check. What cannot be looked at does not pass."""
    redactor = Redactor(secret.value for secret in subject.secrets)
    sqlite = _find_sqlite(subject)
    master_key, key = check_master_key(
        subject.master_key, data_dir=subject.data_dir, database=sqlite, notes=Notes(redactor)
    )
    secrets = [*subject.secrets, *_list_own_keys(subject, key)]
    for secret in secrets:
        redactor.add(secret.value)
    stored, database = await _check_database(subject, secrets, keys=key.ring, redactor=redactor)
    secrets += stored
    finder = TraceFinder(secrets)
    files = list_data_files(subject.data_dir, database=sqlite)
    backups = expand_folders(subject.backups)
    checks = [
        *database,
        check_database_files(files, finder, notes=Notes(redactor)),
        check_logs(files, finder, notes=Notes(redactor)),
        check_backups(files, subject.backups, finder, notes=Notes(redactor)),
        check_repository(subject.repository, finder, data_dir=subject.data_dir, secrets=secrets, notes=Notes(redactor)),
        check_modes(subject.data_dir, files, backups=backups, notes=Notes(redactor)),
        master_key,
        check_one_writer(subject.package, notes=Notes(redactor)),
        check_tokens(subject.tokens, notes=Notes(redactor)),
    ]
    order = list(CheckName)
    return Report(sorted(checks, key=lambda check: order.index(check.name)))


def _find_sqlite(subject: Subject) -> Path | None:
    """SQLite's file; None where the data is on PostgreSQL, or the URL is none."""
    try:
        url = make_url(subject.database_url.reveal())
    except (SQLAlchemyError, ValueError):
        return None
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _list_own_keys(subject: Subject, key: MasterKey) -> list[KnownSecret]:
    """The master keys one by one, and what webhooks are signed with where it was made here."""
    found = [KnownSecret("a master key", secret) for secret in key.secrets]
    path = subject.data_dir / "webhook.secret"
    if path.is_file() and (text := path.read_text("ascii", "replace").strip()):
        found.append(KnownSecret("the webhook secret", Secret(text)))
    return found


async def _check_database(
    subject: Subject, secrets: Sequence[KnownSecret], *, keys: KeyRing | None, redactor: Redactor
) -> tuple[list[KnownSecret], list[Check]]:
    """The stored secrets, and the two checks that go through the database."""
    sealing, clear = Notes(redactor), Notes(redactor)
    try:
        database = open_read_only_database(subject.database_url.reveal())
    except DatabaseUrlError as error:
        if (sqlite := _find_sqlite(subject)) is None or sqlite.exists():
            clear.find("TIDINGS_DATABASE_URL", str(error))
        return [], [sealing.close(CheckName.ENCRYPTION, "no values"), clear.close(CheckName.DATABASE, "no database")]
    stored: list[KnownSecret] = []
    values, rows = 0, "not all rows"
    try:
        stored, values = await _open_stored(database, keys=keys, redactor=redactor, notes=sealing)
        rows = await _scan(database, TraceFinder([*secrets, *stored]), notes=clear)
    except SQLAlchemyError as error:
        # The driver's own words only: a statement's values may hold secrets.
        reason = " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())
        clear.find(database.dialect, f"it cannot be looked into ({reason})")
    finally:
        await database.close()
    encryption = sealing.close(CheckName.ENCRYPTION, f"{values:,} encrypted values")
    return stored, [encryption, clear.close(CheckName.DATABASE, f"{database.dialect}, {rows}")]


async def _open_stored(
    database: ReadableDatabase, *, keys: KeyRing | None, redactor: Redactor, notes: Notes
) -> tuple[list[KnownSecret], int]:
    async with database.read() as connection:
        tables = await connection.run_sync(reflect_tables)
        stored, count = await open_sealed(connection, tables, keys=keys, notes=notes)
    for secret in stored:
        redactor.add(secret.value)
    return stored, count


async def _scan(database: ReadableDatabase, finder: TraceFinder, *, notes: Notes) -> str:
    async with database.read() as connection:
        tables = await connection.run_sync(reflect_tables)
        count = await scan_tables(connection, tables, finder, notes=notes)
    return f"{len(tables):,} tables, {count:,} rows with text"
