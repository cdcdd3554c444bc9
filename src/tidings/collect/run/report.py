"""Results of the runner's work, as values for the terminal, the log and the jobs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidings.collect.errors import ErrorCode
from tidings.collect.write.values import SettledAction
from tidings.core.executions import ExecutionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedExecution:
    """How an execution ended."""

    workflow: str
    # If the status is `running`, nothing was started, and this is the id of the execution that holds the lock.
    execution_id: str
    # The request id of every log line and record of this execution.
    request_id: str
    status: ExecutionStatus
    # Why it did not succeed, for a person.
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "workflow": self.workflow,
            "executionId": self.execution_id,
            "requestId": self.request_id,
            "status": self.status.value,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """The search of one keyword."""

    platform: str
    keyword: str
    # Notes on all pages.
    found: int = 0
    # Those of them that are new candidates.
    created: int = 0
    # Why the search failed; None if it did not.
    code: ErrorCode | None = None
    message: str | None = None
    # True if the keyword was not searched, because its platform is paused or has no usable cookie.
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverReport:
    """One discovery."""

    # None if nothing was started, because no keyword is enabled.
    ended: EndedExecution | None = None
    searches: tuple[SearchReport, ...] = ()

    @property
    def found(self) -> int:
        return sum(search.found for search in self.searches)

    @property
    def created(self) -> int:
        return sum(search.created for search in self.searches)

    @property
    def failed(self) -> int:
        """How many keywords failed or were skipped."""
        return sum(search.code is not None or search.skipped for search in self.searches)

    def to_json(self) -> dict[str, Any]:
        return {
            "execution": None if self.ended is None else self.ended.to_json(),
            "found": self.found,
            "created": self.created,
            "failed": self.failed,
            "searches": [asdict(search) for search in self.searches],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectReport:
    """One execution that collected from one platform."""

    platform: str
    ended: EndedExecution
    # How many candidates were settled with each action.
    counts: Mapping[SettledAction, int] = field(default_factory=dict)
    # How many comments were read.
    comments: int = 0

    @property
    def collected(self) -> int:
        return self.counts.get(SettledAction.CREATED, 0) + self.counts.get(SettledAction.SKIPPED, 0)

    def to_json(self) -> dict[str, Any]:
        counts = {action.value: self.counts.get(action, 0) for action in SettledAction}
        return {"platform": self.platform, "execution": self.ended.to_json(), **counts, "comments": self.comments}
