"""The outbox: batches of pages with a delivery for each engine, instead of a row for each page and engine.

Everything that was open stays open, with its reason, attempts and time. The way back keeps it too.
"""

import zlib
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import ROW_ID, create_undelivered, optional, required

revision = "0010"
down_revision = "0009"

BATCH_SIZES = {1: 10_000, 2: 100}
NO_LASTMOD = -1


def upgrade() -> None:
    batches = create_batches()
    deliveries = create_deliveries()
    undelivered = name_undelivered()
    connection = op.get_bind()
    for site, channel, removed in list_groups(connection, undelivered):
        for pages in list_pages(connection, undelivered, site=site, channel=channel, removed=removed):
            store_batch(connection, batches, deliveries, pages, site=site, channel=channel, removed=removed)
    op.drop_table("undelivered")


def create_batches() -> sa.Table:
    table = op.create_table(
        "batches",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        *required(sa.LargeBinary, "pages", "entered"),
        sa.Column("day", sa.Text, nullable=False),
        *required(sa.LargeBinary, "tried", "taken"),
        *required(sa.BigInteger, "created_at", "created_in"),
        sqlite_autoincrement=True,
    )
    op.create_index("batches_of_site", "batches", ["site", "channel"])
    return table


def create_deliveries() -> sa.Table:
    table = op.create_table(
        "deliveries",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.BigInteger, "batch", "site"),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("pending", sa.LargeBinary, nullable=False),
        *required(sa.Integer, "size", "attempts"),
        sa.Column("reason", sa.Text),
        *optional(sa.BigInteger, "failed_at", "attempted_in"),
        sqlite_autoincrement=True,
    )
    op.create_index("deliveries_next", "deliveries", ["site", "channel", "engine", "failed_at", "id"])
    op.create_index("deliveries_of_batch", "deliveries", ["batch"])
    return table


def name_undelivered() -> sa.TableClause:
    names = ("site", "channel", "engine", "url_hash", "url", "lastmod", "removed", "reason", "attempts", "failed_at")
    return sa.table("undelivered", *map(sa.column, (*names, "created_in", "attempted_in", "delivered_in")))


def list_groups(connection: sa.Connection, undelivered: sa.TableClause) -> Sequence[Any]:
    columns = undelivered.c
    statement = sa.select(columns.site, columns.channel, columns.removed).where(columns.delivered_in.is_(None))
    return connection.execute(statement.distinct().order_by(*statement.selected_columns)).all()


def list_pages(
    connection: sa.Connection, undelivered: sa.TableClause, *, site: int, channel: int, removed: bool
) -> Iterator[list[list[Any]]]:
    """The open rows, those of one page together, as many pages at a time as a batch has."""
    columns, after = undelivered.c, -(1 << 63)
    ours = (
        columns.site == site,
        columns.channel == channel,
        columns.removed == removed,
        columns.delivered_in.is_(None),
    )
    known = sa.table("ledger", sa.column("site"), sa.column("channel"), sa.column("url_hash"))
    is_known = sa.exists().where(
        known.c.site == columns.site, known.c.channel == columns.channel, known.c.url_hash == columns.url_hash
    )
    while True:
        hashes = sa.select(columns.url_hash).where(*ours, columns.url_hash >= after).distinct()
        wanted = connection.execute(hashes.order_by(columns.url_hash).limit(BATCH_SIZES[channel])).scalars().all()
        if not wanted:
            return
        statement = sa.select(undelivered, is_known.label("entered")).where(
            *ours, columns.url_hash >= wanted[0], columns.url_hash <= wanted[-1]
        )
        rows = connection.execute(statement.order_by(columns.url_hash, columns.engine)).all()
        yield [list(group) for _, group in groupby(rows, key=lambda row: row.url_hash)]
        if wanted[-1] == (1 << 63) - 1:
            return
        after = wanted[-1] + 1


