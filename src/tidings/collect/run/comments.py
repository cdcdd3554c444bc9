"""Reads the comments of notes: one page of one thread at a time, with retries by the table of errors."""

from tidings.collect.crawl.crawler import Crawler, WantedNote
from tidings.collect.crawl.envelope import Envelope
from tidings.collect.crawl.platforms.protocol import CommentPage
from tidings.collect.run.tries import FindDelay, ask_with_retries
from tidings.collect.write.comments.stage import CommentStage
from tidings.collect.write.comments.values import LeasedThread, ReadComments, SettledThread, ThreadResult
from tidings.collect.write.values import Failed
from tidings.collect.write.writer import Writer
from tidings.core.executions import Execution
from tidings.core.stop import Stop


class CommentReader:
    """Reads comments for one execution."""

    def __init__(
        self, crawler: Crawler, writer: Writer, stage: CommentStage, *, execution: Execution, find_delay: FindDelay
    ) -> None:
        self._crawler = crawler
        self._writer = writer
        self._stage = stage
        self._execution = execution
        self._find_delay = find_delay
        self._is_over = False

    async def read_page(self, platform: str, *, stop: Stop) -> SettledThread | None:
        """Read the next page that is due and write its result. None if nothing is due, or if no request could be sent:
        then the next page could not be read either."""
        leased = [] if self._is_over else await self._stage.lease(self._execution, platform=platform)
        if not leased:
            return None
        [thread] = leased
        answer = await ask_with_retries(
            lambda refused: self._crawler.comments(
                platform,
                WantedNote(note_id=thread.note_id, url=thread.note_url),
                cursor=thread.cursor,
                exclude_cookies=refused,
            ),
            execution=self._execution,
            writer=self._writer,
            find_delay=self._find_delay,
            stop=stop,
        )
        self._is_over = answer.error is not None and not answer.error.asked
        [settled] = await self._stage.settle(self._execution, platform, [_conclude(thread, answer)])
        return settled


def _conclude(thread: LeasedThread, answer: Envelope[CommentPage]) -> ThreadResult:
    page, error, cookie_used = answer.data, answer.error, answer.meta.cookie_used
    if page is not None:
        return ReadComments(note_id=thread.note_id, comments=page.comments, cursor=page.cursor, cookie_used=cookie_used)
    assert error is not None  # noqa: S101 - an answer has data or an error
    return Failed.read(error, note_id=thread.note_id, cookie_used=cookie_used)
