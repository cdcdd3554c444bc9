"""The fast path: plain `<url>` blocks are read by a pattern, everything else by the parser.

Most of a sitemap is `<url><loc>…</loc><lastmod>…</lastmod>…</url>` in ASCII. Such blocks need no parser, and it costs
several times as much to have one. Here lives the pattern, and the rule when it may be used: only where the parser is
between two children of an unprefixed `<urlset>` with nothing unfinished, so that it would read the block in the same
way. It is told nothing of the blocks that were skimmed. All else, from the declaration to the last end tag, goes
through it, and so it still judges whether the document is well-formed.
"""

import re
from typing import Any

from tidings.announce.sitemap.content import MAX_LOC
from tidings.announce.sitemap.markup import MAX_LASTMOD, MarkupContent

_END = b"</url>"
# An unusual block up to this size may wait for its end; a longer one goes to the parser as it comes.
_MAX_WAIT = 8_192
# Where nothing is plain (each URL has an image, or an entity in it), the parser gets ever more at once, up to this:
# calling it for each block would make this path slower than no fast path at all.
_FIRST_STRIDE, _MAX_STRIDE = 64, 32_768


def _compile_plain() -> re.Pattern[bytes]:
    """Build the pattern for one block. Where there is none it matches nothing at all: matches are always contiguous.

    Only what expat reads as it stands is taken: printable ASCII without markup (and without `>`, since `]]>` is an
    error), and XML's own white space. The quantifiers are possessive, so that no input makes it try twice.
    """
    space = rb"[ \t\r\n]*+"
    word = rb"[!-%'-;=?-~]"
    phrase = rb"[ \t\r\n!-%'-;=?-~]*+"
    # The two extensions that are common, in the form that most programs write them.
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


class SkimmedMarkupContent(MarkupContent):
    """The same as `MarkupContent` for every input, only faster for plain sitemaps."""

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
                # Perhaps within a comment full of end tags: to stop at each of them would take quadratic time.
                break
        self._keep_tail(data[position:])

    def finish(self) -> None:
        self._parse_tail()
        super().finish()

    def break_off(self, reason: str) -> None:
        self._parse_tail()
        super().break_off(reason)

    def _skim(self, data: bytes, position: int) -> int:
        """Read plain blocks from `position` on and say where they end."""
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
        """Find where the next block ends, or, after a row of unusual ones, the next but some."""
        start = data.find(_END, position + self._stride)
        if start < 0:
            start = data.rfind(_END, position)
        return None if start < 0 else start + len(_END)

    def _stands_between(self) -> bool:
        """Tell whether the last thing that the parser was fed is the end tag of a child of the root."""
        return self._closed_at == self._fed - len(_END) and self.root == "urlset"

    def _keep_tail(self, rest: bytes) -> None:
        """Hold back a block that may still turn out plain, or else only what could be the start of an end tag."""
        kept = len(rest) if self._between and len(rest) <= _MAX_WAIT else min(len(rest), len(_END) - 1)
        self._tail = rest[len(rest) - kept :]
        if kept < len(rest):
            self._between = False
            self._parse(rest[: len(rest) - kept])

    def _parse_tail(self) -> None:
        self._parse(self._tail)
        self._tail = b""
