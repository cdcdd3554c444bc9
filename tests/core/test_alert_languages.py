"""Levels of destinations, and Chinese for every alert: title, reason and action, of both pipelines."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.stage import open_stage
from tidings.announce.channels.google import answers as google_answers
from tidings.announce.channels.google.search_console import NO_PROPERTY
from tidings.announce.execution.alerts import CHECK, AnnounceAlert
from tidings.collect.alerts import conditions
from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.crawl.cookies.states import CookieState, CookieStatus
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.errors import ErrorCode
from tidings.collect.feishu.errors import CODE_RULES
from tidings.collect.status.queries import PauseCause, PlatformPause, SuccessRate
from tidings.collect.write.keywords import Keyword
from tidings.core.alerts.events import Alert, DestinationError
from tidings.core.alerts.kinds import AlertLevel, Language
from tidings.core.queue.alerts import QueueAlert
from tidings.core.secrets.secret import Secret
from tidings.sandbox.webhook_sink import SandboxSink
from tidings.wiring.alerts import read_level
from tidings.wiring.installation import Installation

pytestmark = pytest.mark.one_database

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
CHINESE = re.compile("[一-鿿]")
# English words that may stay in a Chinese text: names, commands, codes.
COMMANDS = re.compile(r"`[^`]*`|tidings [a-z -]+|[A-Z][A-Za-z_]+|[a-z]+[A-Z]\w*")
# Of platforms and services.
NAMES = re.compile(r"weibo|Cookie|Tidings|[A-Z_]{4,}")


@pytest.mark.parametrize(
    ("url", "plain", "level"),
    [
        ("mailto://a:b@example.org?level=P1", "mailto://a:b@example.org", AlertLevel.P1),
        ("https://example.org/hook?a=1&level=p0&b=2", "https://example.org/hook?a=1&b=2", AlertLevel.P0),
        ("https://example.org/hook?level=info&b=2", "https://example.org/hook?b=2", AlertLevel.INFO),
        ("https://example.org/hook?level=high", "https://example.org/hook?level=high", AlertLevel.INFO),
        ("json://example.org", "json://example.org", AlertLevel.INFO),
    ],
)
def test_a_url_names_the_least_level_of_its_destination(url: str, plain: str, level: AlertLevel) -> None:
    """C24: the level is taken off before the URL is used; another parameter of the same name is left alone."""
    found, least = read_level(Secret(url))
    assert (found.reveal(), least) == (plain, level)


def test_a_level_that_does_not_exist_is_refused() -> None:
    """C24: rather than to send nothing."""
    with pytest.raises(DestinationError, match="P0, P1, P2 or info"):
        read_level(Secret("json://example.org?level=P7"))


async def _tell(installation: Installation, *alerts: Alert) -> None:
    async with installation.database.write() as connection:
        for alert in alerts:
            await installation.alerts.raise_alert(connection, alert)
    while await installation.alerts.deliver():
        pass


async def test_a_destination_gets_its_level_and_everything_more_urgent(database_url: str, tmp_path: Path) -> None:
    """C24: fired and resolved alike; the table, the API and the metric show all."""
    async with SandboxSink() as sink:
        url = Secret(f"{sink.address}?level=P1")
        async with open_stage(database_url, tmp_path, webhook_url=url, language=Language.CHINESE) as installation:
            kinds = (CollectAlert.NO_ACTIVE_COOKIE, CollectAlert.PLATFORM_PAUSED, CollectAlert.COOKIE_ENDING)
            shown = [Alert(kind=kind, subject="weibo", reason="there is none", action=CHECK) for kind in kinds]
            await _tell(installation, *shown)
            async with installation.database.write() as connection:
                for kind in kinds:
                    await installation.alerts.resolve_alert(connection, kind, "weibo")
            await _tell(installation, *shown)
            documents: list[Any] = [recorded.fields["document"] for recorded in sink.taken]
            got = [(each["data"]["kind"], each["data"]["level"]) for each in documents]
            assert sorted(set(got)) == [("no_active_cookie", "P0"), ("platform_paused", "P1")]
            assert len(got) == 6
            assert {each["data"]["reason"] for each in documents} == {"尚未添加"}
            assert all(CHINESE.search(each["data"]["action"]) for each in documents)
            counts = await installation.alerts.count_by_level()
            assert counts == {AlertLevel.P0: 1, AlertLevel.P1: 1, AlertLevel.P2: 1, AlertLevel.INFO: 0}


def _list_conditions() -> Iterator[Alert]:
    """Every alert that collect's monitor can raise, with parts as they come."""
    cookie = Cookie(
        name="mine",
        platform="weibo",
        priority=0,
        daily_limit=1,
        state=CookieState(day=NOW.date(), consecutive_errors=3, total_errors=10),
        encryption_key_id="k1",
        created_at=NOW,
        updated_at=NOW,
        enabled_at=NOW,
        last_used_at=None,
        user_agent=None,
        expires_at=NOW,
        ciphertext=b"",
    )
    cooling = replace(cookie, state=replace(cookie.state, cooling_until=NOW))
    yield conditions.describe_rest(cooling, CookieStatus.COOLING.value)
    for status in (CookieStatus.COOLING, CookieStatus.INVALID, CookieStatus.BANNED, CookieStatus.UNREADABLE):
        yield conditions.describe_rest(cookie, status.value)
    for obstacles in ([], ["cooling", "invalid", "invalid"], ["banned", "unreadable"], ["used up today"]):
        yield conditions.describe_exhaustion("weibo", obstacles)
    for at in (NOW, NOW - timedelta(days=1)):
        yield conditions.describe_ending(cookie, at=at)
    for cause in PauseCause:
        message = "weibo: the service has an error (HTTP 503)"
        pause = PlatformPause(
            platform="weibo", cause=cause, message=message, failures=1, since=NOW, until=NOW, probed_at=None
        )
        yield conditions.describe_pause(pause)
    yield conditions.describe_rate(SuccessRate(1, 9, is_known=True))
    yield conditions.describe_pending()
    yield conditions.describe_skipped("weibo", {"INVALID_INPUT": 3})
    keyword = Keyword(
        id=1,
        platform="weibo",
        keyword="咖啡",
        pages=1,
        refresh=None,
        comments=0,
        enabled=True,
        last_run_at=NOW,
        last_found=0,
        last_created=0,
        last_error_code=ErrorCode.PLATFORM_ERROR,
    )
    yield from conditions.describe_searches([keyword])


