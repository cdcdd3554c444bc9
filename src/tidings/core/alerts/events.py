"""The values of alerts: an alert, its events, and the protocol of a destination.

ValueError
└── DestinationError    a destination cannot be used as it is set up; the message does not repeat its address
Exception
└── DeliveryError       an event was not delivered; `retry` says whether to try again
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from tidings.core.alerts.kinds import AlertKind, AlertLevel, Language


class EventType(StrEnum):
    FIRED = "fired"
    RESOLVED = "resolved"


class DestinationError(ValueError):
    """A destination cannot be used as it is set up."""


class DeliveryError(Exception):
    """An event was not delivered. The reason quotes neither addresses nor answers, which may hold secrets."""

    def __init__(self, *, retry: bool, reason: str, retry_after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.retry = retry
        self.reason = reason
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Alert:
    """One condition that needs a person. Kind and subject identify it."""

    kind: AlertKind
    # What the alert is about: a site, a cookie, a platform …
    subject: str
    # What happened.
    reason: str
    # What a person should do about it.
    action: str
    # How many items are affected, if they are countable.
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """One message: a condition has fired, or is resolved."""

    # Stays the same when the event is sent again.
    id: str
    type: EventType
    # The kind's name; `level` and `title` follow from it.
    kind: str
    level: AlertLevel
    title: str
    # As in the alert, with secrets redacted.
    subject: str
    reason: str
    action: str
    count: int | None
    # When the condition began.
    since: datetime
    # When the condition fired or was resolved.
    occurred_at: datetime
    language: Language = Language.ENGLISH


class Destination(Protocol):
    """Receives events. Its name is stable and holds no secret, because the outbox stores it."""

    @property
    def name(self) -> str: ...

    async def send(self, event: AlertEvent) -> None:
        """Return once the destination has accepted the event. Raises DeliveryError."""
