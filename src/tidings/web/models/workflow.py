"""The shapes of the workflow's routes: what a request has to be, and, for the description, what an answer is. Hits,
notes and the items of a batch are the crawl API's, as they came from there."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StrictBool, StrictInt, StrictStr, model_validator

from tidings.collect.crawl.crawler import MOST_ITEMS
from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.errors import Action, ErrorCode
from tidings.collect.tables import CandidateStatus
from tidings.collect.write import SettledAction
from tidings.core.executions import ExecutionStatus
from tidings.core.net.addresses import MAX_URL_LENGTH
from tidings.web.models.crawler import AS_JSON, Answer, BatchResult, Name, NoteResult, Number, PlatformName, Shape

MOST_HITS: Final = 200

_LARGEST_ID: Final = 2**63 - 1

ExecutionId = Annotated[
    StrictStr,
    Field(
        pattern=r"^exec-[0-9]{1,16}-[0-9a-f]{8}$",
        max_length=30,
        description="What `acquire` gave.",
        examples=["exec-1794873600000-0a1b2c3d"],
    ),
]
WorkflowName = Annotated[
    StrictStr,
    Field(min_length=1, max_length=100, description="a-z 0-9 _ . : - and no sign in front.", examples=["collect"]),
]
# It is part of a key, and PostgreSQL's keys have at most 2,700 bytes.
NoteId = Annotated[StrictStr, Field(min_length=1, max_length=256, examples=["BV1xx411c7mD"])]
CookieName = Annotated[
    StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="A cookie's name, as answered.")
]
Message = Annotated[StrictStr, Field(max_length=100_000)]


class AcquireBody(Shape):
    """Which workflow is to run."""

    workflow_name: WorkflowName


class ExecutionBody(Shape):
    """Who asks."""

    execution_id: ExecutionId


class HitBody(Shape):
    """A hit of /crawler/search, as it came or no more than is needed of it."""

    note_id: NoteId
    url: Annotated[StrictStr, Field(min_length=1, max_length=MAX_URL_LENGTH)]
    title: Annotated[StrictStr, Field(max_length=10_000)] = ""
    platform: PlatformName | None = None
    xsec_token: StrictStr | None = Field(default=None, description="Not kept: the URL holds it.")


class CandidatesBody(ExecutionBody):
    """What one search brought. Where it failed there are no hits and the `error_code` says why. With `continued` it is
    more of the search that was told of before, such as its next page: it is added to the keyword's figures."""

    platform: PlatformName
    source_keyword: Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEYWORD, examples=["coffee"])]
    keyword_id: Annotated[StrictInt, Field(ge=1, le=_LARGEST_ID), AS_JSON] | None = None
    hits: list[HitBody] = Field(default_factory=list, max_length=MOST_HITS)
    cookie_used: CookieName | None = None
    error_code: ErrorCode | None = None
    captcha: StrictBool = False
    continued: StrictBool = False

    @model_validator(mode="after")
    def check_platform(self) -> Self:
        if any(hit.platform not in (None, self.platform) for hit in self.hits):
            raise ValueError("the hits must be of this platform")
        return self


class LeaseBody(ExecutionBody):
    """How many candidates, of which platform; without one, of that whose candidates wait longest."""

    limit: Annotated[StrictInt, Field(ge=1, le=MOST_ITEMS), AS_JSON] | None = Field(
        default=None, description="10, or what is set."
    )
    platform: PlatformName | None = None


class WriteBody(ExecutionBody):
    """The note of a leased candidate. `note_id` is the candidate's, whatever its platform calls the note by now."""

    platform: PlatformName
    note_id: NoteId
    note: NoteResult
    cookie_used: CookieName | None = None

    @model_validator(mode="after")
    def check_platform(self) -> Self:
        if self.note.platform != self.platform:
            raise ValueError("the note must be of this platform")
        return self


class FailBody(ExecutionBody):
    """Why the note of a leased candidate was not read, after all retries that its code allows."""

    platform: PlatformName
    note_id: NoteId
    code: ErrorCode
    message: Message = ""
    cookie_used: CookieName | None = None
    captcha: StrictBool = False


class SettleItem(BatchResult):
    """An item of /crawler/detail/batch as it came. `id` is the candidate's `note_id`: ask for the note by that."""

    id: Name
    cookie_used: CookieName | None

    @model_validator(mode="after")
    def check_whole(self) -> Self:
        if (self.data is None) == self.success or (self.error is None) != self.success:
            raise ValueError("a success has data and no error, a failure has an error and no data")
        return self


