"""The one note model, whatever platform a note comes from, and the cleaning that leads to it: counts such as `1.2万`,
dates in the five ways that platforms write them, and HTML snippets. Pure. How a platform is asked is in `platforms`.

What cannot be read becomes None: a count that is not known is not 0, and no date is better than a wrong one.
"""

import html
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

from tidings.core.clock import parse_timestamp, to_text

_MOST: Final = 10**15
_COUNT: Final = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([^\d\s+.]{0,3})\s*\+?")
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)")
_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "千": 10**3,
    "w": 10**4,
    "万": 10**4,
    "萬": 10**4,
    "m": 10**6,
    "百万": 10**6,
    "千万": 10**7,
    "亿": 10**8,
    "億": 10**8,
}
# What stands in place of a number as long as nobody has pressed the button.
_LABELS: Final = frozenset({"赞", "点赞", "收藏", "评论", "分享", "转发", "抢首评"})

_NUMBER: Final = re.compile(r"-?\d{1,18}(?:\.\d+)?")
_WEIBO: Final = re.compile(r"[A-Za-z]{3} ([A-Za-z]{3}) (\d{1,2}) (\d\d:\d\d:\d\d) ([+-]\d{4}) (\d{4})")
_MONTH: Final = re.compile(r"(\d{4})(?:-(\d\d))?")
_LEAST_MILLISECONDS: Final = 10**11
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)\b([^<>]*)>|<!--|-->")
_ALT: Final = re.compile(r"\balt\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_BREAKING: Final = frozenset({"br", "p", "div", "li", "tr", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6"})
_HIDDEN: Final = frozenset({"script", "style"})
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\ufeff]")
_SPACES: Final = re.compile(r"[ \t\u00a0\u3000]+")
_BLANK_LINES: Final = re.compile(r"\n{3,}")


class NoteKind(StrEnum):
    VIDEO = "video"
    IMAGES = "images"
    TEXT = "text"
    ARTICLE = "article"


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    author_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the platform counts; None is not known."""

    views: int | None = None
    likes: int | None = None
    comments: int | None = None
    shares: int | None = None
    favorites: int | None = None
    coins: int | None = None
    danmaku: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One post, video or article. `text` is plain, with line breaks; times are UTC."""

    platform: str
    note_id: str
    url: str
    kind: NoteKind
    title: str
    text: str = ""
    author: Author = field(default_factory=Author)
    published_at: datetime | None = None
    updated_at: datetime | None = None
    counts: Counts = field(default_factory=Counts)
    tags: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    duration: timedelta | None = None
    place: str = ""

    def describe(self) -> dict[str, object]:
        """The note as JSON can carry it."""
        return {
            "platform": self.platform,
            "note_id": self.note_id,
            "url": self.url,
            "kind": self.kind.value,
            "title": self.title,
            "text": self.text,
            "author": {"author_id": self.author.author_id, "name": self.author.name},
            "published_at": None if self.published_at is None else to_text(self.published_at),
            "updated_at": None if self.updated_at is None else to_text(self.updated_at),
            "counts": {name: getattr(self.counts, name) for name in Counts.__slots__},
            "tags": list(self.tags),
            "images": list(self.images),
            "duration_seconds": None if self.duration is None else self.duration.total_seconds(),
            "place": self.place,
        }


def read_note(described: Mapping[str, Any]) -> Note:
    """The inverse of `Note.describe`, for what was checked to have its shape; a date that is none becomes None."""
    names = ("platform", "note_id", "url", "title", "text", "place")
    seconds = described["duration_seconds"]
    return Note(
        **{name: described[name] for name in names},
        kind=NoteKind(described["kind"]),
        author=Author(**described["author"]),
        published_at=parse_timestamp(described["published_at"] or ""),
        updated_at=parse_timestamp(described["updated_at"] or ""),
        counts=Counts(**described["counts"]),
        tags=tuple(described["tags"]),
        images=tuple(described["images"]),
        duration=None if seconds is None else timedelta(seconds=seconds),
    )


