"""The arguments and results of writing comments. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidings.collect.comments import Comment
from tidings.collect.tables import StageStatus
from tidings.collect.write.values import Failed, StageAction


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedThread:
    """The comments of a note, leased to an execution for one page."""

    platform: str
    note_id: str
    note_url: str
    # The platform's cursor of the page; empty for the first.
    cursor: str
    # How many comments of the note are wanted, and how many the earlier pages had.
    wanted: int
    found: int
    # Failed attempts so far.
    retry_count: int
    # The keyword that found the note first.
    source_keyword: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadComments:
    """A page of comments was read."""

    note_id: str
    comments: Sequence[Comment]
    # The platform's cursor of the next page; None at the end.
    cursor: str | None
    cookie_used: str | None = None


ThreadResult = ReadComments | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledThread:
    """The result of one page."""

    note_id: str
    action: StageAction
    # Comments of the page that are stored, and those among them that are new.
    stored: int = 0
    created: int = 0
    # Failed attempts so far.
    retry_count: int | None = None
    # When the thread is due again.
    retry_at: datetime | None = None

    @property
    def status(self) -> StageStatus | None:
        """The thread's new status; None if this execution no longer holds it."""
        return self.action.status
