"""The writer of collect: the only code that changes its tables, for the built-in runner and for clients of the API.

Each change is one transaction. It first checks that the execution still runs, it changes only records that the
execution has locked, and it records the changed rows for the mirror. Every method except `acquire` and `recover` raises
ExecutionLostError (core.executions). Changes that people request are in `corrections`.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.candidate_counts import fold_counts
from tidings.collect.crawl.cookies.states import CookieRules
from tidings.collect.crawl.cookies.usage import judge_code
from tidings.collect.crawl.envelope import ErrorInfo
from tidings.collect.pseudonyms import Pseudonyms
from tidings.collect.tables import COLLECT, MIRROR, CandidateStatus, candidates, sources
from tidings.collect.write import leases
from tidings.collect.write.batches import BatchProgress, limit_batch, store_progress
from tidings.collect.write.changes import ChangeLog
from tidings.collect.write.cookies import clamp_future_states, record_outcomes
from tidings.collect.write.corrections import CollectCorrections
from tidings.collect.write.keywords import record_search
from tidings.collect.write.leases import CANDIDATES, LEASED_TABLES, THREADS
from tidings.collect.write.pauses import PlatformPauses, judge_batch
from tidings.collect.write.recovery import clamp_future_times, take_back_records
from tidings.collect.write.results import (
    count_minute,
    count_tries,
    find_error,
    is_pause,
    list_uses_by_note,
    log_settled,
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
    check_workflow_name,
)
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.executions import (
    AlreadyRunningError,
    Execution,
    ExecutionLostError,
    Executions,
    ExecutionStatus,
)
from tidings.core.logs.logger import get_logger

# Errors for values that no column takes. They are possible because a platform may be a third-party package.
REFUSALS: Final = (DataError, IntegrityError, ProgrammingError, AttributeError, TypeError, ValueError)
# Notes that become due again in one transaction, at most.
_MOST_REFRESHES: Final = 1_000
# A lease that finds enough candidates checks for refreshes this often.
_LOOK_EVERY: Final = timedelta(seconds=10)
_WRITTEN: Final = frozenset({SettledAction.CREATED, SettledAction.SKIPPED})
_COUNTED: Final = frozenset({SettledAction.RETRY, SettledAction.FAILED})

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Writer:
    """All writes to the tables of collect."""

    database: Database
    _: KW_ONLY
    executions: Executions
    clock: Clock
    limits: WriterLimits = field(default_factory=WriterLimits)
    rules: CookieRules = field(default_factory=CookieRules)
    # The tables that have a mirror.
    mirrored: Collection[str] = ()
    # The workflows that this installation drives itself. A name with a colon at its end reserves all that begin so.
    reserved: Collection[str] = ()
    # Replaces the authors of notes before they are stored; None stores them as the platform gives them.
    pseudonyms: Pseudonyms | None = None
    changes: ChangeLog = field(init=False)
    corrections: CollectCorrections = field(init=False)
    pauses: PlatformPauses = field(init=False)
    # When it last looked for notes that are to be read again.
    _looked_at: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)

    def __post_init__(self) -> None:
        self.changes = ChangeLog(self.database, mirrored=self.mirrored)
        self.corrections = CollectCorrections(self.database, clock=self.clock, changes=self.changes)
        self.pauses = PlatformPauses(self.database, clock=self.clock)

    async def acquire(
        self, workflow_name: str, *, remote: bool = False, idempotency_key: str | None = None
    ) -> Acquired:
        """Take the lock of a workflow, or return its holder. Raises WorkflowNameError.

        `remote`: a client of the API drives the execution, so it survives this process. `idempotency_key`: repeating
        the request while the execution runs returns the same execution.
        """
        check_workflow_name(workflow_name, reserved=self.reserved if remote else ())
        # The previous holder may have died with leased records.
        await self.recover()
        try:
            execution = await self.executions.acquire(
                workflow_name, kind=COLLECT, remote=remote, idempotency_key=idempotency_key
            )
        except AlreadyRunningError as error:
            return Acquired(locked=False, execution_id=error.execution_id, reason=str(error))
        _log.info("workflow.acquired", workflow=workflow_name, execution=execution.public_id)
        return Acquired(locked=True, execution_id=execution.public_id, execution=execution)

    async def resume(self, execution_id: str) -> Execution:
        """The running remote execution of this id."""
        return await self.executions.resume(execution_id)

    async def heartbeat(self, execution: Execution) -> int:
        """Renew the execution and the locks of its records. Returns how many records it holds."""
        at = self.clock.now()
        async with self.executions.guard(execution) as connection:
            await self.executions.count_items(connection, execution, processed=0, failed=0)
            return await leases.renew_leases(connection, execution, at=at)

    async def add_candidates(
        self,
        execution: Execution,
        new: Sequence[NewCandidate],
        *,
        keyword_id: int | None = None,
        platform: str | None = None,
        error: ErrorInfo | None = None,
        uses: Sequence[CookieUse] = (),
        continued: bool = False,
    ) -> Added:
        """Add the notes of a search as candidates, each once.

        `keyword_id`, `error` and `uses` record the search itself. `continued`: more pages of the search that was
        recorded last. `platform`: where it was; a success ends the platform's pause, a block pauses it. Notes whose id
        cannot be a key are left out and logged.
        """
        at, code = self.clock.now(), None if error is None else error.code
        found, new = len(new), [each for each in new if each.is_nameable]
        if found > len(new):
            _log.warning("candidates.left_out", count=found - len(new), execution=execution.public_id)
        async with self.executions.guard(execution) as connection:
            created = await leases.insert_candidates(connection, self.database, new, execution=execution, at=at)
            if keyword_id is not None:
                counts = {"found": len(new), "created": len(created)}
                await record_search(connection, keyword_id, **counts, code=code, continued=continued, at=at)
            await self.count_uses(connection, uses, at=at)
            if platform is not None:
                await self.pauses.judge_answer(connection, platform, error, at=at)
            await self.executions.count_items(
                connection, execution, processed=len(created), failed=int(code is not None)
            )
            await self.changes.record(connection, candidates.name, created, at=at)
        if created or code is not None:
            _log.info(
                "candidates.added", found=len(new), created=len(created), code=code, execution=execution.public_id
            )
        return Added(created=len(created), known=len(new) - len(created))

    async def lease(
        self, execution: Execution, *, limit: int = BATCH_SIZE, platform: str | None = None
    ) -> list[LeasedCandidate]:
        """Lease candidates of one platform: the named one, or the one whose candidates wait longest.

        A platform that is paused, or that has no cookie left for this execution, is skipped. A lease is never larger
        than cookies and pace allow within the time limit. After a pause it is one candidate: the probe.
        """
        at = self.clock.now()
        async with self.executions.guard_progress(execution) as (connection, progress):
            await self._queue_refreshes(connection, at=at, unless_within=_LOOK_EVERY)
            leased = await self._lease_any(connection, execution, platform, limit=limit, progress=progress, at=at)
            if not leased and await self._queue_refreshes(connection, at=at):
                leased = await self._lease_any(connection, execution, platform, limit=limit, progress=progress, at=at)
            keys = [(each.platform, each.note_id) for each in leased]
            await self.changes.record(connection, candidates.name, keys, at=at)
        if leased:
            _log.info(
                "candidates.leased", platform=leased[0].platform, count=len(leased), execution=execution.public_id
            )
        return leased

    async def _lease_any(
        self,
        connection: AsyncConnection,
        execution: Execution,
        platform: str | None,
        *,
        limit: int,
        progress: Mapping[str, Any],
        at: datetime,
    ) -> list[LeasedCandidate]:
        due = [platform] if platform is not None else await leases.find_due_platforms(connection, at=at)
        for name in (each for each in due if each not in progress.get("paused", ())):
            most = await limit_batch(connection, name, limit=limit, limits=self.limits, at=at)
            lease = partial(leases.lease_records, connection, CANDIDATES, execution, platform=name, at=at)
            rows = await lease(limit=most, also_paused=False)
            is_probe = not rows and await self.pauses.is_over(connection, name, at=at)
            if is_probe:
                rows = await lease(limit=1)
            if rows and is_probe:
                await self.pauses.claim_probe(connection, name, at=at)
            if rows:
                batch = BatchProgress(size=len(rows), is_probe=is_probe)
                await store_progress(connection, execution, batch.store(progress, name), before=progress)
                return [
                    LeasedCandidate(**{name: getattr(row, name) for name in LeasedCandidate.__slots__}) for row in rows
                ]
        return []

    async def settle(self, execution: Execution, platform: str, results: Sequence[Result]) -> list[Settled]:
        """Write the results of leased candidates in one transaction: notes, statuses, cookie uses and statistics.

        Give the results in the order of the platform's answers: cookies are judged in that order. Repeating the same
        results changes nothing. A candidate that the execution no longer holds is answered with `lost`. A note that
        the database refuses fails alone.
        """
        try:
            return await self._settle(execution, platform, results)
        except REFUSALS as error:
            _log.warning("notes.refused", platform=platform, notes=len(results), reason=type(error).__name__)
        if len(results) == 1:
            return await self._settle(execution, platform, [refuse(each) for each in results])
        return [settled for each in results for settled in await self.settle(execution, platform, [each])]

    async def _settle(self, execution: Execution, platform: str, results: Sequence[Result]) -> list[Settled]:
        collected, failures = split_results(results)
        if self.pseudonyms is not None:
            collected = [replace(each, note=self.pseudonyms.hide_author(each.note)) for each in collected]
        at = self.clock.now()
        async with self.executions.guard_progress(execution) as (connection, progress):
            note_ids = {each.note_id for each in results}
            step = await leases.begin_settling(
                connection, self.database, execution, platform=platform, ids=note_ids, at=at
            )
            verdict = judge_batch(step, collected, failures, progress=progress)
            settled = [
                *await write_collected(step, collected),
                *await write_failed(step, failures, limits=self.limits, outages=verdict.outages),
            ]
            mine = [each for each in results if each.note_id in step.held]
            paused = set(progress.get("paused", ()))
            if is_pause(each for each in failures if each.note_id in step.held):
                paused.add(platform)
            after = verdict.batch.store({**progress, "paused": sorted(paused)}, platform)
            uses = list_uses_by_note(mine)
            await self.record_uses(connection, uses, at=at)
            await self.pauses.record_verdict(connection, platform, verdict, uses=uses, at=at)
            await self.changes.record(connection, candidates.name, [(platform, name) for name in step.held], at=at)
            changed = [(platform, each.source_key) for each in settled if each.source_key is not None]
            await self.changes.record(connection, sources.name, changed, at=at)
            # Last, because other executions wait for these rows until the commit. A try that failed in an
            # outage lowers the success rate, although it does not count against its candidate.
            processed = sum(each.action in _WRITTEN and each.note_id in step.held for each in settled)
            failed = sum(each.action in _COUNTED for each in settled)
            new = None if after == progress else after
            await self.executions.count_items(connection, execution, processed=processed, failed=failed, progress=new)
            await count_tries(connection, platform, [find_error(each) for each in mine])
            await count_minute(connection, at=at, succeeded=processed, failed=failed + len(verdict.outages))
        log_settled("candidates.settled", step, (each.action for each in settled))
        return settled

    async def count_cookie_uses(self, execution: Execution, uses: Sequence[CookieUse]) -> None:
        """Record cookie uses that no other call reports: those of repeated requests."""
        async with self.executions.guard(execution) as connection:
            await self.count_uses(connection, uses, at=self.clock.now())

    async def finish(
        self,
        execution: Execution,
        *,
        status: ExecutionStatus | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> Finished:
        """End the execution and release what it still holds, uncounted. Without a status it ends as `partial` if
        something failed, else as `succeeded`."""
        at, count = self.clock.now(), 0

        async def release(connection: AsyncConnection) -> None:
            nonlocal count
            for table_name, keys in (await leases.release_leases(connection, execution, at=at)).items():
                await self.changes.record(connection, table_name, keys, at=at)
                count += len(keys)
            await fold_counts(connection)

        if status is None:
            before = await self.executions.find(execution.public_id)
            has_failed = before is not None and before.items_failed
            status = ExecutionStatus.PARTIAL if has_failed else ExecutionStatus.SUCCEEDED
        await self.executions.finish(execution, status, processed=None, failed=None, result=result, also=release)
        record = await self.executions.find(execution.public_id)
        processed, failed = (0, 0) if record is None else (record.items_processed, record.items_failed)
        _log.info(
            "workflow.finished",
            workflow=execution.workflow_name,
            execution=execution.public_id,
            status=status.value,
            processed=processed,
            failed=failed,
            released=count,
        )
        return Finished(execution.workflow_name, status, processed, failed, count)

    async def finish_remote(self, execution_id: str, *, status: ExecutionStatus | None = None) -> Finished:
        """End a remote execution. Repeating the call returns how it ended."""
        try:
            return await self.finish(await self.resume(execution_id), status=status)
        except ExecutionLostError:
            ended = await self.executions.find_finished(execution_id)
            if ended is None:
                raise
        return Finished(ended.workflow_name, ended.status, ended.items_processed, ended.items_failed, 0)

    async def recover(self) -> Recovered:
        """End the executions of dead holders, free their records, and correct times that a clock ahead of ours wrote.

        Safe at any time and for every caller."""
        # Announce resumes its own executions.
        ended = await self.executions.recover(kinds=(COLLECT, MIRROR))
        at = self.clock.now()
        async with self.database.write() as connection:
            clamped = await clamp_future_times(connection, at=at, limits=self.limits)
            clamped += await clamp_future_states(connection, at=at, rules=self.rules)
            clamped += await self.pauses.clamp_future(connection, at=at)
            freed = {}
            for of in LEASED_TABLES:
                freed[of.table.name] = await take_back_records(connection, of, at=at, limits=self.limits)
            await count_minute(connection, at=at, succeeded=0, failed=len(freed[candidates.name]))
            for table_name, records in freed.items():
                await self.changes.record(connection, table_name, [key for key, _ in records], at=at)
        every = [record for records in freed.values() for record in records]
        count, failed = len(every), sum(status is CandidateStatus.FAILED for _, status in every)
        if count:
            _log.warning("records.recovered", records=count, failed=failed)
        if clamped:
            _log.warning("times.clamped", rows=clamped, reason="a clock was ahead")
        return Recovered(ended, count, failed)

    async def find_due_platforms(self) -> list[str]:
        """The platforms with due candidates or comments that are not paused, the longest waiting first. Notes that are
        to be read again become due here."""
        at, paused = self.clock.now(), await self.pauses.list_names()
        async with self.database.write() as connection:
            await self._queue_refreshes(connection, at=at)
            due = [
                name
                for of in (CANDIDATES, THREADS)
                for name in await leases.find_due_platforms(connection, at=at, of=of)
            ]
        return [name for name in dict.fromkeys(due) if name not in paused]

    async def _queue_refreshes(
        self, connection: AsyncConnection, *, at: datetime, unless_within: timedelta = timedelta(0)
    ) -> bool:
        """Make notes due that are to be read again. Returns whether there are any. `unless_within`: not if this writer
        looked so recently."""
        if abs(at - self._looked_at) < unless_within:
            return False
        self._looked_at = at
        queued = await leases.queue_refreshes(connection, at=at, limit=_MOST_REFRESHES)
        await self.changes.record(connection, candidates.name, queued, at=at)
        return bool(queued)

    async def count_uses(self, connection: AsyncConnection, uses: Sequence[CookieUse], *, at: datetime) -> None:
        """As `record_uses`. A platform that asks its last cookie for a captcha is paused."""
        await self.record_uses(connection, uses, at=at)
        await self.pauses.judge_captchas(connection, uses, at=at)

    async def record_uses(self, connection: AsyncConnection, uses: Sequence[CookieUse], *, at: datetime) -> None:
        """Record uses of cookies, in the caller's transaction."""
        outcomes = defaultdict(list)
        for use in uses:
            outcomes[use.cookie_name].append(judge_code(use.code, captcha=use.captcha))
        await record_outcomes(connection, outcomes, at, rules=self.rules)
