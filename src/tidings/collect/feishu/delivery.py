"""One table's way to Feishu: what waits is created, updated or deleted in batches, and struck out once it is done.

Feishu has no unique fields, so that each row stands there once is kept here. A row of which no record is known is
searched for before it is created. What is about to be created is noted first, with its client_token: where the answer
was lost, or its reader killed, it is looked for, and where it is not there it is sent again as the same request. A
batch is done as a whole or not at all, so one that is refused is halved until the row at fault is alone.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from tidings.collect.feishu.answers import FeishuError, Verdict, judge_field, judge_unsettled
from tidings.collect.feishu.client import MOST_CONDITIONS, BitableClient, Found
from tidings.collect.feishu.fields import FIELDS, Key, drop_empty, parse_key
from tidings.collect.feishu.ledger import Change, Intent, Ledger
from tidings.core.clock import Clock
from tidings.core.executions import ExecutionLostError
from tidings.core.logs import get_logger

MOST_IN_A_BATCH: Final = 500
# How large a request may be is not documented.
MOST_CHARACTERS: Final = 1_000_000

_WAITS: Final = (timedelta(seconds=0.5), timedelta(seconds=1), timedelta(seconds=1))
# Anything longer is waited for outside of the round, so that another process can have its turn.
_LONGEST_WAIT: Final = timedelta(minutes=1)
_PASSING: Final = (Verdict.RETRY, Verdict.RENEW, Verdict.PREPARE)
_OF_ONE: Final = (Verdict.MISSING, Verdict.REFUSED)

_log = get_logger(__name__)

Send = Callable[[Sequence[Change]], Awaitable[None]]


@dataclass(slots=True)
class Tally:
    """What was done to a table."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    refused: int = 0


