"""What the crawl API itself costs where the platform answers at once, and how a batch shares its cookies, measured in
one run and judged.

    python -m benchmarks.crawl [--rounds N] [--seconds N] [--record] [--profile FILE]

Exit code 0: all promises are kept. 1: one is not. 2: something could not be measured. `crawl.md` has the details.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.child import OTHER_CORE, TOKEN
from benchmarks.crawled import EMPTY_PATH, Crawled
from benchmarks.load import Latencies
from benchmarks.measurement import SubjectError
from benchmarks.report import describe_machine, format_results, format_table, write_readme
from benchmarks.verdicts import Mark, Verdict
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.core.clock import SystemClock
from tidings.core.db.database import open_database
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.weibo import SandboxWeibo, name_post
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.wiring.opening import prepare_tables

PAGE = Path(__file__).parent / "crawl.md"
RESULTS = Path(__file__).parent / "results"
MOST_MS = 25.0
LEAST_SHARE = 1 / 2
# Beyond it, the machine was too busy: a route that does nothing takes a few milliseconds.
MOST_EMPTY_MS = 8.0
MOST_STRETCH = 1.5
CALLERS = 8
RATE = 50.0
COOKIES = 16
COOKIE_COUNTS = (5, 10, 25)
BATCH = 50
PLATFORM_LATENCY = timedelta(milliseconds=200)
DETAIL_PATH, BATCH_PATH = "/crawler/detail", "/crawler/detail/batch"
DETAIL = {"platform": "weibo", "note_id": name_post(30)}

_LONGEST_SECONDS = 70.0
_DAILY_LIMIT = 1_000_000


class Caller:
    """One connection to the API that is kept, for one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, document: object) -> dict[str, Any]:
        """Raises SubjectError where the answer is not 200."""
        body = json.dumps(document).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with asyncio.timeout(_LONGEST_SECONDS):
            reader, writer = await self._connect()
            writer.write(head.encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).lower().splitlines()
            lengths = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
            answer = await reader.readexactly(lengths[0])
        if b" 200 " not in lines[0]:
            raise SubjectError(f"{path} was answered {lines[0]!r}: {answer[:300]!r}")
        found: dict[str, Any] = json.loads(answer)
        return found

    async def close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._connection is None:
            self._connection = await asyncio.open_connection("127.0.0.1", self._port)
        return self._connection


@dataclass(slots=True)
class RouteTimes:
    """A route under measurement: requests a second and milliseconds of CPU for each, by round; latencies of all."""

    name: str
    path: str
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    @property
    def seen(self) -> Latencies:
        return Latencies(self.latencies)


@dataclass(frozen=True, slots=True)
class Overhead:
    """The API against the route that does nothing, measured in turns."""

    detail: RouteTimes
    empty: RouteTimes

    @property
    def share(self) -> float:
        """Of the empty route's requests a second, the middle one of all rounds."""
        return statistics.median(mine / other for mine, other in zip(self.detail.rates, self.empty.rates, strict=True))


