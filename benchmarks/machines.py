"""The queue on PostgreSQL: a tick at many due sites, the submission of jobs, and the way of a trigger to a worker.

    python -m benchmarks.machines [--sites N]

Needs no service: it starts a PostgreSQL of its own. `machines.md` has figures and says how to read them.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from benchmarks.postgresql import start_server
from tidings.core.clock import SystemClock
from tidings.core.queue.dispatcher import Call, Job
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.settings.settings import Settings
from tidings.wiring.installation import Installation
from tidings.wiring.opening import open_installation

TIMES = 20

_FILL_SITES = text(
    "INSERT INTO sites (id, origin, host, settings, enabled, created_at, updated_at) "
    "SELECT 'site-' || n, 'api', 'site-' || n, '{\"schedule\": \"0 0 * * *\"}', true, 0, 0 "
    "FROM generate_series(1, :count) AS n"
)
_FILL_SCHEDULES = text("INSERT INTO schedules (site, cron, next_at) SELECT number, '0 0 * * *', number FROM sites")


async def _time(work: Callable[[], Awaitable[object]], *, times: int = TIMES) -> list[float]:
    """Milliseconds of each call."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        found.append((time.perf_counter() - began) * 1000)
    return found


async def measure_tick(installation: Installation, *, sites: int) -> None:
    async with installation.database.write() as connection:
        await connection.execute(_FILL_SITES, {"count": sites})
        await connection.execute(_FILL_SCHEDULES)
    async with installation.database.write() as connection:
        await connection.execute(text("ANALYZE"))
    service, dispatcher = installation.service, installation.dispatcher

    async def find() -> None:
        async with dispatcher.open_tick() as connection:
            room = await dispatcher.find_room(connection, "announce")
            await service.list_due(connection, room or 1)

    async def fill() -> None:
        async with dispatcher.open_tick() as connection:
            await dispatcher.submit(connection, await service.list_due(connection, 1_000))

    async def do_nothing() -> None:
        async with installation.database.write() as connection:
            await connection.execute(text("SELECT 1"))

    _print("for comparison: a transaction with one SELECT 1", await _time(do_nothing))
    _print(f"find 1,000 of {sites:,} due sites", await _time(find))
    _print("submit 1,000 jobs into an empty queue", await _time(fill, times=1))
    _print("submit them again (all wait already)", await _time(fill))
    await installation.ticker.tick()
    _print(f"a whole tick, the queue full, {sites:,} due", await _time(installation.ticker.tick))


async def measure_wake_up(installation: Installation) -> None:
    """From the submission to the begin of the call, worker and submitter in one process."""
    began: asyncio.Queue[float] = asyncio.Queue()

    async def note(_: Call) -> None:
        began.put_nowait(time.perf_counter())

    async with installation.database.write() as connection:
        await connection.execute(text("DELETE FROM procrastinate_jobs"))
    stop = Stop(clock=SystemClock())
    dispatcher = installation.dispatcher
    working = asyncio.create_task(dispatcher.work({"announce.run": note}, stop, drain=timedelta(seconds=1)))
    found = []
    for number in range(TIMES + 1):
        submitted = time.perf_counter()
        async with installation.database.write() as connection:
            await dispatcher.submit(connection, [Job("announce.run", f"key {number}", urgent=True)])
        found.append((await began.get() - submitted) * 1000)
        await asyncio.sleep(0.1)
    stop.request("measured")
    await working
    _print("from submit to the begin of the call", found[1:])


def _print(name: str, milliseconds: list[float]) -> None:
    ordered = sorted(milliseconds)
    p95 = ordered[int(len(ordered) * 0.95)] if len(ordered) > 1 else ordered[0]
    print(f"| {name} | {statistics.median(ordered):.1f} | {p95:.1f} |")


async def measure(url: str, *, sites: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            data_dir=Path(folder) / "data", database_url=Secret(url), master_key=Secret(new_master_key())
        )
        async with open_installation(settings) as installation:
            print("| what | median ms | p95 ms |\n|---|---|---|")
            await measure_wake_up(installation)
            await measure_tick(installation, sites=sites)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=100_000)
    sites = parser.parse_args().sites
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder)) as server:
        asyncio.run(measure(server.make_database(), sites=sites))


if __name__ == "__main__":
    main()
