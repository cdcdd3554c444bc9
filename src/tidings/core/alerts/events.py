"""What is told, and to whom: an alert, the events it becomes, and what a destination has to be. Plain values and one
protocol; when an alert becomes an event is decided in `conditions`, how events get out in `outbox` and `delivery`.

    ValueError
    └── DestinationError    a destination cannot be used as it is set up; the message does not repeat its address
    Exception
    └── DeliveryError       an event was not delivered: for now (`retry`), or for good
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)


class Language(StrEnum):
    """The language that titles and labels are written in."""

    ENGLISH = "en"
    CHINESE = "zh"


class EventType(StrEnum):
    FIRED = "fired"
    RESOLVED = "resolved"


class DestinationError(ValueError):
    """A destination cannot be used as it is set up."""


class DeliveryError(Exception):
    """An event was not delivered. The reason is in our own words: addresses and answers may hold secrets."""

    def __init__(self, *, retry: bool, reason: str, retry_after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.retry = retry
        self.reason = reason
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that needs a person: what happened, to what, how often, and what to do about it."""

    kind: str
    subject: str
    reason: str
    action: str
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """One message: a condition has fired, or is over. Its id stays the same however often it is sent."""

    id: str
    type: EventType
    kind: str
    subject: str
    reason: str
    action: str
    count: int | None
    since: datetime
    occurred_at: datetime
    language: Language = Language.ENGLISH


class Destination(Protocol):
    """Where events go. The name is stable and holds no secret: what is still to be sent is kept under it."""

    @property
    def name(self) -> str: ...

    async def send(self, event: AlertEvent) -> None:
        """Return once the event was taken. Raises DeliveryError."""


def log_alert(alert: Alert) -> None:
    """One ERROR line with all that people are told."""
    _log.error(
        "alert",
        kind=alert.kind,
        subject=alert.subject,
        reason=alert.reason,
        action=alert.action,
        count=alert.count,
    )
