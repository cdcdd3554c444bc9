"""The data directory, the database address and the key files of an installation, by its Settings."""

import os
from pathlib import Path
from urllib.parse import quote

from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import is_trusted_owner, load_or_create_key_file
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.settings.settings import Settings


class DataDirectoryError(Exception):
    """The data directory cannot be used. The message says what to do."""


def prepare_data_dir(data_dir: Path) -> None:
    """Create the data directory with mode 0700. An existing one keeps its mode. Raises DataDirectoryError.

    It must belong to this user or to root: any other owner could read and replace its files. Root must not use the
    directory of another user either, because that user's service could not write root's files afterwards.
    """
    try:
        if not data_dir.is_dir():
            data_dir.parent.mkdir(parents=True, exist_ok=True)
            data_dir.mkdir(mode=0o700, exist_ok=True)
        owner = data_dir.stat().st_uid
    except OSError as error:
        reason = f"cannot be used ({error.strerror})"
        raise DataDirectoryError(f"the data directory {data_dir} {reason}; set TIDINGS_DATA_DIR to another") from None
    if not is_trusted_owner(owner):
        raise DataDirectoryError(
            f"the data directory {data_dir} belongs to another user (uid {owner}); run Tidings as that user, or give "
            f"the directory and its files to this one: chown -R {os.geteuid()} {data_dir}"
        )


def find_database_url(settings: Settings) -> str:
    """The URL of TIDINGS_DATABASE_URL, or of SQLite in the data directory."""
    if settings.database_url is not None:
        return settings.database_url.reveal()
    return f"sqlite:///{quote(str(settings.data_dir.absolute() / 'tidings.db'))}"


def open_key_ring(settings: Settings, *, redactor: Redactor) -> tuple[KeyRing, Path | None]:
    """The master keys: from the settings, or from the data directory, where one is created at first start.

    The second value is the path of a key that was created just now.
    """
    made_key = None
    if settings.master_key is not None:
        text = settings.master_key.reveal()
    else:
        path = settings.data_dir / "master.key"
        text, made = load_or_create_key_file(path)
        made_key = path if made else None
    keys = KeyRing.parse(text, fernet_salt=settings.fernet_salt)
    for secret in keys.secrets:
        redactor.add(secret)
    return keys, made_key


def open_webhook_secret(settings: Settings, *, redactor: Redactor) -> Secret:
    """The secret that signs webhooks: from the settings, or from the data directory, where one is created if needed."""
    if settings.webhook_secret is not None:
        return settings.webhook_secret
    from tidings.core.alerts.webhook import new_webhook_secret

    text, _ = load_or_create_key_file(
        settings.data_dir / "webhook.secret",
        make=lambda: new_webhook_secret().reveal(),
        setting="TIDINGS_WEBHOOK_SECRET",
    )
    secret = Secret(text)
    redactor.add(secret)
    return secret


async def has_tables(settings: Settings) -> bool:
    """Whether the database of these settings has our tables. Creates nothing."""
    if settings.database_url is None and not (settings.data_dir / "tidings.db").exists():
        return False
    from tidings.core.db.database import open_database
    from tidings.core.db.revisions import find_revision

    database = open_database(find_database_url(settings), connections=settings.database_connections)
    try:
        return await find_revision(database) is not None
    finally:
        await database.close()


def store_first_token(settings: Settings, token: Secret) -> Path:
    """Write the first admin token to a file of the data directory that this user alone can read. Raises KeyFileError.

    It is not printed, because a service's output may stay in a journal for ever.
    """
    path = settings.data_dir / "admin.token"
    # A token of an earlier database is invalid.
    path.unlink(missing_ok=True)
    load_or_create_key_file(path, make=token.reveal, setting="TIDINGS_TOKEN")
    return path
