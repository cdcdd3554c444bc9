"""What passes between machines: real `tidings serve --no-work` and `tidings worker` processes with data directories of
their own, on one PostgreSQL, over loopback.

    python -m benchmarks.fleet [--only idle,trigger,stop,progress,takeover,scaling]

Each line says what was wanted and whether it was reached. `machines.md` has figures and says how to read them.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text, update

from benchmarks.postgresql import Server, start_server
from tests.cli.fork_server import Command
from tests.test_serve import Served
from tests.test_workers import Machines, open_machines
from tests.waiting import Held
from tidings.announce.schedule.table import schedules
from tidings.announce.site.site import SubmitMethod
from tidings.sandbox.wire.request_log import Recorded
from tidings.wiring.opening import load_tables

TRIGGERS = 40
STOPS = 10
TAKEOVERS = 8
IDLE = timedelta(seconds=60)
PAGES = 40
LATENCY = timedelta(seconds=1)
FLEETS = {1: 0.0, 2: 1.8, 4: 3.2}
SITES_PER_WORKER = 24

_FIND_HOLDER = text(
    "SELECT workers.name FROM executions JOIN workers ON executions.holder LIKE workers.process || '#%' "
    "WHERE executions.status = 'running'"
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    name: str
    values: list[float]
    # The most that the 95th percentile may be; with `at_least`, the least.
    wanted: float
    at_least: bool = False

    def print(self) -> None:
        ordered = sorted(self.values)
        median, p95 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        is_kept = p95 >= self.wanted if self.at_least else p95 <= self.wanted
        mark = "PASS" if is_kept else "FAIL"
        print(f"| {self.name} | {self.wanted:g} | {median:.2f} | {p95:.2f} | {len(ordered)} | {mark} |", flush=True)


async def measure_idle(machines: Machines) -> Iterator[Figure]:
    """The CPU of a worker of both queues that has nothing to do."""
    worker = await machines.start_worker("idle", queues=("announce", "collect"))
    await asyncio.sleep(5)
    before, began = _read_cpu(worker.pid), time.monotonic()
    await asyncio.sleep(IDLE.total_seconds())
    share = 100 * (_read_cpu(worker.pid) - before) / (time.monotonic() - began)
    return iter([Figure("idle worker, share of a core (%)", [share], 1)])


def _read_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure_triggers(machines: Machines) -> Iterator[Figure]:
    """A trigger on A, until B asks for the sitemap."""
    served, worker = await _start_pair(machines)
    house, begins, cpu = machines.house, list[float](), list[float]()
    for number in range(TRIGGERS):
        site = await house.store(f"site-{number}", due=None, submit_method=SubmitMethod.GET)
        seen, used, asked_at = len(house.web.requests), _read_cpu(worker.pid), time.monotonic()
        _, started = await served.ask(f"/trigger?site={site.id}", method="POST")
        await _wait(lambda seen=seen: _is(len(house.web.requests) > seen))  # type: ignore[misc]
        begins.append((house.web.requests[seen].at - asked_at) * 1000)
        cpu.append((_read_cpu(worker.pid) - used) * 1000)
        await served.ask(f"/api/sites/{site.id}/executions/{started['executionId']}/stop", method="POST")
        await _wait(lambda number=number: _is_idle(machines, number + 1))  # type: ignore[misc]
    print(f"CPU of the worker before its first request: {sum(cpu) / len(cpu):.0f} ms")
    return iter([Figure("trigger on A, first request of B (ms)", begins, 100)])


async def measure_stops(machines: Machines) -> Iterator[Figure]:
    """A stop on A, until the execution of B has ended."""
    served, _ = await _start_pair(machines)
    house, found = machines.house, []
    for number in range(STOPS):
        site = await house.store(f"site-{number}", due=None, submit_method=SubmitMethod.GET)
        sent = house.engine.accepted.total()
        _, started = await served.ask(f"/trigger?site={site.id}", method="POST")
        await _wait(lambda sent=sent: _is(house.engine.accepted.total() > sent + 1))  # type: ignore[misc]
        asked_at = time.monotonic()
        await served.ask(f"/api/sites/{site.id}/executions/{started['executionId']}/stop", method="POST")
        await _wait(lambda number=number: _is_idle(machines, number + 1))  # type: ignore[misc]
        found.append((time.monotonic() - asked_at) * 1000)
    return iter([Figure("stop on A, execution of B ended (ms)", found, 1_000)])


async def measure_progress(machines: Machines) -> Iterator[Figure]:
    """For each page that the engine took, how long until A shows it."""
    served, _ = await _start_pair(machines)
    house = machines.house
    site = await house.store("watched", due=None, submit_method=SubmitMethod.GET)
    _, started = await served.ask(f"/trigger?site={site.id}", method="POST")
    path, seen = f"/api/sites/{site.id}/executions/{started['executionId']}", list[float]()
    while len(seen) < PAGES // 2:
        _, answer = await served.ask(path)
        shown = (answer["execution"]["result"] or {}).get("submitted", 0)
        seen += [time.monotonic()] * (shown - len(seen))
        await asyncio.sleep(0.02)
    taken = [request.at for request in house.engine.requests]
    late = [(later - earlier) * 1000 for earlier, later in zip(taken, seen, strict=False)]
    return iter([Figure("progress of B, seen on A (ms)", late, 2_000)])


async def measure_takeovers(machines: Machines) -> Iterator[Figure]:
    """A worker is killed in the middle of a run, until another one asks the engine again."""
    worker = await machines.start_worker("first")
    # Nobody is judged in the first half minute of a PostgreSQL.
    await machines.wait_until(machines.is_settled)
    house, found = machines.house, []
    for number in range(TAKEOVERS):
        other = await machines.start_worker(f"other-{number}")
        await asyncio.sleep(1)
        held = Held()
        house.engine.on_request = held.wait
        await house.store(f"killed-{number}", submit_method=SubmitMethod.GET)
        await held.arrive()
        house.engine.on_request = None
        holder = await _find_holder(machines, worker, other)
        count, killed_at = len(house.engine.requests), time.monotonic()
        holder.kill()
        await _wait(lambda count=count: _is(len(house.engine.requests) > count))  # type: ignore[misc]
        found.append(house.engine.requests[count].at - killed_at)
        held.let_go()
        worker = other if holder is worker else worker
        await _wait(lambda: _is_idle(machines, 1))
    return iter([Figure("kill -9, first request of another (s)", found, 25)])


async def measure_scaling(machines: Machines) -> Iterator[Figure]:
    """Sites per second with one, two and four workers. Every answer of the site and the engine takes a second."""
    house, workers, figures, first = machines.house, list[Command](), list[Figure](), 0.0
    machines.variables["REQUEST_INTERVAL_MS"] = "20"

    async def answer_late(_: Recorded) -> None:
        await asyncio.sleep(LATENCY.total_seconds())

    house.web.on_request = house.engine.on_request = answer_late
    for count, wanted in FLEETS.items():
        while len(workers) < count:
            workers.append(await machines.start_worker(f"worker-{len(workers)}"))
        before = sum(_read_cpu(worker.pid) for worker in workers)
        rate = await _measure_rate(machines, prefix=f"of-{count}", sites=SITES_PER_WORKER * count)
        cpu = (sum(_read_cpu(worker.pid) for worker in workers) - before) / (SITES_PER_WORKER * count)
        print(f"{count} workers: {rate:.2f} sites per second, {1000 * cpu:.0f} ms of CPU per site", flush=True)
        first = first or rate
        if wanted:
            figures.append(Figure(f"{count} workers, times the rate of one", [rate / first], wanted, at_least=True))
    return iter(figures)


async def _measure_rate(machines: Machines, *, prefix: str, sites: int) -> float:
    """All sites become due at once. The time counts from the first request to the last end."""
    house = machines.house
    ended = len(await house.list_statuses())
    numbers = [(await house.store(f"{prefix}-{number}", due=None)).number for number in range(sites)]
    seen = len(house.web.requests)
    async with house.database.write() as connection:
        await connection.execute(update(schedules).where(schedules.c.site.in_(numbers)).values(next_at=1))
    await _wait(lambda: _is_idle(machines, ended + sites))
    return sites / (time.monotonic() - house.web.requests[seen].at)


async def _start_pair(machines: Machines) -> tuple[Served, Command]:
    machines.variables["REQUEST_INTERVAL_MS"] = "500"
    served = await machines.serve("served", "--no-work")
    worker = await machines.start_worker("one")
    await asyncio.sleep(2)
    return served, worker


async def _is_idle(machines: Machines, count: int) -> bool:
    statuses = [status for _, status in await machines.house.list_statuses()]
    return len(statuses) >= count and "running" not in statuses


async def _find_holder(machines: Machines, *workers: Command) -> Command:
    """The worker that has the execution: its process wrote the name of the holder."""
    async with machines.house.database.write() as connection:
        name = str((await connection.execute(_FIND_HOLDER)).scalar_one())
    return next(worker for worker in workers if name.endswith(f"-{worker.pid}"))


async def _is(value: bool) -> bool:
    return value


async def _wait(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(180):
        while not await is_so():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.005)


PARTS: Mapping[str, Callable[[Machines], Awaitable[Iterator[Figure]]]] = {
    "idle": measure_idle,
    "trigger": measure_triggers,
    "stop": measure_stops,
    "progress": measure_progress,
    "takeover": measure_takeovers,
    "scaling": measure_scaling,
}


async def measure(server: Server, folder: Path, *, names: list[str]) -> None:
    """Each part has a database and machines of its own."""
    load_tables()
    for name in names:
        async with AsyncExitStack() as stack:
            place = folder / name
            place.mkdir()
            machines = await stack.enter_async_context(open_machines(place, server.make_database(), pages=PAGES))
            for figure in await PARTS[name](machines):
                figure.print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    names = parser.parse_args().only.split(",")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| what | wanted | median | p95 | times | |\n|---|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder)) as server:
        asyncio.run(measure(server, Path(folder), names=names))


if __name__ == "__main__":
    main()
