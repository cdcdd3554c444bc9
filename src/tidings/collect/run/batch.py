"""Reads the notes of leased candidates in batches, and the comments of notes page by page, with retries by the table of
errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tidings.collect.crawl.crawler import WantedNote
from tidings.collect.crawl.envelope import BatchItem, ErrorInfo, make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.notes import Note
from tidings.collect.run.tries import Tries
from tidings.collect.write.comments.stage import CommentStage, ReadComments, SettledThread, ThreadResult
from tidings.collect.write.values import Collected, Failed, LeasedCandidate, Result, Settled
from tidings.core.stop import StopRequestedError

_NO_ANSWER: Final = make_error(ErrorCode.INTERNAL_ERROR, "there is neither a note nor an error")

OnSettled = Callable[[Sequence[Settled]], None]
_Answer = tuple[LeasedCandidate, BatchItem[Note]]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The judgement of one round of answers."""

    # To be written now.
    results: Sequence[Result]
    # To be requested again …
    again: Sequence[LeasedCandidate]
    # … after this wait.
    delay: timedelta


@dataclass(slots=True)
class _Refusals:
    """The cookies that were refused for a batch, and the error of each note that was refused."""

    cookies: set[str] = field(default_factory=set)
    errors: dict[str, tuple[str, ErrorInfo]] = field(default_factory=dict)

    def add(self, answers: Sequence[_Answer]) -> None:
        for candidate, item in answers:
            if item.error is not None and item.error.code is ErrorCode.COOKIE_INVALID and item.cookie_used is not None:
                self.cookies.add(item.cookie_used)
                self.errors[candidate.note_id] = (item.cookie_used, item.error)


class BatchReader:
    """Reads batches for one execution."""

    def __init__(self, tries: Tries) -> None:
        self._tries = tries
        # The cookies that have read a note in this execution.
        self._proven: set[str] = set()

    async def read(self, leased: Sequence[LeasedCandidate], *, on_settled: OnSettled) -> bool:
        """Read leased candidates and write each result as soon as it is final. Returns whether any request was sent.

        Failed ones are asked for again as often as the rule of their code allows, without the cookies that were
        refused. When the stop signal comes, the notes that arrived are written and the rest is given back.
        """
        left, retry, refusals, stop = leased, 0, _Refusals(), self._tries.stop
        is_asked = False

        async def settle(results: Sequence[Result]) -> None:
            on_settled(await self._tries.writer.settle(self._tries.execution, leased[0].platform, results))

        while left:
            retry += 1
            answers: list[_Answer] = []
            try:
                await stop.wait_for(self._ask(left, answers, exclude_cookies=refusals.cookies))
            except StopRequestedError:
                await settle([_report(*each, is_repeated=True) for each in answers])
                raise
            self._proven |= {item.cookie_used for _, item in answers if item.data is not None and item.cookie_used}
            is_asked = is_asked or any(item.error is None or item.error.asked for _, item in answers)
            verdict = self._judge(answers, retry=retry, refusals=refusals)
            refusals.add(answers)
            await settle(verdict.results)
            left = verdict.again
            if left:
                await stop.sleep(verdict.delay)
        return is_asked

    async def _ask(
        self, candidates: Sequence[LeasedCandidate], answers: list[_Answer], *, exclude_cookies: set[str]
    ) -> None:
        """Fill `answers` in the order in which they arrive: the outcomes of a cookie are judged in that order."""
        await self._tries.crawler.details(
            candidates[0].platform,
            [WantedNote(note_id=each.note_id, url=each.note_url) for each in candidates],
            exclude_cookies=exclude_cookies,
            on_item=lambda place, item: answers.append((candidates[place], item)),
        )

    def _judge(self, answers: Sequence[_Answer], *, retry: int, refusals: _Refusals) -> _Verdict:
        results: list[Result] = []
        again: list[LeasedCandidate] = []
        longest = timedelta(0)
        for candidate, item in answers:
            delay = None if item.error is None else self._find_retry(item.error, retry)
            if delay is None:
                results.append(self._blame_note(candidate, item, refusals) or _report(candidate, item))
            else:
                results.append(_report(candidate, item, is_repeated=True))
                again.append(candidate)
                longest = max(longest, delay)
        return _Verdict(results, again, longest)

    def _find_retry(self, error: ErrorInfo, retry: int) -> timedelta | None:
        """The wait before the next try. There is none for a platform that blocks or a request that was not sent."""
        if error.blocked or not error.asked or error.retry_after is not None:
            return None
        return self._tries.find_delay(error.code, retry)

    def _blame_note(self, candidate: LeasedCandidate, item: BatchItem[Note], refusals: _Refusals) -> Failed | None:
        """The error of a note for which no cookie is left, if its refused cookie has read another note. Then the note
        is at fault, and releasing it uncounted would use up the cookies again."""
        if item.error is None or item.error.code is not ErrorCode.COOKIE_EXHAUSTED:
            return None
        cookie, error = refusals.errors.get(candidate.note_id, ("", _NO_ANSWER))
        if cookie not in self._proven:
            return None
        # The use of the cookie was counted with the try itself.
        return Failed(note_id=candidate.note_id, error=make_error(error.code, error.message))


def _report(candidate: LeasedCandidate, item: BatchItem[Note], *, is_repeated: bool = False) -> Result:
    """The result of an answer. `is_repeated`: a note that was not read is asked for again."""
    note_id, cookie_used = candidate.note_id, item.cookie_used
    if item.data is not None:
        return Collected(note_id=note_id, note=item.data, cookie_used=cookie_used)
    return Failed(note_id=note_id, error=item.error or _NO_ANSWER, cookie_used=cookie_used, is_repeated=is_repeated)


class CommentReader:
    """Reads comments for one execution."""

    def __init__(self, tries: Tries, stage: CommentStage) -> None:
        self._tries = tries
        self._stage = stage
        self._is_over = False

    async def read_page(self, platform: str) -> SettledThread | None:
        """Read the next page that is due and write its result. None if nothing is due, or if no request could be sent:
        then the next page could not be read either."""
        execution = self._tries.execution
        leased = [] if self._is_over else await self._stage.lease(execution, platform=platform)
        if not leased:
            return None
        [thread] = leased
        wanted = WantedNote(note_id=thread.note_id, url=thread.note_url)
        answer = await self._tries.ask(
            lambda refused: self._tries.crawler.comments(
                platform, wanted, cursor=thread.cursor, exclude_cookies=refused
            )
        )
        error, cookie_used = answer.error, answer.meta.cookie_used
        self._is_over = error is not None and not error.asked
        result: ThreadResult
        if error is not None:
            result = Failed(note_id=thread.note_id, error=error, cookie_used=cookie_used)
        else:
            assert answer.data is not None  # noqa: S101 - an answer has data or an error
            comments, cursor = answer.data.comments, answer.data.cursor
            result = ReadComments(note_id=thread.note_id, comments=comments, cursor=cursor, cookie_used=cookie_used)
        [settled] = await self._stage.settle(execution, platform, [result])
        return settled