def parse_count(value: object) -> int | None:
    """A count as platforms write it: 12, "1,234", "1.2万", "10w+", "1亿"; a button's label is 0. None for the rest."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value) if 0 <= value <= _MOST else None
    if not isinstance(value, str):
        return None
    text = unicodedata.normalize("NFKC", value[:64]).strip().lower()
    if text in _LABELS:
        return 0
    found = _COUNT.fullmatch(_GROUPED.sub(lambda match: match[0].replace(",", ""), text))
    if found is None or found[2] not in _UNITS:
        return None
    count = int(Decimal(found[1]) * _UNITS[found[2]])
    return count if count <= _MOST else None


def parse_platform_timestamp(value: object) -> datetime | None:
    """A moment in UTC from seconds or milliseconds since 1970, Weibo's format, RFC 822 or W3C (ISO 8601).

    A text without a zone is taken as UTC. None for anything else, and for what lies outside 1970 to 9999.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _read_stamp(value)
    if not isinstance(value, str):
        return None
    text = value[:64].strip()
    if _NUMBER.fullmatch(text) and len(text) > 4:
        return _read_stamp(float(text))
    moment = parse_timestamp(_complete_day(text)) or _read_rfc822(text)
    return moment if moment is not None and moment >= _EPOCH else None


def clean_text(value: object) -> str:
    """Plain text without what databases and terminals choke on; anything but text and numbers becomes empty."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return ""
    # Half an emoji (a lone surrogate) is legal in JSON and in no encoding.
    whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _UNPRINTABLE.sub("", whole.replace("\r\n", "\n").replace("\r", "\n"))
    lines = (_SPACES.sub(" ", line).strip() for line in text.split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def clean_html(value: object) -> str:
    """The text of an HTML snippet: entities decoded, line breaks kept, an image replaced by its `alt` (an emoji)."""
    if not isinstance(value, str):
        return clean_text(value)
    pieces, position, hidden = [], 0, ""
    for tag in _TAG.finditer(value):
        if not hidden:
            pieces.append(value[position : tag.start()])
        position = tag.end()
        hidden = _note_hidden(tag, hidden)
        if not hidden:
            pieces.append(_replace_tag(tag))
    pieces.append("" if hidden else value[position:])
    return clean_text(html.unescape("".join(pieces)))


def shorten_title(text: str, *, length: int = 80) -> str:
    """The first line, cut: the title of a note that has none."""
    line = text.split("\n", 1)[0]
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _read_stamp(stamp: float) -> datetime | None:
    seconds = stamp / 1000 if stamp >= _LEAST_MILLISECONDS else stamp
    try:
        return _EPOCH + timedelta(seconds=seconds) if seconds > 0 else None
    except (OverflowError, ValueError):
        return None


def _complete_day(text: str) -> str:
    """W3C allows a year or a month alone."""
    found = _MONTH.fullmatch(text)
    return f"{found[1]}-{found[2] or '01'}-01" if found else text


def _read_rfc822(text: str) -> datetime | None:
    # Weibo's is the same with the year at the end. `strptime` would depend on the machine's language.
    weibo = _WEIBO.fullmatch(text)
    if weibo:
        month, day, time, zone, year = weibo.groups()
        text = f"{day} {month} {year} {time} {zone}"
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, TypeError):
        return None


def _note_hidden(tag: re.Match[str], hidden: str) -> str:
    """What hides the text from here on: a comment, or an element that is never shown; empty for nothing."""
    name = (tag[2] or tag[0]).lower()
    if hidden:
        ends = name == "-->" if hidden == "<!--" else (tag[1] == "/" and name == hidden)
        return "" if ends else hidden
    return name if name == "<!--" or (name in _HIDDEN and not tag[1]) else ""


def _replace_tag(tag: re.Match[str]) -> str:
    name = (tag[2] or "").lower()
    if name in _BREAKING:
        return "\n" if name == "br" or tag[1] else ""
    alt = _ALT.search(tag[3]) if name == "img" else None
    return next((text for text in alt.groups() if text), "") if alt else ""
