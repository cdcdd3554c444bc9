"""Three workers with data directories of their own, one of them killed every five seconds, and a PostgreSQL that is
restarted twice meanwhile: every page of 300 sites is accepted, and nothing but what was in flight is sent twice."""

import asyncio
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from tests.postgres import Server as PostgresServer
from tests.test_workers import Machines, open_machines, own_postgres
from tidings.announce.ledger.ledger import ledger
from tidings.sandbox.engines.indexnow import SandboxEngine

__all__ = ["own_postgres"]

pytestmark = pytest.mark.slow

SITES = 300
PAGES = 100
WORKERS = 3
KILL_EVERY = 5.0
KILLS = 8
RESTARTS_AFTER = (2, 5)
INTERVAL_MS = 50
# After the last fault.
LONGEST_END = 60.0
# Executions of a worker at once; each has one batch at the engine.
IN_FLIGHT = 4
# The system tells to a few milliseconds when bytes came.
PRECISION_MS = 5


async def test_kills_and_restarts_lose_nothing_and_double_only_what_was_in_flight(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    """A13, A17, A38, A39: every URL accepted, one execution of a site at a time, the pace kept over all workers."""
    async with open_machines(tmp_path, own_postgres.make_database(), pages=PAGES) as machines:
        house = machines.house
        machines.variables["REQUEST_INTERVAL_MS"] = str(INTERVAL_MS)
        for number in range(SITES):
            await house.store(f"site-{number}")
        kills = await _torment(machines, own_postgres)
        began = time.monotonic()

        async def is_done() -> bool:
            return await _count_ledger(machines) == SITES * PAGES and await _count_running(machines) == 0

        await machines.wait_until(is_done, seconds=LONGEST_END)
        took = time.monotonic() - began
        accepted = Counter(house.engine.accepted)
        doubled = accepted.total() - SITES * PAGES
        least = _find_least_gap(house.engine)
        sys.stdout.write(
            f"{kills} kills: ended {took:.1f} s after the last fault, {doubled} URLs sent twice, "
            f"least gap {least * 1000:.1f} ms\n"
        )
        assert min(accepted.values()) >= SITES
        assert doubled <= (kills + len(RESTARTS_AFTER) * WORKERS) * IN_FLIGHT * PAGES
        assert await _count_overlaps(machines) == 0
        assert least >= (INTERVAL_MS - PRECISION_MS) / 1000


async def _torment(machines: Machines, postgres: PostgresServer) -> int:
    """Kill one worker after the other, and start it again; restart the database twice."""
    names = [f"worker-{number}" for number in range(WORKERS)]
    workers = {name: await machines.start_worker(name) for name in names}
    for number in range(KILLS):
        await asyncio.sleep(KILL_EVERY)
        name = names[number % WORKERS]
        workers[name].kill()
        await workers[name].wait()
        if number in RESTARTS_AFTER:
            await asyncio.to_thread(postgres.restart)
        workers[name] = await machines.start_worker(name)
    return KILLS


async def _count_ledger(machines: Machines) -> int:
    async with machines.house.database.read() as connection:
        return int((await connection.execute(select(func.count()).select_from(ledger))).scalar_one())


async def _count_running(machines: Machines) -> int:
    return sum(status == "running" for _, status in await machines.house.list_statuses())


async def _count_overlaps(machines: Machines) -> int:
    """Pairs of executions of one site that ran at the same time."""
    statement = text(
        "SELECT count(*) FROM executions AS a JOIN executions AS b ON a.workflow_name = b.workflow_name "
        "WHERE a.id < b.id AND b.started_at < a.completed_at"
    )
    async with machines.house.database.read() as connection:
        return int((await connection.execute(statement)).scalar_one())


def _find_least_gap(engine: SandboxEngine) -> float:
    """The least time between two requests, in seconds, by the times at which their bytes came."""
    times = sorted(request.received_at for request in engine.requests)
    return min(later - earlier for earlier, later in pairwise(times))
