"""Kill -9 at any point of an execution, then run again: every page reaches every engine, and no more than the requests
in flight are repeated. Real processes, a real kill; the sandbox chooses when, and holds the request back until the
process is dead."""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import pytest

from tests.cli.fork_server import Command
from tests.cli.terminal import Terminal, announce_words, end, make_sandbox
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

pytestmark = pytest.mark.slow

POST_BATCH = 10_000
PATIENCE = timedelta(seconds=30)


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    await opened.close()


class KillPoint(StrEnum):
    """When the process dies."""

    UNTAKEN = "before the engine takes it"
    TAKEN = "after the engine took it and before it answers"
    CRAWL = "while a sitemap is fetched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of one kind of run. `number` counts the requests of `engine`, or the sitemap files, from 1; a crawl
    goes on to its point only after `sent_before` requests to the engine."""

    at: KillPoint
    number: int
    engine: str = "alpha"
    engines: int = 1
    slow: str | None = None
    pages: int = 60
    per_sitemap: int = 20
    method: str = "get"
    concurrency: int = 3
    sent_before: int = 0

    def __str__(self) -> str:
        where = self.at.name.lower()
        slow = f"-slow-{self.slow}" if self.slow else ""
        return (
            f"{self.method}-{self.pages}x{self.engines}{slow}-{where}-{self.engine}-{self.number}-of-{self.concurrency}"
        )

    @property
    def most_repeated(self) -> int:
        """How many pages the requests in flight at one engine can carry."""
        return self.concurrency * (1 if self.method == "get" else POST_BATCH)


BIG = 2 * POST_BATCH + 5_000

POINTS = [
    # By GET, one engine: the first requests, some in the middle, the last.
    Point(at=KillPoint.UNTAKEN, number=1),
    Point(at=KillPoint.UNTAKEN, number=17),
    Point(at=KillPoint.UNTAKEN, number=60),
    Point(at=KillPoint.TAKEN, number=1),
    Point(at=KillPoint.TAKEN, number=30),
    Point(at=KillPoint.TAKEN, number=60),
    # One request at a time: what may be repeated is known to the page.
    Point(at=KillPoint.TAKEN, number=10, concurrency=1),
    Point(at=KillPoint.UNTAKEN, number=11, concurrency=1),
    # Just after the first batch of a hundred was recorded.
    Point(at=KillPoint.UNTAKEN, number=101, pages=120),
    # Two engines, alike and of different speed.
    Point(at=KillPoint.UNTAKEN, number=5, engines=2),
    Point(at=KillPoint.TAKEN, number=33, engines=2, engine="beta"),
    Point(at=KillPoint.UNTAKEN, number=50, engines=2, slow="beta"),
    Point(at=KillPoint.TAKEN, number=4, engines=2, slow="beta", engine="beta"),
    Point(at=KillPoint.TAKEN, number=58, engines=2, slow="beta", engine="beta"),
    # The crawl: before anything is sent, and while the first batch is.
    Point(at=KillPoint.CRAWL, number=1),
    Point(at=KillPoint.CRAWL, number=3, engines=2),
    Point(at=KillPoint.CRAWL, number=5, pages=160, per_sitemap=40, sent_before=20),
    # By POST: the only request, and the second and third of three.
    Point(at=KillPoint.TAKEN, number=1, method="post"),
    Point(at=KillPoint.UNTAKEN, number=2, pages=BIG, per_sitemap=BIG, method="post", concurrency=1),
    Point(at=KillPoint.TAKEN, number=2, pages=BIG, per_sitemap=BIG, method="post", concurrency=1, engines=2),
]


@pytest.mark.parametrize("point", POINTS, ids=str)
async def test_killed_run_loses_nothing_and_repeats_only_what_was_in_flight(terminal: Terminal, point: Point) -> None:
    """A11, A13, A18, A39, design decisions 1, 4 and 5: at every engine, and the next execution goes on at once."""
    async with _make_sandbox(point) as sandbox:
        struck = await _run_and_kill(terminal, sandbox, point)
        second = await terminal.run(*_words(sandbox, point))
        assert second.code == 0, second
        assert second.document["status"] == "succeeded"
        for engine in sandbox.engines:
            assert set(engine.accepted) == set(sandbox.site.urls())
            assert len(_find_repeated(engine)) == engine.accepted.total() - len(engine.accepted) <= point.most_repeated
        if point.at is not KillPoint.CRAWL:
            _check_struck_request(sandbox.engine(point.engine), struck, point)


def _check_struck_request(engine: SandboxEngine, struck: Recorded, point: Point) -> None:
    """What the engine took without the process learning of it is sent again; what it did not take is sent once."""
    urls = set(struck.urls)
    repeated = _find_repeated(engine)
    assert repeated & urls == (urls if point.at is KillPoint.TAKEN else set())
    if point.concurrency == 1:
        assert repeated <= urls


async def test_kills_in_a_row_lose_nothing_and_repeat_only_what_was_in_flight(terminal: Terminal) -> None:
    """A11, A18, design decision 1: resuming is the same as starting, however often."""
    point = Point(at=KillPoint.TAKEN, number=0, engines=2, slow="beta")
    numbers = [8, 25, 45]
    async with _make_sandbox(point) as sandbox:
        for number in numbers:
            await _run_and_kill(terminal, sandbox, Point(at=KillPoint.TAKEN, number=number, engines=2, slow="beta"))
        last = await terminal.run(*_words(sandbox, point))
        assert last.code == 0
        for engine in sandbox.engines:
            assert set(engine.accepted) == set(sandbox.site.urls())
            assert engine.accepted.total() - len(engine.accepted) <= len(numbers) * point.most_repeated


async def test_kill_while_changes_are_sent_loses_no_change(terminal: Terminal) -> None:
    """A11, A12: the old entry in the ledger does not pass for the new one."""
    point = Point(at=KillPoint.UNTAKEN, number=64)
    changed = range(1, 11)
    async with _make_sandbox(point) as sandbox:
        assert (await terminal.run(*_words(sandbox, point))).code == 0
        sandbox.site.change_many(changed)
        struck = await _run_and_kill(terminal, sandbox, point)
        assert struck.urls[0] in {sandbox.site.url(number) for number in changed}
        assert (await terminal.run(*_words(sandbox, point))).code == 0
        accepted = sandbox.engines[0].accepted
        assert all(accepted[sandbox.site.url(number)] >= 2 for number in changed)
        assert accepted.total() <= 60 + len(changed) + point.concurrency


async def test_kill_in_the_wait_after_429_keeps_the_engines_rest_and_frees_the_site_at_once(terminal: Terminal) -> None:
    """A21, A39, design decision 4: the dead execution is `interrupted`, not waited for; the engine's wish for a rest
    outlives the process that heard it."""
    rest = 4
    point = Point(at=KillPoint.UNTAKEN, number=0, engines=2, slow="beta")
    async with _make_sandbox(point) as sandbox:
        alpha, beta = sandbox.engines
        alpha.misbehave(Fault(status=429, headers={"Retry-After": str(rest)}, times=1))
        process = await terminal.start(*_words(sandbox, point), "--verbose", TIDINGS_RETRY_SCALE="1")
        await _read_until(process, b"batch.retry")
        # Every request waits for its turn in the same queue of writes: after some more, the rest is written too.
        await beta.wait_for_requests(len(beta.requests) + 8, timeout=PATIENCE)
        await _kill(process)
        await process.communicate()
        asked_before = len(alpha.requests)
        second = await terminal.run(*_words(sandbox, point))
        shown = await terminal.run("status", sandbox.site.host, "--json")
        assert second.code == 0
        assert second.document["durationMs"] < 1_000 * (rest + 10)
        assert [each["status"] for each in shown.document["executions"]] == ["succeeded", "interrupted"]
        assert alpha.requests[asked_before].at - alpha.requests[0].at >= rest
        for engine in sandbox.engines:
            assert set(engine.accepted) == set(sandbox.site.urls())
            assert engine.accepted.total() - len(engine.accepted) <= point.most_repeated


async def test_killed_run_on_postgresql_loses_nothing(terminal: Terminal, postgres_url: str) -> None:
    """A11, A18, A39, design decision 2: the same on the other database, where the dead process's connection is cut."""
    terminal.variables["TIDINGS_DATABASE_URL"] = postgres_url
    point = Point(at=KillPoint.TAKEN, number=30, engines=2)
    async with _make_sandbox(point) as sandbox:
        await _run_and_kill(terminal, sandbox, point)
        second = await terminal.run(*_words(sandbox, point))
        assert second.code == 0, second
        assert second.document["status"] == "succeeded"
        for engine in sandbox.engines:
            assert set(engine.accepted) == set(sandbox.site.urls())
            assert engine.accepted.total() - len(engine.accepted) <= point.most_repeated


