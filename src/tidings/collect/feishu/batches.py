"""Sends batches of creates, updates and deletes to one table in Feishu, and records them when they are done.

Feishu takes a whole batch or nothing. A refused batch is halved until the row at fault is alone. A create is stored
with its client_token before it is sent: if its outcome stays unknown, `delivery` looks it up, or sends it again
unchanged.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidings.collect.feishu.client import MOST_RECORDS, BitableClient
from tidings.collect.feishu.errors import FeishuError, FeishuErrorKind
from tidings.collect.feishu.rows import CreateIntent, RowChange, RowKey, drop_empty
from tidings.collect.feishu.store import MirrorStore
from tidings.core.logs.logger import get_logger

# Feishu does not document how large a request may be; encoding one blocks the event loop.
_MOST_CHARACTERS: Final = 250_000
# As many single rows that fail alike show that the table is at fault.
_MOST_SUSPECTS: Final = 10
_ROW_ERRORS: Final = (FeishuErrorKind.REFUSED_ROW, FeishuErrorKind.UNCLEAR, FeishuErrorKind.FULL)

_log = get_logger(__name__)


class WriteKind(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(slots=True)
class RecordCounts:
    """What one execution did to a table, in records."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    # Rows that Feishu did not take.
    refused: int = 0


class BatchSender:
    """The writes of one execution to one table. Every method raises FeishuError and ExecutionLostError."""

    def __init__(
        self,
        client: BitableClient,
        store: MirrorStore,
        *,
        table_id: str,
        check_fields: Callable[[], Awaitable[None]],
    ) -> None:
        """`check_fields` raises FeishuError if a person changed the table's fields."""
        self.counts = RecordCounts()
        self._client = client
        self._store = store
        self._table_id = table_id
        self._check_fields = check_fields
        # Kinds that Feishu took at least once, and kinds that this execution no longer tries.
        self._accepted: set[WriteKind] = set()
        self._closed: dict[WriteKind, FeishuError] = {}
        # Single rows that failed with an unclear error.
        self._suspects: dict[WriteKind, dict[RowKey, tuple[RowChange, FeishuError]]] = {kind: {} for kind in WriteKind}

    def is_open(self, kind: WriteKind) -> bool:
        """Whether this execution still tries this kind of write."""
        return kind not in self._closed

    async def send(self, kind: WriteKind, changes: Sequence[RowChange]) -> list[RowChange]:
        """Send these changes. Returns updates whose record was deleted in Feishu: create them instead."""
        missing: list[RowChange] = []
        for batch in _split_batches(changes):
            missing += await self._send_batch(kind, batch)
        return missing

    async def finish(self) -> None:
        """Give up single rows that failed while others passed. Raises the error that closed a kind of write."""
        has_passed = bool(self.counts.created or self.counts.updated or self.counts.deleted)
        for suspects in self._suspects.values():
            for change, error in suspects.values():
                if not has_passed:
                    raise error.block()
                await self._give_up(change, error)
            suspects.clear()
        for error in self._closed.values():
            raise error

    async def repeat_create(self, intent: CreateIntent) -> dict[RowKey, str]:
        """Send a create of unknown outcome again, unchanged. Returns its records; none if Feishu refuses it now."""
        await self._store.check(list(intent.rows))
        try:
            return dict(zip(intent.rows, await self._create(intent), strict=True))
        except FeishuError as error:
            # The rows are still pending. Sending them as a new batch finds the one at fault.
            if error.kind not in (*_ROW_ERRORS, FeishuErrorKind.SPENT_CLIENT_TOKEN):
                raise
            return {}

    async def _send_batch(
        self, kind: WriteKind, changes: Sequence[RowChange], *, is_repeated: bool = False
    ) -> list[RowChange]:
        """Send a batch; halve it while Feishu refuses some of its rows."""
        if not changes or not self.is_open(kind):
            return []
        await self._store.check([change.key for change in changes])
        try:
            await self._write(kind, changes)
        except FeishuError as error:
            if error.kind is FeishuErrorKind.MISSING_RECORD:
                if kind is WriteKind.CREATE or is_repeated:
                    raise error.unsettle() from None
                return await self._send_existing(kind, changes, error)
            if error.kind not in _ROW_ERRORS:
                raise
            if len(changes) == 1:
                await self._judge_row(kind, changes[0], error)
                return []
            # Every second row, because rows at fault often stand side by side.
            first = await self._send_batch(kind, changes[::2], is_repeated=is_repeated)
            return first + await self._send_batch(kind, changes[1::2], is_repeated=is_repeated)
        self._accepted.add(kind)
        return []

    async def _write(self, kind: WriteKind, changes: Sequence[RowChange]) -> None:
        if kind is WriteKind.CREATE:
            changes = await self._create_records(changes)
            self.counts.created += len(changes)
        elif kind is WriteKind.UPDATE:
            fields = {str(change.record_id): change.content.fields for change in changes if change.content is not None}
            await self._client.update_records(self._table_id, fields)
            self.counts.updated += len(changes)
        else:
            await self._client.delete_records(self._table_id, [str(change.record_id) for change in changes])
            self.counts.deleted += len(changes)
        await self._store.record_delivered(changes)

    async def _send_existing(
        self, kind: WriteKind, changes: Sequence[RowChange], error: FeishuError
    ) -> list[RowChange]:
        """People deleted some of these records: send the others again. Returns what is to be created."""
        absent = await self._client.find_absent(self._table_id, [str(change.record_id) for change in changes])
        if not absent:
            raise error.unsettle()
        gone = [replace(change, record_id=None, known_digest="") for change in changes if change.record_id in absent]
        await self._store.record_absent([change.key for change in gone])
        if kind is WriteKind.DELETE:
            await self._store.record_delivered(gone)
        existing = [change for change in changes if change.record_id not in absent]
        missing = await self._send_batch(kind, existing, is_repeated=True)
        return missing if kind is WriteKind.DELETE else [*gone, *missing]

    async def _judge_row(self, kind: WriteKind, change: RowChange, error: FeishuError) -> None:
        """Decide what the refusal of a single row means."""
        if error.kind is FeishuErrorKind.FULL:
            self._closed[kind] = error
        elif error.kind is FeishuErrorKind.REFUSED_ROW:
            # If a person changed a field's type, the table is at fault and not the row.
            await self._check_fields()
            await self._give_up(change, error)
        else:
            suspects = self._suspects[kind]
            suspects[change.key] = change, error
            if kind not in self._accepted and len(suspects) >= _MOST_SUSPECTS:
                self._closed[kind] = error.block()
                suspects.clear()

    async def _give_up(self, change: RowChange, error: FeishuError) -> None:
        await self._store.record_refused(change, error)
        self.counts.refused += 1
        _log.warning("row.refused", table=self._store.table_name, key=change.key.text, reason=str(error))

    async def _create_records(self, changes: Sequence[RowChange]) -> list[RowChange]:
        intent = await self._store.open_intent(changes, client_token=str(uuid.uuid4()))
        try:
            created = await self._create(intent)
        except FeishuError as error:
            if error.code is not None and error.kind is not FeishuErrorKind.RETRY:
                # A clear refusal: nothing was created.
                await self._store.close_intent({})
            raise
        return [replace(change, record_id=name) for change, name in zip(changes, created, strict=True)]

    async def _create(self, intent: CreateIntent) -> list[str]:
        rows = [drop_empty(fields) for fields in intent.rows.values()]
        return await self._client.create_records(self._table_id, rows, client_token=intent.client_token)


def _split_batches(changes: Sequence[RowChange]) -> Iterator[list[RowChange]]:
    """Batches within the limits of records and characters."""
    batch: list[RowChange] = []
    size = 0
    for change in changes:
        length = 0 if change.content is None else change.content.size
        if batch and (len(batch) == MOST_RECORDS or size + length > _MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += length
    if batch:
        yield batch
