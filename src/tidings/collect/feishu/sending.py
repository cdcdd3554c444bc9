"""Batches on their way to Feishu: created, updated or deleted, and struck out once that is done.

A batch is done as a whole or not at all, so one that is refused is halved until the row at fault is alone. A kind of
write that is not taken at all (the table is full, or every row gets the same answer that nobody knows) is set aside
for the rest of the round; the others go on. What is about to be created is noted first, with its client_token: where
the answer was lost, or its reader killed, it is looked for, and where it is not there it is sent again as the same
request. Which rows are sent is in `delivery`.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidings.collect.feishu.answers import FeishuError, Verdict, judge_unsettled
from tidings.collect.feishu.changes import Change, Intent
from tidings.collect.feishu.client import BitableClient
from tidings.collect.feishu.fields import Key, drop_empty
from tidings.collect.feishu.finding import Finder
from tidings.collect.feishu.ledger import Ledger
from tidings.core.logs.logger import get_logger

MOST_IN_A_BATCH: Final = 500
# How large a request may be is not documented; and lark-oapi writes it out on the event loop.
MOST_CHARACTERS: Final = 250_000

# So many rows in a row, from all over a batch, are not each at fault by themselves.
_MOST_SUSPECTS: Final = 10
_OF_SOME: Final = (Verdict.REFUSED, Verdict.SUSPECT, Verdict.FULL)

_log = get_logger(__name__)


class Kind(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(slots=True)
class Tally:
    """What was done to a table."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    refused: int = 0


