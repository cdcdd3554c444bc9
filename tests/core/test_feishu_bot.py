"""Alerts in a Feishu group: over the wire, with level, signature and keyword; a refusal is no delivery."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.stage import open_stage
from tidings.collect.alerts.kinds import CollectAlert
from tidings.core.alerts.events import Alert, AlertEvent, DeliveryError, DestinationError, EventType
from tidings.core.alerts.feishu_bot import FeishuBotDestination
from tidings.core.alerts.kinds import AlertLevel, Language
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.secret import Secret
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.bot import MOST_BYTES
from tidings.sandbox.wire.faults import Fault, FaultKind

pytestmark = pytest.mark.one_database

EVENT = AlertEvent(
    id="evt-1",
    type=EventType.FIRED,
    kind="success_rate",
    level=AlertLevel.P1,
    title="The success rate is low",
    subject="collect",
    reason="12 of 20 failed",
    action="Look at the log.",
    count=12,
    since=datetime(2026, 11, 15, 12, tzinfo=UTC),
    occurred_at=datetime(2026, 11, 15, 12, 30, tzinfo=UTC),
)


@pytest.fixture
async def service(clock: FakeClock) -> AsyncIterator[SandboxBitable]:
    async with SandboxBitable(now=clock.now) as running:
        yield running


async def send(
    service: SandboxBitable, client: GuardedClient, clock: FakeClock, event: AlertEvent = EVENT, query: str = ""
) -> None:
    url = Secret(f"{service.bot_url}{query}")
    await FeishuBotDestination(url, number=1, client=client, clock=clock).send(event)


def read_card(service: SandboxBitable) -> tuple[str, str, str]:
    """Title, colour and text of the last message."""
    card: dict[str, Any] = service.bot.messages[-1]["card"]
    header = card["header"]
    return header["title"]["content"], header["template"], card["elements"][0]["text"]["content"]


async def test_foreign_words_are_no_markup_and_no_mention(
    service: SandboxBitable, client: GuardedClient, clock: FakeClock
) -> None:
    """C24: every part of a card that holds them is plain text."""
    words = '<at id="all"></at> **[your bank](https://evil.example)**'
    await send(service, client, clock, replace(EVENT, subject=words, reason=words))
    card: dict[str, Any] = service.bot.messages[-1]["card"]
    parts = [card["header"]["title"], *(element["text"] for element in card["elements"])]
    assert [part["tag"] for part in parts] == ["plain_text", "plain_text"]
    assert all(words in part["content"] for part in parts)


@pytest.mark.parametrize(
    ("changes", "title", "colour"),
    [
        ({"level": AlertLevel.P0}, "P0 The success rate is low: collect", "red"),
        ({}, "P1 The success rate is low: collect", "orange"),
        ({"level": AlertLevel.P2, "title": "P2: many wait"}, "P2: many wait: collect", "yellow"),
        ({"level": AlertLevel.INFO}, "The success rate is low: collect", "blue"),
        ({"type": EventType.RESOLVED}, "P1 Resolved: The success rate is low: collect", "green"),
        ({"language": Language.CHINESE, "title": "成功率低于 90%"}, "P1 成功率低于 90%：collect", "orange"),
    ],
)
async def test_a_message_shows_its_level(
    service: SandboxBitable, client: GuardedClient, clock: FakeClock, changes: dict[str, Any], title: str, colour: str
) -> None:
    """C24: the level is in the title and in the colour, in both languages."""
    await send(service, client, clock, replace(EVENT, **changes))
    assert read_card(service)[:2] == (title, colour)
    assert "12 of 20 failed" in read_card(service)[2]


async def test_signature_and_keyword_are_what_feishu_asks_for(
    service: SandboxBitable, client: GuardedClient, clock: FakeClock
) -> None:
    """C24: without them Feishu refuses with HTTP 200, which is no delivery; the reason says what to do."""
    service.bot.secret, service.bot.keyword = "bot-secret-0123", "告警"
    for query, code in (("", 19021), ("?secret=wrong", 19021), ("?secret=bot-secret-0123", 19024)):
        with pytest.raises(DeliveryError, match=str(code)) as caught:
            await send(service, client, clock, query=query)
        assert caught.value.retry
        assert "bot-secret" not in str(caught.value)
    await send(service, client, clock, query="?secret=bot-secret-0123&keyword=告警")
    assert read_card(service)[2].endswith("\n告警")
    assert len(service.bot.messages) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.RESET),
        Fault(status=502),
        Fault(status=200, body="<html>"),
        Fault(status=200, body='{"code": 11232, "msg": "busy"}'),
        Fault(status=429, body='{"code": 0}'),
    ],
    ids=["reset", "502", "html", "busy", "429"],
)
async def test_a_message_that_was_not_taken_is_sent_again(
    service: SandboxBitable, client: GuardedClient, clock: FakeClock, fault: Fault
) -> None:
    """C24: Apprise's plugin would count two of these as delivered."""
    service.misbehave(fault)
    with pytest.raises(DeliveryError) as caught:
        await send(service, client, clock)
    assert caught.value.retry
    assert service.origin not in str(caught.value)


async def test_a_long_reason_stays_within_feishus_limit(
    service: SandboxBitable, client: GuardedClient, clock: FakeClock
) -> None:
    """C24: 20 KB, also in Chinese."""
    await send(service, client, clock, replace(EVENT, reason="长" * 100_000, subject="主" * 5_000))
    assert max(int(str(entry.fields["bytes"])) for entry in service.requests) <= MOST_BYTES


@pytest.mark.parametrize(
    "url",
    ["feishu://", "feishu://a b", "lark://token@host", "http://10.0.0.1/open-apis/bot/v2/hook/x", "feishu://x/../y@z"],
)
def test_an_address_that_cannot_be_right_is_refused_without_being_shown(
    url: str, client: GuardedClient, clock: FakeClock
) -> None:
    """C7, C24: the token is sent over TLS alone."""
    with pytest.raises(DestinationError) as caught:
        FeishuBotDestination(Secret(url), number=3, client=client, clock=clock)
    assert str(caught.value) == "alert URL number 3 is no address of a Feishu bot"


async def test_the_settings_entry_that_feishu_shows_is_used_as_it_is(
    service: SandboxBitable, sqlite_url: str, tmp_path: Any, clock: FakeClock
) -> None:
    """C24: an alert that is raised reaches the group; Apprise is not asked."""
    urls = Secret(service.bot_url)
    async with open_stage(sqlite_url, tmp_path, clock=clock, alert_urls=urls, language=Language.CHINESE) as stage:
        async with stage.database.write() as connection:
            alert = Alert(CollectAlert.NO_ACTIVE_COOKIE, "bilibili", "no cookie", "Add one.")
            await stage.alerts.raise_alert(connection, alert)
        clock.advance(timedelta(seconds=1))
        await stage.alerts.deliver()
    title, colour, _ = read_card(service)
    assert (title, colour) == ("P0：没有可用的 Cookie：bilibili", "red")
