"""Checks that the keys at hand open every encrypted value. The other checks search for the opened secrets. The place of
each row is repeated here on purpose, so that the check finds values that are not bound to their rows.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, LargeBinary, Row, Table, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.audit.report import CheckBuilder
from tidings.audit.secret_finder import KnownSecret, split_cookie
from tidings.core.secrets.keyring import KeyRing, UnknownKeyError
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.secret import Secret

_KEY_ID: Final = "encryption_key_id"


@dataclass(frozen=True, slots=True)
class EncryptedColumn:
    """A column whose values are encrypted."""

    table: str
    column: str
    # The columns that name the row in the associated data, joined by slashes. People know it by the last.
    row: tuple[str, ...]
    # The purpose that its encryption key is derived for.
    purpose: str
    # How a finding calls the secret, before the name of the row.
    what: str


ENCRYPTED_COLUMNS: Final = (
    EncryptedColumn("tbl_cookie", "cookie_encrypted", ("platform", "cookie_name"), "cookie", "the cookie"),
    EncryptedColumn("sites", "indexnow_key", ("id",), "indexnow-key", "the IndexNow key of"),
    EncryptedColumn("sites", "bing_key", ("id",), "bing-key", "the Bing key of"),
    EncryptedColumn("sites", "baidu_token", ("id",), "baidu-token", "the Baidu token of"),
    EncryptedColumn("sites", "google_credentials", ("id",), "google-credentials", "the Google credentials of"),
    EncryptedColumn("sites", "hook_secret", ("id",), "hook-secret", "the hook secret of"),
)


async def open_encrypted(
    connection: AsyncConnection, tables: Mapping[str, Table], *, keys: KeyRing | None, check: CheckBuilder
) -> tuple[list[KnownSecret], int]:
    """The stored secrets that open, and the number of all. Adds those that do not open to the check."""
    await _check_key_ids(connection, tables, keys=keys, check=check)
    opened, count = [], 0
    for encrypted in ENCRYPTED_COLUMNS:
        if encrypted.table not in tables:
            continue
        for row in await _read_rows(connection, tables[encrypted.table], encrypted):
            count += 1
            opened += [] if keys is None else _open(row, encrypted, keys=keys, check=check)
    return opened, count


async def _read_rows(connection: AsyncConnection, table: Table, encrypted: EncryptedColumn) -> list[Row[Any]]:
    column: Column[Any] = table.c[encrypted.column]
    # As bytes: SQLite may hold a Fernet token of another program as text.
    blob = cast(column, LargeBinary) if connection.dialect.name == "sqlite" else column
    row: ColumnElement[str] = functools.reduce(_join_columns, [table.c[name] for name in encrypted.row])
    name = table.c[encrypted.row[-1]].label("name")
    wanted = select(row.label("row"), name, table.c[_KEY_ID].label("key_id"), blob.label("blob"))
    return list(await connection.execute(wanted.where(column.is_not(None))))


def _join_columns(before: ColumnElement[str], column: ColumnElement[str]) -> ColumnElement[str]:
    return before + "/" + column


def _open(row: Row[Any], encrypted: EncryptedColumn, *, keys: KeyRing, check: CheckBuilder) -> list[KnownSecret]:
    where, what = f"{encrypted.table}.{encrypted.column}, row {row.name}", f"{encrypted.what} {row.name}"
    try:
        bound = _decrypt(row, row.row, encrypted, keys=keys)
        # Earlier releases encrypted cookies for their name alone.
        secret = bound or _decrypt(row, row.name, encrypted, keys=keys)
    except UnknownKeyError:
        return []
    if secret is None:
        check.find(where, "it does not open: it is not encrypted, was altered, or was encrypted with another key")
        return []
    if bound is None or keys.needs_rotation(row.key_id, blob=row.blob):
        check.warn(where, f"it is encrypted with key {row.key_id} in an older format; run `tidings keys rotate`")
    if encrypted.purpose == "cookie":
        return split_cookie(what, secret)
    return [KnownSecret(what, secret, published=encrypted.purpose == "indexnow-key")]


def _decrypt(row: Row[Any], place: str, encrypted: EncryptedColumn, *, keys: KeyRing) -> Secret | None:
    """The secret if it was encrypted for this place. Raises UnknownKeyError."""
    try:
        return keys.decrypt(
            row.blob,
            key_id=row.key_id or "",
            purpose=encrypted.purpose,
            table=encrypted.table,
            column=encrypted.column,
            row=place,
        )
    except UnknownKeyError:
        raise
    except KeyRingError:
        return None


async def _check_key_ids(
    connection: AsyncConnection, tables: Mapping[str, Table], *, keys: KeyRing | None, check: CheckBuilder
) -> None:
    """Check all tables with a column of this name, also those that are not listed above."""
    known = () if keys is None else keys.ids
    for table in tables.values():
        if _KEY_ID not in table.c:
            continue
        column = table.c[_KEY_ID]
        counted = select(column, func.count()).where(column.is_not(None)).group_by(column).order_by(column)
        for key_id, count in await connection.execute(counted):
            if key_id not in known:
                check.find(table.name, f"{count:,} rows are encrypted with key {key_id}, which is not in the key ring")