class SettleBody(ExecutionBody):
    """What became of leased candidates of one platform."""

    platform: PlatformName
    items: Annotated[list[SettleItem], Field(max_length=MOST_ITEMS)]

    @model_validator(mode="after")
    def check_platform(self) -> Self:
        if any(item.data is not None and item.data.platform != self.platform for item in self.items):
            raise ValueError("the notes must be of this platform")
        return self


class UseBody(Shape):
    """A request that was made with a cookie; without a code it went well."""

    cookie_name: CookieName
    code: ErrorCode | None = None
    captcha: StrictBool = False


class CookiesBody(ExecutionBody):
    """Requests that nothing else tells of: those that were repeated."""

    uses: Annotated[list[UseBody], Field(max_length=MOST_ITEMS)]


class FinishBody(ExecutionBody):
    """How it ended; by itself it is `partial` where something failed, else `succeeded`."""

    status: Literal["succeeded", "partial", "failed"] | None = None


class ErrorBody(Shape):
    """A workflow failed as a whole. The name is the one that it acquires by; the id is the driver's own."""

    workflow_name: Annotated[StrictStr, Field(min_length=1, max_length=200, examples=["collect"])]
    message: Message
    execution_id: Annotated[StrictStr, Field(max_length=100)] | None = None


class Rule(Shape):
    """What a workflow does about an error. `backoff_seconds` is the wait before each retry."""

    code: ErrorCode
    retryable: bool
    action: Action
    most_retries: Number
    backoff_seconds: list[float]


class RuleList(Shape):
    rules: list[Rule]


class WatchedKeyword(Shape):
    """What to search for, where, and how many pages of it."""

    id: int
    platform: str
    keyword: str
    pages: int


class KeywordList(Shape):
    """Those that are enabled."""

    keywords: list[WatchedKeyword]


class Lock(Shape):
    """Where it was refused, `execution_id` is the holder's, and `reason` says since when."""

    locked: bool
    execution_id: str
    reason: str | None


class Renewal(Shape):
    """How many records it still holds."""

    renewed: Number


class Addition(Shape):
    """How many are new, and how many stood there already."""

    created: Number
    known: Number


class LeasedRecord(Shape):
    platform: str
    note_id: str
    note_url: str
    title: str
    retry_count: Number
    source_keyword: str


class Lease(Shape):
    """Candidates that nobody else works on; none where nothing is due."""

    records: list[LeasedRecord]
    locked_count: Number


class Written(Shape):
    """`existing_id` is the number of the note's row; `skipped` where it stood there already."""

    action: Literal["created", "skipped"]
    existing_id: int


class FailedRecord(Shape):
    """How the candidate stands now, and when it is due again."""

    action: SettledAction
    status: CandidateStatus
    retry_count: Number
    retry_at: str | None


class SettledItem(Shape):
    """What became of one candidate; `lost` where this execution no longer held it, and nothing was written."""

    note_id: str
    action: SettledAction
    existing_id: int | None
    status: CandidateStatus | None
    retry_count: Number | None
    retry_at: str | None


class SettledSummary(Shape):
    total: Number
    created: Number
    skipped: Number
    retry: Number
    failed: Number
    released: Number
    lost: Number


class Settlement(Shape):
    """Each note once, in the order of the request."""

    items: list[SettledItem]
    summary: SettledSummary


class Count(Shape):
    counted: Number


class End(Shape):
    """`released` candidates were given back untried."""

    status: ExecutionStatus
    items_processed: Number
    items_failed: Number
    released: Number


class Recovery(Shape):
    """The executions that were ended, and the records that were freed; so many of them had failed too often."""

    executions: list[str]
    records: Number
    failed: Number


class Reported(Shape):
    alerted: Literal[True]


class RulesAnswer(Answer[RuleList]):
    """The rule for each code."""


class KeywordsAnswer(Answer[KeywordList]):
    """What is watched."""


class AcquireAnswer(Answer[Lock]):
    """Whether the workflow may run."""


class HeartbeatAnswer(Answer[Renewal]):
    """It still runs."""


class CandidatesAnswer(Answer[Addition]):
    """The hits are candidates."""


class LeaseAnswer(Answer[Lease]):
    """What to work on."""


class WriteAnswer(Answer[Written]):
    """The note stands in the table."""


class FailAnswer(Answer[FailedRecord]):
    """The failure is counted."""


class SettleAnswer(Answer[Settlement]):
    """What became of each."""


class CookiesAnswer(Answer[Count]):
    """How many uses were counted."""


class FinishAnswer(Answer[End]):
    """It has ended."""


class RecoverAnswer(Answer[Recovery]):
    """What dead holders had left."""


class ErrorAnswer(Answer[Reported]):
    """A person is told."""
