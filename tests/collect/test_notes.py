"""The cleaning of counts, dates and HTML, and the note as JSON."""

import json
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tidings.collect.notes import (
    Author,
    Counts,
    Note,
    NoteKind,
    clean_html,
    clean_text,
    parse_count,
    parse_platform_timestamp,
    read_note,
    shorten_title,
)

TIME = datetime(2026, 9, 22, 2, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1.2万", 12_000),
        ("1.13万", 11_300),
        ("3.3万", 33_000),
        ("1亿", 100_000_000),
        ("2.35億", 235_000_000),
        ("10w+", 100_000),
        ("10万+", 100_000),
        ("1.5 W", 15_000),
        ("3千", 3_000),
        ("1千万", 10_000_000),
        ("1.2k", 1_200),
        ("2M", 2_000_000),
        ("1,234", 1_234),
        ("1,234,567", 1_234_567),
        ("１２３", 123),
        (" 42 ", 42),
        ("999+", 999),
        ("0", 0),
        (0, 0),
        (17, 17),
        (17.0, 17),
        ("赞", 0),
        ("收藏", 0),
        (None, None),
        (True, None),
        ("", None),
        ("--", None),
        ("-1", None),
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        ("1.2.3", None),
        ("1,23", None),
        ("12 apples", None),
        ("万", None),
        ("9" * 5_000, None),
        (10**30, None),
        ([1], None),
    ],
)
def test_a_count_becomes_a_number_or_nothing(written: object, meant: int | None) -> None:
    """C17: counts such as `1.2万` become numbers; what is not known is not 0."""
    assert parse_count(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1_790_042_400, TIME),
        (1_790_042_400_000, TIME),
        ("1790042400", TIME),
        ("1790042400000", TIME),
        (1_790_042_400.5, TIME + timedelta(seconds=0.5)),
        ("Tue Sep 22 10:00:00 +0800 2026", TIME),
        ("Tue, 22 Sep 2026 10:00:00 +0800", TIME),
        ("Tue, 22 Sep 2026 02:00:00 GMT", TIME),
        ("22 Sep 2026 02:00:00 -0000", TIME),
        ("2026-09-22T10:00:00+08:00", TIME),
        ("2026-09-22T02:00:00Z", TIME),
        ("2026-09-22T02:00Z", TIME),
        ("2026-09-22 02:00:00", TIME),
        ("2026-09-22", datetime(2026, 9, 22, tzinfo=UTC)),
        ("2026-09", datetime(2026, 9, 1, tzinfo=UTC)),
        ("2026", datetime(2026, 1, 1, tzinfo=UTC)),
        (0, None),
        (-5, None),
        ("", None),
        (None, None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**40, None),
        (10**400, None),
        (-(10**400), None),
        ("刚刚", None),
        ("Tue Foo 22 10:00:00 +0800 2026", None),
        ("Tue Sep 42 10:00:00 +0800 2026", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        ({}, None),
    ],
)
def test_a_date_becomes_a_time_in_utc_or_nothing(written: object, meant: datetime | None) -> None:
    """C17: milliseconds, seconds, Weibo's format, RFC 822 and W3C."""
    timestamp = parse_platform_timestamp(written)
    assert timestamp == meant
    assert timestamp is None or timestamp.tzinfo is UTC


@pytest.mark.parametrize(
    ("snippet", "text"),
    [
        ('<em class="keyword">咖啡</em> &amp; tea', "咖啡 & tea"),
        ("1 &lt; 2 &#x1F600; &nbsp;ok", "1 < 2 😀 ok"),
        ("one<br>two<br/>three<BR />four", "one\ntwo\nthree\nfour"),
        ("<p>one</p><p>two</p>", "one\ntwo"),
        ('哈<span class="url-icon"><img alt=[笑] src="x.png"/></span>哈', "哈[笑]哈"),
        ('<img src="a.png" alt="[心] &amp; co">', "[心] & co"),
        ("<img src='a.png' alt='[花]'>", "[花]"),
        ("<img src=a.png>nothing", "nothing"),
        ("<script>alert('x')</script>kept<style>p{}</style>", "kept"),
        ("a<!-- <b>hidden</b> -->b", "ab"),
        ("5 < 6 and 7 > 6", "5 < 6 and 7 > 6"),
        ("&lt;b&gt;shown&lt;/b&gt;", "<b>shown</b>"),
        ("unfinished <a href=", "unfinished <a href="),
        ("\u3000 wide\u200b \t space ", "wide space"),
        (None, ""),
        (12, "12"),
    ],
)
def test_html_becomes_plain_text(snippet: object, text: str) -> None:
    """C17: em tags, entities, line breaks and the alt of an emoji."""
    assert clean_html(snippet) == text


