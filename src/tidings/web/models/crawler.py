"""Request shapes of the crawl API, and the shape of a note in requests and answers. All other answers are described by
the dataclasses of `tidings.collect.crawl`."""

from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from tidings.collect.comments import MOST_COMMENTS
from tidings.collect.crawl.crawler import MOST_ITEMS, WantedNote
from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.notes import NoteKind
from tidings.core.net.addresses import parse_url

_LONGEST: Final = 2_048
_LONGEST_CURSOR: Final = 5_000


def _read_whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# In JSON 12.0 is an integer and "12" is none. The validator stands last, or the description would lack the bounds.
AS_JSON: Final = BeforeValidator(_read_whole)
PlatformName = Annotated[
    StrictStr, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$", description="The platform's name.", examples=["bilibili"])
]
NamedText = Annotated[StrictStr, Field(min_length=1, max_length=_LONGEST)]
Number = Annotated[StrictInt, Field(ge=0, le=10**15), AS_JSON]


def _check_address(url: str) -> str:
    parse_url(url, max_length=len(url))
    return url


# A URL that people open in a browser, so only http and https, and with a host.
NoteAddress = Annotated[StrictStr, Field(min_length=1, pattern=r"(?i)^https?://"), AfterValidator(_check_address)]
Seconds = Annotated[StrictFloat, Field(ge=0, le=10**12)]


class CollectBody(BaseModel):
    """A JSON object; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


# A copy of the pattern of a cookie's name, because the crawl API does not import the writer.
ExcludedCookies = Annotated[
    list[Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]],
    Field(max_length=100, description="Names of cookies not to use: those that were refused for this request."),
]


class SearchBody(CollectBody):
    """A search on one platform."""

    platform: PlatformName
    keyword: Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEYWORD, examples=["coffee"])]
    page: Annotated[StrictInt, Field(ge=1, le=100)] = 1
    exclude_cookies: ExcludedCookies = []


class WantedNoteBody(CollectBody):
    """A note, named by `note_id` or `url`. Xiaohongshu also needs the `xsec_token` of the search, or a URL with it."""

    note_id: NamedText | None = Field(default=None, examples=["BV1xx411c7mD"])
    url: NamedText | None = None
    xsec_token: Annotated[StrictStr, Field(max_length=256)] | None = None

    @model_validator(mode="after")
    def check_named(self) -> Self:
        if self.note_id is None and self.url is None:
            raise ValueError("note_id or url is required")
        return self

    @property
    def wanted(self) -> WantedNote:
        return WantedNote(note_id=self.note_id, url=self.url, xsec_token=self.xsec_token)


class DetailBody(WantedNoteBody):
    """A note of one platform."""

    platform: PlatformName
    exclude_cookies: ExcludedCookies = []


class BatchBody(CollectBody):
    """Notes of one platform."""

    platform: PlatformName
    items: Annotated[list[WantedNoteBody], Field(min_length=1, max_length=MOST_ITEMS)]
    exclude_cookies: ExcludedCookies = []


class CommentsBody(DetailBody):
    """The comments of a note: the first page, or the one that the `cursor` of the page before names."""

    cursor: Annotated[StrictStr, Field(max_length=_LONGEST_CURSOR)] = ""


class NoteAuthor(CollectBody):
    author_id: str
    name: str


class NoteCounts(CollectBody):
    """The platform's counts; null means not known."""

    views: Number | None
    likes: Number | None
    comments: Number | None
    shares: Number | None
    favorites: Number | None
    coins: Number | None
    danmaku: Number | None


class NoteDocument(CollectBody):
    """One note, the same for all platforms, as `Note.describe` writes it. Timestamps are UTC."""

    platform: str
    note_id: str
    url: NoteAddress
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


class CommentDocument(CollectBody):
    """A comment of a note, or a reply to one."""

    comment_id: Annotated[StrictStr, Field(min_length=1, max_length=256)]
    parent_id: Annotated[StrictStr, Field(max_length=256)] = Field(
        description="Empty for a comment of the note itself."
    )
    text: StrictStr
    author: NoteAuthor
    published_at: str | None = Field(description="UTC, ISO 8601.")
    likes: Number | None
    replies: Number | None
    images: list[str]
    place: str


class CommentPageDocument(CollectBody):
    """A page of comments, in the platform's order."""

    comments: Annotated[list[CommentDocument], Field(max_length=MOST_COMMENTS)]
    cursor: Annotated[StrictStr, Field(max_length=_LONGEST_CURSOR)] | None = Field(
        description="Names the next page; null at the end."
    )
