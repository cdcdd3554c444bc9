"""Request and answer shapes of comments: those of the writer and of the routes of notes."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from tidings.collect.crawl.crawler import MOST_ITEMS
from tidings.collect.tables import StageStatus
from tidings.collect.write.values import StageAction
from tidings.web.models.crawler import CommentDocument, CommentPageDocument, PlatformName
from tidings.web.models.workflow import AnsweredItem, ExecutionBody, NoteId, RetriedRecord, WriterAnswer


class SettleCommentsItem(AnsweredItem[CommentPageDocument]):
    """The answer of /crawler/comments for one leased thread."""

    note_id: NoteId


class SettleCommentsBody(ExecutionBody):
    """The results of leased threads of one platform."""

    platform: PlatformName
    items: Annotated[list[SettleCommentsItem], Field(min_length=1, max_length=MOST_ITEMS)]


class SettledThreadItem(RetriedRecord):
    """The result of one page; `lost` if this execution no longer held the thread, and nothing was written."""

    note_id: str
    action: StageAction
    status: StageStatus | None = Field(description="Null if this execution does not hold the thread.")
    stored: int = Field(description="Comments of the page that are stored.")
    created: int = Field(description="Those among them that are new.")


class SettledThreads(WriterAnswer):
    items: Sequence[SettledThreadItem]


class StoredCommentDocument(CommentDocument):
    """A collected comment, as it was read last."""

    platform: str
    note_id: str
    collected_at: str = Field(description="When it was read first.")


class CommentsAnswer(BaseModel):
    """A page of the comments of a note, in the order in which they were read."""

    comments: list[StoredCommentDocument]
    total: int = Field(description="How many comments of the note are stored.")
    next: str | None = Field(description="The cursor of the next page; null at the end.")