def store_batch(
    connection: sa.Connection,
    batches: sa.Table,
    deliveries: sa.Table,
    pages: list[list[Any]],
    *,
    site: int,
    channel: int,
    removed: bool,
) -> None:
    heads, now = [rows[0] for rows in pages], datetime.now(UTC)
    numbers = array("q", [head.url_hash for head in heads])
    lastmods = array("q", [NO_LASTMOD if head.lastmod is None else head.lastmod for head in heads])
    urls = b"\n".join(head.url.encode() for head in heads)
    batch = connection.execute(
        sa.insert(batches)
        .values(
            site=site,
            channel=channel,
            removed=removed,
            size=len(heads),
            pages=numbers.tobytes() + lastmods.tobytes() + zlib.compress(urls, 1),
            entered=write_bits([at for at, head in enumerate(heads) if head.entered]),
            day=f"{now:%Y-%m-%d}",
            tried=b"",
            taken=b"",
            created_at=int(now.timestamp() * 1000),
            created_in=min(row.created_in for rows in pages for row in rows),
        )
        .returning(batches.c.id)
    ).scalar_one()
    pending: dict[tuple[Any, ...], list[int]] = {}
    for at, rows in enumerate(pages):
        for row in rows:
            key = (row.engine, row.attempts, row.reason, row.failed_at, row.attempted_in)
            pending.setdefault(key, []).append(at)
    for (engine, attempts, reason, failed_at, attempted_in), positions in pending.items():
        connection.execute(
            sa.insert(deliveries).values(
                batch=batch,
                site=site,
                channel=channel,
                engine=engine,
                pending=write_bits(positions),
                size=len(positions),
                attempts=attempts,
                reason=reason,
                failed_at=failed_at,
                attempted_in=attempted_in,
            )
        )


def write_bits(positions: Sequence[int]) -> bytes:
    bits = sum(1 << at for at in positions)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def downgrade() -> None:
    undelivered = create_undelivered()
    connection = op.get_bind()
    restore_rows(connection, undelivered)
    # Files whose pages only wait must be read in full again: the older release knows an open page by its row alone.
    op.execute("DELETE FROM sitemap_validators")
    op.drop_table("deliveries")
    op.drop_table("batches")


def restore_rows(connection: sa.Connection, undelivered: sa.Table) -> None:
    """A row for each open page and engine. Of a page that is open twice, the later batch counts."""
    batch_columns = ("id", "size", "pages", "removed", "created_in")
    batches = sa.table("batches", *map(sa.column, batch_columns))
    names = ("id", "batch", "site", "channel", "engine", "pending", "attempts", "reason", "failed_at", "attempted_in")
    deliveries = sa.table("deliveries", *map(sa.column, names))
    statement = (
        sa.select(deliveries, batches.c.size, batches.c.pages, batches.c.removed, batches.c.created_in)
        .join(batches, batches.c.id == deliveries.c.batch)
        .order_by(deliveries.c.id)
    )
    for row in connection.execute(statement).all():
        hashes, lastmods, urls = read_pages(row.pages, row.size)
        bits = int.from_bytes(row.pending, "little")
        positions = [at for at in range(row.size) if bits >> at & 1]
        same = {name: getattr(row, name) for name in names if name not in ("id", "batch", "pending")}
        rows = [
            {
                **same,
                "removed": row.removed,
                "created_in": row.created_in,
                "url_hash": hashes[at],
                "url": urls[at].decode(),
                "lastmod": None if lastmods[at] == NO_LASTMOD else lastmods[at],
            }
            for at in positions
        ]
        connection.execute(
            sa.delete(undelivered).where(
                undelivered.c.site == sa.bindparam("p_site"),
                undelivered.c.channel == sa.bindparam("p_channel"),
                undelivered.c.engine == sa.bindparam("p_engine"),
                undelivered.c.url_hash == sa.bindparam("p_url_hash"),
            ),
            [{f"p_{key}": each[key] for key in ("site", "channel", "engine", "url_hash")} for each in rows],
        )
        connection.execute(sa.insert(undelivered), rows)


def read_pages(value: bytes, size: int) -> tuple["array[int]", "array[int]", list[bytes]]:
    urls = zlib.decompress(value[16 * size :]).split(b"\n")
    return array("q", value[: 8 * size]), array("q", value[8 * size : 16 * size]), urls
