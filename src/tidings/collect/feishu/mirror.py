"""The mirror as the rest of the program knows it: deliver what waits, go on doing so, begin anew, and say how it fares.
One process delivers at a time, as the execution `mirror`; a round that has ended leaves no trace among the executions.
How a table gets to Feishu is in `delivery`, what is kept about it in `ledger`.
"""

import asyncio
import itertools
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tidings.collect.feishu.answers import FeishuError, judge_elsewhere, judge_fault
from tidings.collect.feishu.client import TIMEOUT, BitableClient
from tidings.collect.feishu.delivery import TableDelivery
from tidings.collect.feishu.ledger import Ledger
from tidings.collect.feishu.reporting import TOLD_AFTER, Reporter
from tidings.collect.feishu.sending import Tally
from tidings.collect.feishu.status import MirrorStatus, Refused, list_refused, read_status
from tidings.collect.feishu.tables import mirror_intents, mirror_state
from tidings.collect.feishu.target import FeishuTarget
from tidings.collect.tables import mirror_outbox
from tidings.core.alerts import Alerts
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.executions import AlreadyRunningError, Execution, ExecutionLostError, Executions
from tidings.core.logs.logger import get_logger
from tidings.core.secrets.redaction import Redactor
from tidings.core.stop import Stop, StopRequestedError

__all__ = ["TOLD_AFTER", "Delivered", "Mirror"]

WORKFLOW: Final = "mirror"
# How often our rows are compared with what is known to stand in Feishu.
COMPARED_EVERY: Final = timedelta(hours=1)
# For so long after a delivery to one place nobody begins to deliver to another.
KEEPS_TARGET_FOR: Final = timedelta(minutes=10)

