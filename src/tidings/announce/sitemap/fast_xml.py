"""The fast path for plain sitemaps: a pattern reads plain `<url>` blocks, expat reads everything else.

Most of a sitemap is `<url><loc>…</loc><lastmod>…</lastmod>…</url>` in ASCII, and a parser costs several times as much.
The pattern is used only between two children of an unprefixed `<urlset>`, where expat would read the same. expat does
not see the skipped blocks, but reads the rest, from declaration to last end tag, and so still checks the document.
"""

import re
from typing import Any

from tidings.announce.sitemap.body import MAX_LOC
from tidings.announce.sitemap.xml_body import MAX_LASTMOD, XmlBody

_END = b"</url>"
# A block without an end waits up to this size; a longer one goes to the parser as it arrives.
_MAX_WAIT = 8_192
# Where no block is plain (each has an image, or an entity), the parser gets more and more blocks per call, up to
# this size. One call per block would be slower than no fast path.
_FIRST_STRIDE, _MAX_STRIDE = 64, 32_768


def _compile_plain() -> re.Pattern[bytes]:
    """The pattern of one block. Its empty alternative ends a row of contiguous matches.

    It accepts only text that expat reads unchanged: XML's white space, and printable ASCII without markup (and without
    `>`, because `]]>` is an error). Possessive quantifiers rule out backtracking.
    """
    space = rb"[ \t\r\n]*+"
    word = rb"[!-%'-;=?-~]"
    phrase = rb"[ \t\r\n!-%'-;=?-~]*+"
    # The two common extensions, in the form that most programs write.
    image = rb"(?:<image:loc>" + phrase + rb"</image:loc>" + space + rb")"
    quoted = rb'"[ !#-%\'-;=?-~]*+"'
    parts = [
        rb"<url>",
        rb"<loc>" + space + rb"(%b{1,%d}+)" % (word, MAX_LOC) + space + rb"</loc>",
        rb"(?:<lastmod>" + space + rb"(%b{0,%d}+)" % (word, MAX_LASTMOD) + space + rb"</lastmod>" + space + rb")?",
        rb"(?:<changefreq>" + phrase + rb"</changefreq>" + space + rb")?",
        rb"(?:<priority>" + phrase + rb"</priority>" + space + rb")?",
        rb"(?:<image:image>" + space + image + rb"*+</image:image>" + space + rb")*+",
        rb"(?:<xhtml:link rel=%b hreflang=%b href=%b" % (quoted, quoted, quoted) + space + rb"/>" + space + rb")*+",
    ]
    return re.compile(space + space.join(parts[:2]) + space + b"".join(parts[2:]) + _END + rb"|")


_PLAIN = _compile_plain()


class FastXmlBody(XmlBody):
    """Equal to `XmlBody` for every input, and faster for plain sitemaps."""

    def __init__(self) -> None:
        super().__init__()
        self._tail = b""
        self._between = False
        self._stride = 0

    def read(self, data: bytes) -> None:
        data = self._tail + data
        position = 0
        while True:
            if self._between:
                position = self._skim(data, position)
            end = self._find_end(data, position)
            if end is None:
                break
            self._parse(data[position:end])
            position = end
            self._between = self._stands_between()
            if not self._between:
                # This may be a comment full of end tags; stopping at each of them would take quadratic time.
                break
        self._keep_tail(data[position:])

    def finish(self) -> None:
        self._parse_tail()
        super().finish()

    def break_off(self, reason: str) -> None:
        self._parse_tail()
        super().break_off(reason)

    def _skim(self, data: bytes, position: int) -> int:
        """Read plain blocks from `position` on. Returns where they end."""
        pairs: list[Any] = []
        end = position
        for block in _PLAIN.finditer(data, position):
            pair = block.groups(b"")
            if not pair[0]:
                end = block.start()
                break
            pairs.append(pair)
        self._pairs += pairs
        self._stride = 0 if pairs else min(2 * self._stride + _FIRST_STRIDE, _MAX_STRIDE)
        self.skimmed += len(pairs)
        self._skipped += end - position
        return end

    def _find_end(self, data: bytes, position: int) -> int | None:
        """The end of the next block; after a row of unusual blocks, of a later one."""
        start = data.find(_END, position + self._stride)
        if start < 0:
            start = data.rfind(_END, position)
        return None if start < 0 else start + len(_END)

    def _stands_between(self) -> bool:
        """Whether the parser has just read the end tag of a child of the root."""
        return self._closed_at == self._fed - len(_END) and self.root == "urlset"

    def _keep_tail(self, rest: bytes) -> None:
        """Keep a block that may still be plain, or else only a possible start of an end tag."""
        kept = len(rest) if self._between and len(rest) <= _MAX_WAIT else min(len(rest), len(_END) - 1)
        self._tail = rest[len(rest) - kept :]
        if kept < len(rest):
            self._between = False
            self._parse(rest[: len(rest) - kept])

    def _parse_tail(self) -> None:
        self._parse(self._tail)
        self._tail = b""
