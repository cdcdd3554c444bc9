"""The writing half of collect: locks, leases and idempotent writes. `Writer` is its entry point. The crawl API never
imports this package."""

from tidings.collect.write.keywords import NO_REFRESH, Keyword, Keywords, RefreshPlan
from tidings.collect.write.values import (
    BATCH_SIZE,
    Acquired,
    Added,
    Collected,
    CookieUse,
    Failed,
    Finished,
    LeasedCandidate,
    NewCandidate,
    Recovered,
    Repeated,
    Result,
    SearchedPlatform,
    Settled,
    SettledAction,
    WorkflowNameError,
    WriterLimits,
)
from tidings.collect.write.writer import Writer

__all__ = [
    "BATCH_SIZE",
    "NO_REFRESH",
    "Acquired",
    "Added",
    "Collected",
    "CookieUse",
    "Failed",
    "Finished",
    "Keyword",
    "Keywords",
    "LeasedCandidate",
    "NewCandidate",
    "Recovered",
    "RefreshPlan",
    "Repeated",
    "Result",
    "SearchedPlatform",
    "Settled",
    "SettledAction",
    "WorkflowNameError",
    "Writer",
    "WriterLimits",
]
