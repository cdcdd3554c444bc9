"""Reads the comments of notes: one page of one thread at a time, with retries by the table of errors."""

from tidings.collect.crawl.crawler import WantedNote
from tidings.collect.run.tries import Tries
from tidings.collect.write.comments.stage import CommentStage, ReadComments, SettledThread, ThreadResult
from tidings.collect.write.values import Failed


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
