"""Delivers one table to Feishu in one execution. `TableDelivery` checks the fields, reads pending changes page by page
and finds the records of rows. `BatchSender` sends creates, updates and deletes, and records them when they are done.

Feishu has no unique fields. A row without a known record, or with a request of unknown outcome, is therefore searched
for before anything is sent. Feishu takes a whole batch or nothing: a refused batch is halved until the row at fault is
alone. A create is stored with its client_token before it is sent. If its outcome stays unknown, the next execution
looks it up, or sends it again unchanged.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import Final

from tidings.collect.feishu.client import MOST_RECORDS, BitableClient, FoundRecord
from tidings.collect.feishu.errors import FeishuError, FeishuErrorKind, next_delay
from tidings.collect.feishu.rows import CreateIntent, RowChange, RowKey, drop_empty, parse_key
from tidings.collect.feishu.setup import prepare_fields
from tidings.collect.feishu.store import MirrorStore
from tidings.collect.mirror_tables import mirror_records
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger

# Feishu documents no maximum size of a request; encoding a large one would block the event loop.
_MOST_CHARACTERS: Final = 250_000
# If this many single rows fail alike, the table is at fault.
_MOST_SUSPECTS: Final = 10
_ROW_ERRORS: Final = (FeishuErrorKind.REFUSED_ROW, FeishuErrorKind.UNCLEAR, FeishuErrorKind.FULL)

# Errors that reading Feishu again solves.
_REPEATED: Final = (FeishuErrorKind.SPENT_CLIENT_TOKEN, FeishuErrorKind.MISSING_FIELD, FeishuErrorKind.UNSETTLED)

_log = get_logger(__name__)


class WriteKind(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(slots=True)
class RecordCounts:
    """What one execution did in Feishu, in records."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    # Rows that Feishu did not take.
    refused: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class BatchSender:
    """The writes of one execution to one table. Every method raises FeishuError and ExecutionLostError."""

    client: BitableClient
    store: MirrorStore
    table_id: str
    counts: RecordCounts
    # Raises FeishuError if a person changed the table's fields.
    check_fields: Callable[[], Awaitable[None]]
    # Kinds that Feishu took at least once, and kinds that this execution no longer tries.
    _accepted: set[WriteKind] = field(default_factory=set, init=False)
    _closed: dict[WriteKind, FeishuError] = field(default_factory=dict, init=False)
    # Single rows that failed with an unclear error.
    _suspects: dict[WriteKind, dict[RowKey, tuple[RowChange, FeishuError]]] = field(
        default_factory=lambda: {kind: {} for kind in WriteKind}, init=False
    )

    def is_open(self, kind: WriteKind) -> bool:
        """Whether this execution still tries this kind of write."""
        return kind not in self._closed

    async def send(self, kind: WriteKind, changes: Sequence[RowChange]) -> list[RowChange]:
        """Send these changes. Returns the updates whose record was deleted in Feishu; the caller creates them
        instead."""
        missing: list[RowChange] = []
        for batch in _split_batches(changes):
            missing += await self._send_batch(kind, batch)
        return missing

    async def finish(self) -> None:
        """Give up single rows that failed while others passed. Raises the error that closed a kind of write."""
        for suspects in self._suspects.values():
            for change, error in suspects.values():
                if not self._accepted:
                    raise error.block()
                await self._give_up(change, error)
            suspects.clear()
        for error in self._closed.values():
            raise error

    async def repeat_create(self, intent: CreateIntent) -> dict[RowKey, str]:
        """Send a create of unknown outcome again, unchanged. Returns its records; none if Feishu refuses it now."""
        await self.store.check(list(intent.rows))
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
        await self.store.check([change.key for change in changes])
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
            await self.client.update_records(self.table_id, fields)
            self.counts.updated += len(changes)
        else:
            await self.client.delete_records(self.table_id, [str(change.record_id) for change in changes])
            self.counts.deleted += len(changes)
        await self.store.record_delivered(changes)

    async def _send_existing(
        self, kind: WriteKind, changes: Sequence[RowChange], error: FeishuError
    ) -> list[RowChange]:
        """People deleted some of these records: send the others again. Returns the changes to create instead."""
        absent = await self.client.find_absent(self.table_id, [str(change.record_id) for change in changes])
        if not absent:
            raise error.unsettle()
        gone = [replace(change, record_id=None, known_digest="") for change in changes if change.record_id in absent]
        await self.store.record_absent([change.key for change in gone])
        if kind is WriteKind.DELETE:
            await self.store.record_delivered(gone)
        existing = [change for change in changes if change.record_id not in absent]
        missing = await self._send_batch(kind, existing, is_repeated=True)
        return missing if kind is WriteKind.DELETE else [*gone, *missing]

    async def _judge_row(self, kind: WriteKind, change: RowChange, error: FeishuError) -> None:
        """Handle the refusal of a single row."""
        if error.kind is FeishuErrorKind.FULL:
            self._closed[kind] = error
        elif error.kind is FeishuErrorKind.REFUSED_ROW:
            # If a person changed a field's type, the table is at fault and not the row.
            await self.check_fields()
            await self._give_up(change, error)
        else:
            suspects = self._suspects[kind]
            suspects[change.key] = change, error
            if kind not in self._accepted and len(suspects) >= _MOST_SUSPECTS:
                self._closed[kind] = error.block()
                suspects.clear()

    async def _give_up(self, change: RowChange, error: FeishuError) -> None:
        await self.store.record_refused(change, error)
        self.counts.refused += 1
        _log.warning("row.refused", table=self.store.table_name, key=change.key.text, reason=str(error))

    async def _create_records(self, changes: Sequence[RowChange]) -> list[RowChange]:
        intent = await self.store.open_intent(changes, client_token=str(uuid.uuid4()))
        try:
            created = await self._create(intent)
        except FeishuError as error:
            if error.code is not None and error.kind is not FeishuErrorKind.RETRY:
                # A clear refusal: nothing was created.
                await self.store.close_intent({})
            raise
        return [replace(change, record_id=name) for change, name in zip(changes, created, strict=True)]

    async def _create(self, intent: CreateIntent) -> list[str]:
        rows = [drop_empty(fields) for fields in intent.rows.values()]
        return await self.client.create_records(self.table_id, rows, client_token=intent.client_token)


