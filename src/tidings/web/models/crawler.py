"""The shapes of the crawl API: what a request has to be, and, for the description, what an answer is. Answers are made
by `tidings.collect.crawl.envelope`; a test holds the two equal."""

from typing import Annotated, Final, Generic, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from tidings.collect.crawl.crawler import MOST_ITEMS, WantedNote
from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.errors import ErrorCode
from tidings.collect.notes import NoteKind

_LONGEST: Final = 2_048


def _read_whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# In JSON 12.0 is a whole number too, and "12" is none. It stands last, or the bounds would not be described.
AS_JSON: Final = BeforeValidator(_read_whole)
PlatformName = Annotated[
    StrictStr, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$", description="Which platform.", examples=["bilibili"])
]
Name = Annotated[StrictStr, Field(min_length=1, max_length=_LONGEST)]
Number = Annotated[StrictInt, Field(ge=0), AS_JSON]
Seconds = Annotated[StrictFloat, Field(ge=0, le=10**12)]
Data = TypeVar("Data")


class Shape(BaseModel):
    """A JSON object without unknown fields."""

    model_config = ConfigDict(extra="forbid")


class SearchBody(Shape):
    """A search on one platform."""

    platform: PlatformName
    keyword: Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEYWORD, examples=["coffee"])]
    page: Annotated[StrictInt, Field(ge=1, le=100)] = 1


class NoteBody(Shape):
    """A note, named by `note_id` or by `url`; Xiaohongshu's with the `xsec_token` of the search, or its URL."""

    note_id: Name | None = Field(default=None, examples=["BV1xx411c7mD"])
    url: Name | None = None
    xsec_token: Annotated[StrictStr, Field(max_length=256)] | None = None

    @model_validator(mode="after")
    def check_named(self) -> Self:
        if self.note_id is None and self.url is None:
            raise ValueError("note_id or url is required")
        return self

    @property
    def wanted(self) -> WantedNote:
        return WantedNote(note_id=self.note_id, url=self.url, xsec_token=self.xsec_token)


class DetailBody(NoteBody):
    """A note of one platform."""

    platform: PlatformName


class BatchBody(Shape):
    """Notes of one platform."""

    platform: PlatformName
    items: Annotated[list[NoteBody], Field(min_length=1, max_length=MOST_ITEMS)]


class Error(Shape):
    """`code` is for programs, `message` for people. `retryable` says whether the same question can have an answer,
    `captcha` that the account of `cookie_used` is blocked until a person solves one."""

    code: ErrorCode
    message: str
    retryable: StrictBool
    captcha: StrictBool


class AnswerMeta(Shape):
    """`cookie_used` is a cookie's name."""

    request_id: str
    latency_ms: Number
    cookie_used: str | None


class Answer(Shape, Generic[Data]):
    """A success."""

    success: Literal[True]
    data: Data
    error: None
    meta: AnswerMeta


class Failure(Shape):
    """Every answer that is no success."""

    success: Literal[False]
    data: None
    error: Error
    meta: AnswerMeta


class SearchHit(Shape):
    """One result, with all that the question for its detail needs."""

    platform: str
    note_id: str
    url: str
    title: str
    xsec_token: str | None


class SearchResult(Shape):
    """One page of results."""

    hits: list[SearchHit]
    page: int
    has_more: bool
    total: Number | None


class NoteAuthor(Shape):
    author_id: str
    name: str


class NoteCounts(Shape):
    """What the platform counts; null is not known."""

    views: Number | None
    likes: Number | None
    comments: Number | None
    shares: Number | None
    favorites: Number | None
    coins: Number | None
    danmaku: Number | None


class NoteResult(Shape):
    """One note, the same for all platforms. Times are UTC."""

    platform: str
    note_id: str
    url: str
    kind: NoteKind
    title: str
    text: str
    author: NoteAuthor
    published_at: str | None
    updated_at: str | None
    counts: NoteCounts
    tags: list[str]
    images: list[str]
    duration_seconds: Seconds | None
    place: str


class BatchResult(Shape):
    """One note of a batch, or why it is not there. `id` is the `note_id`, or else the `url`, that was asked for."""

    id: str
    success: StrictBool
    data: NoteResult | None
    error: Error | None
    cookie_used: str | None


class BatchSummary(Shape):
    total: Number
    succeeded: Number
    failed: Number


class BatchAnswer(Shape):
    """All items in the order in which they were asked for. The error is PARTIAL_FAIL where some, or all, failed."""

    success: bool
    items: list[BatchResult]
    summary: BatchSummary
    error: Error | None
    meta: AnswerMeta


class SearchAnswer(Answer[SearchResult]):
    """What a search found."""


class DetailAnswer(Answer[NoteResult]):
    """One note, whole."""
