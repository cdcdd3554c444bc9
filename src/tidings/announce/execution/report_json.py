"""The JSON of a report: as it is stored with its execution, and as API and commands show it."""

from typing_extensions import TypedDict


class EngineJson(TypedDict):
    engine: str
    total: int
    succeeded: int
    failed: int
    left: int
    requests: int
    meanResponseMs: float | None
    reason: str | None
    advice: str | None
    broken: bool


class QuotaJson(TypedDict):
    """A day's quota for people and scripts."""

    day: str
    limit: int
    used: int
    remaining: int
    resetsAt: str


class RankedJson(TypedDict):
    success: bool
    urlCount: int
    statusCode: int | None
    errorCode: str | None
    errorMessage: str | None
    timestamp: str | None
    due: int
    failed: int
    left: int
    requests: int
    meanResponseMs: float | None
    switchedOff: bool
    advice: str | None
    quota: QuotaJson | None


class SitemapJson(TypedDict):
    sitemapUrl: str
    submitted: bool
    warnings: int
    errors: int
    failure: str | None
    advice: str | None


class HeldPageJson(TypedDict):
    url: str
    reason: str


class PageCheckJson(TypedDict):
    checked: int
    held: int
    pages: list[HeldPageJson]


class DroppedJson(TypedDict):
    invalid: int
    foreignHost: int
    outsideKeyLocation: int


class ReportJson(TypedDict, total=False):
    """An execution that was stopped before it began has a status and errors alone."""

    site: str
    executionId: str
    status: str
    durationMs: int
    total: int
    new: int
    changed: int
    cached: int
    removed: int
    repeated: int
    # Pages that were not due, but that earlier executions left in the outbox of an engine.
    waiting: int
    tooSoon: int
    notBelieved: int
    submitted: int
    # Those of them that earlier executions had planned, and those that only a channel with a quota took.
    submittedAgain: int
    submittedByQuota: int
    failed: int
    files: int
    filesUnchanged: int
    dropped: DroppedJson
    pageCheck: PageCheckJson
    engines: list[EngineJson]
    bingStats: RankedJson | None
    baiduStats: RankedJson | None
    googleStats: RankedJson | None
    googleSitemaps: list[SitemapJson]
    cutShort: bool
    errors: list[str]
    warnings: list[str]
    # The names of the seeds.
    timestamp: str | None
    total_urls: int
    new_urls: int
    cached_urls: int
    submitted_urls: int
    failed_urls: int
