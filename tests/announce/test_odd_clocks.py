"""Clocks that jump ahead and back, midnights, and days that not every year has: no page is lost or sent twice, and no
day's quota is passed."""

from datetime import UTC, date, datetime, timedelta

import pytest

from tests.announce.bing_stage import KEY, open_bing_stage
from tests.conftest import BenchMaker
from tests.fakes import FakeClock
from tidings.sandbox.engines.bing import SandboxBing

pytestmark = pytest.mark.one_database

DAY = timedelta(days=1)
QUOTA = 5
PAGES = 12


@pytest.mark.parametrize(
    "first", [date(2028, 2, 28), date(2028, 2, 29), date(2027, 2, 28), date(2027, 12, 31)], ids=str
)
async def test_each_day_of_the_calendar_has_its_own_quota(make_bench: BenchMaker, first: date) -> None:
    """A28, A29: a minute before midnight and a minute after it, over the leap day and the end of a year."""
    evening = datetime(first.year, first.month, first.day, 23, 59, tzinfo=UTC)
    async with open_bing_stage(make_bench, pages=PAGES, quota=QUOTA, now=evening) as stage:
        for day, used in zip((first, first + DAY, first + 2 * DAY), (5, 5, 2), strict=True):
            await stage.announce()
            await stage.announce()
            assert ((await stage.read_quota(day)).used, stage.used_at_bing(day)) == (used, used)
            stage.clock.set(datetime(day.year, day.month, day.day, 0, 1, tzinfo=UTC) + DAY)
        assert dict(stage.bing.accepted) == dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.thorough
async def test_a_clock_that_jumps_ahead_and_back_loses_no_page_and_passes_no_quota(make_bench: BenchMaker) -> None:
    """A12, A13, A29: for an hour this machine believes that it is the year after next; Bing knows better."""
    true = FakeClock(datetime(2026, 11, 15, 9, 0, tzinfo=UTC))
    bing = SandboxBing(keys={KEY: []}, daily_quota=QUOTA, now=true.now)
    async with open_bing_stage(make_bench, pages=PAGES, quota=QUOTA, now=true.now(), bing=bing) as stage:
        for ahead in (timedelta(0), 400 * DAY, timedelta(0), -2 * DAY, timedelta(0)):
            true.advance(timedelta(minutes=10))
            stage.clock.set(true.now() + ahead)
            await stage.announce()
            assert stage.used_at_bing(true.now().date()) <= QUOTA
        for _ in range(4):
            true.advance(DAY)
            stage.clock.set(true.now())
            await stage.announce()
        for accepted in (stage.bing.accepted, stage.engine.accepted):
            assert set(accepted) == set(stage.web.urls())
            # By the clock of that hour, what had been sent before was too old to count: it was due once more.
            assert max(accepted.values()) <= 2


async def test_a_change_is_sent_though_the_clock_was_set_back_since_the_last_time(make_bench: BenchMaker) -> None:
    """A12: the entry in the ledger lies in the future then."""
    async with open_bing_stage(make_bench, pages=3, now=datetime.now(UTC)) as stage:
        stage.clock.advance(30 * DAY)
        await stage.announce()
        stage.clock.advance(-30 * DAY)
        stage.web.change(2)
        await stage.announce()
        await stage.announce()
        assert dict(stage.engine.accepted) == {stage.web.url(1): 1, stage.web.url(2): 2, stage.web.url(3): 1}
