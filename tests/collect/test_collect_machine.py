"""Hypothesis plays several workers, their deaths and the clock in any order, and compares the writer with a model.

The model knows who holds which candidate until when, and which notes were written. Workers are remote, as n8n's are, so
that a dead one is noticed by its silence alone.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.collect.writer_stage import PLATFORM, make_candidates, make_note, read_candidates, read_sources
from tests.fakes import FakeClock
from tests.stage import open_stage
from tidings.collect.errors import ErrorCode
from tidings.collect.write import Collected, Failed, Result, SettledAction
from tidings.core.executions import Execution, ExecutionLostError
from tidings.wiring import Installation

pytestmark = pytest.mark.slow

WORKERS = st.sampled_from(["one", "two", "three"])
LOCK = timedelta(minutes=30)
# Failures that belong to the note; PLATFORM_ERROR may also be an outage, which pauses the platform.
CODES = st.sampled_from([ErrorCode.INVALID_INPUT, ErrorCode.PLATFORM_ERROR, ErrorCode.COOKIE_INVALID])
ENOUGH_ROUNDS = 400


@dataclass(slots=True)
class Worker:
    """An execution as its worker sees it, which may have been taken away since."""

    execution: Execution
    heard_at: datetime
    held: set[str] = field(default_factory=set)


class CollectMachine(RuleBasedStateMachine):
    """Three workers on the candidates of one platform."""

    def __init__(self, runner: asyncio.Runner, installation: Installation, clock: FakeClock, number: int) -> None:
        super().__init__()
        self.runner, self.clock = runner, clock
        self.writer, self.database = installation.collect.writer, installation.database
        self.prefix = f"{number}-"
        self.workers: dict[str, Worker] = {}
        self.added: set[str] = set()
        self.written: set[str] = set()

    def is_alive(self, worker: Worker) -> bool:
        """Whether its lock has not expired."""
        return self.clock.now() - worker.heard_at <= LOCK

    @rule(name=WORKERS)
    def acquire(self, name: str) -> None:
        acquired = self.runner.run(self.writer.acquire(self.prefix + name, remote=True))
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
        try:
            added = self.runner.run(self.writer.add_candidates(worker.execution, make_candidates(*ids)))
        except ExecutionLostError:
            assert not self.is_alive(worker)
            return
        assert added.created == len(ids - self.added)
        self.added |= ids
        worker.heard_at = self.clock.now()

    @rule(name=WORKERS, limit=st.integers(1, 6))
    def lease(self, name: str, limit: int) -> None:
        worker = self.workers.get(name)
        if worker is None:
            return
        try:
            leased = self.runner.run(self.writer.lease(worker.execution, limit=limit, platform=PLATFORM))
        except ExecutionLostError:
            assert not self.is_alive(worker)
            return
        ids = {each.note_id for each in leased}
        for other in self.workers.values():
            assert not (self.is_alive(other) and other.held & ids), "leased to two"
        assert not ids & self.written
        worker.held |= ids

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
                results.append(Failed(note_id=note_id, code=data.draw(CODES), message="as the test wants it"))
        try:
            settled = self.runner.run(self.writer.settle(worker.execution, PLATFORM, results))
        except ExecutionLostError:
            assert not self.is_alive(worker)
            return
        for each in settled:
            if each.action is SettledAction.CREATED:
                assert each.note_id in worker.held, "written without a lease"
                assert each.note_id not in self.written, "written twice"
                self.written.add(each.note_id)
        worker.held -= chosen
        worker.heard_at = self.clock.now()

    @rule(name=WORKERS)
    def beat(self, name: str) -> None:
        worker = self.workers.get(name)
        if worker is None:
            return
        try:
            self.runner.run(self.writer.heartbeat(worker.execution))
        except ExecutionLostError:
            assert not self.is_alive(worker)
            return
        worker.heard_at = self.clock.now()

    @rule(name=WORKERS)
    def finish(self, name: str) -> None:
        worker = self.workers.pop(name, None)
        if worker is None:
            return
        try:
            self.runner.run(self.writer.finish(worker.execution))
        except ExecutionLostError:
            assert not self.is_alive(worker)

    @rule(minutes=st.sampled_from([1, 10, 29, 31, 90]))
    def pass_time(self, minutes: int) -> None:
        self.clock.advance(timedelta(minutes=minutes))

    @rule()
    def recover(self) -> None:
        self.runner.run(self.writer.recover())

    @rule()
    def requeue(self) -> None:
        self.runner.run(self.writer.requeue(PLATFORM))

    @invariant()
    def every_written_note_is_there_once(self) -> None:
        rows = [row.note_id for row in self.runner.run(read_sources(self.database))]
        ours = [note_id for note_id in rows if note_id.startswith(self.prefix)]
        assert sorted(ours) == sorted(self.written)

    def teardown(self) -> None:
        """Whatever happened: a healthy worker collects the rest, and nothing stays locked."""
        self.clock.advance(timedelta(hours=2))
        self.runner.run(self.collect_rest())
        rows = self.runner.run(read_candidates(self.database))
        ours = {note_id: row for note_id, row in rows.items() if note_id.startswith(self.prefix)}
        assert set(ours) == self.added
        assert {row.status for row in ours.values()} <= {"collected"}
        assert not any(row.processing_lock for row in ours.values())
        self.written |= self.added
        self.every_written_note_is_there_once()

    async def collect_rest(self) -> None:
        await self.writer.requeue(PLATFORM)
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


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as opened:
        yield opened


def test_any_order_of_events_writes_each_note_once_and_leaves_nothing_locked(
    runner: asyncio.Runner, database_url: str, tmp_path: Path
) -> None:
    """C2, C3, C4, C5: leases are exclusive, writes are fenced and idempotent, and recovery frees everything."""
    clock = FakeClock()
    stack = AsyncExitStack()
    installation = runner.run(stack.enter_async_context(open_stage(database_url, tmp_path, clock=clock)))
    numbers = iter(range(10_000))

    class Machine(CollectMachine):
        def __init__(self) -> None:
            super().__init__(runner, installation, clock, next(numbers))

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=30,
                stateful_step_count=40,
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        runner.run(stack.aclose())
