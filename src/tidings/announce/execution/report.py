"""The report of an execution: one value, folded from the results of planning and sending (see `results`).

It is shown as progress while the execution runs, and saved as its result. `report_json` describes that JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidings.announce.channels.answer import Outcome
from tidings.announce.channels.google.submissions import SitemapReport
from tidings.announce.channels.quota.kinds import find_kind
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.due.pages import Dropped
from tidings.announce.execution.report_json import (
    EngineJson,
    HeldPageJson,
    PageCheckJson,
    QuotaJson,
    RankedJson,
    ReportJson,
)
from tidings.announce.ledger.ledger import Channel
from tidings.announce.page_check.checker import HeldPage
from tidings.announce.site.check import explain_emptiness
from tidings.announce.site.site import Engine
from tidings.core.clock import to_text
from tidings.core.executions import ExecutionStatus

ALERT_SHARE = 0.10
_MOST_HELD_LINES = 10


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine in one execution."""

    engine: Engine
    # Pages that it took.
    succeeded: int = 0
    # Pages that it did not take; the next execution sends them first.
    failed: int = 0
    # Pages that wait in the outbox and have not failed now.
    left: int = 0
    requests: int = 0
    # Sum of all response times.
    time_taken: timedelta = timedelta()
    # The last failure, and what a person should do about it.
    reason: str | None = None
    advice: str = ""
    # It refuses the key until a person sets another.
    broken: bool = False

    @property
    def attempted(self) -> int:
        return self.succeeded + self.failed

    @property
    def failed_share(self) -> float:
        return self.failed / self.attempted if self.attempted else 0.0

    @property
    def mean_ms(self) -> float | None:
        """The mean response time of its requests, in milliseconds."""
        if not self.requests:
            return None
        return round(self.time_taken / timedelta(milliseconds=1) / self.requests, 1)

    def to_json(self) -> EngineJson:
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


@dataclass(frozen=True, slots=True)
class RankedReport:
    """A channel with a quota in one execution."""

    engine: EngineReport
    # Pages that are due on it, those that wait in its outbox included. None: they were not counted.
    due: int | None = None
    # Changes within the least gap between two notices; a later execution sends them.
    too_soon: int = 0
    # Why nothing could be sent.
    skipped: str | None = None
    # Something went wrong, even if no page failed.
    trouble: bool = False
    quota: QuotaState | None = None
    # When the last answer came.
    at: datetime | None = None
    # The last answer, and the last one that was an error.
    last: Outcome | None = None
    error: Outcome | None = None
    # The channel itself said that its quota is used up.
    met_quota: bool = False

    def count_beyond_quota(self) -> int:
        """Pages that wait for the quota of the next days."""
        return self.engine.left if self.quota is not None and not self.quota.remaining else 0

    def to_json(self) -> RankedJson:
        error = self.error
        return {
            "success": not self.trouble and not self.engine.broken and self.skipped is None,
            "urlCount": self.engine.succeeded,
            "statusCode": None if self.last is None else self.last.status,
            "errorCode": None if error is None else error.code,
            "errorMessage": (self.skipped or self.engine.reason) if error is None else error.message or error.reason,
            "timestamp": None if self.at is None else to_text(self.at),
            "due": self.due or 0,
            "failed": self.engine.failed,
            "left": self.engine.left,
            "requests": self.engine.requests,
            "meanResponseMs": self.engine.mean_ms,
            "switchedOff": self.engine.broken,
            "advice": self.engine.advice or None,
            "quota": None if self.quota is None else describe_quota(self.quota),
        }


def describe_quota(quota: QuotaState) -> QuotaJson:
    return {
        "day": quota.day.isoformat(),
        "limit": quota.limit,
        "used": quota.used,
        "remaining": quota.remaining,
        "resetsAt": to_text(quota.resets_at),
    }


@dataclass(frozen=True, slots=True)
class PageCheckReport:
    """The page check of one execution."""

    # Pages that were fetched, and those of them that were not announced.
    checked: int = 0
    held: int = 0
    # The first of them.
    pages: Sequence[HeldPage] = ()

    def to_json(self) -> PageCheckJson:
        pages: list[HeldPageJson] = [{"url": page.url, "reason": page.reason} for page in self.pages]
        return {"checked": self.checked, "held": self.held, "pages": pages}

    def list_lines(self) -> list[str]:
        """For people: pages that were not announced, with their reasons."""
        lines = [f"not announced: {page.url}: {page.reason}" for page in self.pages[:_MOST_HELD_LINES]]
        more = self.held - len(lines)
        return [*lines, f"and {more:,} more pages, which are in the log"] if more else lines


