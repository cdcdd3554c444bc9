"""The mirror's SQL: pending changes (outbox), known records, the create in progress, refused rows, and the state of
each table. The tables are defined in `collect.mirror_tables`.

Every write but one happens in a transaction that checks that the execution still runs.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Row, Select, Table, and_, delete, func, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.feishu.errors import FeishuError
from tidings.collect.feishu.rows import (
    CreateIntent,
    MirroredTable,
    RenderedRow,
    RowChange,
    RowKey,
    group_entries,
    group_ids,
    read_key,
)
from tidings.collect.mirror_tables import mirror_failures, mirror_intents, mirror_outbox, mirror_records, mirror_state
from tidings.core.clock import Clock, read_timestamp, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution, ExecutionLostError, Executions

# A page of changes ends with the block that exceeds this many characters.
_MOST_CHARACTERS: Final = 1_000_000
# More than keys, because a row may have changed often.
_MOST_ENTRIES: Final = 5_000
_MOST_IN_STATEMENT: Final = 1_000
# A search may show a new record this much later.
_LONGEST_LAG: Final = timedelta(minutes=1)
_RECORD_BLOCK: Final = 1_000
_ROW: Final = ["table_name", "platform", "note_id"]


class MirrorStore:
    """The mirror's data about one table, for one execution. Every write raises ExecutionLostError."""

    def __init__(
        self, database: Database, table: MirroredTable, *, executions: Executions, execution: Execution, clock: Clock
    ) -> None:
        self.table = table
        # `load` reads these: the `managed_by` of our records, the signature of the fields in Feishu, the fingerprint of
        # the target (empty before the first delivery), and the last delivery.
        self.owner = self.signature = self.target = ""
        self.delivered_at: datetime | None = None
        self._database = database
        self._executions = executions
        self._execution = execution
        self._clock = clock
        self._delete_intent = delete(mirror_intents).where(mirror_intents.c.table_name == table.name)
        # Rows of requests that may have been sent since `check` last succeeded.
        self._in_flight: set[RowKey] = set()

    @property
    def table_name(self) -> str:
        return self.table.name

    def guard(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._executions.guard(self._execution)

    async def load(self) -> None:
        """Read the table's state, and choose an owner's name for a database that has none."""
        states = {row.table_name: row for row in await self._database.fetch(select(mirror_state))}
        owners = [row.owner for row in states.values() if row.owner]
        self.owner = owners[0] if owners else f"tidings-{uuid.uuid4().hex[:12]}"
        if row := states.get(self.table_name):
            self.signature, self.target = row.signature, row.target
            self.delivered_at = read_timestamp(row.delivered_at)

    async def check(self, keys: Collection[RowKey] = ()) -> None:
        """Send a heartbeat, or raise ExecutionLostError. Call it before each request.

        `keys` are the rows that the request writes. Their records count as unknown until `record_delivered`, also for
        the next process if this one is killed.
        """
        async with self.guard() as connection:
            await self._executions.count_items(connection, self._execution, processed=0, failed=0)
            for chosen in self._match(mirror_records, keys):
                await connection.execute(update(mirror_records).where(chosen).values(digest=""))
        self._in_flight = set(keys)

    async def release(self) -> None:
        """End the work. If this process lost the lock with a request in flight, mark its rows in doubt, so that the
        next holder looks them up first. This is the only write without a guard.
        """
        if not self._in_flight:
            return
        try:
            await self.check()
        except ExecutionLostError:
            async with self._database.write() as connection:
                await self._add_entries(connection, self._in_flight, in_doubt=True)
            self._in_flight = set()

    async def has_records(self) -> bool:
        """Whether a record exists in Feishu, or may exist."""
        for table in (mirror_records, mirror_intents):
            some = select(table.c.table_name).where(table.c.table_name == self.table_name).limit(1)
            if await self._database.fetch(some):
                return True
        return False

    async def find_newest_entry(self) -> int:
        """The highest id in the outbox; 0 if nothing is pending."""
        statement = select(func.max(mirror_outbox.c.id)).where(mirror_outbox.c.table_name == self.table_name)
        return await self._database.fetch_value(statement) or 0

    async def take_page(self, *, after: int, newest: int) -> tuple[list[RowChange], int]:
        """Some of the oldest pending changes, each row once with its present content, and the last entry they cover.

        Takes outbox entries with ids above `after`, up to `newest`.
        """
        columns = mirror_outbox.c
        pending = (
            select(columns.id, columns.platform, columns.note_id, columns.in_doubt, columns.created_at)
            .where(columns.table_name == self.table_name, columns.id > after, columns.id <= newest)
            .order_by(columns.id)
            .limit(_MOST_ENTRIES)
        )
        settled_before = to_milliseconds(self._clock.now() - _LONGEST_LAG)
        changes, last = group_entries(await self._database.fetch(pending), settled_before=settled_before)
        keys, block = list(changes), self.table.block
        size = done = 0
        while done < len(keys) and size < _MOST_CHARACTERS:
            size += await self._fill(changes, keys[done : done + block])
            done += block
        if done < len(keys):
            last = changes[keys[done]].entries[0] - 1
        return [changes[key] for key in keys[:done]], last

    async def _fill(self, changes: dict[RowKey, RowChange], keys: Sequence[RowKey]) -> int:
        """Read the content and the known record of these rows; returns the characters read."""
        async with self._database.read() as connection:
            rows = await self._read_rows(connection, keys)
            records = await self._look_up(connection, mirror_records, keys)
        contents = await self.render(list(rows.values()))
        for key in keys:
            change = replace(changes[key], content=contents.get(key))
            if (record := records.get(key)) is not None:
                known = "" if change.in_doubt else record.digest
                change = replace(change, record_id=record.record_id, known_digest=known)
            changes[key] = change
        return sum(content.size for content in contents.values())

    async def render(self, rows: Sequence[Row[Any]]) -> dict[RowKey, RenderedRow]:
        """Rows as Feishu is to show them. In a thread, because long texts would block the event loop."""

        def render_all() -> dict[RowKey, RenderedRow]:
            return {read_key(row): self.table.render(row, owner=self.owner, signature=self.signature) for row in rows}

        return await asyncio.to_thread(render_all)

    async def look_up(self, table: Table, keys: Iterable[RowKey], *columns: ColumnElement[Any]) -> dict[RowKey, Any]:
        """The rows of one of the mirror's own tables with these keys: all columns, or these."""
        async with self._database.read() as connection:
            return await self._look_up(connection, table, keys, *columns)

    async def _look_up(
        self, connection: AsyncConnection, table: Table, keys: Iterable[RowKey], *columns: ColumnElement[Any]
    ) -> dict[RowKey, Any]:
        rows: dict[RowKey, Any] = {}
        for chosen in self._match(table, keys):
            found = await connection.execute(select(*(columns or table.c)).where(chosen))
            rows |= {RowKey(row.platform, row.note_id): row for row in found}
        return rows

    async def find_existing(self, keys: Iterable[RowKey]) -> set[RowKey]:
        """Those of these rows that are mirrored now."""
        async with self._database.read() as connection:
            return set(await self._read_rows(connection, keys))

    async def _read_rows(self, connection: AsyncConnection, keys: Iterable[RowKey]) -> dict[RowKey, Row[Any]]:
        rows: dict[RowKey, Row[Any]] = {}
        for platform, ids in group_ids(keys).items():
            statement = self.table.select(self._clock.now()).where(self.table.match(platform, ids))
            rows |= {read_key(row): row for row in await connection.execute(statement)}
        return rows

    async def read_changes(self, keys: Iterable[RowKey]) -> dict[RowKey, RowChange]:
        """These rows as they are to be delivered, whether or not a change is pending."""
        changes = {key: RowChange(key) for key in keys}
        for start in range(0, len(changes), self.table.block):
            await self._fill(changes, list(changes)[start : start + self.table.block])
        return changes

    def read_blocks(self, *, since: datetime | None = None) -> AsyncIterator[Sequence[Row[Any]]]:
        """Our rows in the order of their keys; with `since`, only those that may have changed since then."""
        statement = self.table.select(self._clock.now())
        if since is not None and self.table.choose_changed is not None:
            statement = statement.where(self.table.choose_changed(since))
        return self._read_blocks(statement, self.table.key, read_key, block=self.table.block)

    def read_record_blocks(self) -> AsyncIterator[Sequence[Row[Any]]]:
        """The known records in the order of their keys."""
        columns = mirror_records.c
        statement = select(mirror_records).where(columns.table_name == self.table_name)
        key = (columns.platform, columns.note_id)
        return self._read_blocks(statement, key, lambda row: RowKey(row.platform, row.note_id), block=_RECORD_BLOCK)

    async def _read_blocks(
        self, statement: Select[Any], key: Sequence[Column[Any]], read: Callable[[Row[Any]], RowKey], *, block: int
    ) -> AsyncIterator[Sequence[Row[Any]]]:
        """Block by block; no transaction is open in between."""
        statement = statement.order_by(*key).limit(block)
        chosen = statement
        while True:
            rows = await self._database.fetch(chosen)
            if not rows:
                return
            yield rows
            chosen = statement.where(tuple_(*key) > tuple_(*read(rows[-1])))

    async def record_delivered(self, changes: Sequence[RowChange]) -> None:
        """Feishu shows these changes. A create in progress is done with them."""
        async with self.guard() as connection:
            deleted = [change.key for change in changes if change.content is None]
            await self._remove(connection, mirror_records, deleted)
            written = {
                change.key: (change.record_id, change.content.digest)
                for change in changes
                if change.content is not None
            }
            await self._store_records(connection, written)
            await self._remove(connection, mirror_failures, [change.key for change in changes])
            await self._remove_entries(connection, changes)
            await connection.execute(self._delete_intent)
            await connection.execute(
                update(mirror_state)
                .where(mirror_state.c.table_name == self.table_name)
                .values(delivered_at=to_milliseconds(self._clock.now()))
            )
        self._in_flight = set()

    async def record_found(self, records: Mapping[RowKey, str]) -> None:
        """These rows have these records; the records' content is unknown."""
        async with self.guard() as connection:
            await self._store_found(connection, records)

    async def record_absent(self, keys: Sequence[RowKey]) -> None:
        """The records of these rows were deleted in Feishu."""
        async with self.guard() as connection:
            await self._remove(connection, mirror_records, keys)

    async def list_records(self, keys: Iterable[RowKey] | None = None) -> dict[str, RowKey]:
        """The known records, of these rows or of all, with their rows."""
        columns = mirror_records.c
        if keys is not None:
            return {row.record_id: key for key, row in (await self.look_up(mirror_records, keys)).items()}
        every = select(columns.record_id, columns.platform, columns.note_id)
        rows = await self._database.fetch(every.where(columns.table_name == self.table_name))
        return {row.record_id: RowKey(row.platform, row.note_id) for row in rows}

    async def record_refused(self, change: RowChange, error: FeishuError) -> None:
        """Feishu refused this row. It is no longer pending until it changes, or a comparison finds it again."""
        reason = {"reason": str(error), "action": error.action, "failed_at": to_milliseconds(self._clock.now())}
        row = {"table_name": self.table_name, **change.key._asdict()}
        async with self.guard() as connection:
            await self._database.store(connection, mirror_failures, key=row, values=reason)
            await self._remove_entries(connection, [change])

    async def open_intent(self, changes: Sequence[RowChange], *, client_token: str) -> CreateIntent:
        """Store a create before it is sent, so that a lost answer or a crash can be resolved."""
        rows = {change.key: change.content.fields for change in changes if change.content is not None}
        body = await asyncio.to_thread(json.dumps, [[*key, fields] for key, fields in rows.items()])
        new = {"client_token": client_token, "body": body, "created_at": to_milliseconds(self._clock.now())}
        async with self.guard() as connection:
            await self._database.store(connection, mirror_intents, key={"table_name": self.table_name}, values=new)
        return CreateIntent(client_token, rows)

    async def find_intent(self) -> CreateIntent | None:
        """The create whose outcome is unknown."""
        statement = select(mirror_intents).where(mirror_intents.c.table_name == self.table_name)
        row = await self._database.fetch_row(statement)
        if row is None:
            return None
        rows = {RowKey(platform, note_id): fields for platform, note_id, fields in json.loads(row.body)}
        return CreateIntent(row.client_token, rows)

    async def close_intent(self, records: Mapping[RowKey, str], *, in_doubt: Collection[RowKey] = ()) -> None:
        """The create made these records. Their present content is unknown; rows `in_doubt` may have further ones."""
        async with self.guard() as connection:
            await self._add_entries(connection, in_doubt, in_doubt=True)
            await self._store_found(connection, records)
            await connection.execute(self._delete_intent)

    async def record_signature(self, signature: str) -> bool:
        """Store the signature of the fields in Feishu. Returns whether it changed."""
        if signature == self.signature:
            return False
        async with self.guard() as connection:
            chosen = mirror_state.c.table_name == self.table_name
            await connection.execute(update(mirror_state).where(chosen).values(signature=signature))
        self.signature = signature
        return True

    async def start_over(self, records: Mapping[RowKey, str], *, target: str) -> None:
        """Mirror the table to `target`, which holds these records. Pending changes stay pending."""
        now = to_milliseconds(self._clock.now())
        state = {"target": target, "owner": self.owner, "signature": self.signature, "delivered_at": now}
        async with self.guard() as connection:
            for table in (mirror_records, mirror_failures, mirror_intents, mirror_state):
                await connection.execute(delete(table).where(table.c.table_name == self.table_name))
            await connection.execute(insert(mirror_state).values(table_name=self.table_name, **state))
            await self._store_found(connection, records)

    async def mark_changed(self, keys: Collection[RowKey], *, forget: bool = False) -> None:
        """Add these rows to the outbox, except those that are pending already.

        `forget`: their records show something else than we delivered, so they are written again.
        """
        if not keys:
            return
        columns = (mirror_outbox.c.platform, mirror_outbox.c.note_id)
        async with self.guard() as connection:
            pending = await self._look_up(connection, mirror_outbox, keys, *columns)
            for chosen in self._match(mirror_records, keys if forget else ()):
                await connection.execute(update(mirror_records).where(chosen).values(digest=""))
            await self._add_entries(connection, [key for key in keys if key not in pending])

    async def _add_entries(
        self, connection: AsyncConnection, keys: Iterable[RowKey], *, in_doubt: bool | None = None
    ) -> None:
        now = to_milliseconds(self._clock.now())
        common = {"table_name": self.table_name, "created_at": now, "in_doubt": in_doubt}
        if rows := [{**common, **key._asdict()} for key in keys]:
            await connection.execute(insert(mirror_outbox), rows)

    async def _store_found(self, connection: AsyncConnection, records: Mapping[RowKey, str]) -> None:
        await self._store_records(connection, {key: (record_id, "") for key, record_id in records.items()})

    async def _store_records(
        self, connection: AsyncConnection, records: Mapping[RowKey, tuple[str | None, str]]
    ) -> None:
        rows = [
            {"table_name": self.table_name, **key._asdict(), "record_id": record_id, "digest": digest}
            for key, (record_id, digest) in records.items()
        ]
        statement = self._database.insert(mirror_records)
        new = {name: statement.excluded[name] for name in ("record_id", "digest")}
        if rows:
            await connection.execute(statement.on_conflict_do_update(index_elements=_ROW, set_=new), rows)

    async def _remove(self, connection: AsyncConnection, table: Table, keys: Sequence[RowKey]) -> None:
        for chosen in self._match(table, keys):
            await connection.execute(delete(table).where(chosen))

    async def _remove_entries(self, connection: AsyncConnection, changes: Iterable[RowChange]) -> None:
        """Remove the entries that were read, and no other: a later transaction may commit a lower id."""
        ids = [entry for change in changes for entry in change.entries if entry not in change.kept_entries]
        for start in range(0, len(ids), _MOST_IN_STATEMENT):
            some = ids[start : start + _MOST_IN_STATEMENT]
            await connection.execute(delete(mirror_outbox).where(mirror_outbox.c.id.in_(some)))

    def _match(self, table: Table, keys: Iterable[RowKey]) -> list[ColumnElement[bool]]:
        """Conditions that select these keys in one of the mirror's own tables, one for each platform."""
        return [
            and_(table.c.table_name == self.table_name, table.c.platform == platform, table.c.note_id.in_(ids))
            for platform, ids in group_ids(keys).items()
        ]
