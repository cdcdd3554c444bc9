"""Request and answer shapes of the writer's routes. Hits, notes and batch items are those of the crawl API, as it sent
them. An answer that a dataclass of the writer describes already (`Added`, `Recovered`) has no other shape here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from tidings.collect.crawl.crawler import MOST_ITEMS
from tidings.collect.crawl.envelope import ErrorInfo
from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.errors import RULES, Action, ErrorCode
from tidings.collect.tables import CandidateStatus
from tidings.collect.write.values import Failed, SettledAction, StageAction
from tidings.core.executions import ExecutionStatus
from tidings.core.net.addresses import MAX_URL_LENGTH
from tidings.web.models.crawler import AS_JSON, CollectBody, NamedText, NoteAddress, NoteDocument, PlatformName
from tidings.web.models.parts import Timestamp

Data = TypeVar("Data")
Record = TypeVar("Record")

MOST_HITS: Final = 200

_LARGEST_ID: Final = 2**63 - 1

ExecutionId = Annotated[
    StrictStr,
    Field(
        pattern=r"^exec-[0-9]{1,16}-[0-9a-f]{8}$",
        max_length=30,
        description="The id that POST /workflow/executions returned.",
        examples=["exec-1794873600000-0a1b2c3d"],
    ),
]
WorkflowName = Annotated[
    StrictStr,
    Field(min_length=1, max_length=100, description="a-z 0-9 _ . : -, first a letter or digit.", examples=["collect"]),
]
# It is part of a key, and PostgreSQL's keys have at most 2,700 bytes.
NoteId = Annotated[StrictStr, Field(min_length=1, max_length=256, examples=["BV1xx411c7mD"])]
CookieName = Annotated[
    StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="The name in `cookie_used`.")
]
Message = Annotated[StrictStr, Field(max_length=100_000)]
RetryAfter = Annotated[
    float | None, Field(ge=0, le=86_400, strict=True, description="Seconds that the platform asks us to wait.")
]


class AcquireBody(CollectBody):
    """The workflow to run."""

    workflow_name: WorkflowName


class ExecutionBody(CollectBody):
    """The execution that sends the request."""

    execution_id: ExecutionId


class HitBody(CollectBody):
    """A hit of /crawler/search, whole or only its required fields."""

    note_id: NoteId
    url: Annotated[NoteAddress, Field(max_length=MAX_URL_LENGTH)]
    title: Annotated[StrictStr, Field(max_length=10_000)] = ""
    platform: PlatformName | None = None
    xsec_token: StrictStr | None = Field(default=None, description="Not stored: the URL holds it.")


class FailureFields(CollectBody):
    """What a platform's refusal says, as the crawl API answered it."""

    message: Message = Field(default="", description="The error's message.")
    captcha: StrictBool = False
    blocked: StrictBool = Field(default=False, description="The platform blocks this machine for now: it is paused.")
    asked: StrictBool = Field(
        default=True,
        description="False if the request still waited for a cookie or a turn: then it counts against nothing.",
    )
    retry_after: RetryAfter = None

    def to_error(self, code: ErrorCode, *, redact: Callable[[str], str]) -> ErrorInfo:
        """The error of the crawl API. `redact` removes secrets from a text."""
        return ErrorInfo(
            code=code,
            message=redact(self.message),
            retryable=RULES[code].retryable,
            captcha=self.captcha,
            blocked=self.blocked,
            asked=self.asked,
            retry_after=self.retry_after,
        )


class CandidatesBody(ExecutionBody, FailureFields):
    """The result of one search: hits, or an `error_code`. `continued` marks a further page of the search reported
    before: its numbers are added to the keyword's statistics."""

    platform: PlatformName
    source_keyword: Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEYWORD, examples=["coffee"])]
    keyword_id: Annotated[StrictInt, Field(ge=1, le=_LARGEST_ID), AS_JSON] | None = None
    hits: list[HitBody] = Field(default_factory=list, max_length=MOST_HITS)
    cookie_used: CookieName | None = None
    error_code: ErrorCode | None = None
    continued: StrictBool = False

    @model_validator(mode="after")
    def check_platform(self) -> Self:
        if any(hit.platform not in (None, self.platform) for hit in self.hits):
            raise ValueError("the hits must be of this platform")
        return self


class LeaseBody(ExecutionBody):
    """The number of candidates and their platform; by default the platform whose candidates wait longest."""

    limit: Annotated[StrictInt, Field(ge=1, le=MOST_ITEMS), AS_JSON] | None = Field(
        default=None, description="Default: BATCH_SIZE."
    )
    platform: PlatformName | None = None


class SourceBody(ExecutionBody):
    """The note of a leased candidate. `note_id` is the candidate's, also if the platform renamed the note."""

    platform: PlatformName
    note_id: NoteId
    note: NoteDocument
    cookie_used: CookieName | None = None

    @model_validator(mode="after")
    def check_platform(self) -> Self:
        if self.note.platform != self.platform:
            raise ValueError("the note must be of this platform")
        return self


class FailBody(ExecutionBody, FailureFields):
    """Why the note of a leased candidate was not read, after every retry that its code allows."""

    platform: PlatformName
    note_id: NoteId
    code: ErrorCode
    cookie_used: CookieName | None = None


class SourceItem(CollectBody):
    """How the work on one leased note ended: done, or with a `code` after every retry that the code allows."""

    idempotency_key: Annotated[StrictStr, Field(min_length=1, max_length=300, examples=["BV1xx411c7mD_v1"])]
    success: StrictBool
    code: ErrorCode | None = None
    message: Message = ""

    @model_validator(mode="after")
    def check_code(self) -> Self:
        if self.success == (self.code is not None):
            raise ValueError("a failure needs a code, and a success has none")
        return self


