"""Sitemaps and feeds in XML, streamed through expat. Every resource of a document is bounded: nesting, the length of
tags, comments and URLs, the number of names. A DOCTYPE is refused, and so a document has no entities of its own.
`fast_xml` avoids the parser for plain sitemaps.
"""

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from xml.parsers import expat

from tidings.announce.sitemap.body import MAX_LOC, RefusedSitemapError, SitemapBody, SitemapKind
from tidings.announce.sitemap.lastmod import write_w3c

MAX_LASTMOD = 64
"""The most characters of a lastmod; a longer one counts as missing."""

_MAX_DEPTH = 64
# expat keeps an unfinished tag or comment and scans it again at each call. Without a bound, that takes hours.
_MAX_TOKEN = 1_048_576
# expat and pyexpat keep every name of an element or attribute.
_MAX_NAMES = 10_000
_NOWHERE = -9
_HTML = re.compile(rb"<(?:!doctype\s+)?html\b", re.IGNORECASE)
_HTML_PAGE = "an HTML page instead of a sitemap"


class EntryField(Enum):
    """The meaning of an element within an entry."""

    LOC = auto()
    HREF = auto()
    LASTMOD = auto()


@dataclass(frozen=True, slots=True)
class XmlFormat:
    """One XML format: where its entries are, and which of their elements count."""

    kind: SitemapKind
    # The local name of an entry.
    entry: str
    # Elements by local name. They have the prefix of their entry, so that `image:loc` is not a `loc`.
    own: dict[str, EntryField]
    # The depth of an entry; the root has depth 1.
    depth: int = 2
    # Elements of other namespaces, by full name.
    foreign: dict[str, EntryField] = field(default_factory=dict)

    def name_fields(self, prefix: str) -> dict[str, EntryField]:
        """The fields by their full names in an entry with this prefix."""
        return {prefix + local: meaning for local, meaning in self.own.items()} | self.foreign


_LISTED = {"loc": EntryField.LOC, "lastmod": EntryField.LASTMOD}
_DATED = {"link": EntryField.LOC, "pubDate": EntryField.LASTMOD}
_DUBLIN_CORE = {"dc:date": EntryField.LASTMOD}

XML_FORMATS = {
    "urlset": XmlFormat(SitemapKind.URLSET, "url", _LISTED),
    "sitemapindex": XmlFormat(SitemapKind.INDEX, "sitemap", _LISTED),
    "rss": XmlFormat(SitemapKind.FEED, "item", _DATED, depth=3, foreign=_DUBLIN_CORE),
    "RDF": XmlFormat(SitemapKind.FEED, "item", {"link": EntryField.LOC}, foreign=_DUBLIN_CORE),
    "feed": XmlFormat(SitemapKind.FEED, "entry", {"link": EntryField.HREF, "updated": EntryField.LASTMOD}),
}
"""By the local name of the root, because missing and wrong namespaces are common."""


def split_prefix(name: str) -> tuple[str, str]:
    """The prefix of a name, with its colon, and the local part."""
    prefix, colon, local = name.rpartition(":")
    return prefix + colon, local


