"""The next stage: workflows of other programs lease collected notes and settle them, like candidates.

Same locks, fencing, retries and recovery; the rules are in `leases` and `values`. A note is done, due again, or failed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidings.collect.crawl.envelope import ErrorInfo
from tidings.collect.tables import sources
from tidings.collect.write.leases import SOURCES, Settling, begin_settling, find_due_platforms, lease_records
from tidings.collect.write.results import log_settled
from tidings.collect.write.values import BATCH_SIZE, Failed, StageAction, judge_failure
from tidings.collect.write.writer import Writer
from tidings.core.clock import to_milliseconds
from tidings.core.executions import Execution
from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedSource:
    """A collected note that is leased to an execution."""

    platform: str
    note_id: str
    # Names the record; each version of a note has its own.
    idempotency_key: str
    version: int
    # Failed attempts of this stage so far.
    retry_count: int
    # The keyword that found the note first.
    source_keyword: str
    # The note as the crawl API answers it.
    note: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """The result of the work on a leased note."""

    idempotency_key: str
    # None if it is done.
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledSource:
    """The result of one note."""

    idempotency_key: str
    action: StageAction
    # Failed attempts so far.
    retry_count: int | None = None
    # When it is due again.
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NextStage:
    """Leases of collected notes. Every method raises ExecutionLostError."""

    writer: Writer

    async def lease(
        self, execution: Execution, *, limit: int = BATCH_SIZE, platform: str | None = None
    ) -> list[LeasedSource]:
        """Lease notes of one platform: the named one, or the one whose notes wait longest."""
        at = self.writer.clock.now()
        async with self.writer.executions.guard(execution) as connection:
            due = [platform] if platform else await find_due_platforms(connection, at=at, of=SOURCES)
            rows: list[Any] = []
            for name in due:
                if not rows:
                    rows = await lease_records(connection, SOURCES, execution, platform=name, limit=limit, at=at)
            leased = [_read_leased(row) for row in rows]
            keys = [(each.platform, each.idempotency_key) for each in leased]
            await self.writer.changes.record(connection, sources.name, keys, at=at)
        _log.info("sources.leased", count=len(leased), execution=execution.public_id)
        return leased

    async def settle(self, execution: Execution, platform: str, results: Sequence[SourceResult]) -> list[SettledSource]:
        """Write the results of leased notes in one transaction; of two results for one note the first counts.

        Repeating the same results changes nothing: a note that is no longer held is answered with `lost`.
        """
        at = self.writer.clock.now()
        first = {each.idempotency_key: each for each in reversed(results)}
        async with self.writer.executions.guard(execution) as connection:
            step = await begin_settling(
                connection, self.writer.database, execution, platform=platform, ids=first, at=at, of=SOURCES
            )
            settled = {key: self._judge(step, each) for key, each in first.items()}
            mine = [settled[key] for key in step.held]
            await step.write([_describe(step, each, first[each.idempotency_key]) for each in mine])
            await self.writer.changes.record(connection, sources.name, [(platform, key) for key in step.held], at=at)
            await self.writer.executions.count_items(
                connection,
                execution,
                processed=sum(each.action is StageAction.DONE for each in mine),
                failed=sum(each.action in (StageAction.RETRY, StageAction.FAILED) for each in mine),
            )
        log_settled("sources.settled", step, (each.action for each in settled.values()))
        return [settled[key] for key in dict.fromkeys(each.idempotency_key for each in results)]

    def _judge(self, step: Settling, result: SourceResult) -> SettledSource:
        key, held = result.idempotency_key, step.held.get(result.idempotency_key)
        if held is None:
            return SettledSource(idempotency_key=key, action=StageAction.LOST)
        if result.error is None:
            return SettledSource(idempotency_key=key, action=StageAction.DONE, retry_count=held.retry_count)
        failure = Failed(note_id=key, error=result.error)
        judged = judge_failure(failure, retry_count=held.retry_count, at=step.at, limits=self.writer.limits)
        return SettledSource(
            idempotency_key=key,
            action=StageAction(judged.action.value),
            retry_count=judged.retry_count,
            retry_at=judged.retry_at,
        )


def _describe(step: Settling, settled: SettledSource, result: SourceResult) -> dict[str, Any]:
    return step.describe(
        settled.idempotency_key,
        status=settled.action.status,
        retry_count=settled.retry_count,
        due_at=to_milliseconds(settled.retry_at or step.at),
        error=result.error,
    )


def _read_leased(row: Any) -> LeasedSource:
    names = ("platform", "note_id", "idempotency_key", "version", "retry_count", "source_keyword")
    return LeasedSource(**{name: getattr(row, name) for name in names}, note=json.loads(row.content))
