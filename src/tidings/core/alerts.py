"""What a person has to know. An alert is a log event with all its fields; its way to people comes on top of that."""

from dataclasses import dataclass

from tidings.core.logs import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that needs a person: what happened, to what, how often, and what to do about it."""

    kind: str
    subject: str
    reason: str
    action: str
    count: int | None = None


def raise_alert(alert: Alert) -> None:
    """Log the alert as an ERROR."""
    _log.error(
        "alert",
        kind=alert.kind,
        subject=alert.subject,
        reason=alert.reason,
        action=alert.action,
        count=alert.count,
    )
