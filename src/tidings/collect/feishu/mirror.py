"""The mirror as the rest of the program uses it: deliver once, deliver in a loop, rebuild, and report its status.

One process delivers at a time, as the execution `mirror`. A finished delivery leaves no row among the executions.
`delivery` knows how one table gets to Feishu. Every few minutes the mirror also reads what people ask for there; the
caller gives it the reader.
"""

import itertools
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from sqlalchemy import func, select
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.feishu.client import BitableClient, FeishuTarget
from tidings.collect.feishu.delivery import RecordCounts, TableDelivery
from tidings.collect.feishu.errors import OTHER_TARGET, PASSING, FeishuError, make_internal_error
from tidings.collect.feishu.rows import COMPARE_EVERY, MIRRORED_TABLES, RowKey
from tidings.collect.feishu.store import MirrorStore
from tidings.collect.mirror_tables import mirror_failures, mirror_intents, mirror_outbox, mirror_state
from tidings.collect.tables import MIRROR, candidates
from tidings.core.alerts.events import Alert
from tidings.core.alerts.service import Alerts
from tidings.core.backoff import Backoff
from tidings.core.clock import CLOCK_TOLERANCE, Clock, read_timestamp, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import AlreadyRunningError, Execution, ExecutionLostError, Executions
from tidings.core.logs.logger import get_logger
from tidings.core.loop import Loop
from tidings.core.stop import Stop

WORKFLOW: Final = "mirror"
# An outage raises an alert after this long. An error that needs a person raises one at once.
ALERT_AFTER: Final = timedelta(minutes=30)
# People's requests are read this often. This part of the mirror has this name beside the tables.
READ_EVERY: Final = timedelta(minutes=5)
READ_BACK: Final = "read back"
# After a delivery to one target, a process with another target waits this long.
TARGET_KEPT_FOR: Final = timedelta(minutes=10)

_SECOND: Final = timedelta(seconds=1)
# How long a failing table is paused.
_PAUSES: Final = Backoff((5 * _SECOND, 15 * _SECOND, 45 * _SECOND, 120 * _SECOND, 300 * _SECOND))
# The loop checks the outbox this often.
_LOOK_EVERY: Final = 15 * _SECOND
_REBUILD_PATIENCE: Final = timedelta(minutes=10)
_DATABASE_AWAY: Final = (OperationalError, InterfaceError, InternalError, PoolTimeoutError)

_log = get_logger(__name__)


class RequestReader(Protocol):
    """Reads what people ask for, and carries it out. Raises FeishuError and ExecutionLostError."""

    def __call__(self, client: BitableClient, store: MirrorStore, *, has_candidates: bool) -> Awaitable[None]:
        """`store` is that of the candidates. `has_candidates`: whether the target has their records."""


