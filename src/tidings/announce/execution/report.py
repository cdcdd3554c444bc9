"""What an execution did, in numbers: kept while it runs, shown as progress, and saved as its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tidings.announce.channels.bing import BING, BingOutcome
from tidings.announce.channels.quota import QuotaState
from tidings.announce.due.pages import Dropped
from tidings.announce.site.site import Engine
from tidings.announce.sitemap.crawl import CrawlResult
from tidings.core.clock import to_text
from tidings.core.executions import ExecutionStatus

ALERT_SHARE = 0.10
MOST_LINES = 100


@dataclass(slots=True)
class EngineReport:
    """One engine's figures. `left`: pages that a later execution sends to it; they have not failed."""

    engine: Engine
    succeeded: int = 0
    failed: int = 0
    left: int = 0
    requests: int = 0
    time_taken: timedelta = timedelta()
    reason: str | None = None
    advice: str = ""
    broken: bool = False

    @property
    def attempted(self) -> int:
        return self.succeeded + self.failed

    @property
    def failed_share(self) -> float:
        return self.failed / self.attempted if self.attempted else 0.0

    @property
    def mean_ms(self) -> float | None:
        """The mean response time of its requests."""
        if not self.requests:
            return None
        return round(self.time_taken / timedelta(milliseconds=1) / self.requests, 1)

    def to_json(self) -> dict[str, Any]:
        return {
            "engine": self.engine.host,
            "total": self.attempted,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "left": self.left,
            "requests": self.requests,
            "meanResponseMs": self.mean_ms,
            "reason": self.reason,
            "advice": self.advice or None,
            "broken": self.broken,
        }


@dataclass(slots=True)
class BingReport:
    """Bing's figures. `due` counts what the crawl found due; `skipped` says why nothing was sent, where that was so.

    `trouble`: something went wrong, also where no page is to blame for it.
    """

    engine: EngineReport = field(default_factory=lambda: EngineReport(BING))
    due: int = 0
    skipped: str | None = None
    trouble: bool = False
    broken_off: bool = False
    quota: QuotaState | None = None
    at: datetime | None = None
    last: BingOutcome | None = None

    def note(self, outcome: BingOutcome, *, at: datetime) -> None:
        """An answer came. The last error is kept: a success after it does not explain it."""
        self.engine.requests += 1
        self.engine.time_taken += outcome.elapsed
        self.at = at
        if self.last is None or not outcome.accepted:
            self.last = outcome

    def note_broken(self, error: Exception) -> None:
        """Something went wrong that nobody expected; the log says what."""
        self.trouble = self.broken_off = True
        self.engine.reason = f"unexpected trouble, {type(error).__name__}; the log says more"
        self.engine.advice = "Look into the log; what was sent is saved, the rest follows next time."

    def to_json(self) -> dict[str, Any]:
        error = None if self.last is None or self.last.accepted else self.last
        return {
            "success": not self.trouble and not self.engine.broken and self.skipped is None,
            "urlCount": self.engine.succeeded,
            "statusCode": None if self.last is None else self.last.status,
            "errorCode": None if error is None else error.code,
            "errorMessage": (self.skipped or self.engine.reason) if error is None else error.message or error.reason,
            "timestamp": None if self.at is None else to_text(self.at),
            "due": self.due,
            "failed": self.engine.failed,
            "left": self.engine.left,
            "requests": self.engine.requests,
            "meanResponseMs": self.engine.mean_ms,
            "switchedOff": self.engine.broken,
            "advice": self.engine.advice or None,
            "quota": None if self.quota is None else describe_quota(self.quota),
        }


def _shorten(lines: Sequence[str]) -> list[str]:
    """A site may have thousands of broken files; all are in the log, and enough of them here."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    return [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES:,} more, which are in the log"]


def describe_quota(quota: QuotaState) -> dict[str, Any]:
    """A day's quota for people and scripts."""
    return {
        "day": quota.day.isoformat(),
        "limit": quota.limit,
        "used": quota.used,
        "remaining": quota.remaining,
        "resetsAt": to_text(quota.resets_at),
    }


@dataclass(slots=True)
class Report:
    """One execution's figures. `total` are different URLs; `new` of them were due, `changed` by their lastmod."""

    site: str
    total: int = 0
    new: int = 0
    changed: int = 0
    removed: int = 0
    repeated: int = 0
    too_soon: int = 0
    not_believed: int = 0
    submitted: int = 0
    failed: int = 0
    files: int = 0
    files_unchanged: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    engines: dict[str, EngineReport] = field(default_factory=dict)
    bing: BingReport | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    execution_id: str = ""
    cut_short: bool = False
    status: ExecutionStatus = ExecutionStatus.RUNNING
    duration: timedelta = timedelta()

    @property
    def cached(self) -> int:
        """Pages that needed nothing."""
        return max(0, self.total - self.new)

    @property
    def crawled(self) -> bool:
        """Whether a sitemap was read, in part at least."""
        return self.files > 0

    @property
    def left(self) -> int:
        return sum(engine.left for engine in self.engines.values())

    @property
    def lines(self) -> list[EngineReport]:
        """Every engine's figures, and Bing's as one of them."""
        return [*self.engines.values(), *([self.bing.engine] if self.bing else [])]

    def add_engine(self, engine: Engine) -> EngineReport:
        return self.engines.setdefault(engine.endpoint, EngineReport(engine))

    def count_bing(self, bing: BingReport) -> None:
        """In an execution for Bing alone, its figures are the execution's."""
        self.new = bing.due
        self.submitted, self.failed = bing.engine.succeeded, bing.engine.failed

    def add_crawl(self, crawl: CrawlResult) -> None:
        """Take over what the crawl met."""
        self.files, self.files_unchanged = crawl.files, crawl.unchanged
        self.errors += _shorten(crawl.troubles)
        self.warnings += _shorten(crawl.warnings)

    def to_json(self) -> Mapping[str, Any]:
        return {
            "site": self.site,
            "executionId": self.execution_id,
            "status": self.status.value,
            "durationMs": round(self.duration / timedelta(milliseconds=1)),
            "total": self.total,
            "new": self.new,
            "changed": self.changed,
            "cached": self.cached,
            "removed": self.removed,
            "repeated": self.repeated,
            "tooSoon": self.too_soon,
            "notBelieved": self.not_believed,
            "submitted": self.submitted,
            "failed": self.failed,
            "files": self.files,
            "filesUnchanged": self.files_unchanged,
            "dropped": {
                "invalid": self.dropped.invalid,
                "foreignHost": self.dropped.foreign_host,
                "outsideKeyLocation": self.dropped.outside_key_location,
            },
            "engines": [engine.to_json() for engine in self.engines.values()],
            "bingStats": None if self.bing is None else self.bing.to_json(),
            "cutShort": self.cut_short,
            "errors": self.errors,
            "warnings": self.warnings,
        }