class XmlBody(SitemapBody):
    """A body that starts with `<`. Only expat decides whether it is well-formed."""

    def __init__(self) -> None:
        super().__init__()
        self.root = ""
        self._shape: XmlFormat | None = None
        self._depth = 0
        self._entry_depth = _NOWHERE
        self._entry_name = ""
        self._entry_fields: dict[str, EntryField] = {}
        self._fields: dict[str, EntryField] = {}
        self._field: EntryField | None = None
        self._text = ElementText()
        self._loc: str | None = None
        self._lastmod: str | None = None
        self._start = b""
        self._fed = 0
        self._skipped = 0
        self._closed_at = _NOWHERE
        self._names: dict[str, str] = {}
        self._parser = self._create_parser()

    def read(self, data: bytes) -> None:
        self._parse(data)

    def finish(self) -> None:
        self._parse(b"", final=True)

    def break_off(self, reason: str) -> None:
        if self.fault is None:
            self._fail(reason)

    def _create_parser(self) -> expat.XMLParserType:
        # The body is UTF-8 by now, so the encoding of its declaration must be ignored.
        parser = expat.ParserCreate("utf-8", None, intern=self._names)
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._open_element
        parser.EndElementHandler = self._close_element
        # Newer expat defers parsing to avoid repeated scans; the bound on tokens serves that purpose here.
        if hasattr(parser, "SetReparseDeferralEnabled"):
            parser.SetReparseDeferralEnabled(False)
        return parser

    def _parse(self, data: bytes, *, final: bool = False) -> None:
        if self.fault is not None:
            return
        if self.kind is None:
            self._start = (self._start + data)[:100]
        self._fed += len(data)
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as error:
            reason = f"{expat.ErrorString(error.code)} at byte {self._skipped + self._parser.ErrorByteIndex}"
            self._fail(f"ends early: {reason}" if final else reason)
            return
        if self._fed - self._parser.CurrentByteIndex > _MAX_TOKEN:
            raise RefusedSitemapError(f"a tag or comment of more than {_MAX_TOKEN} bytes")
        if len(self._names) > _MAX_NAMES:
            raise RefusedSitemapError(f"more than {_MAX_NAMES} different names of elements and attributes")

    def _fail(self, reason: str) -> None:
        if self.kind is None:
            raise RefusedSitemapError(_HTML_PAGE if _HTML.match(self._start) else f"not a sitemap: {reason}")
        self.fault = reason

    def _refuse_doctype(self, name: str, *_: object) -> None:
        raise RefusedSitemapError(_HTML_PAGE if name.lower() == "html" else "DOCTYPE is not allowed")

    def _open_element(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        level = self._depth - self._entry_depth
        if level == 1:
            if name in self._fields:
                self._open_field(self._fields[name], attributes)
        elif level == 0:
            self._open_entry(name)
        elif self._depth == 1:
            self._open_root(name)
        elif self._depth > _MAX_DEPTH:
            raise RefusedSitemapError(f"nested deeper than {_MAX_DEPTH}")

    def _close_element(self, _: str) -> None:
        level = self._depth - self._entry_depth
        if level == 1:
            if self._field is not None:
                self._close_field()
        elif level == 0:
            self._close_entry()
        self._depth -= 1

    def _open_root(self, name: str) -> None:
        _, local = split_prefix(name)
        if local.lower() == "html":
            raise RefusedSitemapError(_HTML_PAGE)
        if local not in XML_FORMATS:
            raise RefusedSitemapError(f"not a sitemap: its root is {name[:40]!a}")
        self.root, self._shape = name, XML_FORMATS[local]
        self.kind, self._entry_depth = self._shape.kind, self._shape.depth

    def _open_entry(self, name: str) -> None:
        if name != self._entry_name and self._shape is not None:
            prefix, local = split_prefix(name)
            self._entry_fields = self._shape.name_fields(prefix) if local == self._shape.entry else {}
            self._entry_name = name
        self._fields = self._entry_fields

    def _close_entry(self) -> None:
        if self._loc:
            self._pairs.append((self._loc.encode(), (self._lastmod or "").encode()))
        self._loc = self._lastmod = None
        self._closed_at = self._parser.CurrentByteIndex

    def _open_field(self, field: EntryField, attributes: dict[str, str]) -> None:
        if field is EntryField.HREF:
            if self._loc is None and attributes.get("rel", "alternate") == "alternate":
                self._text.add(attributes.get("href", ""))
                self._keep_loc()
        elif (self._loc if field is EntryField.LOC else self._lastmod) is None:
            self._field = field
            self._parser.CharacterDataHandler = self._text.add

    def _close_field(self) -> None:
        self._parser.CharacterDataHandler = None
        if self._field is EntryField.LOC:
            self._keep_loc()
        else:
            self._keep_lastmod()
        self._field = None

    def _keep_loc(self) -> None:
        # A dropped URL becomes "" and not None, because only the first URL of an entry counts.
        self._loc = self._text.take()
        if len(self._loc) > MAX_LOC:
            self.too_long += 1
            self._loc = ""

    def _keep_lastmod(self) -> None:
        self._lastmod = self._text.take()
        if len(self._lastmod) > MAX_LASTMOD or not self._lastmod.isascii():
            self._lastmod = ""
        elif self.kind is SitemapKind.FEED:
            self._lastmod = write_w3c(self._lastmod)


class ElementText:
    """The text of one element, cut where it is certainly too long."""

    _BOUND = 2 * MAX_LOC

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._cut = False

    def add(self, text: str) -> None:
        if not self._length:
            text = text.lstrip()
        if self._length < self._BOUND:
            self._parts.append(text)
            self._length += len(text)
        elif text.strip():
            self._cut = True

    def take(self) -> str:
        """The stripped text. A cut text has more than `MAX_LOC` characters."""
        text = "".join(self._parts)
        if not self._cut:
            text = text.strip()
        self._parts.clear()
        self._length, self._cut = 0, False
        return text
