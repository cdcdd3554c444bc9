"""Cron expressions as times, all in UTC: the cron times around a timestamp, and a site's own start within its period.
Pure functions. `table` stores the times, and `site.site` decides which expressions are valid.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

_SECOND = timedelta(seconds=1)
_SHARE_OF_PERIOD = 4
# The golden ratio of 2**32: consecutive numbers multiplied by it lie evenly over the whole range.
_GOLDEN = 2_654_435_769
_RANGE = 2**32


@dataclass(frozen=True, slots=True)
class CronTimes:
    """The times of a cron expression around a timestamp."""

    # The last time at or before the timestamp.
    before: datetime
    # The first time after it.
    next: datetime
    # The second time after it.
    after: datetime

    @property
    def two_periods(self) -> timedelta:
        """The length of the period around the timestamp and of the next one together."""
        return self.after - self.before


def find_times(cron: str, *, at: datetime) -> CronTimes | None:
    """The times around a timestamp. None where there are none, as for the 30th of February."""
    try:
        ahead = CronSim(cron, at)
        # Backwards, CronSim starts one second before its argument; the timestamp may be a cron time itself.
        back = CronSim(cron, at.replace(microsecond=0) + _SECOND, reverse=True)
        # CronSim gives up after fifty years. The rarest time, 29 February on a given weekday, comes within forty.
        return CronTimes(before=next(back), next=next(ahead), after=next(ahead))
    except (CronSimError, StopIteration):
        return None


def find_start(times: CronTimes, *, site: int, spread: timedelta) -> datetime:
    """When this site starts: at the next time, or later by less than `spread` and less than a quarter of the period.

    The delay of a site is always the same share, so that many sites with one cron time do not start together.
    """
    longest = min(spread, (times.after - times.next) / _SHARE_OF_PERIOD)
    return times.next + longest * (site * _GOLDEN % _RANGE) // _RANGE