@dataclass(frozen=True, slots=True)
class Report:
    """One execution."""

    # The site's id.
    site: str
    # The site's host.
    host: str = ""
    # Different pages in the sitemap.
    total: int = 0
    # Those of them that were due, and those due because they changed.
    new: int = 0
    changed: int = 0
    # Pages that left the sitemap, and are announced as removed.
    removed: int = 0
    # Pages from earlier executions that were sent again, summed over the engines.
    repeated: int = 0
    # Changes within the least gap between two notices; a later execution sends them.
    too_soon: int = 0
    # Pages that were not due, but that earlier executions left in the outbox of an engine.
    waiting: int = 0
    # Changes in sitemaps that date every page "now".
    not_believed: int = 0
    # Different pages that an engine or channel took in this execution, repeats of earlier failures included.
    submitted: int = 0
    # Those of `submitted` that earlier executions had planned, and those that no engine took now, but only a channel
    # with a quota. All others were due now: submitted <= new + removed + submitted_again + submitted_by_quota.
    submitted_again: int = 0
    submitted_by_quota: int = 0
    # Pages that failed, and that no engine took.
    failed: int = 0
    # Sitemap files read, and those that had not changed.
    files: int = 0
    files_unchanged: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    page_check: PageCheckReport = field(default_factory=PageCheckReport)
    # By endpoint, in the order of the site.
    engines: Mapping[str, EngineReport] = field(default_factory=dict)
    # The channels with a quota that the execution is for.
    ranked: Mapping[Channel, RankedReport] = field(default_factory=dict)
    # The sitemaps that were submitted to Google, or that Google was asked about.
    sitemaps: Sequence[SitemapReport] = field(default_factory=list)
    errors: Sequence[str] = field(default_factory=list)
    warnings: Sequence[str] = field(default_factory=list)
    execution_id: str = ""
    # A stop came before the end of the crawl, or while requests were on their way.
    cut_short: bool = False
    status: ExecutionStatus = ExecutionStatus.RUNNING
    started_at: datetime | None = None
    duration: timedelta = timedelta()
    # The pages were looked up, so `cached` is known.
    looked_up: bool = False
    # The pages were given; no sitemap was read.
    given: bool = False

    @property
    def cached(self) -> int:
        """Pages that were looked up and were not due."""
        return max(0, self.total - self.new - self.waiting - self.too_soon) if self.looked_up else 0

    def list_emptiness(self) -> list[str]:
        """Why there is nothing to announce, and what to do; empty if there is something."""
        if self.given or not self.is_empty:
            return []
        message, advice = explain_emptiness(self.dropped, host=self.host)
        return [f"the sitemap: {message}. {advice}"]

    def list_unsent(self) -> list[str]:
        """Why some of the given pages were not sent."""
        if not self.given:
            return []
        dropped = self.dropped
        reasons = (
            (dropped.invalid, "not valid"),
            (dropped.foreign_host, f"of another host than {self.host}"),
            (dropped.outside_key_location, "outside the folder that the key is valid for"),
            (self.too_soon, "announced only minutes ago; name them again later"),
            (self.page_check.held, "held back by the page check"),
            *(
                (each.count_beyond_quota(), f"beyond today's quota of {each.engine.engine}")
                for each in self.ranked.values()
            ),
        )
        return [f"named URLs that were not sent: {count:,} {reason}" for count, reason in reasons if count]

    @property
    def is_empty(self) -> bool:
        """Whether there is no page that can be announced."""
        return not (self.total or self.errors or self.cut_short) and (self.crawled or self.dropped.total > 0)

    def list_refusals(self) -> list[str]:
        """A line for each engine or channel that did not take pages, refuses the key, or did not take a sitemap."""
        sitemaps = [f"Google did not take the sitemap: {each.failure}" for each in self.sitemaps if each.failure]
        return sitemaps + [
            f"{line.engine}: {line.failed:,} of {line.attempted:,} URLs failed: {line.reason}"
            if line.failed
            else f"{line.engine}: {line.reason}"
            for line in self.lines
            if line.failed or line.broken
        ]

    def list_waits(self) -> list[str]:
        """A line for each channel with trouble although no page failed: its pages wait."""
        if self.status is not ExecutionStatus.PARTIAL:
            return []
        troubled = {channel: each.engine for channel, each in self.ranked.items() if each.trouble and not each.skipped}
        return [
            f"{find_kind(channel).title}: {line.left:,} URLs wait for the next execution: {line.reason}"
            for channel, line in troubled.items()
            if line.reason and not line.failed and not line.broken
        ]

    def count_backlogs(self) -> dict[Channel, int]:
        """By channel with a quota whose pages were counted: those that are due and were not taken."""
        ranked = self.ranked.items()
        return {channel: max(0, each.due - each.engine.succeeded) for channel, each in ranked if each.due is not None}

    @property
    def crawled(self) -> bool:
        """Whether a sitemap was read, in part at least."""
        return self.files > 0

    @property
    def left(self) -> int:
        """Pages that wait for engines that could take them."""
        return sum(engine.left for engine in self.engines.values() if not engine.broken)

    @property
    def lines(self) -> list[EngineReport]:
        """Every engine's part, and that of each channel with a quota as one of them."""
        return [*self.engines.values(), *(ranked.engine for ranked in self.ranked.values())]

    def to_json(self) -> ReportJson:
        ranked = {channel: ranked.to_json() for channel, ranked in self.ranked.items()}
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
            "waiting": self.waiting,
            "tooSoon": self.too_soon,
            "notBelieved": self.not_believed,
            "submitted": self.submitted,
            "submittedAgain": self.submitted_again,
            "submittedByQuota": self.submitted_by_quota,
            "failed": self.failed,
            "files": self.files,
            "filesUnchanged": self.files_unchanged,
            "dropped": {
                "invalid": self.dropped.invalid,
                "foreignHost": self.dropped.foreign_host,
                "outsideKeyLocation": self.dropped.outside_key_location,
            },
            "pageCheck": self.page_check.to_json(),
            "engines": [engine.to_json() for engine in self.engines.values()],
            "bingStats": ranked.get(Channel.BING),
            "baiduStats": ranked.get(Channel.BAIDU),
            "googleStats": ranked.get(Channel.GOOGLE),
            "googleSitemaps": [each.to_json() for each in self.sitemaps],
            "cutShort": self.cut_short,
            "errors": [*self.errors, *self.list_emptiness(), *self.list_unsent(), *self.list_refusals()],
            "warnings": [*self.warnings, *self.list_waits(), *self.page_check.list_lines()],
            "timestamp": None if self.started_at is None else to_text(self.started_at),
            "total_urls": self.total,
            "new_urls": self.new,
            "cached_urls": self.cached,
            "submitted_urls": self.submitted,
            "failed_urls": self.failed,
        }
