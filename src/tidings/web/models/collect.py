"""Request and answer shapes of the routes of collect for people: status, keywords, candidates, cookies."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AliasPath, BaseModel, Field, PlainSerializer, StrictInt, StrictStr

from tidings.collect.comments import MOST_COMMENTS
from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.status.queries import PauseCause
from tidings.collect.tables import CandidateStatus, StageStatus
from tidings.collect.write.keywords import MOST_PAGES
from tidings.core.clock import write_duration
from tidings.core.execution_table import ExecutionStatus
from tidings.core.net.addresses import MAX_URL_LENGTH
from tidings.web.models.announce import AnnounceBody
from tidings.web.models.announce_answers import AlertDocument
from tidings.web.models.crawler import AS_JSON, PlatformName
from tidings.web.models.parts import AnswerPart, Timestamp

Duration = Annotated[timedelta, PlainSerializer(write_duration, return_type=str)]
DurationText = Annotated[StrictStr, Field(max_length=20, examples=["1d"])]


class RefreshBody(AnnounceBody):
    """Read the notes of a keyword again. Durations are such as `12h` or `1d`; a number alone is of days."""

    every: DurationText
    period: Annotated[DurationText | None, Field(alias="for", description="After each was collected.")] = None


class KeywordBody(AnnounceBody):
    """A keyword to watch. One that is watched already is changed, and resumed if it was paused.

    Without `pages` or `comments` it keeps their number. Without `refresh` it keeps the one that it has; `off` ends it.
    """

    platform: PlatformName
    keyword: Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEYWORD, examples=["coffee"])]
    pages: Annotated[StrictInt, Field(ge=1, le=MOST_PAGES), AS_JSON] | None = Field(
        default=None, description="How many pages of results a search reads; 1 for a new keyword."
    )
    refresh: RefreshBody | Literal["off"] | None = None
    comments: Annotated[StrictInt, Field(ge=0, le=MOST_COMMENTS), AS_JSON] | None = Field(
        default=None, description="How many comments of each note to collect; 0 for none."
    )


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


class CollectExecutionDocument(AnswerPart):
    workflow: str = Field(validation_alias="workflow_name")
    execution_id: str = Field(validation_alias="public_id")
    status: ExecutionStatus
    started_at: Timestamp
    completed_at: Timestamp | None
    items_processed: int
    items_failed: int


class RefreshDocument(AnswerPart):
    """Durations such as `12h`."""

    every: Duration
    period: Annotated[Duration, Field(serialization_alias="for")]


class KeywordDocument(AnswerPart):
    """A watched keyword. Every `last…` is null before its first search."""

    id: int
    platform: str
    keyword: str
    pages: int
    refresh: RefreshDocument | None
    comments: int = Field(description="How many of each note are collected.")
    enabled: bool
    last_run_at: Timestamp | None
    last_found: int | None
    last_created: int | None
    last_error_code: str | None


class CandidateDocument(AnswerPart):
    platform: str
    note_id: str
    url: str = Field(validation_alias="note_url")
    title: str
    status: CandidateStatus
    keyword: str = Field(validation_alias="source_keyword")
    retry_count: int
    error_code: str | None = Field(validation_alias="code")
    error: str | None = Field(validation_alias="message")
    created_at: Timestamp
    updated_at: Timestamp


class CookieDocument(AnswerPart):
    """A cookie's name and state, never its value."""

    name: str
    platform: str
    status: CookieStatus = Field(validation_alias=AliasPath("state", "status"))
    priority: int
    daily_used: int = Field(validation_alias=AliasPath("state", "daily_used"))
    daily_limit: int
    consecutive_errors: int = Field(validation_alias=AliasPath("state", "consecutive_errors"))
    total_errors: int = Field(validation_alias=AliasPath("state", "total_errors"))
    cooling_until: Timestamp | None = Field(validation_alias=AliasPath("state", "cooling_until"))
    user_agent: str | None = Field(description="Of the browser that it came from.")
    expires_at: Timestamp | None = Field(description="The latest end of its session; it may end earlier.")
    last_used_at: Timestamp | None
    created_at: Timestamp
    updated_at: Timestamp


class PauseDocument(AnswerPart):
    """A platform that is left alone for now."""

    platform: str
    cause: PauseCause
    message: str
    failures: int
    since: Timestamp
    until: Timestamp


class MirrorDocument(AnswerPart):
    waiting: int
    oldest: Timestamp | None
    refused: int
    last_error: str | None
    delivered_at: Timestamp | None


class CollectStatusAnswer(AnswerPart):
    """The status of collect, as `tidings collect status --json` prints it."""

    candidates: dict[str, dict[CandidateStatus, int]] = Field(description="By platform and status.")
    executions: Sequence[CollectExecutionDocument]
    alerts: Sequence[AlertDocument]
    keywords: dict[Literal["enabled", "total"], int] = Field(validation_alias="keyword_counts")
    comments: dict[str, dict[StageStatus, int]] = Field(
        description="Notes whose comments are not all read, by platform and status."
    )
    cookies: dict[str, dict[Literal["usable", "total"], int]] = Field(validation_alias="cookie_counts")
    pauses: Sequence[PauseDocument]
    mirror: MirrorDocument | None


class CollectExecutionsAnswer(AnswerPart):
    executions: Sequence[CollectExecutionDocument]


class KeywordAnswer(AnswerPart):
    keyword: KeywordDocument


class OverloadDocument(AnswerPart):
    """Uses of cookies a day: those that searching the platform needs, and those that its cookies allow."""

    needed: int
    allowed: int


class AddedKeywordAnswer(KeywordAnswer):
    overload: OverloadDocument | None = Field(
        description="Set if searching alone needs more than the cookies allow: watch fewer keywords or pages, search "
        "less often (DISCOVER_INTERVAL_MINUTES), or raise a cookie's daily limit."
    )


class KeywordsAnswer(AnswerPart):
    keywords: Sequence[KeywordDocument]


class CandidatesAnswer(AnswerPart):
    """A page of candidates, by platform and note id."""

    candidates: Sequence[CandidateDocument]
    next: str | None = Field(description="The cursor of the next page; null at the end.")


class GivenNoteAnswer(AnswerPart):
    platform: str
    note_id: str
    created: bool = Field(description="False: the note is a candidate already, or was deleted.")


class RequeuedAnswer(BaseModel):
    requeued: int


class CookiesAnswer(AnswerPart):
    """Names and states, never values."""

    cookies: Sequence[CookieDocument]