class TableDelivery:
    """The delivery of one table of ours to the table `table_id`, by one execution."""

    def __init__(
        self,
        client: BitableClient,
        ledger: Ledger,
        *,
        table_name: str,
        table_id: str,
        clock: Clock,
        prepared: set[str],
    ) -> None:
        """`prepared` has the names of tables whose fields were seen to be right; it is shared by many deliveries."""
        self._client = client
        self._ledger = ledger
        self._table_name = table_name
        self._table_id = table_id
        self._clock = clock
        self._prepared = prepared
        # What was sent and is not struck out yet.
        self._in_hand: set[Key] = set()
        # Whose record was not there: once is a person's doing.
        self._missed: set[Key] = set()
        self.tally = Tally()

    async def deliver(self) -> None:
        """Deliver all that waits now. Raises FeishuError for what did not pass by itself, and ExecutionLostError."""
        newest = await self._ledger.find_newest()

        async def deliver_some() -> bool:
            await self._settle_intent()
            return await self._deliver_page(newest=newest)

        await self._persist(deliver_some)

    async def begin_anew(self, *, target: str, same_target: bool) -> None:
        """Learn from Feishu what stands there, and let everything wait again. Of records with one key, one is kept.

        Raises as `deliver` does.
        """

        async def learn() -> bool:
            if same_target:
                await self._settle_intent()
            await self._ledger.check()
            found = [record async for record in self._client.list_records(self._table_id)]
            await self._ledger.begin_anew(await self._choose_records(found), target=target)
            return False

        await self._persist(learn)

    async def _persist(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Take a step until it says that nothing is left; what passes by itself is waited for."""
        failures = 0
        while True:
            try:
                await self._prepare()
                if not await step():
                    return
                failures = 0
            except FeishuError as error:
                await self._wait_after(error, failures)
                failures += 1
            except ExecutionLostError:
                await self._ledger.mark_again(self._in_hand)
                raise

    async def _wait_after(self, error: FeishuError, failures: int) -> None:
        """Wait before the next try, or raise the error where a wait of seconds will not do."""
        passes = error.verdict in _PASSING and error.code is not None and failures < len(_WAITS)
        if not passes or (error.retry_after or timedelta(0)) > _LONGEST_WAIT:
            raise error
        if error.verdict is Verdict.PREPARE:
            self._prepared.discard(self._table_name)
        wait = error.retry_after or _WAITS[failures]
        _log.info("mirror.waits", table=self._table_name, reason=str(error), seconds=wait.total_seconds())
        await self._clock.sleep(wait)

    async def _prepare(self) -> None:
        """See to it that the table has every field, of the right type."""
        if self._table_name in self._prepared:
            return
        present = await self._client.list_fields(self._table_id)
        for name, field_type in FIELDS[self._table_name].items():
            if name not in present:
                await self._ledger.check()
                await self._client.create_field(self._table_id, name, field_type)
            elif present[name] != field_type:
                raise judge_field(name, wanted=field_type.name.capitalize())
        self._prepared.add(self._table_name)

    async def _settle_intent(self) -> None:
        """Find out what came of a create whose answer nobody has seen, and see it through."""
        intent = await self._ledger.find_intent()
        if intent is None:
            return
        found = await self._find(list(intent.rows))
        if found:
            # It was done. What the records say by now is not known; the rows still wait, and are written again.
            await self._ledger.close_intent({key: (record_id, "") for key, record_id in found.items()})
            return
        try:
            await self._ledger.close_intent(await self._create(intent))
        except FeishuError as error:
            # The rows still wait, and which of them is at fault is found out there.
            if error.verdict not in _OF_ONE:
                raise

    async def _deliver_page(self, *, newest: int) -> bool:
        """Deliver some of what waits; False where nothing does."""
        changes = await self._ledger.take(newest=newest)
        unknown = [change.key for change in changes if change.record_id is None]
        if unknown and (found := await self._find(unknown)):
            await self._ledger.note_found(found)
            changes = [replace(change, record_id=found.get(change.key, change.record_id)) for change in changes]
        settled = [change for change in changes if not _needs_sending(change)]
        if settled:
            await self._ledger.settle(settled)
        waiting = [change for change in changes if _needs_sending(change)]
        await self._send_all([change for change in waiting if change.fields is None], self._send_deletes)
        await self._send_all([change for change in waiting if change.fields and change.record_id], self._send_updates)
        await self._send_all([change for change in waiting if change.record_id is None], self._send_creates)
        return bool(changes)

    async def _send_all(self, changes: Sequence[Change], send: Send) -> None:
        for batch in _cut_batches(changes):
            await self._send_parts(batch, send)

    async def _send_parts(self, changes: Sequence[Change], send: Send) -> None:
        """Send a batch; halve it for as long as one of its rows is at fault."""
        await self._ledger.check()
        self._in_hand = {change.key for change in changes}
        try:
            await send(changes)
        except FeishuError as error:
            if error.verdict not in _OF_ONE:
                raise
            if len(changes) == 1:
                await self._drop(changes[0], error)
                return
            middle = len(changes) // 2
            await self._send_parts(changes[:middle], send)
            await self._send_parts(changes[middle:], send)
        self._in_hand = set()

    async def _drop(self, change: Change, error: FeishuError) -> None:
        """What to do about the one row at fault."""
        if error.verdict is Verdict.REFUSED:
            # A person may have changed the type of a field: then the fault is not the row's.
            self._prepared.discard(self._table_name)
            await self._prepare()
            await self._ledger.give_up(change, error)
            self.tally.refused += 1
            _log.warning("mirror.refused", table=self._table_name, key=change.key.text, reason=str(error))
        elif change.fields is None:
            await self._ledger.settle([change])
        elif change.key in self._missed:
            raise judge_unsettled(error)
        else:
            # A person has removed the record. The row still waits, and is created anew with the next page.
            self._missed.add(change.key)
            await self._ledger.note_missing(change.key)

    async def _send_creates(self, changes: Sequence[Change]) -> None:
        intent = await self._ledger.open_intent(changes, client_token=str(uuid.uuid4()))
        created = await self._create(intent)
        await self._ledger.settle([replace(change, record_id=created[change.key][0]) for change in changes])
        self.tally.created += len(changes)

    async def _send_updates(self, changes: Sequence[Change]) -> None:
        fields = {str(change.record_id): change.fields for change in changes if change.fields is not None}
        await self._client.update(self._table_id, fields)
        await self._ledger.settle(changes)
        self.tally.updated += len(changes)

    async def _send_deletes(self, changes: Sequence[Change]) -> None:
        await self._client.delete(self._table_id, [str(change.record_id) for change in changes])
        await self._ledger.settle(changes)
        self.tally.deleted += len(changes)

    async def _create(self, intent: Intent) -> dict[Key, tuple[str, str]]:
        """Send a create under its client_token, be it for the first time or again."""
        rows = [drop_empty(fields) for fields in intent.rows.values()]
        try:
            record_ids = await self._client.create(self._table_id, rows, client_token=intent.client_token)
        except FeishuError as error:
            if error.code is not None and error.verdict is not Verdict.RETRY:
                # A plain no: nothing was created, and nothing need be sent again as it was.
                await self._ledger.close_intent({})
            raise
        return {key: (name, intent.digests[key]) for key, name in zip(intent.rows, record_ids, strict=True)}

    async def _find(self, keys: Sequence[Key]) -> dict[Key, str]:
        """The records of these rows, as far as they stand in Feishu."""
        found: list[Found] = []
        for start in range(0, len(keys), MOST_CONDITIONS):
            await self._ledger.check()
            some = [key.text for key in keys[start : start + MOST_CONDITIONS]]
            found += await self._client.find(self._table_id, some)
        return await self._choose_records(found)

    async def _choose_records(self, found: Sequence[Found]) -> dict[Key, str]:
        """One record for each key; others with the same key are removed. A record without a key is a person's own."""
        chosen: dict[Key, str] = {}
        spare: list[str] = []
        for record in found:
            key = parse_key(record.key)
            if key is not None and chosen.setdefault(key, record.record_id) != record.record_id:
                spare.append(record.record_id)
        for start in range(0, len(spare), MOST_IN_A_BATCH):
            await self._remove_spare(spare[start : start + MOST_IN_A_BATCH])
        return chosen

    async def _remove_spare(self, record_ids: Sequence[str]) -> None:
        await self._ledger.check()
        try:
            await self._client.delete(self._table_id, record_ids)
        except FeishuError as error:
            raise (judge_unsettled(error) if error.verdict is Verdict.MISSING else error) from None
        _log.warning("mirror.duplicates_removed", table=self._table_name, records=len(record_ids))


def _needs_sending(change: Change) -> bool:
    if change.fields is None:
        return change.record_id is not None
    return change.record_id is None or change.digest != change.known


def _cut_batches(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Batches that are neither too many nor too large."""
    batch: list[Change] = []
    size = 0
    for change in changes:
        length = _measure(change.fields or {})
        if batch and (len(batch) == MOST_IN_A_BATCH or size + length > MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += length
    if batch:
        yield batch


def _measure(fields: Mapping[str, object]) -> int:
    return len(json.dumps(fields, ensure_ascii=False))
