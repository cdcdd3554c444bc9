"""The built-in runner: does the workflows of collect in this process, with the same functions that others drive through
the API. What is done about an error is said by the table in `errors`, what is written by `workflow`; when a workflow is
due is known to `jobs`.

    discover                every watched keyword → candidates, each once
    collect:{platform}      what is due there → notes, in batches; the platforms at the same time
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tidings.collect.crawl.crawler import Crawler, WantedNote
from tidings.collect.crawl.envelope import BatchItem, Envelope, ErrorInfo, make_error
from tidings.collect.crawl.platforms.protocol import SearchPage
from tidings.collect.errors import BACKOFF, RULES, Action, ErrorCode, next_delay
from tidings.collect.notes import Note
from tidings.collect.run.execution import Work, execute
from tidings.collect.run.report import CollectReport, DiscoverReport, EndedExecution, SearchReport
from tidings.collect.write import (
    BATCH_SIZE,
    Collected,
    CookieUse,
    Failed,
    Keyword,
    Keywords,
    LeasedCandidate,
    NewCandidate,
    Recovered,
    Repeated,
    Result,
    Settled,
    SettledAction,
    Writer,
)
from tidings.collect.write.writer import REFUSALS
from tidings.core.executions import Execution, Executions, ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.stop import Stop, StopRequestedError

DISCOVER: Final = "discover"

_NO_ANSWER: Final = make_error(ErrorCode.INTERNAL_ERROR, "there is neither a note nor an error")

_log = get_logger(__name__)

NoteSettled = Callable[[Sequence[Settled]], None]
_Answer = tuple[LeasedCandidate, BatchItem[Note]]


def name_collect(platform: str) -> str:
    """The workflow that collects from this platform."""
    return f"collect:{platform}"


class CollectRunner:
    """Does the writer. Each execution has a request id of its own, which its log lines and records carry.

    An execution ends in any case: `interrupted` by the stop, `failed` where something broke that should not. One that
    was taken away writes nothing more.
    """

    def __init__(
        self,
        *,
        crawler: Crawler,
        writer: Writer,
        keywords: Keywords,
        executions: Executions,
        batch_size: int = BATCH_SIZE,
        backoff: Sequence[timedelta] = BACKOFF,
        retries: Mapping[ErrorCode, int] | None = None,
    ) -> None:
        self._crawler = crawler
        self._writer = writer
        self._keywords = keywords
        self._executions = executions
        self._batch_size = batch_size
        self._backoff = backoff
        self._retries = retries or {}

    async def discover(
        self, stop: Stop, *, on_progress: Callable[[SearchReport], None] = lambda _: None
    ) -> DiscoverReport:
        """WatchedSearch for every keyword that is enabled, the platforms at the same time."""
        by_platform: dict[str, list[Keyword]] = defaultdict(list)
        for keyword in await self._keywords.list_enabled():
            by_platform[keyword.platform].append(keyword)
        if not by_platform:
            return DiscoverReport()
        searches: list[SearchReport] = []

        def note(search: SearchReport) -> None:
            searches.append(search)
            on_progress(search)

        async def work(execution: Execution) -> None:
            await _do_all(
                self._search_platform(execution, keywords, stop=stop, note=note) for keywords in by_platform.values()
            )

        ended = await self._execute(DISCOVER, work, stop=stop)
        report = DiscoverReport(ended=ended, searches=tuple(searches))
        _note_end(ended, keywords=len(searches), found=report.found, created=report.created, failed=report.failed)
        return report

    async def collect(
        self,
        stop: Stop,
        *,
        platform: str | None = None,
        on_progress: Callable[[str, Sequence[Settled]], None] = lambda _platform, _settled: None,
    ) -> list[CollectReport]:
        """Read the notes of all candidates that are due (of one platform, where it is named), until none is left."""
        due = [name for name in await self._writer.find_due_platforms() if platform in (None, name)]
        outcomes = await asyncio.gather(
            *(self._collect(name, stop=stop, on_progress=on_progress) for name in due), return_exceptions=True
        )
        return [_report(name, outcome) for name, outcome in zip(due, outcomes, strict=True)]

    async def recover(self) -> Recovered:
        """Free what dead holders had. It needs no right to run: whatever else is stuck, this is not."""
        return await self._writer.recover()

    async def _search_platform(
        self, execution: Execution, keywords: Sequence[Keyword], *, stop: Stop, note: Callable[[SearchReport], None]
    ) -> None:
        is_paused = False
        for keyword in keywords:
            if is_paused:
                note(SearchReport(platform=keyword.platform, keyword=keyword.keyword, skipped=True))
                continue
            search = await self._search_safely(execution, keyword, stop=stop)
            is_paused = search.code is not None and RULES[search.code].action is Action.PAUSE
            note(search)

    async def _search_safely(self, execution: Execution, keyword: Keyword, *, stop: Stop) -> SearchReport:
        """One keyword; what breaks over what it found is told of it, and keeps no other from being searched."""
        try:
            return await self._search(execution, keyword, stop=stop)
        except REFUSALS:
            _log.exception("search.broken", platform=keyword.platform, keyword=keyword.keyword)
            code = ErrorCode.INTERNAL_ERROR
            await self._writer.add_candidates(execution, [], keyword_id=keyword.id, code=code)
            message = "what was found cannot be stored; the log has the cause"
            return SearchReport(platform=keyword.platform, keyword=keyword.keyword, code=code, message=message)

    async def _search(self, execution: Execution, keyword: Keyword, *, stop: Stop) -> SearchReport:
        """All pages of one keyword. What it found is written at once, so that its figures are of the whole search."""
        found: dict[str, NewCandidate] = {}
        page = 0
        while True:
            page += 1
            answer = await self._ask_page(execution, keyword, page=page, stop=stop)
            if answer.data is not None:
                found |= {each.note_id: each for each in _read_hits(answer.data, keyword)}
            uses = _list_uses(answer.meta.cookie_used, answer.error)
            if answer.data is None or not answer.data.has_more or page >= keyword.pages:
                break
            await self._writer.count_cookie_uses(execution, uses)
        code = None if answer.error is None else answer.error.code
        added = await self._writer.add_candidates(
            execution, list(found.values()), keyword_id=keyword.id, code=code, uses=uses
        )
        return SearchReport(
            platform=keyword.platform,
            keyword=keyword.keyword,
            found=len(found),
            created=added.created,
            code=code,
            message=None if answer.error is None else answer.error.message,
        )

    async def _ask_page(self, execution: Execution, keyword: Keyword, *, page: int, stop: Stop) -> Envelope[SearchPage]:
        """The answer to the last try. Those before it are counted here."""
        retry = 0
        while True:
            answer = await stop.wait_for(self._crawler.search(keyword.platform, keyword.keyword, page=page))
            retry += 1
            delay = None if answer.error is None else self._find_delay(answer.error, retry=retry)
            if delay is None:
                return answer
            await self._writer.count_cookie_uses(execution, _list_uses(answer.meta.cookie_used, answer.error))
            await stop.sleep(delay)

    async def _collect(
        self, platform: str, *, stop: Stop, on_progress: Callable[[str, Sequence[Settled]], None]
    ) -> CollectReport:
        counts: Counter[SettledAction] = Counter()

        def note(settled: Sequence[Settled]) -> None:
            counts.update(each.action for each in settled)
            on_progress(platform, settled)

        async def work(execution: Execution) -> ExecutionStatus | None:
            while True:
                stop.check()
                leased = await self._writer.lease(execution, limit=self._batch_size, platform=platform)
                if not leased:
                    # What was given back has not failed, but neither is it done.
                    return ExecutionStatus.PARTIAL if counts[SettledAction.RELEASED] else None
                await self._read_notes(execution, leased, stop=stop, note=note)

        ended = await self._execute(name_collect(platform), work, stop=stop)
        _note_end(ended, **{action.value: count for action, count in counts.items()})
        return CollectReport(platform=platform, ended=ended, counts=dict(counts))

    async def _read_notes(
        self, execution: Execution, leased: Sequence[LeasedCandidate], *, stop: Stop, note: NoteSettled
    ) -> None:
        """Read leased candidates, those that fail again as often as the rule for what went wrong allows. What is
        certain is written at once, also when it is time to stop; what is not is given back then."""
        platform, left, retry = leased[0].platform, leased, 0
        while left:
            retry += 1
            came: list[_Answer] = []
            try:
                await stop.wait_for(self._ask_notes(left, came))
            except StopRequestedError:
                cut = [_conclude(*each) if each[1].data is not None else _put_off(*each) for each in came]
                note(await self._writer.settle(execution, platform, cut))
                raise
            verdict = self._judge(came, retry=retry)
            note(await self._writer.settle(execution, platform, verdict.results))
            left = verdict.again
            if left:
                await stop.sleep(verdict.delay)

    async def _ask_notes(self, candidates: Sequence[LeasedCandidate], came: list[_Answer]) -> None:
        """One batch. The answers are in `came` in the order in which they came, which their cookies are judged by."""
        await self._crawler.details(
            candidates[0].platform,
            [WantedNote(note_id=each.note_id, url=each.note_url) for each in candidates],
            on_item=lambda place, item: came.append((candidates[place], item)),
        )

    def _judge(self, came: Sequence[_Answer], *, retry: int) -> "_Verdict":
        """What is certain, and what is to be asked again as retry number `retry`."""
        results: list[Result] = []
        again: list[LeasedCandidate] = []
        longest = timedelta(0)
        for candidate, item in came:
            delay = None if item.error is None else self._find_delay(item.error, retry=retry)
            if delay is None:
                results.append(_conclude(candidate, item))
            else:
                results.append(_put_off(candidate, item))
                again.append(candidate)
                longest = max(longest, delay)
        return _Verdict(results, again, longest)

    async def _execute(self, workflow: str, work: Work, *, stop: Stop) -> EndedExecution:
        return await execute(workflow, work, writer=self._writer, executions=self._executions, stop=stop)

    def _find_delay(self, error: ErrorInfo, *, retry: int) -> timedelta | None:
        return next_delay(error.code, retry=retry, backoff=self._backoff, retries=self._retries)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is to be written of a batch, and what is asked again after a wait."""

    results: Sequence[Result]
    again: Sequence[LeasedCandidate]
    delay: timedelta