@dataclass(slots=True, eq=False, kw_only=True)
class TableDelivery:
    """The delivery of one of our tables to the table `table_id` of the base.

    Methods raise FeishuError for errors that did not pass by themselves, and ExecutionLostError.
    """

    client: BitableClient
    store: MirrorStore
    table_id: str
    clock: Clock
    # The tables whose fields are known to be right. Deliveries share it.
    prepared: set[str]
    counts: RecordCounts
    # A field was created again, so Feishu shows less than the store knows.
    _is_outdated: bool = field(default=False, init=False)
    # The outbox entries of this execution: above the first id, up to the second.
    _after: int = field(default=0, init=False)
    _newest: int = field(default=0, init=False)
    _sender: BatchSender = field(init=False)

    def __post_init__(self) -> None:
        self._sender = BatchSender(
            client=self.client,
            store=self.store,
            table_id=self.table_id,
            counts=self.counts,
            check_fields=self._check_fields,
        )

    async def start_over(self, *, target: str, same_target: bool) -> None:
        """Read from Feishu which records exist, and drop everything else that we stored about them."""

        async def read_records() -> bool:
            if same_target:
                await self._settle_intent()
            await self.store.check()
            known = await self.store.list_records() if same_target else {}
            found = [record async for record in self.client.list_records(self.table_id)]
            await self.store.start_over(await self._choose_records(found, known=known), target=target)
            return False

        await self._repeat(read_records, same_target=same_target)

    async def compare(self, *, since: datetime | None = None) -> None:
        """Mark each row that differs from its known record, has none, or was deleted although its record exists.

        With `since`, only rows that may have changed since then, and no deleted ones. Reads our own tables only, block
        by block, and sends no request.
        """
        store = self.store
        async for rows in store.read_blocks(since=since):
            await store.check()
            contents = await store.render(rows)
            known = {key: row.digest for key, row in (await store.look_up(mirror_records, contents)).items()}
            await store.mark_changed([key for key, row in contents.items() if known.get(key) != row.digest])
        if since is not None:
            return
        async for records in store.read_record_blocks():
            await store.check()
            keys = [RowKey(row.platform, row.note_id) for row in records]
            existing = await store.find_existing(keys)
            await store.mark_changed([key for key in keys if key not in existing])
        self._is_outdated = False

    async def deliver(self) -> None:
        """Deliver every change that is pending now."""
        self._newest = await self.store.find_newest_entry()
        if not self._newest and await self.store.find_intent() is None:
            return
        await self._repeat(self._deliver_page)
        await self._sender.finish()

    async def _deliver_page(self) -> bool:
        """Deliver one page. Returns whether there may be more."""
        if self._is_outdated:
            await self.compare()
            self._newest = await self.store.find_newest_entry()
        await self._settle_intent()
        changes, last = await self.store.take_page(after=self._after, newest=self._newest)
        if not changes:
            return self._is_outdated
        await self._deliver_changes(changes)
        self._after = last
        return True

    async def _deliver_changes(self, changes: Sequence[RowChange]) -> None:
        # A row that cannot be created now need not be searched for.
        taken = [change for change in changes if self._sender.is_open(WriteKind.CREATE) or not change.is_new]
        unsure = [change.key for change in taken if change.record_id is None or change.in_doubt]
        if unsure and (found := await self._find_records(unsure)):
            await self.store.record_found(found)
            taken = [replace(change, record_id=found.get(change.key, change.record_id)) for change in taken]
        if delivered := [change for change in taken if change.is_delivered]:
            await self.store.record_delivered(delivered)
        pending = [change for change in taken if not change.is_delivered]
        await self._sender.send(WriteKind.DELETE, [change for change in pending if change.content is None])
        known = [change for change in pending if change.content is not None and not change.is_new]
        missing = await self._sender.send(WriteKind.UPDATE, known)
        await self._sender.send(WriteKind.CREATE, [*missing, *(change for change in pending if change.is_new)])

    async def _settle_intent(self) -> None:
        """Find out whether a create without an answer succeeded, and complete it."""
        intent = await self.store.find_intent()
        if intent is None:
            return
        found = await self._find_records(list(intent.rows))
        if len(found) == len(intent.rows):
            await self.store.close_intent(found)
            return
        created = await self._sender.repeat_create(intent)
        # The search may lag, and Feishu may have forgotten the client_token. So search for every row again, later.
        await self.store.close_intent(created | found, in_doubt=list(intent.rows) if created or found else ())

    async def _find_records(self, keys: Sequence[RowKey]) -> dict[RowKey, str]:
        """The records of these rows, as far as they exist."""
        await self.store.check()
        found = await self.client.find_records(self.table_id, [key.text for key in keys])
        return await self._choose_records(found, known=await self.store.list_records(keys))

    async def _choose_records(self, found: Sequence[FoundRecord], *, known: Mapping[str, RowKey]) -> dict[RowKey, str]:
        """One of our records for each key, preferably a known one. Deletes our duplicates.

        Records with another owner, or none, belong to people or another installation: they are left alone.
        """
        chosen: dict[RowKey, str] = {}
        duplicates: list[tuple[RowKey, str]] = []
        for record in sorted(found, key=lambda record: record.record_id not in known):
            is_ours = record.owner == self.store.owner or record.record_id in known
            # A person may have overwritten the key of a known record.
            key = (known.get(record.record_id) or parse_key(record.key)) if is_ours else None
            if key is not None and chosen.setdefault(key, record.record_id) != record.record_id:
                duplicates.append((key, record.record_id))
        for start in range(0, len(duplicates), MOST_RECORDS):
            await self._delete_duplicates(duplicates[start : start + MOST_RECORDS])
        return chosen

    async def _delete_duplicates(self, duplicates: Sequence[tuple[RowKey, str]]) -> None:
        await self.store.check({key for key, _ in duplicates})
        try:
            await self.client.delete_records(self.table_id, [record_id for _, record_id in duplicates])
        except FeishuError as error:
            raise (error.unsettle() if error.kind is FeishuErrorKind.MISSING_RECORD else error) from None
        _log.warning("duplicates.removed", table=self.store.table_name, records=len(duplicates))

    async def _repeat(self, step: Callable[[], Awaitable[bool]], *, same_target: bool = True) -> None:
        """Repeat a step until it returns False. Errors that reading Feishu again solves repeat the step."""
        while True:
            for retry in count(1):
                try:
                    await self._prepare_fields(same_target=same_target)
                    if not await step():
                        return
                    break
                except FeishuError as error:
                    delay = next_delay(error, retry=retry) if error.kind in _REPEATED else None
                    if delay is None:
                        raise
                    _log.info("delivery.repeated", table=self.store.table_name, reason=str(error))
                    if error.kind is FeishuErrorKind.MISSING_FIELD:
                        self.prepared.discard(self.store.table_name)
                    await self.clock.sleep(delay)

    async def _check_fields(self) -> None:
        self.prepared.discard(self.store.table_name)
        await self._prepare_fields()

    async def _prepare_fields(self, *, same_target: bool = True) -> None:
        """Create missing fields. Raises FeishuError for a field of another type, and for a lost key field."""
        if self.store.table_name not in self.prepared:
            self._is_outdated |= await prepare_fields(
                self.client, self.store, table_id=self.table_id, same_target=same_target
            )
            self.prepared.add(self.store.table_name)


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
