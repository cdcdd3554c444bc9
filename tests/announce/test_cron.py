"""Cron times and a site's own start within them: never early, never past a quarter of the period, never twice."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim

from tidings.announce.schedule.cron import find_start, find_times

SPREAD = timedelta(minutes=5)
MANY_SITES = 10_000

CRONS = [
    "* * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "59 23 * * *",
    "0 0 * * *",
    "0 9,17 * * *",
    "*/15 6-22 * * 1-5",
    "0 0 L * *",
    "0 0 29 2 *",
    "30 4 1 1 *",
    "0 0 30 2 MON",
    "0 0 * 2 MON#5",
]
TIMESTAMPS = [
    datetime(2026, 11, 15, 12, 0, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2028, 2, 29, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2027, 3, 28, 1, 30, tzinfo=UTC),
]
NUMBERS = [1, 2, 3, 999, 10_000, 2**31, 2**63 - 1]


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize("timestamp", TIMESTAMPS)
def test_each_cron_time_has_one_start_soon_after_it(cron: str, timestamp: datetime) -> None:
    """A38: planning each execution from the start before meets every cron time once, late by less than the bound."""
    expected = list(islice(CronSim(cron, timestamp), 11))
    for site in NUMBERS:
        start = timestamp
        for time, following in pairwise(expected):
            times = find_times(cron, at=start)
            assert times is not None
            assert (times.next, times.after) == (time, following)
            start = find_start(times, site=site, spread=SPREAD)
            assert time <= start < time + min(SPREAD, (following - time) / 4)


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize("timestamp", TIMESTAMPS)
def test_the_time_before_is_the_last_one_up_to_the_timestamp(cron: str, timestamp: datetime) -> None:
    """A40: so the two periods are those around the timestamp, also when it is a cron time itself."""
    times = find_times(cron, at=timestamp)
    assert times is not None
    assert times.before <= timestamp < times.next
    assert next(CronSim(cron, times.before)) == times.next


@pytest.mark.parametrize(
    ("cron", "window"), [("0 0 * * *", timedelta(minutes=5)), ("* * * * *", timedelta(seconds=15))]
)
def test_many_sites_of_one_cron_time_spread_evenly(cron: str, window: timedelta) -> None:
    """A38: 10,000 sites at midnight begin over five minutes, none of its ten parts fuller than the others."""
    times = find_times(cron, at=TIMESTAMPS[0])
    assert times is not None
    starts = [find_start(times, site=number, spread=SPREAD) for number in range(1, MANY_SITES + 1)]
    parts = [int((start - times.next) / window * 10) for start in starts]
    assert [abs(parts.count(part) - MANY_SITES / 10) < MANY_SITES / 100 for part in range(10)] == [True] * 10


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */31 2 MON#5"])
def test_a_time_that_never_comes_is_none_and_not_an_endless_search(cron: str) -> None:
    """A38: the 30th of February, and a fifth Monday on the first day of a month."""
    assert find_times(cron, at=TIMESTAMPS[0]) is None