async def _do_all(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at the same time. Where one raises, the others are ended before that goes on."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _conclude(candidate: LeasedCandidate, item: BatchItem[Note]) -> Result:
    if item.data is not None:
        return Collected(note_id=candidate.note_id, note=item.data, cookie_used=item.cookie_used)
    error = item.error or _NO_ANSWER
    return Failed(
        note_id=candidate.note_id,
        code=error.code,
        message=error.message,
        cookie_used=item.cookie_used,
        captcha=error.captcha,
    )


def _report(platform: str, outcome: CollectReport | BaseException) -> CollectReport:
    """How a platform's collection went, also where it could not even be begun: the others are not to suffer from it."""
    if isinstance(outcome, CollectReport):
        return outcome
    if not isinstance(outcome, Exception):
        raise outcome
    _log.error("collect.broken", platform=platform, exc_info=outcome)
    reason = f"it could not be done: {type(outcome).__name__}"
    failed = EndedExecution(
        workflow=name_collect(platform), execution_id="", request_id="", status=ExecutionStatus.FAILED, reason=reason
    )
    return CollectReport(platform=platform, ended=failed)


def _put_off(candidate: LeasedCandidate, item: BatchItem[Note]) -> Result:
    error = item.error or _NO_ANSWER
    return Repeated(note_id=candidate.note_id, code=error.code, cookie_used=item.cookie_used, captcha=error.captcha)


def _read_hits(page: SearchPage, keyword: Keyword) -> Iterable[NewCandidate]:
    for hit in page.hits:
        yield NewCandidate(
            platform=keyword.platform,
            note_id=hit.note_id,
            note_url=hit.url,
            title=hit.title,
            source_keyword=keyword.keyword,
        )


def _list_uses(cookie_used: str | None, error: ErrorInfo | None) -> list[CookieUse]:
    """The use that a try was, where it was one."""
    if cookie_used is None:
        return []
    if error is None:
        return [CookieUse(cookie_name=cookie_used)]
    return [CookieUse(cookie_name=cookie_used, code=error.code, captcha=error.captcha)]


def _note_end(ended: EndedExecution, **figures: int) -> None:
    with request_id_scope(ended.request_id):
        _log.info(
            "workflow.done",
            workflow=ended.workflow,
            execution=ended.execution_id,
            status=ended.status.value,
            reason=ended.reason,
            **figures,
        )
