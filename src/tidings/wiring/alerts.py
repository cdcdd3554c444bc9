"""Builds the alerts of both pipelines: where they go, their kinds, and their Chinese texts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidings.announce.execution.alerts import AnnounceAlert
from tidings.core.alerts.events import Destination, DestinationError
from tidings.core.alerts.feishu_bot import FeishuBotDestination, is_feishu_bot
from tidings.core.alerts.kinds import AlertKind, AlertLevel
from tidings.core.alerts.messengers import AppriseDestination, split_urls
from tidings.core.alerts.webhook import WebhookDestination
from tidings.core.clock import Clock
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.settings.settings import Settings
from tidings.storage import open_webhook_secret

# The minimum level of a destination, `?level=P1` in its URL. It is removed before the URL is used.
_LEVEL: Final = re.compile(r"([?&])level=(P[0-9]+|info)(?=&|$|#)(&?)", re.IGNORECASE)


def list_catalogues() -> list[Path]:
    """The catalogues of Chinese texts: of errors and findings, and of each room's alerts."""
    folder = Path(__file__).parent
    rooms = ("core/alerts", "announce", "collect")
    return [folder / "findings.zh.toml", *(folder.parent / room / "alert_texts.toml" for room in rooms)]


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
    """Each destination, with the minimum level that its URL asks for."""
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


def read_level(url: Secret) -> tuple[Secret, AlertLevel]:
    """The URL without its level, and the minimum level of the destination. Raises DestinationError."""
    text = url.reveal()
    found = _LEVEL.search(text)
    if found is None:
        return url, AlertLevel.INFO
    wanted = next((level for level in AlertLevel if level.value.lower() == found[2].lower()), None)
    if wanted is None:
        raise DestinationError("level= in an alert's URL must be P0, P1, P2 or info")
    # What follows keeps the question mark.
    kept = found[1] if found[3] else ""
    return Secret(text[: found.start()] + kept + text[found.end() :]), wanted
