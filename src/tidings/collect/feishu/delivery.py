"""One table's way to Feishu, round by round: what waits is taken page by page, told apart into what is to be created,
updated and deleted, and sent; what passes by itself is waited for.

Feishu has no unique fields, so that each row stands there once is kept here: a row of which no record is known, or
whose record is in doubt, is searched for first (`finding`). How batches are sent is in `sending`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from tidings.collect.feishu.answers import FeishuError, Verdict, judge_field, judge_no_key
from tidings.collect.feishu.changes import Change
from tidings.collect.feishu.client import BitableClient
from tidings.collect.feishu.comparison import mark_differences
from tidings.collect.feishu.fields import FIELDS, KEY_FIELD, sign_fields
from tidings.collect.feishu.finding import Finder
from tidings.collect.feishu.ledger import Ledger
from tidings.collect.feishu.sending import Kind, Sender, Tally
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger

_WAITS: Final = (timedelta(seconds=0.5), timedelta(seconds=1), timedelta(seconds=1))
# Anything longer is waited for outside of the round, so that another process can have its turn.
_LONGEST_WAIT: Final = timedelta(minutes=1)
_PASSING: Final = (Verdict.RETRY, Verdict.RENEW, Verdict.PREPARE)

_log = get_logger(__name__)


class TableDelivery:
    """The delivery of one table of ours to the table `table_id`, by one execution."""

    def __init__(
        self,
        client: BitableClient,
        ledger: Ledger,
        *,
        database: Database,
        table_id: str,
        clock: Clock,
        prepared: set[str],
    ) -> None:
        """`prepared` has the names of tables whose fields were seen to be right; it is shared by many deliveries."""
        self._client = client
        self._ledger = ledger
        self._database = database
        self._table_id = table_id
        self._clock = clock
        self._prepared = prepared
        self._finder = Finder(client, ledger, table_id=table_id)
        self._sender = Sender(client, ledger, self._finder, table_id=table_id, check_fields=self._check_fields)
        # Whether a field was made anew, and what stands in Feishu is less than is known here.
        self._is_outdated = False
        # What was looked at in this round, and where it ends: what comes meanwhile is for the next.
        self._after = 0
        self._newest = 0

    @property
    def tally(self) -> Tally:
        return self._sender.tally

    async def begin_anew(self, *, target: str, same_target: bool) -> None:
        """Learn from Feishu what stands there. A comparison then shows what differs. Raises as `deliver` does."""

        async def learn() -> bool:
            if same_target:
                await self._sender.settle_intent()
            await self._ledger.begin_anew(await self._finder.find_all(same_target=same_target), target=target)
            return False

        await self._persist(learn, same_target=same_target)

    async def compare(self) -> None:
        """Mark what differs, without a request to Feishu. Raises ExecutionLostError."""
        await mark_differences(self._database, self._ledger)
        self._is_outdated = False

    async def deliver(self) -> None:
        """Deliver all that waits now. Raises FeishuError for what did not pass by itself, and ExecutionLostError."""
        if not await self._ledger.has_work():
            return
        self._newest = await self._ledger.find_newest()
        await self._persist(self._deliver_some)
        await self._sender.conclude()

    async def _deliver_some(self) -> bool:
        if self._is_outdated:
            await self.compare()
            self._newest = await self._ledger.find_newest()
        await self._sender.settle_intent()
        page = await self._ledger.take(after=self._after, newest=self._newest)
        if page is None:
            return self._is_outdated
        await self._deliver_changes(page.changes)
        self._after = page.last
        return True

    async def _deliver_changes(self, changes: Sequence[Change]) -> None:
        # What cannot be created now need not be searched for.
        taken = [change for change in changes if self._sender.takes(Kind.CREATE) or not _is_new(change)]
        unsure = [change.key for change in taken if change.record_id is None or change.in_doubt]
        if unsure and (found := await self._finder.find(unsure)):
            await self._ledger.note_found(found)
            taken = [replace(change, record_id=found.get(change.key, change.record_id)) for change in taken]
        settled = [change for change in taken if not _needs_sending(change)]
        if settled:
            await self._ledger.settle(settled)
        waiting = [change for change in taken if _needs_sending(change)]
        await self._sender.send(Kind.DELETE, [change for change in waiting if change.shown is None])
        known = [change for change in waiting if change.shown is not None and change.record_id is not None]
        missing = await self._sender.send(Kind.UPDATE, known)
        await self._sender.send(Kind.CREATE, [*missing, *filter(_is_new, waiting)])

    async def _persist(self, step: Callable[[], Awaitable[bool]], *, same_target: bool = True) -> None:
        """Take a step until it says that nothing is left; what passes by itself is waited for."""
        failures = 0
        while True:
            try:
                await self._prepare(same_target=same_target)
                if not await step():
                    return
                failures = 0
            except FeishuError as error:
                await self._wait_after(error, failures)
                failures += 1

    async def _wait_after(self, error: FeishuError, failures: int) -> None:
        """Wait before the next try, or raise the error where a wait of seconds will not do."""
        passes = error.verdict in _PASSING and error.code is not None and failures < len(_WAITS)
        if not passes or (error.retry_after or timedelta(0)) > _LONGEST_WAIT:
            raise error
        if error.verdict is Verdict.PREPARE:
            self._prepared.discard(self._ledger.table_name)
        wait = error.retry_after or _WAITS[failures]
        _log.info("mirror.waits", table=self._ledger.table_name, reason=str(error), seconds=wait.total_seconds())
        await self._clock.sleep(wait)

    async def _check_fields(self) -> None:
        self._prepared.discard(self._ledger.table_name)
        await self._prepare()

    async def _prepare(self, *, same_target: bool = True) -> None:
        """See to it that the table has every field, of the right type."""
        name, wanted = self._ledger.table_name, FIELDS[self._ledger.table_name]
        if name in self._prepared:
            return
        present = await self._client.list_fields(self._table_id)
        if KEY_FIELD not in present and same_target and await self._ledger.has_records():
            raise judge_no_key()
        for field, found in present.items():
            if field in wanted and found.type != wanted[field]:
                raise judge_field(field, wanted=wanted[field].name.capitalize())
        if missing := [field for field in wanted if field not in present]:
            for field in missing:
                await self._ledger.check()
                await self._client.create_field(self._table_id, field, wanted[field])
            present = await self._client.list_fields(self._table_id)
        ours = {field: (found.type, found.field_id) for field, found in present.items() if field in wanted}
        self._is_outdated |= await self._ledger.sign(sign_fields(ours))
        self._prepared.add(name)


def _is_new(change: Change) -> bool:
    return change.shown is not None and change.record_id is None


def _needs_sending(change: Change) -> bool:
    if change.shown is None:
        return change.record_id is not None
    return change.record_id is None or change.digest != change.known
