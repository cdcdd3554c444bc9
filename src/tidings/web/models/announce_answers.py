"""Answer shapes of announce's routes. JSON that announce makes and stores itself is described there: a report, the
status of a site."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AliasPath, BaseModel, Field, PlainSerializer, WithJsonSchema

from tidings.announce.execution.report_json import ReportJson
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.lookup import LookupRefusal, LookupRule
from tidings.announce.overview import SiteCondition
from tidings.announce.status import ExecutionJson, StatusJson
from tidings.core.alerts.kinds import AlertLevel
from tidings.core.execution_table import ExecutionStatus
from tidings.web.models.announce import NewSiteBody
from tidings.web.models.parts import AnswerPart, Described, Timestamp

ChannelName = Annotated[
    Channel, PlainSerializer(str), WithJsonSchema({"type": "string", "enum": [str(channel) for channel in Channel]})
]
ExecutionDocument = Annotated[Mapping[str, Any], Described(ExecutionJson)]
StatusAnswer = Annotated[Mapping[str, Any], Described(StatusJson)]


class MaskedSite(NewSiteBody):
    """A site; its keys are masked."""

    indexnow_key: str


SiteDocument = Annotated[Mapping[str, Any], Described(MaskedSite)]


class SiteAnswer(BaseModel):
    site: SiteDocument


class SitesAnswer(BaseModel):
    """A page of sites. `next` is the value of `after` for the next page; null on the last."""

    sites: Sequence[SiteDocument]
    next: str | None
    total: int


class QuotaUseDocument(AnswerPart):
    """A channel's quota of today."""

    used: int
    limit: int
    full: bool


class SummaryDocument(AnswerPart):
    """A site in the list."""

    id: str
    group: str | None
    condition: SiteCondition
    reason: str | None
    last_status: ExecutionStatus | None
    submitted: int | None = Field(default=None, validation_alias=AliasPath("last_result", "submitted"))
    failed: int | None = Field(default=None, validation_alias=AliasPath("last_result", "failed"))
    executing: str | None = Field(validation_alias="running_id", description="The id of the execution that runs.")
    paused: bool
    last_run: Timestamp | None = Field(validation_alias="last_at")
    next_run: Timestamp | None = Field(validation_alias="next_at")
    running_since: Timestamp | None
    channels: Sequence[ChannelName]
    quotas: dict[ChannelName, QuotaUseDocument]


class OverviewAnswer(AnswerPart):
    """A page of sites. `found`: those that fit; `total` and `conditions`: all that this token may see."""

    sites: Sequence[SummaryDocument]
    found: int
    total: int
    attention: int
    conditions: dict[SiteCondition, int] = Field(validation_alias="counts")


class TokenAnswer(BaseModel):
    """A token for this site's /trigger and /urls. It is shown only once."""

    token: str


class StartedAnswer(BaseModel):
    """An execution that has started. `result` is there if the request waited for its end."""

    executionId: str  # noqa: N815 - the API's name
    siteId: str  # noqa: N815
    status: str
    result: Annotated[Mapping[str, Any] | None, Described(ReportJson | None)] = None


class ExecutionAnswer(BaseModel):
    """One execution."""

    execution: ExecutionDocument


class ExecutionsAnswer(BaseModel):
    """A page of executions, newest first. `next` is the value of `before` for the next page."""

    executions: Sequence[ExecutionDocument]
    next: str | None


class FailedDocument(AnswerPart):
    """A page that an engine did not take."""

    url: str
    channel: ChannelName
    engine: str
    reason: str
    attempts: int
    failed_at: Timestamp


class FailedAnswer(AnswerPart):
    """URLs that no engine has accepted yet, newest failure first. The next execution sends them first."""

    failed: Sequence[FailedDocument]


class OpenDeliveryDocument(AnswerPart):
    """One engine that did not take a page so far."""

    engine: str
    removed: bool
    planned_at: Timestamp
    attempts: int
    reason: str | None = Field(description="The last failure; null before the first.")
    failed_at: Timestamp | None


class ChannelLookupDocument(AnswerPart):
    """What one channel knows of a page."""

    channel: ChannelName
    due: bool = Field(validation_alias="is_due", description="Whether the next execution sends it, with any lastmod.")
    rule: LookupRule
    accepted_at: Timestamp | None
    lastmod: Timestamp | None = Field(description="The lastmod that it had when it was accepted.")
    until: Timestamp | None = Field(description="When the rule stops to hold by itself.")
    open: Sequence[OpenDeliveryDocument] = Field(validation_alias="deliveries")


class LookupAnswer(AnswerPart):
    """Was this page announced? `refusal` says why this site never announces it."""

    url: str
    refusal: LookupRefusal | None
    channels: Sequence[ChannelLookupDocument]


class ForgottenAnswer(BaseModel):
    """How many entries were removed from the ledger; their pages are due again."""

    forgotten: int


class PausedAnswer(BaseModel):
    """Whether it is paused now. `freed` counts engines that had refused the key and are tried again."""

    paused: bool
    freed: int = 0


class DayCountDocument(AnswerPart):
    """Different pages that were tried on a day, and those that an engine took."""

    total: int
    successful: int


class DayDocument(BaseModel):
    """One day, UTC. Baidu and Google are there if they did something in these days."""

    date: str
    indexnow: DayCountDocument
    bing: DayCountDocument
    baidu: DayCountDocument | None = None
    google: DayCountDocument | None = None


class DailyAnswer(BaseModel):
    """Statistics by day, oldest first."""

    daily: Sequence[DayDocument]


class AlertDocument(AnswerPart):
    """A condition that holds. `since`: when it began."""

    kind: str
    subject: str
    reason: str
    action: str
    count: int | None
    since: Timestamp


class LeveledAlertDocument(AlertDocument):
    level: AlertLevel
    fired_at: Timestamp | None = Field(description="When people were notified; null if it has not lasted long enough.")


class AlertsAnswer(BaseModel):
    """Open alerts, newest first."""

    alerts: Sequence[LeveledAlertDocument]
