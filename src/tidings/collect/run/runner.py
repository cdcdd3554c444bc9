"""The built-in runner: discovers and collects in this process. The table in `collect.errors` says how to treat an
error, `write` stores the results, and `jobs` decides when a workflow is due.

    discover                every watched keyword → candidates, each once
    collect:{platform}      due candidates of a platform → notes, in batches, then comments, page by page; platforms in
                            parallel
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from tidings.collect.crawl.crawler import Crawler
from tidings.collect.errors import BACKOFF, RULES, Action, ErrorCode, next_delay
from tidings.collect.run.batch import BatchReader
from tidings.collect.run.comments import CommentReader
from tidings.collect.run.execution import Work, execute
from tidings.collect.run.report import CollectReport, DiscoverReport, EndedExecution, SearchReport
from tidings.collect.run.search import KeywordSearcher
from tidings.collect.write.comments.stage import CommentStage
from tidings.collect.write.keywords import Keyword, Keywords
from tidings.collect.write.values import BATCH_SIZE, Recovered, Settled, SettledAction
from tidings.collect.write.writer import Writer
from tidings.core.executions import Execution, Executions, ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.stop import Stop

DISCOVER: Final = "discover"

_log = get_logger(__name__)


def name_collect(platform: str) -> str:
    """The workflow that collects from this platform."""
    return f"collect:{platform}"


class CollectRunner:
    """Runs the workflows. Each execution has a request id of its own, which its log lines and records carry.

    Every execution ends: as `interrupted` at the stop signal, as `failed` after an unexpected error. An execution that
    lost its lock writes nothing more.
    """

    def __init__(
        self,
        *,
        crawler: Crawler,
        writer: Writer,
        comments: CommentStage,
        keywords: Keywords,
        executions: Executions,
        batch_size: int = BATCH_SIZE,
        backoff: Sequence[timedelta] = BACKOFF,
        retries: Mapping[ErrorCode, int] | None = None,
    ) -> None:
        self._crawler = crawler
        self._writer = writer
        self._comments = comments
        self._keywords = keywords
        self._executions = executions
        self._batch_size = batch_size
        self._backoff = backoff
        self._retries = retries or {}
        self._searcher = KeywordSearcher(crawler, writer, find_delay=self._find_delay)

    async def discover(
        self, stop: Stop, *, on_progress: Callable[[SearchReport], None] = lambda _: None
    ) -> DiscoverReport:
        """Search every enabled keyword, platforms in parallel."""
        by_platform: dict[str, list[Keyword]] = defaultdict(list)
        for keyword in await self._keywords.list_enabled():
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
        await self._writer.recover()
        due = [name for name in await self._writer.find_due_platforms() if platform in (None, name)]
        outcomes = await asyncio.gather(
            *(self._collect_platform(name, stop=stop, on_progress=on_progress) for name in due), return_exceptions=True
        )
        return [_report(name, outcome) for name, outcome in zip(due, outcomes, strict=True)]

    async def recover(self) -> Recovered:
        """Free the records of dead executions. Needs no lock, so nothing can block it."""
        return await self._writer.recover()

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
        platform, pauses = keywords[0].platform, self._writer.pauses
        is_paused = platform in await pauses.list_names()
        for keyword in keywords:
            if is_paused:
                on_search(SearchReport(platform=keyword.platform, keyword=keyword.keyword, skipped=True))
                continue
            search = await self._searcher.search(execution, keyword, stop=stop)
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
            reader = BatchReader(self._crawler, self._writer, execution=execution, find_delay=self._find_delay)
            pages = CommentReader(
                self._crawler, self._writer, self._comments, execution=execution, find_delay=self._find_delay
            )
            while True:
                stop.check()
                leased = await self._writer.lease(execution, limit=self._batch_size, platform=platform)
                # Stop after a batch without a request: the next one would be the same.
                if leased and not await reader.read(leased, stop=stop, on_settled=count):
                    break
                # New notes come first, so check the candidates after each page.
                page = None if leased else await pages.read_page(platform, stop=stop)
                if not leased and page is None:
                    break
                comments += 0 if page is None else page.stored
            # A released candidate counts neither as failed nor as done.
            return ExecutionStatus.PARTIAL if released else None

        ended = await self._execute(name_collect(platform), work, stop=stop)
        _log_end(ended, comments=comments, **{action.value: count for action, count in counts.items()})
        return CollectReport(platform=platform, ended=ended, counts=dict(counts), comments=comments)

    async def _execute(self, workflow: str, work: Work, *, stop: Stop) -> EndedExecution:
        return await execute(workflow, work, writer=self._writer, executions=self._executions, stop=stop)

    def _find_delay(self, code: ErrorCode, retry: int) -> timedelta | None:
        return next_delay(code, retry=retry, backoff=self._backoff, retries=self._retries)


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