_SECOND: Final = timedelta(seconds=1)
# The last wait repeats.
_WAITS: Final = (5 * _SECOND, 15 * _SECOND, 45 * _SECOND, 120 * _SECOND, 300 * _SECOND)
# Another process may have written a marker, or its writer may not have called `wake`.
_LONGEST_NAP: Final = 15 * _SECOND
_PATIENCE: Final = timedelta(minutes=10)
_DATABASE_AWAY: Final = (OperationalError, InterfaceError, PoolTimeoutError)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one round did. `failures` are the tables that Feishu takes nothing of for now; their rows still wait.

    `is_busy`: nothing was done here, because another process delivers.
    """

    created: int = 0
    updated: int = 0
    deleted: int = 0
    refused: int = 0
    failures: Mapping[str, FeishuError] = field(default_factory=dict)
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class _Pause:
    until: datetime
    failures: int


@dataclass(frozen=True, slots=True)
class _Round:
    execution: Execution
    ledgers: list[Ledger] = field(default_factory=list)


class Mirror:
    """The mirror of one target. Several processes may have one on the same database."""

    def __init__(
        self,
        database: Database,
        *,
        target: FeishuTarget,
        executions: Executions,
        alerts: Alerts,
        clock: Clock,
        redactor: Redactor | None = None,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        self._database = database
        self._target = target
        self._executions = executions
        self._clock = clock
        self._client = BitableClient(target, clock=clock, redactor=redactor, timeout=timeout)
        self._reporter = Reporter(database, alerts=alerts, clock=clock)
        self._prepared: set[str] = set()
        self._compared: dict[str, datetime] = {}
        # Rounds that have ended without the database being told.
        self._unfinished: list[_Round] = []
        self._pauses: dict[str, _Pause] = {}
        self._woken = asyncio.Event()

    async def deliver(self, *, tables: Collection[str] | None = None) -> Delivered:
        """One round: all that waits now, of all tables or of these. What fails is in the answer, and still waits."""
        await self._finish_rounds()
        chosen = [name for name in await self._find_work() if tables is None or name in tables]
        if not chosen:
            return Delivered()
        try:
            execution = await self._executions.acquire(WORKFLOW)
        except AlreadyRunningError:
            return Delivered(is_busy=True)
        return await self._deliver(execution, chosen, anew=False)

    async def rebuild(self) -> Delivered:
        """Make the mirror equal to the tables, whatever stands there and whatever is remembered of it, here and now.

        Waits for a round that is under way; raises AlreadyRunningError where that takes more than ten minutes.
        """
        await self._finish_rounds()
        waits = _PATIENCE // _SECOND
        while True:
            try:
                execution = await self._executions.acquire(WORKFLOW)
            except AlreadyRunningError:
                if waits == 0:
                    raise
                waits -= 1
                await self._clock.sleep(_SECOND)
            else:
                return await self._deliver(execution, list(self._target.tables), anew=True)

    async def run(self, stop: Stop) -> None:
        """Deliver whenever something waits, until the stop; a table that fails is left alone for longer and longer.

        What is being sent at that moment is looked for, and sent again, by the next one who delivers.
        """
        with suppress(StopRequestedError):
            while not stop.requested:
                self._woken.clear()
                nap = await stop.wait_for(self._work())
                if nap:
                    await stop.wait_for(self._sleep(nap))

    def wake(self) -> None:
        """There is something new to deliver: look now."""
        self._woken.set()

    async def describe(self) -> MirrorStatus:
        """How the mirror fares, whoever delivers."""
        return await read_status(self._database, tables=list(self._target.tables))

    async def list_refused(self, *, limit: int = 100) -> list[Refused]:
        """The rows that were given up, the newest first."""
        return await list_refused(self._database, limit=limit)

    async def _find_work(self) -> list[str]:
        """The tables of which something waits or was left unfinished, or that are due to be looked at."""
        targets = select(mirror_state.c.table_name, mirror_state.c.target)
        async with self._database.read() as connection:
            known = {row.table_name: row.target for row in await connection.execute(targets)}
            found = {name for name in self._target.tables if known.get(name) != self._target.fingerprint(name)}
            for table, name in itertools.product((mirror_outbox, mirror_intents), self._target.tables):
                waits = select(table.c.table_name).where(table.c.table_name == name).limit(1)
                found |= {row.table_name for row in await connection.execute(waits)}
        return [name for name in self._target.tables if name in found or self._is_compare_due(name)]

    def _is_compare_due(self, name: str) -> bool:
        compared = self._compared.get(name)
        return compared is None or self._clock.now() - compared >= COMPARED_EVERY

    async def _finish_rounds(self) -> None:
        """Give back the right to deliver, after what was sent without it was put in doubt."""
        while self._unfinished:
            ended = self._unfinished[0]
            for ledger in ended.ledgers:
                await ledger.release()
            await self._executions.abandon(ended.execution)
            self._unfinished.pop(0)

    async def _deliver(self, execution: Execution, names: Collection[str], *, anew: bool) -> Delivered:
        tallies: list[Tally] = []
        failures: dict[str, FeishuError] = {}
        current = _Round(execution)
        try:
            for name in names:
                ledger = Ledger(
                    self._database, name, executions=self._executions, execution=execution, clock=self._clock
                )
                current.ledgers.append(ledger)
                tally, error = await self._deliver_table(ledger, anew=anew)
                tallies.append(tally)
                if error is not None:
                    failures[name] = error
        except ExecutionLostError as error:
            _log.warning("mirror.lost", reason=str(error))
            return Delivered(is_busy=True)
        finally:
            await self._end(current)
        totals = {name: sum(getattr(tally, name) for tally in tallies) for name in Tally.__slots__}
        if tallies != [Tally()] * len(tallies):
            _log.info("mirror.delivered", **totals)
        return Delivered(**totals, failures=failures)

    def _open_ledger(self, execution: Execution, name: str) -> Ledger:
        return Ledger(self._database, name, executions=self._executions, execution=execution, clock=self._clock)

    async def _end(self, ended: _Round) -> None:
        self._unfinished.append(ended)
        try:
            await self._finish_rounds()
        except SQLAlchemyError as error:
            # The database is away for a moment. It is done before the next round.
            _log.warning("mirror.not_ended", reason=type(error).__name__)

    async def _deliver_table(self, ledger: Ledger, *, anew: bool) -> tuple[Tally, FeishuError | None]:
        name = ledger.table_name
        delivery = TableDelivery(
            self._client,
            ledger,
            database=self._database,
            table_id=self._target.tables[name],
            clock=self._clock,
            prepared=self._prepared,
        )
        failure = None
        try:
            if not await self._settle_target(ledger, delivery, anew=anew):
                return delivery.tally, judge_elsewhere()
            if self._is_compare_due(name):
                await delivery.compare()
                self._compared[name] = self._clock.now()
            await delivery.deliver()
        except FeishuError as error:
            failure = error
            _log.warning("mirror.not_delivered", table=name, reason=str(error), verdict=error.verdict.value)
        except (ExecutionLostError, *_DATABASE_AWAY):
            raise
        except Exception as error:  # noqa: BLE001 - whatever is broken about this table, the other one goes on
            failure = judge_fault(error)
            _log.exception("mirror.broken", table=name)
        await self._reporter.note(ledger, failure)
        return delivery.tally, failure

    async def _settle_target(self, ledger: Ledger, delivery: TableDelivery, *, anew: bool) -> bool:
        """Begin anew where that is needed; False where another process delivers to another place."""
        state, target = await ledger.load(), self._target.fingerprint(ledger.table_name)
        same_target, since = state.target == target, state.delivered_at
        is_rival = not same_target and since is not None and abs(self._clock.now() - since) < KEEPS_TARGET_FOR
        if is_rival and not anew:
            await self._reporter.note_rival(ledger, judge_elsewhere())
            return False
        if anew or not same_target:
            self._prepared.discard(ledger.table_name)
            await delivery.begin_anew(target=target, same_target=same_target)
            self._compared.pop(ledger.table_name, None)
        if self._is_compare_due(ledger.table_name):
            await self._reporter.note_rival(ledger, None)
        return True

    async def _work(self) -> timedelta:
        """A round of the tables that are not paused; how long there is nothing more to do."""
        now = self._clock.now()
        due = [name for name in self._target.tables if name not in self._pauses or self._pauses[name].until <= now]
        try:
            delivered = await self.deliver(tables=due) if due else Delivered()
        except SQLAlchemyError as error:
            # A database that is busy or away for a moment: everything is still in it afterwards.
            _log.warning("mirror.database_failed", reason=type(error).__name__)
            return _LONGEST_NAP
        except Exception:  # noqa: BLE001 - whatever is broken here, the service must go on
            _log.exception("mirror.broken")
            return _LONGEST_NAP
        if not delivered.is_busy:
            self._pause(due, delivered.failures)
        ends = [pause.until - self._clock.now() for pause in self._pauses.values()]
        return max(_SECOND, min([_LONGEST_NAP, *ends]))

    def _pause(self, tried: Collection[str], failures: Mapping[str, FeishuError]) -> None:
        for name in tried:
            earlier = self._pauses.pop(name, None)
            if (error := failures.get(name)) is not None:
                count = earlier.failures + 1 if earlier is not None else 1
                wait = max(_WAITS[min(count, len(_WAITS)) - 1], error.retry_after or timedelta(0))
                self._pauses[name] = _Pause(self._clock.now() + wait, count)

    async def _sleep(self, duration: timedelta) -> None:
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._clock.sleep(duration)),
            asyncio.create_task(self._woken.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