class Sender:
    """The writes of one table's delivery. Each raises FeishuError and ExecutionLostError."""

    def __init__(
        self,
        client: BitableClient,
        ledger: Ledger,
        finder: Finder,
        *,
        table_id: str,
        check_fields: Callable[[], Awaitable[None]],
    ) -> None:
        self.tally = Tally()
        self._client = client
        self._ledger = ledger
        self._finder = finder
        self._table_id = table_id
        self._check_fields = check_fields
        self._passed: set[Kind] = set()
        self._aside: dict[Kind, FeishuError] = {}
        self._suspects: dict[Kind, dict[Key, tuple[Change, FeishuError]]] = {kind: {} for kind in Kind}

    def takes(self, kind: Kind) -> bool:
        """Whether this kind of write is still tried in this round."""
        return kind not in self._aside

    async def send(self, kind: Kind, changes: Sequence[Change]) -> list[Change]:
        """Send these. The answer is what is to be created instead, because its record is no longer there."""
        missing: list[Change] = []
        for batch in _cut_batches(changes):
            missing += await self._send_parts(kind, batch)
        return missing

    async def conclude(self) -> None:
        """The end of a round: a suspect that was alone among many is given up, what was set aside is raised."""
        worked = self.tally.created + self.tally.updated + self.tally.deleted
        for suspects in self._suspects.values():
            for change, error in suspects.values():
                if not worked:
                    raise error.block()
                await self._give_up(change, error)
            suspects.clear()
        for error in self._aside.values():
            raise error

    async def settle_intent(self) -> None:
        """Find out what came of a create whose answer nobody has seen, and see it through."""
        intent = await self._ledger.find_intent()
        if intent is None:
            return
        found = await self._finder.find(list(intent.rows))
        if len(found) == len(intent.rows):
            await self._ledger.close_intent(found)
            return
        created = await self._repeat(intent)
        # A search may lag behind, and the client_token be too old to be known: all is searched for once more, later.
        await self._ledger.close_intent(created | found, in_doubt=list(intent.rows) if created or found else ())

    async def _repeat(self, intent: Intent) -> dict[Key, str]:
        """Send a create again as it was: the records of which it tells, none where it is not taken now."""
        await self._ledger.check(list(intent.rows))
        try:
            return dict(zip(intent.rows, await self._create(intent), strict=True))
        except FeishuError as error:
            # The rows still wait, and which of them is at fault is found out there.
            if error.verdict not in (*_OF_SOME, Verdict.RENEW):
                raise
            return {}

    async def _send_parts(self, kind: Kind, changes: Sequence[Change], *, again: bool = False) -> list[Change]:
        """Send a batch; halve it for as long as some of its rows are at fault."""
        if not changes or not self.takes(kind):
            return []
        await self._ledger.check([change.key for change in changes])
        try:
            await self._send(kind, changes)
        except FeishuError as error:
            if error.verdict is Verdict.MISSING and kind is not Kind.CREATE and not again:
                return await self._send_present(kind, changes, error)
            if error.verdict is Verdict.MISSING:
                raise judge_unsettled(error) from None
            if error.verdict not in _OF_SOME:
                raise
            if len(changes) > 1:
                # Every second one: rows that are at fault for the same reason often stand side by side.
                first = await self._send_parts(kind, changes[::2], again=again)
                return first + await self._send_parts(kind, changes[1::2], again=again)
            await self._drop(kind, changes[0], error)
            return []
        self._passed.add(kind)
        return []

    async def _send(self, kind: Kind, changes: Sequence[Change]) -> None:
        if kind is Kind.CREATE:
            changes = await self._send_creates(changes)
            self.tally.created += len(changes)
        elif kind is Kind.UPDATE:
            fields = {str(change.record_id): change.shown.fields for change in changes if change.shown is not None}
            await self._client.update(self._table_id, fields)
            self.tally.updated += len(changes)
        else:
            await self._client.delete(self._table_id, [str(change.record_id) for change in changes])
            self.tally.deleted += len(changes)
        await self._ledger.settle(changes)

    async def _send_present(self, kind: Kind, changes: Sequence[Change], error: FeishuError) -> list[Change]:
        """People have removed some of these records: the others are sent again."""
        absent = await self._finder.find_absent([str(change.record_id) for change in changes])
        if not absent:
            raise judge_unsettled(error)
        gone = [replace(change, record_id=None, known="") for change in changes if change.record_id in absent]
        await self._ledger.forget([change.key for change in gone])
        if kind is Kind.DELETE:
            await self._ledger.settle(gone)
        present = [change for change in changes if change.record_id not in absent]
        missing = await self._send_parts(kind, present, again=True)
        return missing if kind is Kind.DELETE else [*gone, *missing]

    async def _drop(self, kind: Kind, change: Change, error: FeishuError) -> None:
        """What to do about the one row at fault."""
        if error.verdict is Verdict.FULL:
            self._aside[kind] = error
        elif error.verdict is Verdict.REFUSED:
            # A person may have changed the type of a field: then the fault is not the row's.
            await self._check_fields()
            await self._give_up(change, error)
        else:
            self._suspects[kind][change.key] = change, error
            if kind not in self._passed and len(self._suspects[kind]) >= _MOST_SUSPECTS:
                self._aside[kind] = error.block()
                self._suspects[kind].clear()

    async def _give_up(self, change: Change, error: FeishuError) -> None:
        await self._ledger.give_up(change, error)
        self.tally.refused += 1
        _log.warning("mirror.refused", table=self._ledger.table_name, key=change.key.text, reason=str(error))

    async def _send_creates(self, changes: Sequence[Change]) -> list[Change]:
        intent = await self._ledger.open_intent(changes, client_token=str(uuid.uuid4()))
        try:
            created = await self._create(intent)
        except FeishuError as error:
            if error.code is not None and error.verdict is not Verdict.RETRY:
                # A plain no: nothing was created, and nothing need be sent again as it was.
                await self._ledger.close_intent({})
            raise
        return [replace(change, record_id=name) for change, name in zip(changes, created, strict=True)]

    async def _create(self, intent: Intent) -> list[str]:
        """Send a create under its client_token, be it for the first time or again."""
        rows = [drop_empty(fields) for fields in intent.rows.values()]
        return await self._client.create(self._table_id, rows, client_token=intent.client_token)


def _cut_batches(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Batches that are neither too many nor too large."""
    batch: list[Change] = []
    size = 0
    for change in changes:
        length = 0 if change.shown is None else change.shown.size
        if batch and (len(batch) == MOST_IN_A_BATCH or size + length > MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += length
    if batch:
        yield batch
