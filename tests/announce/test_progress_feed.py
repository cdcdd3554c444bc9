"""Live progress between processes on PostgreSQL."""

import asyncio

import pytest
from sqlalchemy import text

from tests.fakes import FakeClock
from tests.waiting import wait_until
from tidings.announce.execution.progress_feed import CHANNEL, ProgressFeed
from tidings.announce.execution.report import Report
from tidings.announce.execution.running_executions import MOST_RECEIVED, LiveExecutions
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


@pytest.mark.thorough
async def test_a_notification_that_is_no_report_does_not_end_the_feed(postgres_url: str) -> None:
    """A36: everybody with access to the database can send one, and an error of the feed would end the service."""
    clock = SystemClock()
    database, stop, live = open_database(postgres_url), Stop(clock=clock), LiveExecutions(clock=clock)
    feed = asyncio.create_task(ProgressFeed(database, live, clock=clock).run(stop))
    sent = iter(range(1_000_000))

    async def is_seen(noise: str | None = None) -> bool:
        report = f'{{"executionId": "exec-1", "total": {next(sent)}}}'
        for payload in (report, noise or report):
            await database.change(text("SELECT pg_notify(:name, :payload)"), {"name": CHANNEL, "payload": payload})
        return live.describe("exec-1") is not None

    for noise in ("no JSON", "[]"):
        await wait_until(is_seen)
        seen = live.describe("exec-1")
        await is_seen(noise)

        async def is_seen_again(seen: object = seen) -> bool:
            return await is_seen() and live.describe("exec-1") != seen

        await wait_until(is_seen_again)
    assert not feed.done()
    stop.request("the test says so")
    await asyncio.wait_for(feed, 10)
    await database.close()


def test_a_service_that_is_always_watched_keeps_a_bounded_number_of_reports(clock: FakeClock) -> None:
    """A36: a monitor that asks every few seconds keeps the feed open for months; a running execution stays known."""
    live = LiveExecutions(clock=clock)
    for number in range(3 * MOST_RECEIVED):
        for name in ("exec-long", f"exec-{number}"):
            live.receive(Report("shop", execution_id=name, total=number).to_json())
        assert live.describe(f"exec-{number}") is not None
        assert live.is_watched
    known = [number for number in range(3 * MOST_RECEIVED) if live.describe(f"exec-{number}") is not None]
    assert known == list(range(2 * MOST_RECEIVED + 1, 3 * MOST_RECEIVED))
    running = live.describe("exec-long")
    assert running is not None
    assert running["total"] == 3 * MOST_RECEIVED - 1
