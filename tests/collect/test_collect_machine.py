"""Hypothesis plays several workers, their deaths, the cookies they use and the clock in any order, and compares the
writer and the cookie pool with a model.

The model knows who holds which candidate until when, which notes were written, and the state of each cookie. Workers
are remote, as n8n's are, so that a dead one is noticed by its silence alone.
"""

from collections import Counter
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.collect.cookie_stage import add_cookies, make_pool
from tests.collect.model_cookie import ModelCookie, Use
from tests.collect.writer_stage import PLATFORM, make_candidates, make_note, read_candidates, read_sources
from tests.fakes import FakeClock
from tests.machines import World, WorldMachine, play
from tests.stage import open_stage
from tidings.collect.crawl.cookies.pool import LeasedCookie
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.write.values import Collected, CookieUse, Failed, Result, SettledAction
from tidings.core.executions import Execution, ExecutionLostError
from tidings.wiring.installation import Installation

pytestmark = pytest.mark.slow

T = TypeVar("T")

WORKERS = st.sampled_from(["one", "two", "three"])
LOCK = timedelta(minutes=30)
# Failures that belong to the note; PLATFORM_ERROR may also be an outage, which pauses the platform.
CODES = st.sampled_from([ErrorCode.INVALID_INPUT, ErrorCode.PLATFORM_ERROR, ErrorCode.COOKIE_INVALID])
ENOUGH_ROUNDS = 400
# Cookies and their daily limits. One is so low that it is reached in most orders of events.
COOKIES = {"red": 2, "green": 6, "blue": 6}
REPORTS = {
    Use.SUCCESS: (None, False),
    Use.ERROR: (ErrorCode.COOKIE_INVALID, False),
    Use.CAPTCHA: (ErrorCode.COOKIE_INVALID, True),
    Use.UNRELATED: (ErrorCode.NETWORK_ERROR, False),
}


@dataclass(slots=True)
class Worker:
    """An execution as its worker sees it, which may have been taken away since."""

    execution: Execution
    heard_at: datetime
    # By note, when its lock was renewed last; recovery takes back what is older than `LOCK`.
    held: dict[str, datetime] = field(default_factory=dict)
    # Somebody has ended it: whatever it tries from now on is refused.
    is_lost: bool = False


@dataclass(slots=True)
class Lease:
    """A cookie that a request uses now."""

    name: str
    context: AbstractAsyncContextManager[LeasedCookie]


