"""What passes between machines: real `tidings serve --no-work` and `tidings worker` processes with data directories of
their own, on one PostgreSQL, over loopback.

    python -m benchmarks.fleet

`machines.md` has figures and says how to read them.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from benchmarks.postgresql import start_server
from tests.cli.fork_server import Command
from tests.test_serve import Served
from tests.test_workers import Machines, open_machines
from tests.waiting import Held
from tidings.announce.site.site import SubmitMethod
from tidings.wiring import load_tables

TRIGGERS = 20
STOPS = 10
TAKEOVERS = 4
IDLE = timedelta(seconds=60)
PAGES = 40


async def measure(url: str, folder: Path) -> None:
    load_tables()
    async with open_machines(folder, url, pages=PAGES) as machines:
        machines.variables["REQUEST_INTERVAL_MS"] = "500"
        served = await machines.serve("served", "--no-work")
        worker = await machines.start_worker("one")
        await asyncio.sleep(2)
        _print("idle worker, share of a core (%)", [await _measure_idle(worker.pid)])
        begins, stops = await _measure_triggers(machines, served)
        _print("trigger on A, first request of B (ms)", begins)
        _print("stop on A, execution of B ended (ms)", stops)
        _print("progress of B, seen on A (ms)", await _measure_progress(machines, served))
        _print("kill -9, first request of another (ms)", await _measure_takeovers(machines, worker))


async def _measure_idle(pid: int) -> float:
    before, began = _read_cpu(pid), time.monotonic()
    await asyncio.sleep(IDLE.total_seconds())
    return 100 * (_read_cpu(pid) - before) / (time.monotonic() - began)


def _read_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _measure_triggers(machines: Machines, served: Served) -> tuple[list[float], list[float]]:
    """A trigger on A, until B asks for the sitemap; then a stop, until the execution has ended."""
    house, begins, stops = machines.house, [], []
    for number in range(TRIGGERS):
        site = await house.store(f"site-{number}", due=None, submit_method=SubmitMethod.GET)
        seen, asked_at = len(house.web.requests), time.monotonic()
        _, started = await served.ask(f"/trigger?site={site.id}", method="POST")
        await _wait(lambda seen=seen: _is(len(house.web.requests) > seen))  # type: ignore[misc]
        begins.append((house.web.requests[seen].at - asked_at) * 1000)
        if number < STOPS:
            stops.append(await _measure_stop(machines, served, f"{site.id}/executions/{started['executionId']}"))
        else:
            await served.ask(f"/api/sites/{site.id}/executions/{started['executionId']}/stop", method="POST")
            await _wait(lambda number=number: machines_idle(machines, number + 1))  # type: ignore[misc]
    return begins, stops


async def _measure_stop(machines: Machines, served: Served, path: str) -> float:
    sent = machines.house.engine.accepted.total()
    await _wait(lambda: _is(machines.house.engine.accepted.total() > sent + 1))
    count = len(await machines.house.list_statuses())
    asked_at = time.monotonic()
    await served.ask(f"/api/sites/{path}/stop", method="POST")
    await _wait(lambda: machines_idle(machines, count))
    return (time.monotonic() - asked_at) * 1000


async def machines_idle(machines: Machines, count: int) -> bool:
    statuses = [status for _, status in await machines.house.list_statuses()]
    return len(statuses) >= count and "running" not in statuses


async def _measure_progress(machines: Machines, served: Served) -> list[float]:
    """For each page that the engine took, how long until A shows it."""
    house = machines.house
    site = await house.store("watched", due=None, submit_method=SubmitMethod.GET)
    before = len(house.engine.requests)
    _, started = await served.ask(f"/trigger?site={site.id}", method="POST")
    path, seen = f"/api/sites/{site.id}/executions/{started['executionId']}", list[float]()
    while len(seen) < PAGES // 2:
        _, answer = await served.ask(path)
        shown = (answer["execution"]["result"] or {}).get("submitted", 0)
        seen += [time.monotonic()] * (shown - len(seen))
        await asyncio.sleep(0.02)
    taken = [request.at for request in house.engine.requests[before:]]
    await served.ask(f"{path}/stop", method="POST")
    await _wait(lambda: machines_idle(machines, 1))
    return [(later - earlier) * 1000 for earlier, later in zip(taken, seen, strict=False)]


async def _measure_takeovers(machines: Machines, worker: Command) -> list[float]:
    """A worker is killed in the middle of a run, until another one asks the engine again."""
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
        found.append((house.engine.requests[count].at - killed_at) * 1000)
        held.let_go()
        worker = other if holder is worker else worker
        await _wait(lambda: machines_idle(machines, 1))
    return found


async def _find_holder(machines: Machines, *workers: Command) -> Command:
    """The worker that has the execution: its process wrote the name of the holder."""
    from sqlalchemy import text

    statement = text(
        "SELECT workers.name FROM executions JOIN workers ON executions.holder LIKE workers.process || '#%' "
        "WHERE executions.status = 'running'"
    )
    async with machines.house.database.write() as connection:
        name = str((await connection.execute(statement)).scalar_one())
    return next(worker for worker in workers if name.endswith(f"-{worker.pid}"))


async def _is(value: bool) -> bool:
    return value


async def _wait(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while not await is_so():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.005)


def _print(name: str, values: list[float]) -> None:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    print(f"| {name} | {ordered[len(ordered) // 2]:.1f} | {p95:.1f} | {len(ordered)} |", flush=True)


def main() -> None:
    print("| what | median | p95 | times |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder)) as server:
        asyncio.run(measure(server.make_database(), Path(folder)))


if __name__ == "__main__":
    main()