def _list_advice() -> Iterator[str]:
    """Every action of announce and of the mirror."""
    for name in ("bing", "baidu"):
        yield from importlib.import_module(f"tidings.announce.channels.protocols.{name}")._ADVICE.values()
    yield from (*google_answers.ADVICE.values(), google_answers.CHECK_CREDENTIALS, NO_PROPERTY)
    yield from (rule.action for rule in CODE_RULES.values() if rule.action)
    yield CHECK


async def test_every_alert_is_chinese_in_title_reason_and_action(database_url: str, tmp_path: Path) -> None:
    """C24: nothing but names, commands and codes stays English."""
    assert all(CHINESE.search(kind.titles[Language.CHINESE]) for kind in (*AnnounceAlert, *CollectAlert, *QueueAlert))
    async with open_stage(database_url, tmp_path) as installation:
        translate = installation.alerts.translator.translate
        for text in (text for alert in _list_conditions() for text in (alert.reason, alert.action)):
            assert CHINESE.search(translate(text)), text
            shown = NAMES.sub("", COMMANDS.sub("", translate(text)))
            assert not re.search(r"[a-z]{3,}", shown), translate(text)
        for text in filter(None, _list_advice()):
            assert CHINESE.search(translate(text)), text
        assert translate("3 of 9 URLs failed: HTTP 503") == "9 个网址中有 3 个推送失败：HTTP 503"
        assert translate("nobody knows this") == "nobody knows this"