@pytest.mark.parametrize("piece", ["<", "<a ", "<!--", "<img alt=", "<img alt='", "&", "<script>", "\n ", "#"])
def test_cleaning_stays_fast_on_what_was_made_to_slow_it_down(piece: str) -> None:
    """C17: a post cannot hold up the others."""
    began = time.monotonic()
    clean_html(piece * (400_000 // len(piece)))
    assert time.monotonic() - began < 2


def test_text_holds_nothing_that_a_database_refuses() -> None:
    """C17: half an emoji and control characters are legal in JSON and in no table."""
    broken = json.loads('"a\\ud83d b\\u0000c\\r\\nd\\u0007\\n\\n\\n\\ne"')
    text = clean_text(broken)
    assert text == "a\ufffd bc\nd\n\ne"
    assert clean_text(json.loads('"\\ud83d\\ude00"')) == "😀"
    assert text.encode()
    assert not any(map(clean_text, (None, True, {}, 1.5)))


def test_a_note_without_title_is_called_by_its_first_line() -> None:
    """C17: one model, also for posts that have no title."""
    assert shorten_title("first\nsecond") == "first"
    assert shorten_title("字" * 100) == "字" * 79 + "…"


def test_a_note_is_reported_as_json_with_nothing_left_out() -> None:
    """C17: one note model for all platforms."""
    note = Note(
        platform="weibo",
        note_id="1",
        url="https://m.weibo.cn/detail/1",
        kind=NoteKind.VIDEO,
        title="t",
        text="x",
        author=Author(author_id="7", name="n"),
        published_at=datetime(2026, 9, 22, 10, 0, tzinfo=timezone(timedelta(hours=8))),
        counts=Counts(likes=3, comments=0),
        tags=("a",),
        images=("https://example.org/1.jpg",),
        duration=timedelta(seconds=90),
        place="浙江",
    )
    reported = json.loads(json.dumps(note.describe()))
    assert reported.keys() == {*Note.__slots__, "duration_seconds"} - {"duration"}
    assert (reported["published_at"], reported["updated_at"]) == ("2026-09-22T02:00:00.000Z", None)
    assert (reported["counts"]["likes"], reported["counts"]["comments"], reported["counts"]["views"]) == (3, 0, None)
    assert (reported["author"], reported["duration_seconds"], reported["kind"]) == (
        {"author_id": "7", "name": "n"},
        90.0,
        "video",
    )


@pytest.mark.parametrize(
    "note",
    [
        Note(platform="web", note_id="1", url="https://example.org/1", kind=NoteKind.TEXT, title=""),
        Note(
            platform="bilibili",
            note_id="BV1xx411c7mD",
            url="https://www.bilibili.com/video/BV1xx411c7mD",
            kind=NoteKind.VIDEO,
            title="茶 😀",
            text="one\n\ntwo",
            author=Author(author_id="7", name="名"),
            published_at=TIME + timedelta(milliseconds=5),
            updated_at=TIME + timedelta(days=1),
            counts=Counts(**{name: number for number, name in enumerate(Counts.__slots__)}),
            tags=("a", "b"),
            images=("https://example.org/1.jpg", "https://example.org/2.jpg"),
            duration=timedelta(seconds=90.5),
            place="浙江",
        ),
    ],
    ids=["bare", "full"],
)
def test_a_note_that_was_reported_as_json_is_read_as_it_was(note: Note) -> None:
    """C12: what a workflow hands in is what the platform gave, field by field."""
    assert read_note(json.loads(json.dumps(note.describe()))) == note


def test_a_date_that_is_none_is_read_as_not_known() -> None:
    """C17: no date is better than a wrong one, and better than no note."""
    note = Note(platform="web", note_id="1", url="https://example.org/1", kind=NoteKind.TEXT, title="")
    assert read_note(note.describe() | {"published_at": "yesterday"}) == note
