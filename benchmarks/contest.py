"""/status beside a route that does nothing, in the same process and in turns, at a steady rate and while an execution
runs: one that sends page by page, and one that has a large sitemap to read.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.child import TOKEN
from benchmarks.files import Variant
from benchmarks.history import name_site
from benchmarks.load import Latencies, Load
from benchmarks.measurement import SubjectError
from benchmarks.served import Served
from benchmarks.stage import Stage

RATE = 200
ROUND_SECONDS = 20
QUIET_SECONDS = 5
STEADY_PAGES = 20_000
LARGE_PAGES = 200_000


@dataclass(frozen=True, slots=True)
class Track:
    """One route: the latencies of all its requests, and, round by round, the milliseconds of CPU for one of them and
    the share of the time in which the process was kept from its core.
    """

    name: str
    latencies: list[float] = field(default_factory=list, repr=False)
    cpu: list[float] = field(default_factory=list)
    kept_waiting: list[float] = field(default_factory=list)

    @property
    def seen(self) -> Latencies:
        return Latencies(self.latencies)


@dataclass(frozen=True, slots=True)
class Contest:
    """Both routes beside one kind of execution. `even`: that uses the same share of the core all the time."""

    name: str
    even: bool
    empty: Track = field(default_factory=lambda: Track("a route that does nothing"))
    status: Track = field(default_factory=lambda: Track("GET /status"))

    @property
    def cpu_ratio(self) -> float:
        return min(self.status.cpu) / min(self.empty.cpu)

    @property
    def median_ratio(self) -> float:
        return self.status.seen.median / self.empty.seen.median

    @property
    def p99_ratio(self) -> float:
        return self.status.seen.p99 / self.empty.seen.p99


def measure_contests(
    environment: dict[str, str], folder: Path, *, sites: int, rounds: int, say: Callable[[str], None]
) -> list[Contest]:
    """Raises SubjectError."""
    steady = Contest("while a site sends page by page", even=True)
    large = Contest(f"while a site of {LARGE_PAGES:,} pages is read and sent", even=False)
    with Served(environment) as served:
        with Stage("small", str(STEADY_PAGES)) as stage:
            _begin(served, "steady", stage=stage, submitMethod="get")
            for _ in range(rounds):
                quiet = _measure_quiet(served)
                _run(served, steady.empty, ["/empty"], quiet=quiet)
                _run(served, steady.status, _name_targets("steady", sites=sites), quiet=quiet)
            if not served.ask("/status?site=steady")["executing"]:
                raise SubjectError("the execution has ended before the measurement did")
        with Stage("large", str(folder), Variant.DIFFERENT.value, str(LARGE_PAGES)) as stage:
            for number in range(rounds):
                _begin(served, f"first-{number}", stage=stage)
                _run(served, large.empty, ["/empty"])
                _begin(served, f"second-{number}", stage=stage)
                _run(served, large.status, _name_targets(f"second-{number}", sites=sites))
    for contest in (steady, large):
        for track in (contest.empty, contest.status):
            say(f"{contest.name}, {track.name}: p50 {track.seen.median:.2f} ms, p99 {track.seen.p99:.2f} ms")
    return [steady, large]


def _begin(served: Served, name: str, *, stage: Stage, **settings: str) -> None:
    """Set a site up and run it."""
    site = {
        "id": name,
        "sitemapUrl": stage.sitemaps[0],
        "indexnowKey": stage.key,
        "searchEngines": [stage.endpoint],
        **settings,
    }
    served.ask("/api/sites", method="POST", body=site)
    served.ask(f"/trigger?site={name}", method="POST")


def _name_targets(running: str, *, sites: int) -> list[str]:
    """Every tenth asks for the site that runs, the others for any."""
    names = [name_site(random.randrange(sites)) if number % 10 else running for number in range(1_000)]
    return [f"/status?site={name}" for name in names]


def _run(served: Served, track: Track, targets: Sequence[str], *, quiet: float = 0) -> None:
    """One round. `quiet` is what the execution uses by itself: seconds of CPU a second."""
    port = served.empty_port if track.name.startswith("a route") else served.port
    count = RATE * ROUND_SECONDS
    waited, before, began = served.read_waiting(), served.read_cpu(), time.monotonic()
    track.latencies.extend(asyncio.run(_send(port, [targets[number % len(targets)] for number in range(count)])))
    passed = time.monotonic() - began
    track.cpu.append((served.read_cpu() - before - quiet * passed) / count * 1000)
    track.kept_waiting.append((served.read_waiting() - waited) / passed)


async def _send(port: int, targets: Sequence[str]) -> Sequence[float]:
    load = Load(port, token=TOKEN)
    try:
        return (await load.send(targets, rate=RATE)).values
    finally:
        await load.close()


def _measure_quiet(served: Served) -> float:
    before, began = served.read_cpu(), time.monotonic()
    time.sleep(QUIET_SECONDS)
    return (served.read_cpu() - before) / (time.monotonic() - began)
