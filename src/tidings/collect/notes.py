"""The note model that all platforms share, and the parsing that fills it: counts such as `1.2万`, timestamps in five
formats, and HTML snippets. Pure functions; `crawl.platforms` does the requests.

A value that cannot be parsed becomes None: an unknown count is not 0, and no date is better than a wrong one.
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
_LARGEST_ID: Final = 10**40
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
# The labels of the buttons, which some platforms send instead of 0.
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
    """Counters of the platform; None is unknown."""

    views: int | None = None
    likes: int | None = None
    comments: int | None = None
    shares: int | None = None
    favorites: int | None = None
    coins: int | None = None
    danmaku: int | None = None

    def describe(self) -> dict[str, int | None]:
        """The counts as a JSON object."""
        return {name: getattr(self, name) for name in Counts.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One post, video or article."""

    platform: str
    # The platform's own id; for the open web a hash of the URL.
    note_id: str
    url: str
    kind: NoteKind
    title: str
    # Plain text with line breaks.
    text: str = ""
    author: Author = field(default_factory=Author)
    # UTC.
    published_at: datetime | None = None
    # UTC; the last edit, if the platform says so.
    updated_at: datetime | None = None
    counts: Counts = field(default_factory=Counts)
    tags: tuple[str, ...] = ()
    # URLs.
    images: tuple[str, ...] = ()
    # Of a video.
    duration: timedelta | None = None
    # The author's place according to the platform.
    place: str = ""

    def describe(self) -> dict[str, object]:
        """The note as a JSON object."""
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
            "counts": self.counts.describe(),
            "tags": list(self.tags),
            "images": list(self.images),
            "duration_seconds": None if self.duration is None else self.duration.total_seconds(),
            "place": self.place,
        }


def read_note(described: Mapping[str, Any]) -> Note:
    """The inverse of `Note.describe` for a validated object. An invalid date becomes None."""
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
    """Parse a count: 12, "1,234", "1.2万", "10w+", "1亿". The label of a button means 0; anything else is None."""
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
    """Parse a timestamp: seconds or milliseconds since 1970, Weibo's format, RFC 822, or W3C (ISO 8601).

    A text without a time zone is UTC. Returns None for anything else, and outside the years 1970 to 9999.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _read_epoch(value)
    if not isinstance(value, str):
        return None
    text = value[:64].strip()
    if _NUMBER.fullmatch(text) and len(text) > 4:
        return _read_epoch(float(text))
    timestamp = _read_rfc822(text) if text[:1].isalpha() else parse_timestamp(_complete_day(text)) or _read_rfc822(text)
    return timestamp if timestamp is not None and timestamp >= _EPOCH else None


def clean_text(value: object) -> str:
    """Plain text without control characters and lone surrogates. Values other than text and integers become empty."""
    if isinstance(value, int) and not isinstance(value, bool):
        # Python refuses to convert integers of more than 4,300 digits, and ids are far shorter than this.
        return str(value) if abs(value) < _LARGEST_ID else ""
    if not isinstance(value, str):
        return ""
    if value.isprintable() and "  " not in value:
        # Most values are one plain line, which the rules below would not change.
        return value.strip()
    # JSON allows half an emoji (a lone surrogate); no encoding does.
    whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _UNPRINTABLE.sub("", whole.replace("\r\n", "\n").replace("\r", "\n"))
    lines = (_SPACES.sub(" ", line).strip() for line in text.split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def clean_html(value: object) -> str:
    """The text of an HTML snippet. Entities are decoded, line breaks kept, and images replaced by their `alt`."""
    if not isinstance(value, str):
        return clean_text(value)
    pieces, position, hidden = [], 0, ""
    for tag in _TAG.finditer(value):
        if not hidden:
            pieces.append(value[position : tag.start()])
        position = tag.end()
        hidden = _find_hiding(tag, hidden)
        if not hidden:
            pieces.append(_replace_tag(tag))
    pieces.append("" if hidden else value[position:])
    return clean_text(html.unescape("".join(pieces)))


def shorten_title(text: str, *, length: int = 80) -> str:
    """The first line, cut to `length` characters: the title of a note without one."""
    line = text.split("\n", 1)[0]
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _read_epoch(value: float) -> datetime | None:
    try:
        seconds = value / 1000 if value >= _LEAST_MILLISECONDS else value
        return _EPOCH + timedelta(seconds=seconds) if seconds > 0 else None
    except (OverflowError, ValueError):
        return None


def _complete_day(text: str) -> str:
    """W3C allows a year or a month alone: complete it to its first day."""
    found = _MONTH.fullmatch(text)
    return f"{found[1]}-{found[2] or '01'}-01" if found else text


def _read_rfc822(text: str) -> datetime | None:
    # Weibo writes the year at the end. `strptime` would depend on the locale.
    weibo = _WEIBO.fullmatch(text)
    if weibo:
        month, day, time, zone, year = weibo.groups()
        text = f"{day} {month} {year} {time} {zone}"
    try:
        timestamp = parsedate_to_datetime(text)
        return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)
    except (ValueError, OverflowError, TypeError):
        return None


def _find_hiding(tag: re.Match[str], hidden: str) -> str:
    """The comment or element that hides the text after this tag; empty if the text is visible."""
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