@dataclass(slots=True)
class MirrorResult(RecordCounts):
    """The result of one delivery."""

    # Tables that were not delivered completely, by name. Their rows stay pending.
    failures: dict[str, FeishuError] = field(default_factory=dict)
    # Another process delivers, so nothing was done here.
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The status of the mirror."""

    # Pending changes; a row that changed twice counts twice.
    waiting: int
    # Since when the oldest change is pending.
    oldest: datetime | None
    # Rows that Feishu did not take; they are tried again when they change.
    refused: int
    # The latest error of a table that fails; None if every table works.
    last_error: str | None
    failed_at: datetime | None
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Pause:
    """A failing table is left alone for a while."""

    until: datetime
    failures: int


@dataclass(slots=True, eq=False)
class FeishuMirror:
    """The mirror in the target of `client`. Several processes may run one on the same database."""

    database: Database
    _: KW_ONLY
    client: BitableClient
    executions: Executions
    alerts: Alerts
    clock: Clock
    read_requests: RequestReader | None = None
    # Tables whose fields are known to be right.
    _prepared: set[str] = field(default_factory=set, init=False)
    # When each part was last compared or read, and when each table was last compared as a whole.
    _looked_at: dict[str, datetime] = field(default_factory=dict, init=False)
    _compared_whole_at: dict[str, datetime] = field(default_factory=dict, init=False)
    # Executions to release, with the stores that may first have to mark rows in doubt.
    _unreleased: list[tuple[Execution, list[MirrorStore]]] = field(default_factory=list, init=False)
    _pauses: dict[str, _Pause] = field(default_factory=dict, init=False)

    @property
    def _target(self) -> FeishuTarget:
        return self.client.target

    @property
    def _parts(self) -> list[str]:
        return [*self._target.tables, *([] if self.read_requests is None else [READ_BACK])]

    async def deliver(self, *, tables: Collection[str] | None = None) -> MirrorResult:
        """Deliver every pending change once, of all parts or of these. Failures are in the result."""
        await self._release_all()
        due = [name for name in await self._list_due() if tables is None or name in tables]
        if not due:
            return MirrorResult()
        try:
            execution = await self.executions.acquire(WORKFLOW, kind=MIRROR)
        except AlreadyRunningError:
            return MirrorResult(is_busy=True)
        return await self._deliver_tables(execution, due, rebuild=False)

    async def rebuild(self) -> MirrorResult:
        """Make the base equal to our tables, without trusting what is known of it.

        Waits for a delivery in progress; raises AlreadyRunningError after ten minutes.
        """
        await self._release_all()
        for remaining in itertools.count(_REBUILD_PATIENCE // _SECOND, -1):
            try:
                execution = await self.executions.acquire(WORKFLOW, kind=MIRROR)
                break
            except AlreadyRunningError:
                if remaining == 0:
                    raise
                await self.clock.sleep(_SECOND)
        return await self._deliver_tables(execution, list(self._target.tables), rebuild=True)

    async def run(self, stop: Stop) -> None:
        """Deliver pending changes until the stop signal, which cancels a delivery in progress.

        The next execution looks up the outcome of a request in flight.
        """
        loop = Loop("mirror", clock=self.clock, after_error=_LOOK_EVERY)
        await loop.run(lambda: stop.wait_for(self._deliver_due()), stop)

    async def describe(self) -> MirrorStatus:
        """The status of the mirror over all processes, as its tables tell it."""
        outbox, failures, state = mirror_outbox.c, mirror_failures.c, mirror_state.c
        pending = select(func.count(), func.min(outbox.created_at)).where(outbox.table_name.in_(self._parts))
        refusals = select(func.count()).where(failures.table_name.in_(self._parts))
        states = select(state.delivered_at, state.last_error, state.failed_at).where(state.table_name.in_(self._parts))
        async with self.database.read() as connection:
            waiting, oldest = (await connection.execute(pending)).one()
            refused = (await connection.execute(refusals)).scalar_one()
            rows = (await connection.execute(states)).all()
        failing = max((row for row in rows if row.last_error), key=lambda row: row.failed_at, default=None)
        return MirrorStatus(
            waiting=waiting,
            oldest=read_timestamp(oldest),
            refused=refused,
            last_error=None if failing is None else failing.last_error,
            failed_at=None if failing is None else read_timestamp(failing.failed_at),
            delivered_at=read_timestamp(max((row.delivered_at for row in rows if row.delivered_at), default=None)),
        )

    async def _list_due(self) -> list[str]:
        """The tables with pending changes, with a create of unknown outcome, with a new target, or due to compare."""
        targets = select(mirror_state.c.table_name, mirror_state.c.target)
        async with self.database.read() as connection:
            known = {row.table_name: row.target for row in await connection.execute(targets)}
            found = {name for name in self._target.tables if known.get(name) != self._target.fingerprint(name)}
            for table, name in itertools.product((mirror_outbox, mirror_intents), self._target.tables):
                some = select(table.c.table_name).where(table.c.table_name == name).limit(1)
                found |= {row.table_name for row in await connection.execute(some)}
        return [name for name in self._parts if name in found or self._is_due(name)]

    def _is_due(self, name: str) -> bool:
        """Whether the table is due to be compared, or Feishu to be read."""
        every = READ_EVERY if name == READ_BACK else MIRRORED_TABLES[name].compare_every
        return self._is_over(self._looked_at.get(name), every)

    def _is_over(self, since: datetime | None, pause: timedelta) -> bool:
        return since is None or self.clock.now() - since >= pause

    async def _deliver_tables(self, execution: Execution, names: Collection[str], *, rebuild: bool) -> MirrorResult:
        result, stores = MirrorResult(), list[MirrorStore]()
        try:
            for name in names:
                stores.append(self._open_store(candidates.name if name == READ_BACK else name, execution))
                error = await self._work_on(name, stores[-1], result, rebuild=rebuild)
                if error is not None:
                    result.failures[name] = error
        except ExecutionLostError as error:
            _log.warning("mirror.lost", reason=str(error))
            return MirrorResult(is_busy=True)
        finally:
            self._unreleased.append((execution, stores))
            try:
                await self._release_all()
            except SQLAlchemyError as error:
                # The database is away. The next delivery releases it first.
                _log.warning("mirror.not_released", reason=type(error).__name__)
        counts = {name: getattr(result, name) for name in RecordCounts.__slots__}
        if any(counts.values()):
            _log.info("mirror.delivered", **counts)
        return result

    def _open_store(self, name: str, execution: Execution) -> MirrorStore:
        return MirrorStore(
            self.database, MIRRORED_TABLES[name], executions=self.executions, execution=execution, clock=self.clock
        )

    async def _release_all(self) -> None:
        """Release executions that ended, after marking rows in doubt if the lock was lost."""
        while self._unreleased:
            execution, stores = self._unreleased[0]
            for store in stores:
                await store.release()
            await self.executions.abandon(execution)
            self._unreleased.pop(0)

    async def _work_on(
        self, name: str, store: MirrorStore, counts: RecordCounts, *, rebuild: bool
    ) -> FeishuError | None:
        """Deliver a table, or read what people ask for. Returns the error that stops this part of the mirror."""
        failure = None
        try:
            if name == READ_BACK:
                await self._read_back(store)
            elif not await self._deliver_table(store, counts, rebuild=rebuild):
                return FeishuError(OTHER_TARGET)
        except FeishuError as error:
            _log.warning("table.failed", table=name, reason=str(error), kind=error.kind.value)
            failure = error
        except (ExecutionLostError, *_DATABASE_AWAY):
            raise
        except Exception as error:  # noqa: BLE001 - a bug that concerns one table must not stop the others
            _log.exception("mirror.broken", table=name)
            failure = make_internal_error(error)
        await self._record_result(store, name, failure)
        return failure

    async def _deliver_table(self, store: MirrorStore, counts: RecordCounts, *, rebuild: bool) -> bool:
        """False if another process delivers the table to another target."""
        name = store.table_name
        delivery = TableDelivery(
            client=self.client,
            store=store,
            table_id=self._target.tables[name],
            clock=self.clock,
            prepared=self._prepared,
            counts=counts,
        )
        if not await self._choose_target(store, delivery, rebuild=rebuild):
            return False
        if self._is_due(name):
            await self._compare(delivery, name)
        await delivery.deliver()
        return True

    async def _compare(self, delivery: TableDelivery, name: str) -> None:
        """Compare all rows, or between two such comparisons those that may have changed since the last one."""
        whole = self._compared_whole_at.get(name)
        since = None
        if MIRRORED_TABLES[name].choose_changed is not None and not self._is_over(whole, COMPARE_EVERY):
            # Another machine's clock may be behind ours.
            since = self._looked_at[name] - CLOCK_TOLERANCE
        now = self.clock.now()
        await delivery.compare(since=since)
        self._looked_at[name] = now
        if since is None:
            self._compared_whole_at[name] = now

    async def _read_back(self, store: MirrorStore) -> None:
        """Read what people ask for in Feishu."""
        await store.load()
        is_mirrored = store.table_name in self._target.tables
        is_known = is_mirrored and store.target == self._target.fingerprint(store.table_name)
        if self.read_requests is not None:
            await self.read_requests(self.client, store, has_candidates=is_known)
        self._looked_at[READ_BACK] = self.clock.now()

    async def _choose_target(self, store: MirrorStore, delivery: TableDelivery, *, rebuild: bool) -> bool:
        """Start over for a rebuild or a new target. False if another process delivers to another target."""
        name = store.table_name
        await store.load()
        target, since = self._target.fingerprint(name), store.delivered_at
        is_same = store.target == target
        is_taken = not is_same and since is not None and abs(self.clock.now() - since) < TARGET_KEPT_FOR
        if is_taken and not rebuild:
            await self._update_target_alert(store, FeishuError(OTHER_TARGET))
            return False
        if rebuild or not is_same:
            self._prepared.discard(name)
            await delivery.start_over(target=target, same_target=is_same)
            self._looked_at.pop(name, None)
            self._compared_whole_at.pop(name, None)
        if self._is_due(name):
            await self._update_target_alert(store, None)
        return True

    async def _record_result(self, store: MirrorStore, name: str, error: FeishuError | None) -> None:
        """Store the error of a part for the status, and raise or resolve its alert."""
        values: dict[str, Any] = {"last_error": None}
        if error is not None:
            values = {"last_error": str(error), "failed_at": to_milliseconds(self.clock.now())}
        new = {"table_name": name, "target": "", "owner": "", "signature": "", **values}
        statement = self.database.insert(mirror_state).values(new)
        failures = mirror_failures.c
        is_refused = failures.table_name == name
        latest = select(mirror_failures).where(is_refused).order_by(failures.failed_at.desc()).limit(1)
        async with store.guard() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["table_name"], set_=values))
            refused = (await connection.execute(latest)).first()
            if error is not None:
                alert = Alert(CollectAlert.MIRROR_FAILED, name, str(error), error.action)
                after = ALERT_AFTER if error.kind in PASSING else timedelta(0)
                await self.alerts.raise_alert(connection, alert, after=after)
            elif refused is not None:
                count = (await connection.execute(select(func.count()).where(is_refused))).scalar_one()
                reason = f"{RowKey(refused.platform, refused.note_id).text}: {refused.reason}"
                await self.alerts.raise_alert(
                    connection, Alert(CollectAlert.MIRROR_FAILED, name, reason, refused.action, count)
                )
            else:
                await self.alerts.resolve_alert(connection, CollectAlert.MIRROR_FAILED, name)
        self.alerts.wake()

    async def _update_target_alert(self, store: MirrorStore, error: FeishuError | None) -> None:
        """Raise or resolve the alert that two processes mirror a table to two targets.

        It has a subject of its own: the other process resolves the table's alert after each delivery.
        """
        subject = f"{store.table_name} in two places"
        async with store.guard() as connection:
            if error is None:
                await self.alerts.resolve_alert(connection, CollectAlert.MIRROR_FAILED, subject)
            else:
                await self.alerts.raise_alert(
                    connection, Alert(CollectAlert.MIRROR_FAILED, subject, str(error), error.action)
                )
        self.alerts.wake()

    async def _deliver_due(self) -> timedelta:
        """Deliver the tables that are not paused. Returns how long to sleep."""
        now = self.clock.now()
        due = [name for name in self._parts if name not in self._pauses or self._pauses[name].until <= now]
        result = await self.deliver(tables=due) if due else MirrorResult()
        if not result.is_busy:
            self._update_pauses(due, result.failures)
        remaining = [pause.until - self.clock.now() for pause in self._pauses.values()]
        return max(_SECOND, min([_LOOK_EVERY, *remaining]))

    def _update_pauses(self, names: Collection[str], failures: Mapping[str, FeishuError]) -> None:
        for name in names:
            earlier = self._pauses.pop(name, None)
            if (error := failures.get(name)) is not None:
                count = 1 if earlier is None else earlier.failures + 1
                delay = _PAUSES.next_delay(count, at_least=error.retry_after) or timedelta(0)
                self._pauses[name] = _Pause(self.clock.now() + delay, count)
