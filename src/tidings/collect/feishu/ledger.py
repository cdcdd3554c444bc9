"""What waits for the mirror, what stands in Feishu as far as is known, and what became of it: the SQL of the mirror.
Every write but one happens in a transaction of the one execution that may deliver. What to do about a row is in
`delivery`, how rows without a marker are found in `comparison`.
"""

import asyncio
import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Table, and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.feishu.answers import FeishuError
from tidings.collect.feishu.changes import Change, Intent, Page, State, gather_changes
from tidings.collect.feishu.fields import Key, Shown, show_row
from tidings.collect.feishu.tables import mirror_failures, mirror_intents, mirror_state
from tidings.collect.tables import candidates, mirror_outbox, mirror_records, sources
from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution, ExecutionLostError, Executions

# What a page may hold before it is cut short.
MOST_IN_A_PAGE: Final = 1_000_000

# So many rows are read at once, whatever their length; a note may be long.
_STEPS: Final[Mapping[str, int]] = {candidates.name: 500, sources.name: 25}
# A search may be so late in showing what was created.
_LONGEST_LAG: Final = timedelta(minutes=1)
# More than keys, since a row may have changed often since it was last delivered.
_MOST_MARKERS: Final = 5_000
_MOST_IN_A_STATEMENT: Final = 1_000
TABLES: Final[Mapping[str, Table]] = {table.name: table for table in (candidates, sources)}


