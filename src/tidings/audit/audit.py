"""The audit from its first check to its last. It creates no key, no table and no log line.

It reads the master key and opens the stored secrets first. Then it searches every place for these, for the secrets of
the settings, and for text that looks like a secret.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from tidings.audit.data_files import (
    check_backups,
    check_database_files,
    check_logs,
    expand_folders,
    list_data_files,
)
from tidings.audit.database_text import reflect_tables, scan_tables
from tidings.audit.encrypted_columns import open_encrypted
from tidings.audit.file_modes import check_modes
from tidings.audit.one_writer import check_one_writer
from tidings.audit.report import AuditReport, Check, CheckBuilder, CheckName, count_things
from tidings.audit.repository import check_repository
from tidings.audit.secret_finder import KnownSecret, SecretFinder
from tidings.audit.strength import AuditedMasterKey, check_master_key, check_tokens
from tidings.core.db.database import DatabaseUrlError, open_read_only_database
from tidings.core.secrets.keyring import FernetSalt, KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """The installation to audit."""

    data_dir: Path
    # With its password.
    database_url: Secret
    # The folder of Tidings' own code.
    package: Path
    # The folder that may be published.
    repository: Path
    # The key of the settings. None: the one of the data directory.
    master_key: Secret | None = None
    # How another program derived the key of its Fernet tokens.
    fernet_salt: FernetSalt | None = None
    # The secrets of the settings.
    secrets: Sequence[KnownSecret] = ()
    # The tokens of the settings, each with its variable.
    tokens: Mapping[str, Secret] = field(default_factory=dict)
    # Files and folders outside the data directory.
    backups: Sequence[Path] = ()


async def run_audit(subject: AuditSubject) -> AuditReport:
    """Make every check. A place that cannot be searched fails."""
    redactor = Redactor(secret.value for secret in subject.secrets)
    make_check = partial(CheckBuilder, redactor)
    sqlite = _find_sqlite(subject)
    master_key, key = check_master_key(
        subject.master_key,
        fernet_salt=subject.fernet_salt,
        data_dir=subject.data_dir,
        database=sqlite,
        check=make_check(),
    )
    modes = make_check()
    secrets = [*subject.secrets, *_list_own_keys(subject, key, check=modes)]
    for secret in secrets:
        redactor.add(secret.value)
    stored, database = await _check_database(subject, secrets, keys=key.ring, redactor=redactor)
    secrets += stored
    finder = SecretFinder(secrets)
    files = list_data_files(subject.data_dir, database=sqlite)
    folder, data_dir = subject.repository, subject.data_dir
    checks = [
        *database,
        check_database_files(files, finder, check=make_check()),
        check_logs(files, finder, check=make_check()),
        check_backups(files, subject.backups, finder, check=make_check()),
        check_repository(folder, finder, data_dir=data_dir, secrets=secrets, check=make_check()),
        check_modes(data_dir, files, backups=expand_folders(subject.backups), check=modes),
        master_key,
        check_one_writer(subject.package, check=make_check()),
        check_tokens(subject.tokens, check=make_check()),
    ]
    order = list(CheckName)
    return AuditReport(sorted(checks, key=lambda check: order.index(check.name)))


def _find_sqlite(subject: AuditSubject) -> Path | None:
    """SQLite's file. None for PostgreSQL and for an invalid URL."""
    try:
        url = make_url(subject.database_url.reveal())
    except (SQLAlchemyError, ValueError):
        return None
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _list_own_keys(subject: AuditSubject, key: AuditedMasterKey, *, check: CheckBuilder) -> list[KnownSecret]:
    """Each master key, and the webhook secret of the data directory."""
    found = [KnownSecret("a master key", secret) for secret in key.secrets]
    path = subject.data_dir / "webhook.secret"
    try:
        if path.is_file() and (text := path.read_text("ascii", "replace").strip()):
            found.append(KnownSecret("the webhook secret", Secret(text)))
    except OSError as error:
        check.find(path, f"it cannot be read ({error.strerror}), so nothing was searched for it")
    return found


async def _check_database(
    subject: AuditSubject, secrets: Sequence[KnownSecret], *, keys: KeyRing | None, redactor: Redactor
) -> tuple[list[KnownSecret], list[Check]]:
    """The stored secrets, and the two checks that use SQL."""
    encryption, clear = CheckBuilder(redactor), CheckBuilder(redactor)
    try:
        database = open_read_only_database(subject.database_url.reveal())
    except DatabaseUrlError as error:
        if (sqlite := _find_sqlite(subject)) is None or sqlite.exists():
            clear.find("TIDINGS_DATABASE_URL", str(error))
        return [], [encryption.build(CheckName.ENCRYPTION, "no values"), clear.build(CheckName.DATABASE, "no database")]
    stored: list[KnownSecret] = []
    values, rows = 0, "not all rows"
    try:
        async with database.read() as connection:
            tables = await connection.run_sync(reflect_tables)
            stored, values = await open_encrypted(connection, tables, keys=keys, check=encryption)
            for secret in stored:
                redactor.add(secret.value)
            count = await scan_tables(connection, tables, SecretFinder([*secrets, *stored]), check=clear)
        rows = f"{count_things(len(tables), 'table')}, {count_things(count, 'row')} with text"
    except SQLAlchemyError as error:
        # Only the driver's message, because the values of a statement may be secret.
        reason = " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())
        clear.find(database.dialect, f"it cannot be read ({reason})")
    finally:
        await database.close()
    return stored, [
        encryption.build(CheckName.ENCRYPTION, count_things(values, "encrypted value")),
        clear.build(CheckName.DATABASE, f"{database.dialect}, {rows}"),
    ]
