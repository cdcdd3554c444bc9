"""The built-in runner: discovers and collects in this process. The table in `collect.errors` says how to treat an
error, `write` stores the results, and `jobs` decides when a workflow is due.

    discover                every watched keyword → candidates, each once
    collect:{platform}      due candidates of a platform → notes, in batches, then comments, page by page; platforms in
                            parallel
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from tidings.collect.crawl.crawler import Crawler
from tidings.collect.errors import BACKOFF, RULES, Action, ErrorCode
from tidings.collect.run.batch import BatchReader, CommentReader
from tidings.collect.run.report import CollectReport, DiscoverReport, EndedExecution, SearchReport
from tidings.collect.run.search import search_keyword
from tidings.collect.run.tries import Tries
from tidings.collect.write.comments.stage import CommentStage
from tidings.collect.write.keywords import Keyword, Keywords
from tidings.collect.write.values import BATCH_SIZE, Recovered, Settled, SettledAction
from tidings.collect.write.writer import Writer
from tidings.core.executions import Execution, ExecutionLostError, ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.stop import Stop, StopRequestedError

DISCOVER: Final = "discover"
# Returns the execution's final status; None lets the writer derive it from the failures that it counted.
_Work = Callable[[Execution], Awaitable[ExecutionStatus | None]]

_log = get_logger(__name__)


def name_collect(platform: str) -> str:
    """The workflow that collects from this platform."""
    return f"collect:{platform}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRunner:
    """Runs the workflows. Each execution has a request id of its own, which its log lines and records carry.

    Every execution ends: as `interrupted` at the stop signal, as `failed` after an unexpected error. An execution that
    lost its lock writes nothing more.
    """

    crawler: Crawler
    writer: Writer
    comments: CommentStage
    keywords: Keywords
    # Candidates in a lease.
    batch_size: int = BATCH_SIZE
    # The waits before retries, and retries of codes that differ from the table.
    backoff: Sequence[timedelta] = BACKOFF
    retries: Mapping[ErrorCode, int] = field(default_factory=dict)

    async def discover(
        self, stop: Stop, *, on_progress: Callable[[SearchReport], None] = lambda _: None
    ) -> DiscoverReport:
        """Search every enabled keyword, platforms in parallel."""
        by_platform: dict[str, list[Keyword]] = defaultdict(list)
        for keyword in await self.keywords.list_enabled():
            by_platform[keyword.platform].append(keyword)
        if not by_platform:
            return DiscoverReport()
        searches: list[SearchReport] = []

        def report_search(search: SearchReport) -> None:
            searches.append(search)
            on_progress(search)

        async def work(execution: Execution) -> None:
            await _run_all(
                self._search_platform(execution, keywords, stop=stop, on_search=report_search)
                for keywords in by_platform.values()
            )

        ended = await self._execute(DISCOVER, work, stop=stop)
        report = DiscoverReport(ended=ended, searches=tuple(searches))
        _log_end(ended, keywords=len(searches), found=report.found, created=report.created, failed=report.failed)
        return report

    async def collect(
        self,
        stop: Stop,
        *,
        platform: str | None = None,
        on_progress: Callable[[str, Sequence[Settled]], None] = lambda _platform, _settled: None,
    ) -> list[CollectReport]:
        """Read the notes of all due candidates, and the comments that are due, until none is left; of one platform, if
        it is named.

        Records of a killed process are freed first, because no service may be running that would do it.
        """
        await self.writer.recover()
        due = [name for name in await self.writer.find_due_platforms() if platform in (None, name)]
        outcomes = await asyncio.gather(
            *(self._collect_platform(name, stop=stop, on_progress=on_progress) for name in due), return_exceptions=True
        )
        return [_report(name, outcome) for name, outcome in zip(due, outcomes, strict=True)]

    async def recover(self) -> Recovered:
        """Free the records of dead executions. Needs no lock, so nothing can block it."""
        return await self.writer.recover()

    async def _search_platform(
        self,
        execution: Execution,
        keywords: Sequence[Keyword],
        *,
        stop: Stop,
        on_search: Callable[[SearchReport], None],
    ) -> None:
        """Search the keywords of a platform in turn. A platform that is paused, that blocks this machine or that has no
        usable cookie skips the rest."""
        platform, pauses, tries = keywords[0].platform, self.writer.pauses, self._make_tries(execution, stop)
        is_paused = platform in await pauses.list_names()
        for keyword in keywords:
            if is_paused:
                on_search(SearchReport(platform=keyword.platform, keyword=keyword.keyword, skipped=True))
                continue
            search = await search_keyword(tries, keyword)
            is_paused = search.code is not None and (
                RULES[search.code].action is Action.PAUSE or platform in await pauses.list_names()
            )
            on_search(search)

    async def _collect_platform(
        self, platform: str, *, stop: Stop, on_progress: Callable[[str, Sequence[Settled]], None]
    ) -> CollectReport:
        counts: Counter[SettledAction] = Counter()
        released: set[str] = set()
        comments = 0

        def count(settled: Sequence[Settled]) -> None:
            counts.update(each.action for each in settled)
            for each in settled:
                (released.add if each.action is SettledAction.RELEASED else released.discard)(each.note_id)
            on_progress(platform, settled)

        async def work(execution: Execution) -> ExecutionStatus | None:
            nonlocal comments
            tries = self._make_tries(execution, stop)
            reader, pages = BatchReader(tries), CommentReader(tries, self.comments)
            while True:
                stop.check()
                leased = await self.writer.lease(execution, limit=self.batch_size, platform=platform)
                # Stop after a batch without a request: the next one would be the same.
                if leased and not await reader.read(leased, on_settled=count):
                    break
                # New notes come first, so check the candidates after each page.
                page = None if leased else await pages.read_page(platform)
                if not leased and page is None:
                    break
                comments += 0 if page is None else page.stored
            # A released candidate counts neither as failed nor as done.
            return ExecutionStatus.PARTIAL if released else None

        ended = await self._execute(name_collect(platform), work, stop=stop)
        _log_end(ended, comments=comments, **{action.value: count for action, count in counts.items()})
        return CollectReport(platform=platform, ended=ended, counts=dict(counts), comments=comments)

    def _make_tries(self, execution: Execution, stop: Stop) -> Tries:
        return Tries(
            crawler=self.crawler,
            writer=self.writer,
            execution=execution,
            stop=stop,
            backoff=self.backoff,
            retries=self.retries,
        )

    async def _execute(self, workflow: str, work: _Work, *, stop: Stop) -> EndedExecution:
        """Do the work as one execution with a request id of its own. If another execution holds the lock, do nothing.

        The execution ends as `interrupted` if the work raises StopRequestedError or is cancelled, and as `failed` with
        a reason if it raises anything else. A lost execution is left as it is. Raises database errors from outside the
        work.
        """
        with request_id_scope() as request_id:
            acquired = await self.writer.acquire(workflow)
            execution, status, reason = acquired.execution, ExecutionStatus.RUNNING, acquired.reason
            if execution is None:
                _log.info("workflow.busy", workflow=workflow, reason=reason)
            else:
                try:
                    status, reason = await self._work_and_finish(execution, work, stop)
                except ExecutionLostError as error:
                    status, reason = ExecutionStatus.INTERRUPTED, str(error)
                    _log.warning("workflow.lost", workflow=workflow, execution=execution.public_id)
            return EndedExecution(
                workflow=workflow,
                execution_id=acquired.execution_id,
                request_id=request_id,
                status=status,
                reason=reason,
            )

    async def _work_and_finish(
        self, execution: Execution, work: _Work, stop: Stop
    ) -> tuple[ExecutionStatus, str | None]:
        """The execution's final status, and the reason if it did not succeed. Raises ExecutionLostError."""

        async def finish(
            status: ExecutionStatus | None, reason: str | None = None
        ) -> tuple[ExecutionStatus, str | None]:
            result = None if reason is None else {"errors": [reason]}
            return (await self.writer.finish(execution, status=status, result=result)).status, reason

        try:
            async with self.writer.executions.keep_alive(execution, heartbeat=self.writer.heartbeat):
                status = await work(execution)
        except StopRequestedError:
            return await finish(ExecutionStatus.INTERRUPTED, stop.reason)
        except ExecutionLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the lock must be released after any error
            _log.exception("workflow.failed", workflow=execution.workflow_name, execution=execution.public_id)
            return await finish(ExecutionStatus.FAILED, f"it ended early: {type(error).__name__}")
        except asyncio.CancelledError:
            with suppress(ExecutionLostError):
                await finish(ExecutionStatus.INTERRUPTED, "the process cancelled it")
            raise
        return await finish(status)


async def _run_all(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all in parallel. If one raises, the others are cancelled before the error propagates."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _report(platform: str, outcome: CollectReport | BaseException) -> CollectReport:
    """A platform's report. If its execution could not start, it is reported as failed beside the others."""
    if isinstance(outcome, CollectReport):
        return outcome
    if not isinstance(outcome, Exception):
        raise outcome
    _log.error("collect.failed", platform=platform, exc_info=outcome)
    reason = f"it could not start: {type(outcome).__name__}"
    failed = EndedExecution(
        workflow=name_collect(platform), execution_id="", request_id="", status=ExecutionStatus.FAILED, reason=reason
    )
    return CollectReport(platform=platform, ended=failed)


def _log_end(ended: EndedExecution, **counts: int) -> None:
    with request_id_scope(ended.request_id):
        _log.info(
            "workflow.done",
            workflow=ended.workflow,
            execution=ended.execution_id,
            status=ended.status.value,
            reason=ended.reason,
            **counts,
        )
