"""Alerts: conditions that need a person. Each fires once, is resolved once, and its events are kept until delivered.

The rest of the program uses `Alerts`. Events leave through `WebhookDestination`, `FeishuBotDestination` and
`AppriseDestination`.
"""

from tidings.core.alerts.conditions import OpenCondition
from tidings.core.alerts.delivery import DeliveryPolicy
from tidings.core.alerts.events import (
    Alert,
    AlertEvent,
    DeliveryError,
    Destination,
    DestinationError,
    EventType,
)
from tidings.core.alerts.feishu_bot import FeishuBotDestination, is_feishu_bot
from tidings.core.alerts.kinds import AlertKind, AlertLevel, Language
from tidings.core.alerts.messengers import AppriseDestination, split_urls
from tidings.core.alerts.service import Alerts
from tidings.core.alerts.webhook import WebhookDestination, new_webhook_secret

__all__ = [
    "Alert",
    "AlertEvent",
    "AlertKind",
    "AlertLevel",
    "Alerts",
    "AppriseDestination",
    "DeliveryError",
    "DeliveryPolicy",
    "Destination",
    "DestinationError",
    "EventType",
    "FeishuBotDestination",
    "Language",
    "OpenCondition",
    "WebhookDestination",
    "is_feishu_bot",
    "new_webhook_secret",
    "split_urls",
]