class CollectMachine(WorldMachine):
    """Three workers on the candidates of one platform, with three cookies."""

    def __init__(self, world: World, installation: Installation, clock: FakeClock, numbers: "count[int]") -> None:
        super().__init__(world)
        self.clock = clock
        self.writer, self.database = installation.collect.writer, installation.database
        self.prefix = f"{next(numbers)}-"
        self.workers: dict[str, Worker] = {}
        self.added: set[str] = set()
        self.written: set[str] = set()
        self.records = installation.collect.cookies
        self.pool = make_pool(self.database, keys=installation.keys, clock=clock)
        self.leases: list[Lease] = []
        # By the table, and by what the pool saw itself, which may never be reported.
        self.stored = {self.prefix + name: ModelCookie() for name in COOKIES}
        self.seen = {name: ModelCookie() for name in self.stored}
        # Uses of today that the table does not count so far.
        self.unreported: Counter[str] = Counter()
        self.today = clock.now().date()
        self.limits = {self.prefix + name: limit for name, limit in COOKIES.items()}
        for name, limit in self.limits.items():
            self.run(add_cookies(self.records, name, daily_limit=limit))

    def is_alive(self, worker: Worker) -> bool:
        """Whether its lock has not expired."""
        return self.clock.now() - worker.heard_at <= LOCK

    def attempt(self, worker: Worker, work: Coroutine[Any, Any, T]) -> tuple[bool, T | None]:
        """Whether a worker could do this, and the result. Only one that was ended is refused, and it always is."""
        try:
            result = self.run(work)
        except ExecutionLostError:
            assert not self.is_alive(worker)
            return False, None
        assert not worker.is_lost, "an execution that was ended has written"
        return True, result

    def lose_silent(self) -> None:
        """Everybody who recovers ends the executions of those that were silent for too long."""
        for worker in self.workers.values():
            worker.is_lost |= not self.is_alive(worker)

    @rule(name=WORKERS)
    def acquire(self, name: str) -> None:
        acquired = self.run(self.writer.acquire(self.prefix + name, remote=True))
        self.lose_silent()
        before = self.workers.get(name)
        if before is not None and self.is_alive(before):
            assert not acquired.locked
        elif acquired.execution is not None:
            self.workers[name] = Worker(acquired.execution, self.clock.now())

    @precondition(lambda self: self.workers)
    @rule(name=WORKERS, numbers=st.sets(st.integers(0, 30), min_size=1, max_size=8))
    def add(self, name: str, numbers: set[int]) -> None:
        worker = self.workers.get(name)
        ids = {f"{self.prefix}{number}" for number in numbers}
        if worker is None:
            return
        _, added = self.attempt(worker, self.writer.add_candidates(worker.execution, make_candidates(*ids)))
        if added is None:
            return
        assert added.created == len(ids - self.added)
        self.added |= ids
        worker.heard_at = self.clock.now()

    @rule(name=WORKERS, limit=st.integers(1, 6))
    def lease(self, name: str, limit: int) -> None:
        worker = self.workers.get(name)
        if worker is None:
            return
        _, leased = self.attempt(worker, self.writer.lease(worker.execution, limit=limit, platform=PLATFORM))
        if leased is None:
            return
        now, ids = self.clock.now(), {each.note_id for each in leased}
        for other in self.workers.values():
            locked = {note_id for note_id, at in other.held.items() if now - at <= LOCK}
            assert not (self.is_alive(other) and locked & ids), "leased to two"
        assert not ids & self.written
        worker.held |= dict.fromkeys(ids, now)

    @rule(name=WORKERS, data=st.data())
    def settle(self, name: str, data: st.DataObject) -> None:
        """Any worker settles anything, also what it lost or never had."""
        worker = self.workers.get(name)
        if worker is None or not self.added:
            return
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.added)), min_size=1, max_size=5))
        results: list[Result] = []
        for note_id in sorted(chosen):
            if data.draw(st.booleans()):
                results.append(Collected(note_id=note_id, note=make_note(note_id)))
            else:
                results.append(Failed(note_id=note_id, error=make_error(data.draw(CODES), "as the test wants it")))
        _, settled = self.attempt(worker, self.writer.settle(worker.execution, PLATFORM, results))
        if settled is None:
            return
        for each in settled:
            if each.action is SettledAction.CREATED:
                assert each.note_id in worker.held, "written without a lease"
                assert each.note_id not in self.written, "written twice"
                self.written.add(each.note_id)
        for note_id in chosen:
            worker.held.pop(note_id, None)
        worker.heard_at = self.clock.now()

    @rule(name=WORKERS)
    def beat(self, name: str) -> None:
        worker = self.workers.get(name)
        if worker is None:
            return
        done, _ = self.attempt(worker, self.writer.heartbeat(worker.execution))
        if done:
            worker.heard_at = self.clock.now()
            worker.held = dict.fromkeys(worker.held, worker.heard_at)

    @rule(name=WORKERS)
    def finish(self, name: str) -> None:
        worker = self.workers.pop(name, None)
        if worker is None:
            return
        self.attempt(worker, self.writer.finish(worker.execution))

    def is_suitable(self, name: str) -> bool:
        """Whether a cookie may be used for a request, if it is free."""
        models = (self.stored[name], self.seen[name])
        for model in models:
            model.settle(self.clock.now())
        used = self.stored[name].used + self.unreported[name]
        return all(model.status == "active" for model in models) and used < self.limits[name]

    @rule()
    def lease_cookie(self) -> None:
        """The pool waits for a busy cookie; so it is asked only if one is free, or none can be used at all."""
        held = {lease.name for lease in self.leases}
        suitable = {name for name in self.stored if self.is_suitable(name)}
        if suitable and suitable <= held:
            return
        context = self.pool.lease(PLATFORM)
        try:
            leased = self.run(context.__aenter__())
        except CrawlError as error:
            assert (error.code, suitable) == (ErrorCode.COOKIE_EXHAUSTED, set()), "a good cookie was kept back"  # noqa: PT017
            return
        assert leased.name in suitable - held, "a cookie that is busy, cooling or used up"
        self.leases.append(Lease(leased.name, context))
        self.unreported[leased.name] += 1

    @precondition(lambda self: self.leases)
    @rule(worker=WORKERS, use=st.sampled_from(Use), first=st.booleans())
    def use_cookie(self, worker: str, use: Use, first: bool) -> None:
        """A request ends. Its worker reports the use, unless it is dead."""
        lease = self.leases.pop(0 if first else -1)
        code, captcha = REPORTS[use]
        error = None if code is None else CrawlError(code, "no", captcha=captcha)
        self.run(lease.context.__aexit__(type(error) if error else None, error, None))
        self.seen[lease.name].record(use, self.clock.now())
        self.report_uses(worker, lease.name, [use])

    @rule(
        worker=WORKERS,
        name=st.sampled_from(sorted(COOKIES)),
        uses=st.lists(st.sampled_from(Use), min_size=2, max_size=3),
    )
    def use_cookie_elsewhere(self, worker: str, name: str, uses: list[Use]) -> None:
        """Another process has used it, whatever its state was here by then, and reports all at once."""
        self.report_uses(worker, self.prefix + name, uses)

    def report_uses(self, worker: str, name: str, uses: list[Use]) -> None:
        holder = self.workers.get(worker)
        if holder is None:
            return
        reported = [
            CookieUse(cookie_name=name, code=code, captcha=captcha) for code, captcha in map(REPORTS.__getitem__, uses)
        ]
        done, _ = self.attempt(holder, self.writer.count_cookie_uses(holder.execution, reported))
        if not done:
            return
        for use in uses:
            self.stored[name].record(use, self.clock.now())
        self.unreported[name] = max(0, self.unreported[name] - len(uses))

    @rule(name=st.sampled_from(sorted(COOKIES)))
    def enable_cookie(self, name: str) -> None:
        # Two times that a cookie is enabled differ.
        self.pass_time(1)
        name = self.prefix + name
        assert self.run(self.records.enable(name))
        self.stored[name].enable(self.clock.now())
        self.seen[name].enable(self.clock.now())

    @rule(minutes=st.sampled_from([1, 10, 29, 31, 90, 600]))
    def pass_time(self, minutes: int) -> None:
        self.clock.advance(timedelta(minutes=minutes))
        if self.clock.now().date() > self.today:
            self.today = self.clock.now().date()
            self.unreported.clear()

    @rule()
    def recover(self) -> None:
        self.run(self.writer.recover())
        self.lose_silent()

    @rule()
    def requeue(self) -> None:
        self.run(self.writer.corrections.requeue(PLATFORM))

    @invariant()
    def every_written_note_is_there_once(self) -> None:
        rows = [row.note_id for row in self.run(read_sources(self.database))]
        ours = [note_id for note_id in rows if note_id.startswith(self.prefix)]
        assert sorted(ours) == sorted(self.written)

    @invariant()
    def every_cookie_is_in_the_state_of_its_model(self) -> None:
        rows = {cookie.name: cookie for cookie in self.run(self.records.list_all())}
        for name, model in self.stored.items():
            model.settle(self.clock.now())
            assert describe(rows[name]) == (model.status, model.in_a_row, model.errors, model.cooling_until, model.used)

    def end(self) -> None:
        """A healthy worker collects the rest, and nothing stays locked."""
        for lease in self.leases:
            self.run(lease.context.__aexit__(None, None, None))
        for name in self.stored:
            assert self.run(self.records.remove(name))
        self.clock.advance(timedelta(hours=2))
        self.run(self.collect_rest())
        rows = self.run(read_candidates(self.database))
        ours = {note_id: row for note_id, row in rows.items() if note_id.startswith(self.prefix)}
        assert set(ours) == self.added
        assert {row.status for row in ours.values()} <= {"collected"}
        assert not any(row.processing_lock for row in ours.values())
        self.written |= self.added
        self.every_written_note_is_there_once()

    async def collect_rest(self) -> None:
        await self.writer.corrections.requeue(PLATFORM)
        acquired = await self.writer.acquire(f"{self.prefix}last", remote=True)
        assert acquired.execution is not None
        for _ in range(ENOUGH_ROUNDS):
            leased = await self.writer.lease(acquired.execution, platform=PLATFORM)
            notes = [Collected(note_id=each.note_id, note=make_note(each.note_id)) for each in leased]
            if notes:
                await self.writer.settle(acquired.execution, PLATFORM, notes)
            rows = await read_candidates(self.database)
            if all(row.status == "collected" for row in rows.values()):
                break
            await self.writer.heartbeat(acquired.execution)
            self.clock.advance(timedelta(minutes=1))
        await self.writer.finish(acquired.execution)


def describe(cookie: Cookie) -> tuple[str, int, int, datetime | None, int]:
    state = cookie.state
    return state.status.value, state.consecutive_errors, state.total_errors, state.cooling_until, state.daily_used


def test_any_order_of_events_writes_each_note_once_and_leaves_nothing_locked(database_url: str, tmp_path: Path) -> None:
    """C2, C3, C4, C5: leases are exclusive, writes are fenced and idempotent, and recovery frees everything.

    C6, C9: a cookie is leased to one request at a time, only while it is active and under its daily limit.
    """
    clock = FakeClock()
    with World() as world:
        installation = world.open(open_stage(database_url, tmp_path, clock=clock))
        play(partial(CollectMachine, world, installation, clock, count()), examples=30, steps=50)