class Ledger:
    """The books of one table of ours, kept by one execution. Every write raises ExecutionLostError."""

    def __init__(
        self, database: Database, table_name: str, *, executions: Executions, execution: Execution, clock: Clock
    ) -> None:
        self.table_name = table_name
        # What our records carry, and what is known of the fields; read by `load`.
        self.owner = ""
        self.signature = ""
        self._database = database
        self._executions = executions
        self._execution = execution
        self._clock = clock
        # For which rows something may have been sent since the right to do so was last seen to hold.
        self._in_hand: set[Key] = set()

    def guard(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._executions.guard(self._execution)

    async def load(self) -> State:
        """Where this table was last mirrored to, by whom and with which fields."""
        async with self._database.read() as connection:
            states = {row.table_name: row for row in await connection.execute(select(mirror_state))}
        names = [row.owner for row in states.values() if row.owner]
        self.owner = names[0] if names else f"tidings-{uuid.uuid4().hex[:12]}"
        row = states.get(self.table_name)
        if row is None:
            return State()
        self.signature = row.signature
        return State(row.target, None if row.delivered_at is None else from_milliseconds(row.delivered_at))

    async def check(self, keys: Collection[Key] = ()) -> None:
        """Raise ExecutionLostError where another one delivers by now; else be alive for some time more.

        `keys` are the rows for which something is about to be sent: until that is settled, what their records say is
        not known, also to who comes after a kill.
        """
        async with self.guard() as connection:
            await self._executions.count_items(connection, self._execution, processed=0, failed=0)
            for chosen in self._match(mirror_records, keys):
                await connection.execute(update(mirror_records).where(chosen).values(digest=""))
        self._in_hand = set(keys)

    async def release(self) -> None:
        """The end of it. What was sent by one who had lost the right to is put in doubt.

        The only write without a guard; and what the new holder knows by then of these rows cannot undo it.
        """
        if not self._in_hand:
            return
        try:
            await self.check()
        except ExecutionLostError:
            async with self._database.write() as connection:
                await self._mark(connection, self._in_hand, in_doubt=True)
            self._in_hand = set()

    async def has_work(self) -> bool:
        """Whether anything waits, or was left unfinished."""
        async with self._database.read() as connection:
            for table in (mirror_outbox, mirror_intents):
                waits = select(table.c.table_name).where(table.c.table_name == self.table_name).limit(1)
                if (await connection.execute(waits)).first() is not None:
                    return True
        return False

    async def find_newest(self) -> int:
        """The newest marker; 0 where nothing waits."""
        statement = select(func.max(mirror_outbox.c.id)).where(mirror_outbox.c.table_name == self.table_name)
        async with self._database.read() as connection:
            return (await connection.execute(statement)).scalar_one() or 0

    async def take(self, *, after: int, newest: int) -> Page | None:
        """The rows that have waited longest, each once, with their present state; None where there are none.

        Only what was marked later than `after`, and nothing newer than `newest`.
        """
        columns = mirror_outbox.c
        waiting = (
            select(columns.id, columns.platform, columns.note_id, columns.in_doubt, columns.created_at)
            .where(columns.table_name == self.table_name, columns.id > after, columns.id <= newest)
            .order_by(columns.id)
            .limit(_MOST_MARKERS)
        )
        until = to_milliseconds(self._clock.now() - _LONGEST_LAG)
        async with self._database.read() as connection:
            changes, last = gather_changes(await connection.execute(waiting), doubts_until=until)
        if not changes:
            return None
        keys, step = list(changes), _STEPS[self.table_name]
        size = done = 0
        while done < len(keys) and size < MOST_IN_A_PAGE:
            size += await self._fill(changes, keys[done : done + step])
            done += step
        if done < len(keys):
            last = changes[keys[done]].markers[0] - 1
        return Page([changes[key] for key in keys[:done]], last)

    async def _fill(self, changes: dict[Key, Change], keys: Sequence[Key]) -> int:
        """Read what these rows say and what is known of their records; how many characters that is."""
        async with self._database.read() as connection:
            rows = await self.read_rows(connection, TABLES[self.table_name], keys)
            records = await self.read_rows(connection, mirror_records, keys)
        shown = await self.show(rows)
        for key in keys:
            changes[key] = replace(changes[key], shown=shown.get(key))
        for row in records:
            change = changes[Key(row.platform, row.note_id)]
            known = "" if change.in_doubt else row.digest
            changes[change.key] = replace(change, record_id=row.record_id, known=known)
        return sum(row.size for row in shown.values())

    async def show(self, rows: Sequence[Row[Any]]) -> dict[Key, Shown]:
        """Rows as they stand in Feishu. Long texts take their time, which is not the event loop's."""

        def show_all() -> dict[Key, Shown]:
            owner, signature = self.owner, self.signature
            return {
                Key(row.platform, row.note_id): show_row(self.table_name, row, owner=owner, signature=signature)
                for row in rows
            }

        return await asyncio.to_thread(show_all)

    async def read_rows(
        self, connection: AsyncConnection, table: Table, keys: Iterable[Key], *columns: ColumnElement[Any]
    ) -> list[Any]:
        """The rows of a table with these keys, whole or some columns of them."""
        rows: list[Any] = []
        for platform, note_ids in _group(keys).items():
            found = select(*(columns or table.c)).where(table.c.platform == platform, table.c.note_id.in_(note_ids))
            if "table_name" in table.c:
                found = found.where(table.c.table_name == self.table_name)
            if table is sources:
                # Nothing new, but this is the column that has an index.
                found = found.where(table.c.idempotency_key.in_([f"{note_id}_v1" for note_id in note_ids]))
            rows += await connection.execute(found)
        return rows

    async def settle(self, changes: Sequence[Change]) -> None:
        """These rows stand in Feishu as they say here, or no longer at all; a create that was under way is done."""
        async with self.guard() as connection:
            await self._remove(connection, mirror_records, [change.key for change in changes if change.shown is None])
            kept = {change.key: (change.record_id, change.digest) for change in changes if change.shown is not None}
            await self._map(connection, kept)
            await self._remove(connection, mirror_failures, [change.key for change in changes])
            await self._remove_markers(connection, changes)
            await self._close_intent(connection)
            now = to_milliseconds(self._clock.now())
            await connection.execute(
                update(mirror_state).where(mirror_state.c.table_name == self.table_name).values(delivered_at=now)
            )
        self._in_hand = set()

    async def note_found(self, records: Mapping[Key, str]) -> None:
        """These rows stand in Feishu under these ids; what the records say is not known."""
        async with self.guard() as connection:
            await self._map(connection, {key: (record_id, "") for key, record_id in records.items()})

    async def forget(self, keys: Sequence[Key]) -> None:
        """The records of these rows are no longer there."""
        async with self.guard() as connection:
            await self._remove(connection, mirror_records, keys)

    async def list_records(self, keys: Iterable[Key] | None = None) -> dict[str, Key]:
        """The records that are known, of these rows or of all."""
        columns = (mirror_records.c.record_id, mirror_records.c.platform, mirror_records.c.note_id)
        async with self._database.read() as connection:
            if keys is not None:
                rows = await self.read_rows(connection, mirror_records, keys, *columns)
            else:
                every = select(*columns).where(mirror_records.c.table_name == self.table_name)
                rows = list(await connection.execute(every))
        return {row.record_id: Key(row.platform, row.note_id) for row in rows}

    async def has_records(self) -> bool:
        """Whether any record of this table is known, or may have been made."""
        async with self._database.read() as connection:
            for table in (mirror_records, mirror_intents):
                some = select(table.c.table_name).where(table.c.table_name == self.table_name).limit(1)
                if (await connection.execute(some)).first() is not None:
                    return True
        return False

    async def give_up(self, change: Change, error: FeishuError) -> None:
        """This row is not taken as it is: it no longer waits, until it changes or is found to differ."""
        values = {
            "table_name": self.table_name,
            **change.key._asdict(),
            "reason": str(error),
            "action": error.action,
            "failed_at": to_milliseconds(self._clock.now()),
        }
        statement = self._database.insert(mirror_failures).values(values)
        told = {name: statement.excluded[name] for name in ("reason", "action", "failed_at")}
        statement = statement.on_conflict_do_update(index_elements=["table_name", "platform", "note_id"], set_=told)
        async with self.guard() as connection:
            await connection.execute(statement)
            await self._remove_markers(connection, [change])

    async def open_intent(self, changes: Sequence[Change], *, client_token: str) -> Intent:
        """Note what is about to be created, before it is sent."""
        rows = {change.key: change.shown.fields for change in changes if change.shown is not None}
        now = self._clock.now()
        body = await asyncio.to_thread(json.dumps, [[*key, fields] for key, fields in rows.items()])
        new = {"client_token": client_token, "body": body, "created_at": to_milliseconds(now)}
        statement = self._database.insert(mirror_intents).values(table_name=self.table_name, **new)
        async with self.guard() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["table_name"], set_=new))
        return Intent(client_token, rows, now)

    async def find_intent(self) -> Intent | None:
        """A create of which it is not known what came of it."""
        statement = select(mirror_intents).where(mirror_intents.c.table_name == self.table_name)
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).first()
        if row is None:
            return None
        rows = {Key(platform, note_id): fields for platform, note_id, fields in json.loads(row.body)}
        return Intent(row.client_token, rows, from_milliseconds(row.created_at))

    async def close_intent(self, records: Mapping[Key, str], *, in_doubt: Collection[Key] = ()) -> None:
        """It is known what came of the create: these records. What they say by now is not known.

        Of the rows `in_doubt` there may be more.
        """
        async with self.guard() as connection:
            await self._mark(connection, in_doubt, in_doubt=True)
            await self._map(connection, {key: (record_id, "") for key, record_id in records.items()})
            await self._close_intent(connection)

    async def find_refused(self, connection: AsyncConnection) -> tuple[int, str, str] | None:
        """How many rows were given up, which was the last and why, and what to do. None where there is none."""
        columns = mirror_failures.c
        chosen = columns.table_name == self.table_name
        last = select(mirror_failures).where(chosen).order_by(columns.failed_at.desc()).limit(1)
        row = (await connection.execute(last)).first()
        if row is None:
            return None
        count = (await connection.execute(select(func.count()).where(chosen))).scalar_one()
        return count, f"{Key(row.platform, row.note_id).text}: {row.reason}", row.action

    async def sign(self, signature: str) -> bool:
        """The fields are these by now; whether that is news."""
        if signature == self.signature:
            return False
        async with self.guard() as connection:
            chosen = mirror_state.c.table_name == self.table_name
            await connection.execute(update(mirror_state).where(chosen).values(signature=signature))
        self.signature = signature
        return True

    async def begin_anew(self, records: Mapping[Key, str], *, target: str) -> None:
        """The table is mirrored to `target`, where these records stand.

        What waits goes on waiting; what else differs is marked by a comparison.
        """
        now = to_milliseconds(self._clock.now())
        state = {"target": target, "owner": self.owner, "signature": self.signature, "delivered_at": now}
        async with self.guard() as connection:
            for forgotten in (mirror_records, mirror_failures, mirror_intents, mirror_state):
                await connection.execute(delete(forgotten).where(forgotten.c.table_name == self.table_name))
            await connection.execute(insert(mirror_state).values(table_name=self.table_name, **state))
            await self._map(connection, {key: (record_id, "") for key, record_id in records.items()})

    async def mark(self, keys: Collection[Key]) -> None:
        """Let these rows be delivered, those that do not wait already."""
        if not keys:
            return
        columns = (mirror_outbox.c.platform, mirror_outbox.c.note_id)
        async with self.guard() as connection:
            found = await self.read_rows(connection, mirror_outbox, keys, *columns)
            waiting = {Key(row.platform, row.note_id) for row in found}
            await self._mark(connection, [key for key in keys if key not in waiting])

    async def _mark(self, connection: AsyncConnection, keys: Iterable[Key], *, in_doubt: bool | None = None) -> None:
        now = to_milliseconds(self._clock.now())
        common = {"table_name": self.table_name, "created_at": now, "in_doubt": in_doubt}
        rows = [{**common, **key._asdict()} for key in keys]
        if rows:
            await connection.execute(insert(mirror_outbox), rows)

    async def _map(self, connection: AsyncConnection, records: Mapping[Key, tuple[str | None, str]]) -> None:
        rows = [
            {"table_name": self.table_name, **key._asdict(), "record_id": record_id, "digest": digest}
            for key, (record_id, digest) in records.items()
        ]
        statement = self._database.insert(mirror_records)
        new = {name: statement.excluded[name] for name in ("record_id", "digest")}
        if rows:
            index = ["table_name", "platform", "note_id"]
            await connection.execute(statement.on_conflict_do_update(index_elements=index, set_=new), rows)

    async def _remove(self, connection: AsyncConnection, table: Table, keys: Sequence[Key]) -> None:
        for chosen in self._match(table, keys):
            await connection.execute(delete(table).where(chosen))

    def _match(self, table: Table, keys: Iterable[Key]) -> list[ColumnElement[bool]]:
        of_table = table.c.table_name == self.table_name
        return [
            and_(of_table, table.c.platform == platform, table.c.note_id.in_(note_ids))
            for platform, note_ids in _group(keys).items()
        ]

    async def _remove_markers(self, connection: AsyncConnection, changes: Iterable[Change]) -> None:
        """Exactly those that were seen: another one may have come meanwhile, even with a lower number."""
        markers = [marker for change in changes for marker in change.markers if marker not in change.kept]
        for start in range(0, len(markers), _MOST_IN_A_STATEMENT):
            some = markers[start : start + _MOST_IN_A_STATEMENT]
            await connection.execute(delete(mirror_outbox).where(mirror_outbox.c.id.in_(some)))

    async def _close_intent(self, connection: AsyncConnection) -> None:
        await connection.execute(delete(mirror_intents).where(mirror_intents.c.table_name == self.table_name))


def _group(keys: Iterable[Key]) -> dict[str, list[str]]:
    """The ids of notes by their platforms."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        groups[key.platform].append(key.note_id)
    return groups
