"""The writing half of collect: locks, leases, idempotent writes. `Workflows` is the way in, `Keywords` says what is
watched. Nothing of the crawl API knows this package."""

from tidings.collect.write.keywords import Keyword, Keywords
from tidings.collect.write.values import (
    BATCH_SIZE,
    Acquired,
    Added,
    Candidate,
    Collected,
    CookieUse,
    Failed,
    Finished,
    NewCandidate,
    Recovered,
    Repeated,
    Result,
    Settled,
    SettledAction,
    WorkflowLimits,
)
from tidings.collect.write.writer import WorkflowNameError, Workflows

__all__ = [
    "BATCH_SIZE",
    "Acquired",
    "Added",
    "Candidate",
    "Collected",
    "CookieUse",
    "Failed",
    "Finished",
    "Keyword",
    "Keywords",
    "NewCandidate",
    "Recovered",
    "Repeated",
    "Result",
    "Settled",
    "SettledAction",
    "WorkflowLimits",
    "WorkflowNameError",
    "Workflows",
]
