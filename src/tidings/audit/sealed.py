"""The columns whose values are encrypted: can all of them be opened with the keys there are? What is opened here is
what the other checks look for. The rows' places are written down a second time, on purpose: a value that its own code
would no longer bind to its row does not open here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, LargeBinary, Row, Table, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.audit.report import Notes
from tidings.audit.traces import KnownSecret, cut_cookie
from tidings.core.secrets.keyring import KeyRing, UnknownKeyError
from tidings.core.secrets.master_key import KeyRingError

_KEY_ID: Final = "encryption_key_id"


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """An encrypted column: what it is for, and which column names its row."""

    table: str
    column: str
    row: str
    purpose: str
    what: str


SEALED: Final = (
    SealedColumn("tbl_cookie", "cookie_encrypted", "cookie_name", "cookie", "the cookie"),
    SealedColumn("sites", "indexnow_key", "id", "indexnow-key", "the IndexNow key of"),
    SealedColumn("sites", "bing_key", "id", "bing-key", "the Bing key of"),
)


async def open_sealed(
    connection: AsyncConnection, tables: Mapping[str, Table], *, keys: KeyRing | None, notes: Notes
) -> tuple[list[KnownSecret], int]:
    """Every stored secret that can be opened, and how many there are; those that cannot be opened are noted."""
    await _check_key_ids(connection, tables, keys=keys, notes=notes)
    opened, count = [], 0
    for sealed in SEALED:
        if sealed.table not in tables:
            continue
        for row in await _read_rows(connection, tables[sealed.table], sealed):
            count += 1
            opened += [] if keys is None else _open(row, sealed, keys=keys, notes=notes)
    return opened, count


async def _read_rows(connection: AsyncConnection, table: Table, sealed: SealedColumn) -> list[Row[Any]]:
    column: Column[Any] = table.c[sealed.column]
    # As bytes: a Fernet token that another program put there may be text to SQLite.
    blob = cast(column, LargeBinary) if connection.dialect.name == "sqlite" else column
    wanted = select(table.c[sealed.row].label("row"), table.c[_KEY_ID].label("key_id"), blob.label("blob"))
    return list(await connection.execute(wanted.where(column.is_not(None))))


def _open(row: Row[Any], sealed: SealedColumn, *, keys: KeyRing, notes: Notes) -> list[KnownSecret]:
    place = {"purpose": sealed.purpose, "table": sealed.table, "column": sealed.column, "row": row.row}
    where, what = f"{sealed.table}.{sealed.column}, row {row.row}", f"{sealed.what} {row.row}"
    try:
        secret = keys.decrypt(row.blob, key_id=row.key_id or "", **place)
    except UnknownKeyError:
        return []
    except KeyRingError:
        notes.find(where, "it does not open: it is not encrypted, was altered, or was encrypted with another key")
        return []
    if keys.needs_rotation(row.key_id, blob=row.blob):
        notes.warn(where, f"it is encrypted with key {row.key_id} in an older way; run `tidings keys rotate`")
    if sealed.purpose == "cookie":
        return cut_cookie(what, secret)
    return [KnownSecret(what, secret, published=sealed.purpose == "indexnow-key")]


async def _check_key_ids(
    connection: AsyncConnection, tables: Mapping[str, Table], *, keys: KeyRing | None, notes: Notes
) -> None:
    """In every table that has such a column, also in those that are not known here."""
    known = () if keys is None else keys.ids
    for table in tables.values():
        if _KEY_ID not in table.c:
            continue
        column = table.c[_KEY_ID]
        counted = select(column, func.count()).where(column.is_not(None)).group_by(column).order_by(column)
        for key_id, count in await connection.execute(counted):
            if key_id not in known:
                notes.find(table.name, f"{count:,} rows are encrypted with key {key_id}, which is not in the key ring")