class SettleSourcesBody(ExecutionBody):
    """Results of leased notes of one platform."""

    platform: PlatformName
    items: Annotated[list[SourceItem], Field(min_length=1, max_length=MOST_ITEMS)]


class ItemError(FailureFields):
    """The error of an item, as /crawler/detail/batch answered it."""

    code: ErrorCode
    message: str
    retryable: StrictBool
    captcha: StrictBool


class AnsweredItem(CollectBody, Generic[Data]):
    """What the crawl API answered about one record: data, or an error."""

    success: StrictBool
    data: Data | None
    error: ItemError | None
    cookie_used: CookieName | None

    @model_validator(mode="after")
    def check_whole(self) -> Self:
        if (self.data is None) == self.success or (self.error is None) != self.success:
            raise ValueError("a success has data and no error, a failure has an error and no data")
        return self

    def to_failure(self, note_id: str, *, redact: Callable[[str], str]) -> Failed:
        """The failure of an item without data. `redact` removes secrets from a text."""
        assert self.error is not None  # noqa: S101 - the shape has one of the two
        error = self.error.to_error(self.error.code, redact=redact)
        return Failed(note_id=note_id, error=error, cookie_used=self.cookie_used)


class SettleItem(AnsweredItem[NoteDocument]):
    """An item as /crawler/detail/batch answered it. `id` is the candidate's `note_id`: ask for the note by that."""

    id: NamedText


class SettleBody(ExecutionBody):
    """The results of leased candidates of one platform."""

    platform: PlatformName
    items: Annotated[list[SettleItem], Field(max_length=MOST_ITEMS)]

    @model_validator(mode="after")
    def check_platform(self) -> Self:
        if any(item.data is not None and item.data.platform != self.platform for item in self.items):
            raise ValueError("the notes must be of this platform")
        return self


class OutcomeBody(CollectBody):
    """The outcome of one request with a cookie; without a code it succeeded."""

    cookie_name: CookieName
    code: ErrorCode | None = None
    captcha: StrictBool = False


class OutcomesBody(ExecutionBody):
    """Outcomes of requests that were repeated; no other route reports them."""

    uses: Annotated[list[OutcomeBody], Field(max_length=MOST_ITEMS)]


class FinishBody(ExecutionBody):
    """The final status; by default `partial` if something failed, else `succeeded`."""

    status: Literal["succeeded", "partial", "failed"] | None = None


class FailureBody(CollectBody):
    """A workflow failed as a whole. `execution_id` is the driver's own id of its execution."""

    workflow_name: Annotated[StrictStr, Field(min_length=1, max_length=200, examples=["collect"])]
    message: Message
    execution_id: Annotated[StrictStr, Field(max_length=100)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """What a workflow does about one error code."""

    code: ErrorCode
    retryable: bool
    action: Action
    most_retries: int
    # The wait before each retry.
    backoff_seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class RetryRules:
    rules: Sequence[RetryRule]


class WriterAnswer(BaseModel):
    """A part of an answer. `model_validate` takes a value of the writer with these attributes."""

    model_config = ConfigDict(from_attributes=True)


class WatchedKeyword(WriterAnswer):
    """What to search for, where, and how many pages of it."""

    id: int
    platform: str
    keyword: str
    pages: int


class WatchedKeywords(WriterAnswer):
    """The enabled keywords."""

    keywords: Sequence[WatchedKeyword]


class AcquiredLock(WriterAnswer):
    """If refused, `execution_id` is the holder's, and `reason` says since when it runs."""

    locked: bool
    execution_id: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class RenewedLeases:
    """The number of records that the execution still holds."""

    renewed: int


@dataclass(frozen=True, slots=True)
class LeasedRecords(Generic[Record]):
    """Records of one platform that no other execution works on; none if nothing is due."""

    records: Sequence[Record]
    locked_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSource:
    """`existing_id` is the number of the note's row; `skipped` if it existed before."""

    action: Literal["created", "skipped"]
    existing_id: int


class RetriedRecord(WriterAnswer):
    """A record after its result; `retry_at` is when it is due again."""

    retry_count: int | None
    retry_at: Timestamp | None


class FailedRecord(RetriedRecord):
    """The candidate after its failure."""

    action: SettledAction
    status: CandidateStatus | None = Field(description="Null if another execution holds the candidate.")


class SettledItem(FailedRecord):
    """The result of one candidate; `lost` if this execution no longer held it, and nothing was written."""

    note_id: str
    existing_id: int | None = Field(description="The number of the note's row.")


class SettledSourceItem(RetriedRecord):
    """The result of one note; `lost` if this execution no longer held it, and nothing was written."""

    idempotency_key: str
    action: StageAction


class SettledSources(WriterAnswer):
    """The action for each note."""

    items: Sequence[SettledSourceItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledSummary:
    """Numbers of candidates by action."""

    total: int
    created: int
    skipped: int
    retry: int
    failed: int
    kept: int
    released: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledBatch:
    """Each note once, in the order of the request."""

    items: Sequence[SettledItem]
    summary: SettledSummary


@dataclass(frozen=True, slots=True)
class CountedOutcomes:
    counted: int


class FinishedExecution(WriterAnswer):
    """How the execution ended."""

    status: ExecutionStatus
    items_processed: int
    items_failed: int
    released: int = Field(description="Records that were given back untried.")


@dataclass(frozen=True, slots=True)
class ReportedFailure:
    alerted: bool