def _make_sandbox(point: Point) -> Sandbox:
    sandbox = make_sandbox(pages=point.pages, per_sitemap=point.per_sitemap, engines=point.engines)
    if point.slow:
        sandbox.engine(point.slow).misbehave(Fault(FaultKind.SLOW, latency=timedelta(milliseconds=30)))
    return sandbox


def _words(sandbox: Sandbox, point: Point) -> list[str]:
    return announce_words(sandbox, "--method", point.method, "--json")


async def _run_and_kill(terminal: Terminal, sandbox: Sandbox, point: Point) -> Recorded:
    """Start an execution that dies at the point; returns the request at which it did."""
    process = await terminal.start(*_words(sandbox, point), MAX_CONCURRENT_REQUESTS=str(point.concurrency))
    struck = (
        _arm_crawl(sandbox, point, process) if point.at is KillPoint.CRAWL else _arm_engine(sandbox, point, process)
    )
    ended = await end(process)
    assert ended.code == -signal.SIGKILL, ended
    async with asyncio.timeout(PATIENCE.total_seconds()):
        request = await struck
    sandbox.site.on_request = None
    for engine in sandbox.engines:
        engine.on_request = engine.on_answer = None
    return request


def _arm_engine(sandbox: Sandbox, point: Point, process: Command) -> asyncio.Future[Recorded]:
    engine = sandbox.engine(point.engine)
    struck: asyncio.Future[Recorded] = asyncio.get_running_loop().create_future()
    count = len(engine.requests) if point.at is KillPoint.UNTAKEN else engine.accepted.total()

    async def strike(recorded: Recorded) -> None:
        nonlocal count
        count += 1
        if count != point.number:
            return
        await _kill(process)
        if point.at is KillPoint.UNTAKEN:
            # Set while this request waits in its hook, so it is the one that is hit.
            engine.misbehave(Fault(FaultKind.RESET, times=1, matching=recorded.urls[0]))
        struck.set_result(recorded)

    if point.at is KillPoint.UNTAKEN:
        engine.on_request = strike
    else:
        engine.on_answer = strike
    return struck


def _arm_crawl(sandbox: Sandbox, point: Point, process: Command) -> asyncio.Future[Recorded]:
    struck: asyncio.Future[Recorded] = asyncio.get_running_loop().create_future()
    files = 0

    async def strike(recorded: Recorded) -> None:
        nonlocal files
        if not recorded.path.startswith("/sitemap"):
            return
        files += 1
        if files == point.number:
            await sandbox.engine(point.engine).wait_for_requests(point.sent_before, timeout=PATIENCE)
            await _kill(process)
            struck.set_result(recorded)

    sandbox.site.on_request = strike
    return struck


async def _kill(process: Command) -> None:
    """Return once the process is dead: whatever it had not done by now it never will."""
    process.kill()
    await process.wait()


async def _read_until(process: Command, words: bytes) -> None:
    """Read the process's log on standard error up to the line with these words."""
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while words not in (line := await process.stderr.readline()):
            assert line, "it ended without saying so"


def _find_repeated(engine: SandboxEngine) -> set[str]:
    return {url for url, times in engine.accepted.items() if times > 1}
