"""Numbers and times as people read them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidings.core.alerts.translation import Translator
from tidings.web.pages.view.formats import Formats, find_zone
from tidings.web.pages.view.texts import PageLanguage, load_texts
from tidings.wiring.alerts import list_catalogues

NOW = datetime(2026, 11, 16, 0, 48, tzinfo=UTC)
ENGLISH = Formats(load_texts(PageLanguage.ENGLISH), find_zone("Asia/Shanghai"), NOW)
CHINESE = Formats(load_texts(PageLanguage.CHINESE), find_zone("Asia/Shanghai"), NOW)


@pytest.mark.parametrize(
    ("at", "english", "chinese"),
    [
        (NOW - timedelta(minutes=1), "08:47", "08:47"),
        (datetime(2026, 11, 15, 0, 46, tzinfo=UTC), "15 Nov 08:46", "11月15日 08:46"),
        (datetime(2025, 1, 6, tzinfo=UTC), "6 Jan 2025", "2025年1月6日"),
    ],
)
def test_a_time_is_short_and_in_the_viewers_zone(at: datetime, english: str, chinese: str) -> None:
    assert ENGLISH.time(at).striptags() == english
    assert CHINESE.time(at).striptags() == chinese


def test_a_time_shows_utc_on_hover() -> None:
    assert ENGLISH.time(NOW) == (
        '<time datetime="2026-11-16T00:48:00.000Z" title="2026-11-16 00:48:00 UTC">08:48</time>'
    )


@pytest.mark.parametrize(
    ("distance", "english", "chinese"),
    [
        (timedelta(hours=-2, minutes=-10), "2 h ago", "2 小时前"),
        (timedelta(hours=15), "in 15 h", "15 小时后"),
        (timedelta(days=-1), "1 day ago", "1 天前"),
        (timedelta(seconds=20), "now", "即将"),
        (timedelta(seconds=-20), "just now", "刚刚"),
        (timedelta(days=-8), "8 Nov 08:48", "11月8日 08:48"),
    ],
)
def test_a_distance_is_coarse_and_becomes_a_date_after_a_week(distance: timedelta, english: str, chinese: str) -> None:
    assert ENGLISH.relative(NOW + distance).striptags() == english
    assert CHINESE.relative(NOW + distance).striptags() == chinese


def test_what_has_happened_is_never_said_to_come() -> None:
    """A heartbeat of a machine whose clock is a little ahead."""
    assert CHINESE.ago(NOW + timedelta(seconds=2)).striptags() == "刚刚"
    assert ENGLISH.ago(NOW - timedelta(hours=2)).striptags() == "2 h ago"
    assert ENGLISH.ago(None) == "–"


@pytest.mark.parametrize(
    ("value", "english", "chinese"),
    [(318, "318", "318"), (9_999, "9,999", "9,999"), (16_000, "16K", "1.6万"), (1_200_000, "1.2M", "120.0万")],
)
def test_a_platforms_count_is_short_from_ten_thousand_on(value: int, english: str, chinese: str) -> None:
    assert ENGLISH.compact(value).striptags() == english
    assert CHINESE.compact(value).striptags() == chinese


def test_unknown_is_not_zero() -> None:
    assert (ENGLISH.number(None), ENGLISH.duration(None), ENGLISH.time(None)) == ("–", "–", "–")
    assert ENGLISH.number(0) == "0"


@pytest.mark.parametrize("name", ["", None, "Mars/Olympus", "../../etc/passwd", "a" * 100, "\x00"])
def test_a_zone_that_does_not_exist_is_utc(name: str | None) -> None:
    assert find_zone(name) is UTC


def test_an_engines_own_words_are_quoted_as_they_came() -> None:
    shown = replace(CHINESE, translator=Translator(list_catalogues()))
    reason = "alpha.example: 3 of 4,000 URLs failed: HTTP 422: not welcome"
    advice = "Check the engine's address."
    assert shown.say(reason, advice) == (
        "alpha.example：4,000 个网址中有 3 个推送失败：HTTP 422：not welcome。请检查搜索引擎的地址。"
    )
    assert ENGLISH.say(reason, advice) == f"{reason}. {advice}"
    assert shown.say(None, "") == ""
