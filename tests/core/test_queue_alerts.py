"""The alert that nobody takes jobs: once, after ten minutes, and over when somebody does."""

import asyncio
from datetime import timedelta

import pytest

from tests.fakes import FakeClock
from tests.waiting import wait_until
from tidings.core.alerts.service import Alerts
from tidings.core.db.database import Database
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.alerts import ALERT_AFTER, QueueAlert, watch_workers
from tidings.core.queue.dispatcher import Call
from tidings.core.queue.embedded import EmbeddedDispatcher
from tidings.core.secrets.redaction import Redactor
from tidings.core.stop import Stop

pytestmark = pytest.mark.one_database


async def test_a_queue_without_a_worker_is_reported_after_ten_minutes_until_there_is_one(
    database: Database, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """C24: also in Chinese; the queue that has a worker is not named."""
    places = {"announce": 1, "collect": 1}
    dispatcher = EmbeddedDispatcher(database, clock=clock, process_lock=process_lock, places=places)
    alerts = Alerts(database, clock=clock, destinations=[], kinds=[*QueueAlert], redactor=Redactor())

    async def look() -> dict[str, bool]:
        await watch_workers(dispatcher, queues=("announce", "collect"), database=database, alerts=alerts)
        return {each.subject: each.fired_at is not None for each in await alerts.list_open()}

    async def do_nothing(_: Call) -> None:
        return

    async def is_listed() -> bool:
        return bool(await dispatcher.list_workers())

    first = await look()
    clock.advance(ALERT_AFTER)
    assert first == {"announce": False, "collect": False}
    assert await look() == {"announce": True, "collect": True}
    stop = Stop(clock=clock)
    working = asyncio.create_task(dispatcher.work({"announce.run": do_nothing}, stop, drain=timedelta(seconds=1)))
    await wait_until(is_listed)
    assert await look() == {"collect": True}
    stop.request("the test is over")
    await working