@dataclass(frozen=True, slots=True)
class BatchTime:
    """Seconds that a batch took, by round, with so many cookies."""

    cookies: int
    seconds: Sequence[float]

    @property
    def busiest_cookie(self) -> float:
        return -(-BATCH // self.cookies) * PLATFORM_LATENCY.total_seconds()

    @property
    def stretch(self) -> float:
        return statistics.median(self.seconds) / self.busiest_cookie


def judge_overhead(overhead: Overhead) -> list[Verdict]:
    p99, empty = overhead.detail.seen.p99, overhead.empty.seen.p99
    mark = _mark(p99 < MOST_MS)
    if mark is Mark.FAIL and empty > MOST_EMPTY_MS:
        mark = Mark.NOISE
    share = f"{overhead.share:.2f} of them"
    return [
        Verdict(f"detail of a note: p99 under {MOST_MS:.0f} ms", f"{p99:.2f} ms", mark),
        Verdict(
            "detail of a note: at least 1/2 of the empty route's requests a second",
            share,
            _mark(overhead.share >= LEAST_SHARE),
        ),
    ]


def judge_batch(batch: BatchTime) -> Verdict:
    promise = f"batch of {BATCH}, {batch.cookies} cookies: under {MOST_STRETCH} times the busiest cookie"
    return Verdict(promise, f"{batch.stretch:.2f} times", _mark(batch.stretch < MOST_STRETCH))


def _mark(kept: bool) -> Mark:
    return Mark.PASS if kept else Mark.FAIL


def format_overhead(overhead: Overhead) -> str:
    rows = [
        (
            route.name,
            f"{statistics.median(route.rates):.0f}",
            f"{min(route.cpu):.2f}",
            f"{route.seen.median:.2f}",
            f"{route.seen.p99:.2f}",
        )
        for route in (overhead.empty, overhead.detail)
    ]
    heads = ("", f"requests a second, {CALLERS} at once", "CPU ms for each", f"p50 ms, {RATE:.0f} a second", "p99 ms")
    return format_table(heads, rows)


def format_batches(batches: Sequence[BatchTime]) -> str:
    rows = [
        (f"{batch.cookies} cookies", f"{batch.busiest_cookie:.2f}", f"{statistics.median(batch.seconds):.2f}")
        for batch in batches
    ]
    return format_table((f"batch of {BATCH}, in s", "busiest cookie", "measured"), rows)


@asynccontextmanager
async def open_api(folder: Path, *, cookies: int, **variables: str) -> AsyncIterator[tuple[Crawled, SandboxWeibo]]:
    """The API on a data directory of its own, with so many cookies of a sandbox's accounts."""
    key, sessions = new_master_key(), [f"_2A-session-of-account-{number}" for number in range(cookies)]
    await _store_cookies(folder, key=key, sessions=sessions)
    async with SandboxWeibo(sessions=sessions) as platform:
        environment = {
            "TIDINGS_DATA_DIR": str(folder),
            "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
            "COOKIE_MASTER_KEY": key,
            "WEIBO_BASE_URL": platform.origin,
            "PLATFORM_INTERVAL_SECONDS": "0",
            "COOKIE_INTERVAL_SECONDS": "0",
            **variables,
        }
        api = await asyncio.to_thread(Crawled, environment)
        try:
            yield api, platform
        finally:
            await asyncio.to_thread(api.__exit__, None, None, None)


def _make_folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir(mode=0o700)
    return folder


async def _store_cookies(folder: Path, *, key: str, sessions: Sequence[str]) -> None:
    database = open_database(f"sqlite:///{folder / 'tidings.db'}")
    try:
        await prepare_tables(database)
        records = CookieRecords(database, keys=KeyRing.parse(key), clock=SystemClock())
        for number, session in enumerate(sessions):
            secret = Secret(f"SUB={session}")
            await records.add(make_cookie(f"c{number:03}", platform="weibo", secret=secret, daily_limit=_DAILY_LIMIT))
    finally:
        await database.close()


async def measure_overhead(folder: Path, *, rounds: int, seconds: float, profile: Path | None) -> Overhead:
    """Raises SubjectError."""
    variables = {} if profile is None else {"PROFILE": str(profile)}
    overhead = Overhead(
        RouteTimes("detail of a note", DETAIL_PATH), RouteTimes("a route that does nothing", EMPTY_PATH)
    )
    async with open_api(_make_folder(folder, "overhead"), cookies=COOKIES, **variables) as (api, _):
        callers = [Caller(api.port) for _ in range(CALLERS)]
        for route in (overhead.detail, overhead.empty):
            await flood(route.path, callers=callers, seconds=1)
        for number in range(rounds):
            _say(f"overhead, round {number + 1} of {rounds}")
            # By turns, so that neither is always the first.
            for route in (overhead.detail, overhead.empty) if number % 2 else (overhead.empty, overhead.detail):
                await measure_route(route, callers=callers, seconds=seconds)
        for caller in callers:
            await caller.close()
    return overhead


async def measure_route(route: RouteTimes, *, callers: Sequence[Caller], seconds: float) -> None:
    before = await read_cpu(callers[0])
    began = time.monotonic()
    count = await flood(route.path, callers=callers, seconds=seconds)
    route.rates.append(count / (time.monotonic() - began))
    route.cpu.append((await read_cpu(callers[0]) - before) / count * 1000)
    route.latencies += await ask_steadily(route.path, callers=callers, seconds=seconds)


async def read_cpu(caller: Caller) -> float:
    return float((await caller.ask(EMPTY_PATH, {}))["cpu"])


async def flood(path: str, *, callers: Sequence[Caller], seconds: float) -> int:
    """How many requests were answered in this time, where each caller sends the next one at once."""
    over = time.monotonic() + seconds

    async def ask(caller: Caller) -> int:
        count = 0
        while time.monotonic() < over:
            await caller.ask(path, DETAIL)
            count += 1
        return count

    return sum(await asyncio.gather(*(ask(caller) for caller in callers)))


async def ask_steadily(path: str, *, callers: Sequence[Caller], seconds: float) -> list[float]:
    """How long each answer took, from the moment that its request was due, in milliseconds."""
    loop, free = asyncio.get_running_loop(), asyncio.Queue[Caller]()
    for caller in callers:
        free.put_nowait(caller)

    async def ask(due: float) -> float:
        caller = await free.get()
        await caller.ask(path, DETAIL)
        free.put_nowait(caller)
        return (loop.time() - due) * 1000

    begin, tasks = loop.time() + 0.05, []
    for number in range(round(seconds * RATE)):
        due = begin + number / RATE
        await asyncio.sleep(due - loop.time())
        tasks.append(asyncio.create_task(ask(due)))
    return [await task for task in tasks]


async def measure_batch(folder: Path, *, cookies: int, rounds: int) -> BatchTime:
    """Raises SubjectError."""
    document = {"platform": "weibo", "items": [{"note_id": name_post(number)} for number in range(1, BATCH + 1)]}
    seconds = []
    async with open_api(_make_folder(folder, f"batch-{cookies}"), cookies=cookies) as (api, platform):
        caller = Caller(api.port)
        await caller.ask(DETAIL_PATH, DETAIL)
        platform.misbehave(Fault(FaultKind.SLOW, latency=PLATFORM_LATENCY))
        for number in range(rounds):
            _say(f"batch with {cookies} cookies, round {number + 1} of {rounds}")
            began = time.monotonic()
            answer = await caller.ask(BATCH_PATH, document)
            seconds.append(time.monotonic() - began)
            if answer["summary"]["succeeded"] != BATCH:
                raise SubjectError(f"not all items were read: {answer['summary']}")
        await caller.close()
    return BatchTime(cookies, seconds)


async def measure(options: argparse.Namespace, folder: Path) -> tuple[Overhead, list[BatchTime]]:
    """Raises SubjectError."""
    overhead = await measure_overhead(folder, rounds=options.rounds, seconds=options.seconds, profile=options.profile)
    return overhead, [await measure_batch(folder, cookies=cookies, rounds=options.rounds) for cookies in COOKIE_COUNTS]


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    # Whatever this process starts inherits both; the API moves to a core of its own.
    os.sched_setaffinity(0, {OTHER_CORE})
    # What is measured is the API, not whoever else works on this machine. Only root may do this.
    with suppress(PermissionError):
        os.nice(-15)
    try:
        with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
            overhead, batches = asyncio.run(measure(options, Path(folder)))
    except SubjectError as error:
        _say(str(error))
        return 2
    verdicts = [*judge_overhead(overhead), *map(judge_batch, batches)]
    text = "\n\n".join(
        [
            format_results(machine, table=None, verdicts=verdicts),
            format_overhead(overhead),
            format_batches(batches),
        ]
    )
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    _say(f"everything is in {_save(machine, overhead, batches)}")
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _save(machine: dict[str, str], overhead: Overhead, batches: Sequence[BatchTime]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-crawl.json"
    results = {"overhead": asdict(overhead), "batches": [asdict(batch) for batch in batches]}
    path.write_text(json.dumps({"machine": machine, **results}))
    return path


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crawl", description="Measure the crawl API.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured [5]")
    parser.add_argument("--seconds", type=float, default=10, help="how long one turn takes [10]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    parser.add_argument("--profile", type=Path, help="write where the API's time goes (cProfile) to this file")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
