"""Live progress between processes on PostgreSQL."""

import asyncio

from tests.waiting import wait_until
from tidings.announce.execution.progress_feed import ProgressFeed
from tidings.announce.execution.report import Report
from tidings.announce.execution.running_executions import LiveExecutions
from tidings.core.clock import SystemClock
from tidings.core.db.database import open_database
from tidings.core.stop import Stop


async def test_progress_of_another_process_arrives_while_somebody_watches(postgres_url: str) -> None:
    """A36: the newest report, from any process; the stop signal ends both feeds, while one of them listens."""
    clock = SystemClock()
    database, stop = open_database(postgres_url), Stop(clock=clock)
    here, there = LiveExecutions(clock=clock), LiveExecutions(clock=clock)
    feeds = [asyncio.create_task(ProgressFeed(database, live, clock=clock).run(stop)) for live in (here, there)]

    async def is_seen() -> bool:
        there.record(Report("shop", execution_id="exec-1", total=7))
        shown = here.describe("exec-1")
        return shown is not None and shown.get("total") == 7

    await wait_until(is_seen)
    stop.request("the test says so")
    await asyncio.wait_for(asyncio.gather(*feeds), 10)
    await database.close()
