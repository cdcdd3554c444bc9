"""Cron expressions as moments, all in UTC: the times around a moment, and a site's own turn within them. Pure; what is
stored of it is in `schedule`, and which expressions are accepted in `sites`.
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
    """The times of an expression around a moment: the last one up to it, and the two after it."""

    before: datetime
    next: datetime
    after: datetime

    @property
    def two_periods(self) -> timedelta:
        """The period around the moment together with the one that follows it."""
        return self.after - self.before


def find_times(cron: str, *, moment: datetime) -> CronTimes | None:
    """The times around this moment; None where there are none, as for the 30th of February."""
    try:
        ahead = CronSim(cron, moment)
        # Backwards it begins one second before what it is given, and a moment may be a cron time itself.
        back = CronSim(cron, moment.replace(microsecond=0) + _SECOND, reverse=True)
        # It gives up after fifty years; the rarest time there is, 29 February on a given weekday, comes within forty.
        return CronTimes(before=next(back), next=next(ahead), after=next(ahead))
    except (CronSimError, StopIteration):
        return None


def find_turn(times: CronTimes, *, site: int, spread: timedelta) -> datetime:
    """When this site has its turn: at the next time, or later by less than `spread` and than a quarter of the period.

    Each site is always late by the same share, so that many sites of one cron time do not begin at once.
    """
    bound = min(spread, (times.after - times.next) / _SHARE_OF_PERIOD)
    return times.next + bound * (site * _GOLDEN % _RANGE) // _RANGE
