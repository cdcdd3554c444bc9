"""What waits for the mirror, what stands in Feishu as far as is known, and what became of it: the SQL of the mirror.
Every write happens in a transaction of the one execution that may deliver. What to do about a row is in `delivery`.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Table, and_, delete, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.feishu.answers import FeishuError
from tidings.collect.feishu.fields import SHOWN, Cell, Key, digest_fields
from tidings.collect.feishu.tables import mirror_failures, mirror_intents, mirror_state
from tidings.collect.tables import candidates, mirror_outbox, mirror_records, sources
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.database import Database
from tidings.core.executions import Execution, Executions

MOST_KEYS: Final = 500

# More than keys, since a row may have changed often since it was last delivered.
_MOST_MARKERS: Final = 5_000
_MOST_IN_A_STATEMENT: Final = 1_000
_TABLES: Final[Mapping[str, Table]] = {table.name: table for table in (candidates, sources)}


@dataclass(frozen=True, slots=True)
class Change:
    """A row that is to be delivered: what it says now (None: it is gone), and the markers that this takes care of.

    `record_id` is where it stands in Feishu, as far as is known, and `known` the digest of what stands there.
    """

    key: Key
    markers: tuple[int, ...] = ()
    fields: Mapping[str, Cell] | None = None
    record_id: str | None = None
    known: str = ""

    @property
    def digest(self) -> str:
        return "" if self.fields is None else digest_fields(self.fields)


@dataclass(frozen=True, slots=True)
class Intent:
    """A create that was about to be sent: its client_token, and each row with what was to be written."""

    client_token: str
    rows: Mapping[Key, Mapping[str, Cell]]
    digests: Mapping[Key, str]


class Ledger:
    """The books of one table of ours, kept by one execution. Every write raises ExecutionLostError."""

    def __init__(
        self, database: Database, table_name: str, *, executions: Executions, execution: Execution, clock: Clock
    ) -> None:
        self._database = database
        self._name = table_name
        self._executions = executions
        self._execution = execution
        self._clock = clock

    def guard(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._executions.guard(self._execution)

    async def check(self) -> None:
        """Raise ExecutionLostError where another one delivers by now; else be alive for some time more."""
        await self._executions.heartbeat(self._execution)

    async def find_target(self) -> str | None:
        """The fingerprint of where this table was last mirrored to."""
        statement = select(mirror_state.c.target).where(mirror_state.c.table_name == self._name)
        async with self._database.read() as connection:
            return (await connection.execute(statement)).scalar_one_or_none()

    async def find_newest(self) -> int:
        """The newest marker; 0 where nothing waits."""
        statement = select(func.max(mirror_outbox.c.id)).where(mirror_outbox.c.table_name == self._name)
        async with self._database.read() as connection:
            return (await connection.execute(statement)).scalar_one() or 0

    async def take(self, *, newest: int) -> list[Change]:
        """The rows that have waited longest, each once, with their present state; nothing newer than `newest`."""
        waiting = (
            select(mirror_outbox.c.id, mirror_outbox.c.platform, mirror_outbox.c.note_id)
            .where(mirror_outbox.c.table_name == self._name, mirror_outbox.c.id <= newest)
            .order_by(mirror_outbox.c.id)
            .limit(_MOST_MARKERS)
        )
        async with self._database.read() as connection:
            markers: dict[Key, list[int]] = {}
            for marker in await connection.execute(waiting):
                key = Key(marker.platform, marker.note_id)
                if key in markers or len(markers) < MOST_KEYS:
                    markers.setdefault(key, []).append(marker.id)
            changes = {key: Change(key, tuple(ids)) for key, ids in markers.items()}
            for row in await self._read(connection, _TABLES[self._name], markers):
                key = Key(row.platform, row.note_id)
                changes[key] = replace(changes[key], fields=SHOWN[self._name](row))
            for row in await self._read(connection, mirror_records, markers):
                key = Key(row.platform, row.note_id)
                changes[key] = replace(changes[key], record_id=row.record_id, known=row.digest)
        return list(changes.values())

    async def _read(self, connection: AsyncConnection, table: Table, keys: Iterable[Key]) -> list[Row[Any]]:
        rows: list[Row[Any]] = []
        for platform, note_ids in _group(keys).items():
            found = select(table).where(table.c.platform == platform, table.c.note_id.in_(note_ids))
            if table is mirror_records:
                found = found.where(table.c.table_name == self._name)
            if table is sources:
                # Nothing new, but this is the column that has an index.
                found = found.where(table.c.idempotency_key.in_([f"{note_id}_v1" for note_id in note_ids]))
            rows += await connection.execute(found)
        return rows

    async def settle(self, changes: Sequence[Change]) -> None:
        """These rows stand in Feishu as they say here, or no longer at all; a create that was under way is done."""
        async with self.guard() as connection:
            gone = [change.key for change in changes if change.fields is None]
            await self._forget(connection, gone)
            await self._map(
                connection,
                {
                    change.key: (change.record_id, change.digest)
                    for change in changes
                    if change.record_id and change.fields
                },
            )
            await self._remove(connection, mirror_failures, [change.key for change in changes])
            await self._remove_markers(connection, changes)
            await self._close_intent(connection)
            now = to_milliseconds(self._clock.now())
            await connection.execute(
                update(mirror_state).where(mirror_state.c.table_name == self._name).values(delivered_at=now)
            )

    async def note_found(self, records: Mapping[Key, str]) -> None:
        """These rows stand in Feishu under these ids; what the records say is not known."""
        async with self.guard() as connection:
            await self._map(connection, {key: (record_id, "") for key, record_id in records.items()})

    async def note_missing(self, key: Key) -> None:
        """The record of this row is no longer there."""
        async with self.guard() as connection:
            await self._forget(connection, [key])

    async def give_up(self, change: Change, error: FeishuError) -> None:
        """This row is not taken as it is: it no longer waits, until it changes."""
        values = {
            "table_name": self._name,
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
        intent = Intent(
            client_token,
            {change.key: change.fields for change in changes if change.fields is not None},
            {change.key: change.digest for change in changes},
        )
        rows = [[*key, fields, intent.digests[key]] for key, fields in intent.rows.items()]
        values = {
            "table_name": self._name,
            "client_token": client_token,
            "body": json.dumps(rows),
            "created_at": to_milliseconds(self._clock.now()),
        }
        statement = self._database.insert(mirror_intents).values(values)
        new = {name: statement.excluded[name] for name in ("client_token", "body", "created_at")}
        async with self.guard() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["table_name"], set_=new))
        return intent

    async def find_intent(self) -> Intent | None:
        """A create of which it is not known what came of it."""
        statement = select(mirror_intents).where(mirror_intents.c.table_name == self._name)
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).first()
        if row is None:
            return None
        rows = json.loads(row.body)
        return Intent(
            row.client_token,
            {Key(platform, note_id): fields for platform, note_id, fields, _ in rows},
            {Key(platform, note_id): digest for platform, note_id, _, digest in rows},
        )

    async def close_intent(self, records: Mapping[Key, tuple[str, str]]) -> None:
        """It is known what came of the create: these records, with the digests of what they say."""
        async with self.guard() as connection:
            await self._map(connection, records)
            await self._close_intent(connection)

    async def find_refused(self, connection: AsyncConnection) -> tuple[int, str, str] | None:
        """How many rows were given up, which was the last and why, and what to do. None where there is none."""
        columns = mirror_failures.c
        chosen = columns.table_name == self._name
        last = select(mirror_failures).where(chosen).order_by(columns.failed_at.desc()).limit(1)
        row = (await connection.execute(last)).first()
        if row is None:
            return None
        count = (await connection.execute(select(func.count()).where(chosen))).scalar_one()
        return count, f"{Key(row.platform, row.note_id).text}: {row.reason}", row.action

    async def begin_anew(self, records: Mapping[Key, str], *, target: str) -> None:
        """The table is mirrored to `target`, where these records stand. Every row, and each record, waits again."""
        now = literal(to_milliseconds(self._clock.now()))
        table = _TABLES[self._name]
        everything = select(literal(self._name), table.c.platform, table.c.note_id, now)
        columns = ["table_name", "platform", "note_id", "created_at"]
        async with self.guard() as connection:
            for kept in (mirror_records, mirror_failures, mirror_intents, mirror_state, mirror_outbox):
                await connection.execute(delete(kept).where(kept.c.table_name == self._name))
            await connection.execute(insert(mirror_state).values(table_name=self._name, target=target))
            await self._map(connection, {key: (record_id, "") for key, record_id in records.items()})
            await connection.execute(insert(mirror_outbox).from_select(columns, everything))
            await self._mark(connection, records)

    async def mark_again(self, keys: Iterable[Key]) -> None:
        """Something was sent for these rows by one who had lost the right to: let them be delivered once more.

        The only write without a guard, since it is made by who has lost; a marker too many does no harm.
        """
        listed = list(keys)
        async with self._database.write() as connection:
            for chosen in self._match(mirror_records, listed):
                await connection.execute(update(mirror_records).where(chosen).values(digest=""))
            await self._mark(connection, listed)

    async def _mark(self, connection: AsyncConnection, keys: Iterable[Key]) -> None:
        now = to_milliseconds(self._clock.now())
        rows = [{"table_name": self._name, **key._asdict(), "created_at": now} for key in keys]
        if rows:
            await connection.execute(insert(mirror_outbox), rows)

    async def _map(self, connection: AsyncConnection, records: Mapping[Key, tuple[str | None, str]]) -> None:
        rows = [
            {"table_name": self._name, **key._asdict(), "record_id": record_id, "digest": digest}
            for key, (record_id, digest) in records.items()
        ]
        statement = self._database.insert(mirror_records)
        new = {name: statement.excluded[name] for name in ("record_id", "digest")}
        if rows:
            index = ["table_name", "platform", "note_id"]
            await connection.execute(statement.on_conflict_do_update(index_elements=index, set_=new), rows)

    async def _forget(self, connection: AsyncConnection, keys: Sequence[Key]) -> None:
        await self._remove(connection, mirror_records, keys)

    async def _remove(self, connection: AsyncConnection, table: Table, keys: Sequence[Key]) -> None:
        for chosen in self._match(table, keys):
            await connection.execute(delete(table).where(chosen))

    def _match(self, table: Table, keys: Sequence[Key]) -> list[ColumnElement[bool]]:
        of_table = table.c.table_name == self._name
        return [
            and_(of_table, table.c.platform == platform, table.c.note_id.in_(note_ids))
            for platform, note_ids in _group(keys).items()
        ]

    async def _remove_markers(self, connection: AsyncConnection, changes: Iterable[Change]) -> None:
        """Exactly those that were seen: another one may have come meanwhile, even with a lower number."""
        markers = [marker for change in changes for marker in change.markers]
        for start in range(0, len(markers), _MOST_IN_A_STATEMENT):
            some = markers[start : start + _MOST_IN_A_STATEMENT]
            await connection.execute(delete(mirror_outbox).where(mirror_outbox.c.id.in_(some)))

    async def _close_intent(self, connection: AsyncConnection) -> None:
        await connection.execute(delete(mirror_intents).where(mirror_intents.c.table_name == self._name))


def _group(keys: Iterable[Key]) -> dict[str, list[str]]:
    """The ids of notes by their platforms."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        groups[key.platform].append(key.note_id)
    return groups
