"""Delivers one table to Feishu in one execution: checks the fields, reads pending changes page by page, finds the
records of rows, and sends creates, updates and deletes.

Feishu has no unique fields. A row without a known record, or with a request of unknown outcome, is therefore searched
for before anything is sent.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from tidings.collect.feishu.batches import BatchSender, RecordCounts, WriteKind
from tidings.collect.feishu.client import MOST_RECORDS, BitableClient, FoundRecord
from tidings.collect.feishu.errors import (
    MISSING_KEY,
    FeishuError,
    FeishuErrorKind,
    make_wrong_type,
    next_delay,
)
from tidings.collect.feishu.rows import KEY_FIELD, RowChange, RowKey, parse_key, sign_fields
from tidings.collect.feishu.store import MirrorStore
from tidings.collect.tables import mirror_records
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger

_REPEATED = (FeishuErrorKind.SPENT_CLIENT_TOKEN, FeishuErrorKind.MISSING_FIELD, FeishuErrorKind.UNSETTLED)

_log = get_logger(__name__)


class TableDelivery:
    """The delivery of one of our tables to the table `table_id` of the base.

    Methods raise FeishuError for errors that did not pass by themselves, and ExecutionLostError.
    """

    def __init__(
        self, client: BitableClient, store: MirrorStore, *, table_id: str, clock: Clock, prepared: set[str]
    ) -> None:
        """`prepared` names the tables whose fields are known to be right. Deliveries share it."""
        self._client = client
        self._store = store
        self._table_id = table_id
        self._clock = clock
        self._prepared = prepared
        self._sender = BatchSender(client, store, table_id=table_id, check_fields=self._check_fields)
        # A field was created again, so Feishu shows less than the store knows.
        self._is_outdated = False
        # The outbox entries of this execution: above the first id, up to the second.
        self._after = 0
        self._newest = 0

    @property
    def counts(self) -> RecordCounts:
        return self._sender.counts

    async def start_over(self, *, target: str, same_target: bool) -> None:
        """Read from Feishu which records exist, and forget everything else that is known of them."""

        async def read_records() -> bool:
            if same_target:
                await self._settle_intent()
            await self._store.check()
            known = await self._store.list_records() if same_target else {}
            found = [record async for record in self._client.list_records(self._table_id)]
            await self._store.start_over(await self._choose_records(found, known=known), target=target)
            return False

        await self._repeat(read_records, same_target=same_target)

    async def compare(self) -> None:
        """Mark each row that differs from its known record, has none, or was deleted although its record exists.

        Reads our own tables only, block by block, and asks nothing of Feishu.
        """
        store, table = self._store, self._store.table.table
        async for rows in store.read_blocks(table):
            await store.check()
            contents = await store.render(rows)
            known = {key: row.digest for key, row in (await store.look_up(mirror_records, contents)).items()}
            await store.mark_changed([key for key, row in contents.items() if known.get(key) != row.digest])
        async for records in store.read_blocks(mirror_records):
            await store.check()
            keys = [RowKey(row.platform, row.note_id) for row in records]
            existing = await store.look_up(table, keys, table.c.platform, table.c.note_id)
            await store.mark_changed([key for key in keys if key not in existing])
        self._is_outdated = False

    async def deliver(self) -> None:
        """Deliver every change that is pending now."""
        self._newest = await self._store.find_newest_entry()
        if not self._newest and await self._store.find_intent() is None:
            return
        await self._repeat(self._deliver_page)
        await self._sender.finish()

    async def _deliver_page(self) -> bool:
        """Deliver one page. Returns whether there may be more."""
        if self._is_outdated:
            await self.compare()
            self._newest = await self._store.find_newest_entry()
        await self._settle_intent()
        page = await self._store.take_page(after=self._after, newest=self._newest)
        if page is None:
            return self._is_outdated
        await self._deliver_changes(page.changes)
        self._after = page.last_entry
        return True

    async def _deliver_changes(self, changes: Sequence[RowChange]) -> None:
        # A row that cannot be created now need not be searched for.
        taken = [change for change in changes if self._sender.is_open(WriteKind.CREATE) or not change.is_new]
        unsure = [change.key for change in taken if change.record_id is None or change.in_doubt]
        if unsure and (found := await self._find_records(unsure)):
            await self._store.record_found(found)
            taken = [replace(change, record_id=found.get(change.key, change.record_id)) for change in taken]
        if delivered := [change for change in taken if change.is_delivered]:
            await self._store.record_delivered(delivered)
        pending = [change for change in taken if not change.is_delivered]
        await self._sender.send(WriteKind.DELETE, [change for change in pending if change.content is None])
        known = [change for change in pending if change.content is not None and not change.is_new]
        missing = await self._sender.send(WriteKind.UPDATE, known)
        await self._sender.send(WriteKind.CREATE, [*missing, *(change for change in pending if change.is_new)])

    async def _settle_intent(self) -> None:
        """Find out what became of a create without an answer, and complete it."""
        intent = await self._store.find_intent()
        if intent is None:
            return
        found = await self._find_records(list(intent.rows))
        if len(found) == len(intent.rows):
            await self._store.close_intent(found)
            return
        created = await self._sender.repeat_create(intent)
        # The search may lag, and Feishu may have forgotten the client_token. So search for every row again, later.
        await self._store.close_intent(created | found, in_doubt=list(intent.rows) if created or found else ())

    async def _find_records(self, keys: Sequence[RowKey]) -> dict[RowKey, str]:
        """The records of these rows, as far as they exist."""
        await self._store.check()
        found = await self._client.find_records(self._table_id, [key.text for key in keys])
        return await self._choose_records(found, known=await self._store.list_records(keys))

    async def _choose_records(self, found: Sequence[FoundRecord], *, known: Mapping[str, RowKey]) -> dict[RowKey, str]:
        """One of our records for each key, preferably a known one. Deletes our duplicates.

        Records with another owner, or none, belong to people or another installation: they are left alone.
        """
        chosen: dict[RowKey, str] = {}
        duplicates: list[tuple[RowKey, str]] = []
        for record in sorted(found, key=lambda record: record.record_id not in known):
            is_ours = record.owner == self._store.owner or record.record_id in known
            # A person may have overwritten the key of a known record.
            key = (known.get(record.record_id) or parse_key(record.key)) if is_ours else None
            if key is not None and chosen.setdefault(key, record.record_id) != record.record_id:
                duplicates.append((key, record.record_id))
        for start in range(0, len(duplicates), MOST_RECORDS):
            await self._delete_duplicates(duplicates[start : start + MOST_RECORDS])
        return chosen

    async def _delete_duplicates(self, duplicates: Sequence[tuple[RowKey, str]]) -> None:
        await self._store.check({key for key, _ in duplicates})
        try:
            await self._client.delete_records(self._table_id, [record_id for _, record_id in duplicates])
        except FeishuError as error:
            raise (error.unsettle() if error.kind is FeishuErrorKind.MISSING_RECORD else error) from None
        _log.warning("duplicates.removed", table=self._store.table_name, records=len(duplicates))

    async def _repeat(self, step: Callable[[], Awaitable[bool]], *, same_target: bool = True) -> None:
        """Repeat a step until it returns False. An error that a new look at Feishu solves repeats the step."""
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
                    _log.info("delivery.repeated", table=self._store.table_name, reason=str(error))
                    if error.kind is FeishuErrorKind.MISSING_FIELD:
                        self._prepared.discard(self._store.table_name)
                    await self._clock.sleep(delay)

    async def _check_fields(self) -> None:
        self._prepared.discard(self._store.table_name)
        await self._prepare_fields()

    async def _prepare_fields(self, *, same_target: bool = True) -> None:
        """Create missing fields. Raises FeishuError for a field of another type, and for a lost key field."""
        name, wanted = self._store.table_name, self._store.table.fields
        if name in self._prepared:
            return
        present = await self._client.list_fields(self._table_id)
        if KEY_FIELD not in present and same_target and await self._store.has_records():
            # A new key field would be empty, and every row would be created once more.
            raise FeishuError(MISSING_KEY)
        for field, found in present.items():
            if field in wanted and found.type != wanted[field]:
                raise make_wrong_type(field, wanted=wanted[field].name.capitalize())
        if missing := [field for field in wanted if field not in present]:
            for field in missing:
                await self._store.check()
                await self._client.create_field(self._table_id, field, wanted[field])
            present = await self._client.list_fields(self._table_id)
        ours = {field: (found.type, found.field_id) for field, found in present.items() if field in wanted}
        self._is_outdated |= await self._store.record_signature(sign_fields(ours))
        self._prepared.add(name)
