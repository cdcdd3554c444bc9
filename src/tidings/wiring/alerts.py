"""Builds the alerts of both pipelines: where they go, their kinds, and their Chinese texts."""

from collections.abc import Iterator
from pathlib import Path

from tidings.announce.execution.alerts import AnnounceAlert
from tidings.core.alerts.events import Destination
from tidings.core.alerts.feishu_bot import FeishuBotDestination, is_feishu_bot
from tidings.core.alerts.kinds import AlertKind, AlertLevel
from tidings.core.alerts.levels import read_level
from tidings.core.alerts.messengers import AppriseDestination, split_urls
from tidings.core.alerts.webhook import WebhookDestination
from tidings.core.clock import Clock
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.redaction import Redactor
from tidings.settings.settings import Settings
from tidings.storage import open_webhook_secret


def list_alert_texts() -> list[Path]:
    """The catalogues of Chinese reasons and actions."""
    folder = Path(__file__).parent.parent
    return [folder / part / "alert_texts.toml" for part in ("core/alerts", "announce", "collect")]


def list_alert_kinds() -> Iterator[AlertKind]:
    """The kinds of the queue and of both pipelines. They are imported when an alert is looked up."""
    yield from AnnounceAlert
    from tidings.collect.alerts.kinds import CollectAlert
    from tidings.core.queue.alerts import QueueAlert

    yield from QueueAlert
    yield from CollectAlert


def open_destinations(
    settings: Settings, *, client: GuardedClient, clock: Clock, redactor: Redactor
) -> Iterator[tuple[Destination, AlertLevel]]:
    """Each destination, with the least level that its URL asks for."""
    if settings.webhook_url is not None:
        url, level = read_level(settings.webhook_url)
        secret = open_webhook_secret(settings, redactor=redactor)
        yield WebhookDestination(url.reveal(), secret=secret, client=client, clock=clock), level
    urls = [] if settings.alert_urls is None else split_urls(settings.alert_urls)
    for number, each in enumerate(urls, start=1):
        redactor.add(each)
        url, level = read_level(each)
        redactor.add(url)
        if is_feishu_bot(url):
            yield FeishuBotDestination(url, number=number, client=client, clock=clock), level
        else:
            yield AppriseDestination(url, number=number), level
