"""Request and answer shapes of the routes of collect for people: status, keywords, candidates, cookies."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictInt, StrictStr

from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.write.keywords import MOST_PAGES
from tidings.core.net.addresses import MAX_URL_LENGTH
from tidings.web.models.announce import AnnounceBody
from tidings.web.models.crawler import AS_JSON, PlatformName

DurationText = Annotated[StrictStr, Field(max_length=20, examples=["1d"])]


class RefreshBody(AnnounceBody):
    """Read the notes of a keyword again. Durations are such as `12h` or `1d`; a number alone is of days."""

    every: DurationText
    period: Annotated[DurationText | None, Field(alias="for", description="After each was collected.")] = None


class KeywordBody(AnnounceBody):
    """A keyword to watch. One that is watched already gets this number of pages, and is resumed if it was paused.

    Without `refresh` it keeps the one that it has; `off` ends it.
    """

    platform: PlatformName
    keyword: Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEYWORD, examples=["coffee"])]
    pages: Annotated[StrictInt, Field(ge=1, le=MOST_PAGES), AS_JSON] = 1
    refresh: RefreshBody | Literal["off"] | None = None


class GivenNoteBody(AnnounceBody):
    """A note, named by its address."""

    url: Annotated[
        StrictStr,
        Field(min_length=1, max_length=MAX_URL_LENGTH, examples=["https://www.bilibili.com/video/BV1xx411c7mD"]),
    ]


class RetryBody(AnnounceBody):
    """Which failed candidates to try again: all, those of a platform, or these of a platform."""

    platform: PlatformName | None = None
    note_ids: Annotated[list[StrictStr], Field(min_length=1, max_length=1_000)] | None = None


class CollectStatusAnswer(BaseModel):
    """The status of collect, as `tidings collect status --json` prints it."""

    candidates: dict[str, dict[str, int]]
    executions: list[dict[str, Any]]
    alerts: list[dict[str, Any]]
    keywords: dict[str, int]
    cookies: dict[str, dict[str, int]]
    pauses: list[dict[str, Any]]
    mirror: dict[str, Any] | None


class CollectExecutionsAnswer(BaseModel):
    executions: list[dict[str, Any]]


class KeywordAnswer(BaseModel):
    keyword: dict[str, Any]


class OverloadAnswer(BaseModel):
    """Uses of cookies a day: those that searching the platform needs, and those that its cookies allow."""

    needed: int
    allowed: int


class AddedKeywordAnswer(KeywordAnswer):
    overload: OverloadAnswer | None = Field(
        description="Set if searching alone needs more than the cookies allow: watch fewer keywords or pages, search "
        "less often (DISCOVER_INTERVAL_MINUTES), or raise a cookie's daily limit."
    )


class KeywordsAnswer(BaseModel):
    keywords: list[dict[str, Any]]


class CandidatesAnswer(BaseModel):
    """A page of candidates, by platform and note id."""

    candidates: list[dict[str, Any]]
    next: str | None = Field(description="The cursor of the next page; null at the end.")


class GivenNoteAnswer(BaseModel):
    platform: str
    note_id: str = Field(serialization_alias="noteId")
    created: bool = Field(description="False: the note is a candidate already, or was deleted.")


class RequeuedAnswer(BaseModel):
    requeued: int


class CookiesAnswer(BaseModel):
    """Names and states, never values."""

    cookies: list[dict[str, Any]]
