"""The writer of collect: the one thing that changes its tables, for the built-in runner and for whoever drives it
through the API. Every change is one transaction that begins by making sure that the execution still runs, and touches
only records that are still locked by it. What changes for the mirror is noted in the same transaction.

    ExecutionLostError (core.executions)    everything but `acquire`, `recover` and `requeue` raises it
    WorkflowNameError                       this is no name for a workflow of collect
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import update
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.cookies.states import CookieRules
from tidings.collect.errors import ErrorCode
from tidings.collect.tables import COLLECT, MIRROR, OTHER_WORKFLOWS, CandidateStatus, candidates, mirror_outbox, sources
from tidings.collect.write.cookies import judge_code, record_outcomes
from tidings.collect.write.keywords import record_search
from tidings.collect.write.leases import (
    Key,
    find_due_platforms,
    find_held,
    insert_candidates,
    lease_candidates,
    release_leases,
    renew_leases,
    requeue_failed,
    take_back_candidates,
    take_back_sources,
)
from tidings.collect.write.results import (
    count_minute,
    is_pause,
    list_uses,
    refuse,
    split_results,
    write_collected,
    write_failed,
)
from tidings.collect.write.values import (
    BATCH_SIZE,
    Acquired,
    Added,
    CookieUse,
    Finished,
    LeasedCandidate,
    NewCandidate,
    Recovered,
    Result,
    Settled,
    SettledAction,
    WriterLimits,
)
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import (
    AlreadyRunningError,
    Execution,
    ExecutionLostError,
    Executions,
    ExecutionStatus,
    executions,
)
from tidings.core.logs.logger import get_logger

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,99}")
_DEFAULT_LIMITS: Final = WriterLimits()
_DEFAULT_RULES: Final = CookieRules()
# What is raised for values that no column takes: a platform may be anybody's code.
REFUSALS: Final = (DataError, IntegrityError, ProgrammingError, AttributeError, TypeError, ValueError)
# So many rows are changed in one transaction.
_BLOCK: Final = 1_000
_WRITTEN: Final = frozenset({SettledAction.CREATED, SettledAction.SKIPPED})
_COUNTED: Final = frozenset({SettledAction.RETRY, SettledAction.FAILED})

_log = get_logger(__name__)


class WorkflowNameError(ValueError):
    """This is no name for a workflow of collect."""

    def __init__(self) -> None:
        super().__init__(
            "a workflow's name has 1 to 100 of a-z 0-9 _ . : - and does not begin with a sign, "
            f"nor with {OTHER_WORKFLOWS}"
        )


class Writer:
    """The tables of collect, and all that may be done to them. `mirrored` names the tables that have a mirror."""

    def __init__(
        self,
        database: Database,
        *,
        executions: Executions,
        clock: Clock,
        limits: WriterLimits = _DEFAULT_LIMITS,
        rules: CookieRules = _DEFAULT_RULES,
        mirrored: Collection[str] = (),
    ) -> None:
        self._database = database
        self._executions = executions
        self._clock = clock
        self._limits = limits
        self._rules = rules
        self._mirrored = frozenset(mirrored)

    async def acquire(
        self, workflow_name: str, *, remote: bool = False, idempotency_key: str | None = None
    ) -> Acquired:
        """Take the right to run a workflow, or learn who has it. Raises WorkflowNameError.

        `remote` is for one who works through the API, and outlives this process. `idempotency_key` names this request:
        made again, it is answered with the same execution.
        """
        if not _NAME.fullmatch(workflow_name) or workflow_name.startswith(OTHER_WORKFLOWS):
            raise WorkflowNameError
        try:
            execution = await self._executions.acquire(
                workflow_name, kind=COLLECT, remote=remote, idempotency_key=idempotency_key
            )
        except AlreadyRunningError as error:
            return Acquired(locked=False, execution_id=error.execution_id, reason=str(error))
        _log.info("workflow.acquired", workflow=workflow_name, execution=execution.public_id)
        return Acquired(locked=True, execution_id=execution.public_id, execution=execution)

    async def resume(self, execution_id: str) -> Execution:
        """The running execution of this id, for one who works through the API."""
        return await self._executions.resume(execution_id)

    async def heartbeat(self, execution: Execution) -> int:
        """The execution lives, and holds on to its records: so many."""
        at = self._clock.now()
        async with self._executions.guard(execution) as connection:
            await self._executions.count_items(connection, execution, processed=0, failed=0)
            return await renew_leases(connection, execution, at=at)

    async def add_candidates(
        self,
        execution: Execution,
        new: Sequence[NewCandidate],
        *,
        keyword_id: int | None = None,
        code: ErrorCode | None = None,
        uses: Sequence[CookieUse] = (),
        continued: bool = False,
    ) -> Added:
        """What a search found, each note once. `keyword_id`, `code` and `uses` tell how the search itself went;
        `continued` says that this is more of a search that was told of before.

        What no row can be named by is left out, and logged.
        """
        at = self._clock.now()
        found, new = len(new), [each for each in new if each.is_nameable]
        if found > len(new):
            _log.warning("candidates.unnameable", count=found - len(new), execution=execution.public_id)
        async with self._executions.guard(execution) as connection:
            created = await insert_candidates(connection, self._database, new, execution=execution, at=at)
            if keyword_id is not None:
                figures = {"found": len(new), "created": len(created)}
                await record_search(connection, keyword_id, **figures, code=code, continued=continued, at=at)
            await self._count_uses(connection, uses, at=at)
            await self._executions.count_items(
                connection, execution, processed=len(created), failed=int(code is not None)
            )
            await self._record_changes(connection, candidates.name, created, at=at)
        if created or code is not None:
            _log.info(
                "candidates.added", found=len(new), created=len(created), code=code, execution=execution.public_id
            )
        return Added(created=len(created), known=len(new) - len(created))

    async def lease(
        self, execution: Execution, *, limit: int = BATCH_SIZE, platform: str | None = None
    ) -> list[LeasedCandidate]:
        """Candidates for this execution alone, all of one platform: the one that is named, or the longest waiting.

        A platform that has no cookie left for this execution is left out.
        """
        at = self._clock.now()
        async with self._executions.guard_progress(execution) as (connection, progress):
            paused = progress.get("paused", ())
            due = [platform] if platform is not None else await find_due_platforms(connection, at=at)
            leased: list[LeasedCandidate] = []
            for name in due:
                if name not in paused and not leased:
                    leased = await lease_candidates(connection, execution, platform=name, limit=limit, at=at)
            await self._record_changes(connection, candidates.name, _list_keys(leased), at=at)
        if leased:
            _log.info(
                "candidates.leased", platform=leased[0].platform, count=len(leased), execution=execution.public_id
            )
        return leased

    async def settle(self, execution: Execution, platform: str, results: Sequence[Result]) -> list[Settled]:
        """Write what became of leased candidates, all or nothing: notes, statuses, cookies, figures.

        The results are in the order of the answers, which is how their cookies are judged. The same results given twice
        are written once. A candidate that is no longer ours is answered as `lost`. A note that cannot be stored,
        whatever it is, is a failure of its own and harms no other.
        """
        try:
            return await self._settle(execution, platform, results)
        except REFUSALS as error:
            _log.warning("note.refused", platform=platform, notes=len(results), reason=type(error).__name__)
        if len(results) == 1:
            return await self._settle(execution, platform, [refuse(each) for each in results])
        return [settled for each in results for settled in await self.settle(execution, platform, [each])]

    async def _settle(self, execution: Execution, platform: str, results: Sequence[Result]) -> list[Settled]:
        collected, failures = split_results(results)
        at = self._clock.now()
        async with self._executions.guard_progress(execution) as (connection, progress):
            note_ids = {each.note_id for each in results}
            held = await find_held(connection, execution, platform=platform, note_ids=note_ids)
            known: dict[str, Any] = {"platform": platform, "held": held, "execution": execution, "at": at}
            settled = [
                *await write_collected(connection, self._database, collected, **known),
                *await write_failed(connection, failures, **known, limits=self._limits),
            ]
            if is_pause(failures, held=held):
                await self._pause_platform(connection, execution, platform, progress)
            await self._count_uses(connection, list_uses(results, held=held), at=at)
            await self._record_settled_changes(connection, platform, settled, held=held, at=at)
            await self._count_settled(connection, execution, settled, held=held, at=at)
        _note_settled(execution, platform, settled)
        return settled

    async def count_cookie_uses(self, execution: Execution, uses: Sequence[CookieUse]) -> None:
        """Requests that no other call tells of: those that were repeated."""
        async with self._executions.guard(execution) as connection:
            await self._count_uses(connection, uses, at=self._clock.now())

    async def finish(
        self,
        execution: Execution,
        *,
        status: ExecutionStatus | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> Finished:
        """End the execution and give back what it still holds, uncounted. By itself it says `partial` where something
        failed."""
        released: list[Key] = []
        at = self._clock.now()

        async def release(connection: AsyncConnection) -> None:
            released.extend(await release_leases(connection, execution, at=at))
            await self._record_changes(connection, candidates.name, released, at=at)

        if status is None:
            status = await self._judge_end(execution)
        await self._executions.finish(execution, status, processed=None, failed=None, result=result, also=release)
        record = await self._executions.find(execution.public_id)
        processed, failed = (0, 0) if record is None else (record.items_processed, record.items_failed)
        _log.info(
            "workflow.finished",
            workflow=execution.workflow_name,
            execution=execution.public_id,
            status=status.value,
            processed=processed,
            failed=failed,
            released=len(released),
        )
        return Finished(execution.workflow_name, status, processed, failed, len(released))

    async def finish_remote(self, execution_id: str, *, status: ExecutionStatus | None = None) -> Finished:
        """The same for one who works through the API; who has finished it already is told again how it ended."""
        try:
            return await self.finish(await self.resume(execution_id), status=status)
        except ExecutionLostError:
            ended = await self._executions.find_finished(execution_id)
            if ended is None:
                raise
        return Finished(ended.workflow_name, ended.status, ended.items_processed, ended.items_failed, 0)

    async def recover(self) -> Recovered:
        """End what dead holders left running, and free what they had locked. Safe to do at any time, by anybody."""
        # What the other pipeline's dead left is its own to take up again.
        ended = await self._executions.recover(kinds=(COLLECT, MIRROR))
        at = self._clock.now()
        async with self._database.write() as connection:
            freed = await take_back_candidates(connection, at=at, limits=self._limits)
            unlocked = await take_back_sources(connection, at=at, limits=self._limits)
            await count_minute(connection, at=at, succeeded=0, failed=len(freed))
            await self._record_changes(connection, candidates.name, [key for key, _ in freed], at=at)
            await self._record_changes(connection, sources.name, unlocked, at=at)
        failed = sum(status is CandidateStatus.FAILED for _, status in freed)
        if freed or unlocked:
            _log.warning("records.recovered", records=len(freed) + len(unlocked), failed=failed)
        return Recovered(ended, len(freed) + len(unlocked), failed)

    async def requeue(self, platform: str | None = None) -> int:
        """Try again what was given up, of one platform or of all: so many. A person decides that."""
        count, freed = 0, _BLOCK
        while freed == _BLOCK:
            at = self._clock.now()
            async with self._database.write() as connection:
                keys = await requeue_failed(connection, at=at, limit=_BLOCK, platform=platform)
                await self._record_changes(connection, candidates.name, keys, at=at)
            freed = len(keys)
            count += freed
        _log.info("candidates.requeued", platform=platform, count=count)
        return count

    async def find_due_platforms(self) -> list[str]:
        """The platforms that have candidates to lease, the longest waiting first."""
        async with self._database.read() as connection:
            return await find_due_platforms(connection, at=self._clock.now())

    async def _judge_end(self, execution: Execution) -> ExecutionStatus:
        record = await self._executions.find(execution.public_id)
        return ExecutionStatus.PARTIAL if record is not None and record.items_failed else ExecutionStatus.SUCCEEDED

    async def _pause_platform(
        self, connection: AsyncConnection, execution: Execution, platform: str, progress: Mapping[str, Any]
    ) -> None:
        """Leave the platform alone for the rest of this execution."""
        paused = {*progress.get("paused", ()), platform}
        await connection.execute(
            update(executions)
            .where(executions.c.id == execution.id)
            .values(progress=json.dumps({"paused": sorted(paused)}))
        )

    async def _count_uses(self, connection: AsyncConnection, uses: Iterable[CookieUse], *, at: datetime) -> None:
        outcomes = defaultdict(list)
        for use in uses:
            outcomes[use.cookie_name].append(judge_code(use.code, captcha=use.captcha))
        await record_outcomes(connection, outcomes, at, rules=self._rules)

    async def _count_settled(
        self,
        connection: AsyncConnection,
        execution: Execution,
        settled: Sequence[Settled],
        *,
        held: Mapping[str, Any],
        at: datetime,
    ) -> None:
        succeeded = sum(each.action in _WRITTEN and each.note_id in held for each in settled)
        failed = sum(each.action in _COUNTED for each in settled)
        await self._executions.count_items(connection, execution, processed=succeeded, failed=failed)
        # The last of all: the other executions' wait for this row lasts until the commit.
        await count_minute(connection, at=at, succeeded=succeeded, failed=failed)

    async def _record_settled_changes(
        self,
        connection: AsyncConnection,
        platform: str,
        settled: Sequence[Settled],
        *,
        held: Mapping[str, Any],
        at: datetime,
    ) -> None:
        await self._record_changes(connection, candidates.name, [(platform, note_id) for note_id in held], at=at)
        created = [(platform, each.note_id) for each in settled if each.action is SettledAction.CREATED]
        await self._record_changes(connection, sources.name, created, at=at)

    async def _record_changes(
        self, connection: AsyncConnection, table_name: str, keys: Sequence[Key], *, at: datetime
    ) -> None:
        """Record for the mirror that these rows changed, in the transaction that changes them."""
        if table_name in self._mirrored and keys:
            common = {"table_name": table_name, "created_at": to_milliseconds(at)}
            rows = [common | {"platform": platform, "note_id": note_id} for platform, note_id in keys]
            await connection.execute(self._database.insert(mirror_outbox), rows)


def _list_keys(leased: Sequence[LeasedCandidate]) -> list[Key]:
    return [(each.platform, each.note_id) for each in leased]


def _note_settled(execution: Execution, platform: str, settled: Sequence[Settled]) -> None:
    counts = {action: sum(each.action is action for each in settled) for action in SettledAction}
    _log.info(
        "candidates.settled",
        platform=platform,
        execution=execution.public_id,
        **{action.value: count for action, count in counts.items() if count},
    )
