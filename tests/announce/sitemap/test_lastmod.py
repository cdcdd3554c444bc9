"""A timestamp means a span of time: from the first to the last millisecond that it can stand for."""

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tidings.announce.sitemap.lastmod import parse_lastmod, write_w3c


def to_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("lastmod", "earliest", "latest"),
    [
        ("2026", "2026-01-01T00:00:00.000Z", "2026-12-31T23:59:59.999Z"),
        ("2024-02", "2024-02-01T00:00:00.000Z", "2024-02-29T23:59:59.999Z"),
        ("2026-11", "2026-11-01T00:00:00.000Z", "2026-11-30T23:59:59.999Z"),
        ("2026-11-15", "2026-11-15T00:00:00.000Z", "2026-11-15T23:59:59.999Z"),
        ("2026-11-15T10:00Z", "2026-11-15T10:00:00.000Z", "2026-11-15T10:00:59.999Z"),
        ("2026-11-15T10:00:05Z", "2026-11-15T10:00:05.000Z", "2026-11-15T10:00:05.999Z"),
        ("2026-11-15T10:00:05.123+08:00", "2026-11-15T02:00:05.123Z", "2026-11-15T02:00:05.123Z"),
        ("2026-11-15T10:00:05.123999Z", "2026-11-15T10:00:05.123Z", "2026-11-15T10:00:05.123Z"),
        ("2026-11-15T10:00:05.1Z", "2026-11-15T10:00:05.100Z", "2026-11-15T10:00:05.199Z"),
        ("2026-11-15T10:00:05.02Z", "2026-11-15T10:00:05.020Z", "2026-11-15T10:00:05.029Z"),
        ("2026-11-15T22:30-03:30", "2026-11-16T02:00:00.000Z", "2026-11-16T02:00:59.999Z"),
        ("2024-02-29T00:00:00+14:00", "2024-02-28T10:00:00.000Z", "2024-02-28T10:00:00.999Z"),
        ("1969-12-31", "1969-12-31T00:00:00.000Z", "1969-12-31T23:59:59.999Z"),
        ("9999", "9999-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_every_w3c_form_gives_its_span(lastmod: str, earliest: str, latest: str) -> None:
    """A8: year, month, day, minute, second, fraction, with any offset."""
    assert parse_lastmod(lastmod.encode()) == (to_ms(earliest), to_ms(latest))


def test_edges_of_the_calendar_do_not_overflow() -> None:
    """A8: the first and the last second of the calendar, moved out of it by their offset."""
    assert parse_lastmod(b"0001-01-01T00:00:00+23:59") is not None
    assert parse_lastmod(b"9999-12-31T23:59:59.999-23:59") is not None


@pytest.mark.parametrize(
    "lastmod",
    [
        "26",
        "202",
        "20261115",
        "2026-",
        "2026-1",
        "2026-13",
        "2026-00",
        "2026-11-00",
        "2026-11-31",
        "2026-02-30",
        "2025-02-29",
        "0000",
        "0000-01-01",
        "+2026",
        "2026-11-15T",
        "2026-11-15T10Z",
        "2026-11-15T10:00",
        "2026-11-15T10:00:00",
        "2026-11-15T10:00:00.5",
        "2026-11-15T24:00Z",
        "2026-11-15T23:60Z",
        "2026-11-15T23:59:60Z",
        "2026-11-15T10:00:00.Z",
        "2026-11-15T10:00:00,5Z",
        "2026-11-15T10:00+0800",
        "2026-11-15T10:00+08",
        "2026-11-15T10:00+24:00",
        "2026-11-15T10:00+08:60",
        "2026-11-15t10:00Z",
        "2026-11-15T10:00z",
        "2026-W46",
        "2026-W46-7",
        "2026-319",
        "2026/11/15",
        "15.11.2026",
        "now",
        "1763200000",
        "2026-11-15T10:00ZZ",
        "2026-11-15T10:00Z+08:00",
        "-2026",
    ],
)
def test_anything_else_counts_as_missing(lastmod: str) -> None:
    """A8: no zone, hour 24, month 13, 30 February, week dates, basic forms."""
    assert parse_lastmod(lastmod.encode()) is None


@pytest.mark.parametrize("lastmod", ["", " 2026", "2026\n", "2026-11-15 10:00:00", "２０２６", "2026-11-15T10:00Z\0"])
def test_white_space_and_foreign_digits_count_as_missing(lastmod: str) -> None:
    """A8: the reader strips what stands around a timestamp; what is left is taken as it is."""
    assert parse_lastmod(lastmod.encode()) is None


def test_random_times_agree_with_the_standard_library() -> None:
    """A8: a thousand times in random zones, read by two readers."""
    chance = random.Random(8)
    for _ in range(1_000):
        zone = timezone(timedelta(minutes=chance.randint(-1_439, 1_439)))
        time = datetime.fromtimestamp(chance.randint(-(10**10), 10**11), zone).replace(microsecond=0)
        start = round(time.timestamp()) * 1_000
        assert parse_lastmod(time.isoformat().encode()) == (start, start + 999)
        assert parse_lastmod(time.isoformat(timespec="milliseconds").encode()) == (start, start)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Sun, 15 Nov 2026 10:00:00 GMT", "2026-11-15T10:00:00Z"),
        ("Sun, 15 Nov 2026 10:00:00 +0800", "2026-11-15T02:00:00Z"),
        ("15 Nov 26 10:00 EST", "2026-11-15T15:00:00Z"),
        ("Sun, 15 Nov 2026 10:00:00 -0000", "2026-11-15T10:00:00Z"),
        ("2026-11-15", "2026-11-15"),
        ("", ""),
        ("soon", ""),
        ("Sun, 32 Nov 2026 10:00:00 GMT", ""),
        ("Fri, 31 Dec 9999 23:59:59 -2359", ""),
        ("Sun, 15 Nov 99999999999999999999 10:00:00 GMT", ""),
        ("15 نوفمبر", ""),
    ],
)
def test_dates_of_feeds_are_written_in_the_w3c_form(written: str, meant: str) -> None:
    """A8: so that a timestamp is read in one way wherever it comes from."""
    assert write_w3c(written) == meant
    assert not meant or parse_lastmod(meant.encode()) is not None


def test_w3c_form_of_a_feed_date_is_the_same_time() -> None:
    """A8: checked against the standard library's clock."""
    span = parse_lastmod(write_w3c("Sun, 15 Nov 2026 10:00:00 +0800").encode())
    assert span is not None
    assert datetime.fromtimestamp(span[0] / 1_000, UTC) == datetime(2026, 11, 15, 2, tzinfo=UTC)
