"""What the stand-ins of channels with a daily quota share: the URLs that they took, and the counts by site and day.
`indexnow` counts nothing, and `google` counts requests.
"""

from abc import abstractmethod
from collections import Counter
from datetime import UTC, date, tzinfo

from tidings.sandbox.wire.stand_in import Content, Now, StandIn, describe_accepted


class QuotaStandIn(StandIn[Content]):
    """A channel that takes `daily_quota` URLs of each site. `now` decides the day that a URL counts for."""

    # Where the quota's day begins at midnight.
    zone: tzinfo = UTC

    def __init__(self, name: str, *, daily_quota: int, now: Now) -> None:
        super().__init__(name, now=now)
        self.accepted: Counter[str] = Counter()
        self.daily_quota = daily_quota
        self._used: Counter[tuple[str, date]] = Counter()

    @abstractmethod
    def name_site(self, site: str) -> str:
        """The name by which a site is counted, however it is written."""

    def used(self, site: str, day: date | None = None) -> int:
        """The URLs counted for a site on a day (None: today)."""
        return self._used[self.name_site(site), day or self._today()]

    def spend(self, site: str, count: int) -> None:
        """Count URLs of another client for today, also beyond the quota."""
        self._used[self.name_site(site), self._today()] += count

    def describe(self, *, full: bool = False) -> dict[str, object]:
        used = {site: count for (site, day), count in self._used.items() if day == self._today()}
        return super().describe(full=full) | describe_accepted(self.accepted, full=full) | {"usedToday": used}

    def count_remaining(self, site: str) -> int:
        return max(0, self.daily_quota - self.used(site))

    def _today(self) -> date:
        return self._now().astimezone(self.zone).date()
