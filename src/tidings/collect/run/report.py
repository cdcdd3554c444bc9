"""What the runner did, as values: for the terminal, the log and the loop of jobs. How it is done is in `runner`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidings.collect.errors import ErrorCode
from tidings.collect.write import SettledAction
from tidings.core.executions import ExecutionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedExecution:
    """How an execution ended. `running`: it never began, since another, whose id this is, has the right to run."""

    workflow: str
    execution_id: str
    request_id: str
    status: ExecutionStatus
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
    """What became of one keyword. `skipped`: it was not searched, since its platform had to be left alone."""

    platform: str
    keyword: str
    found: int = 0
    created: int = 0
    code: ErrorCode | None = None
    message: str | None = None
    skipped: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "platform": self.platform,
            "keyword": self.keyword,
            "found": self.found,
            "created": self.created,
            "code": None if self.code is None else self.code.value,
            "message": self.message,
            "skipped": self.skipped,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverReport:
    """One discovery. Without an end nothing was begun: no keyword is watched."""

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
        """How many keywords were not searched to the end."""
        return sum(search.code is not None or search.skipped for search in self.searches)

    def to_json(self) -> dict[str, Any]:
        return {
            "execution": None if self.ended is None else self.ended.to_json(),
            "found": self.found,
            "created": self.created,
            "failed": self.failed,
            "searches": [search.to_json() for search in self.searches],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectReport:
    """One platform's collection: how many candidates came to each end."""

    platform: str
    ended: EndedExecution
    counts: Mapping[SettledAction, int] = field(default_factory=dict)

    @property
    def collected(self) -> int:
        return self.counts.get(SettledAction.CREATED, 0) + self.counts.get(SettledAction.SKIPPED, 0)

    def to_json(self) -> dict[str, Any]:
        counts = {action.value: self.counts.get(action, 0) for action in SettledAction}
        return {"platform": self.platform, "execution": self.ended.to_json(), **counts}
