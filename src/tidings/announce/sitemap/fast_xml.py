"""The fast path for plain sitemaps: a pattern reads plain `<url>` blocks, expat reads everything else.

Most of a sitemap is `<url><loc>…</loc><lastmod>…</lastmod>…</url>`, perhaps with images, videos, news or translations,
and a parser costs several times as much. The pattern is used only between two children of an unprefixed `<urlset>`,
where expat would read the same. expat does not see the skipped blocks, but reads the rest, from declaration to last end
tag, and so still checks the document.
"""

import html
import re
from functools import cache
from itertools import permutations
from typing import Final

from tidings.announce.sitemap.body import MAX_LOC, Pair
from tidings.announce.sitemap.xml_body import MAX_LASTMOD, XmlBody

_END: Final = b"</url>"
# A block without an end waits up to this size; a longer one goes to the parser as it arrives.
_MAX_WAIT: Final = 8_192
# If no block is plain (for example, each has CDATA), the parser gets more and more blocks per call, up to this size.
# One call per block would be slower than no fast path.
_FIRST_STRIDE, _MAX_STRIDE = 64, 32_768

# The references to printable ASCII characters.
_NUMBER: Final = rb"#(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6]|x(?:[2-6][0-9A-Fa-f]|7[0-9A-Ea-e]))"
_REFERENCE: Final = rb"&(?:amp|lt|gt|quot|apos|" + _NUMBER + rb");"
# The elements of the common extensions that hold text alone.
_EXTENSIONS: Final = {
    b"image:image": b"loc caption geo_location title license",
    b"video:video": b"thumbnail_loc title description content_loc player_loc duration expiration_date rating view_count"
    b" publication_date family_friendly requires_subscription live tag category",
    b"news:news": b"publication_date title keywords genres stock_tickers access",
    b"news:publication": b"name language",
}


@cache
def _compile_plain() -> re.Pattern[bytes]:
    """The pattern of one block. Its last alternative takes the rest at once, so that matches are contiguous.

    It accepts only text that expat accepts, too: XML's white space, printable characters without markup (and without
    `>`, because `]]>` is an error), and references to ASCII characters. Bytes from 80 up are valid UTF-8, as the caller
    knows; those that begin with EF may be no characters of XML. Possessive quantifiers rule out backtracking. It is
    compiled at the first use, because that takes 20 ms.
    """
    space = rb"[ \t\r\n]*+"
    ascii_word = rb"[!-%'-;=?-~]"
    phrase = _repeat(rb"[ \t\r\n!-%'-;=?-~\x80-\xee\xf0-\xf4]")
    quoted = rb'="' + _repeat(rb"[ !#-%'-;=?-~\x80-\xee\xf0-\xf4]") + rb'"'
    links = (
        b"".join(b"[ \\t\\r\\n]++" + name + quoted for name in names)
        for names in permutations((b"rel", b"hreflang", b"href"))
    )

    def close(name: bytes, content: bytes) -> bytes:
        return name + b">" + content + b"</" + name + b">" + space

    def extend(name: bytes, *more: bytes) -> bytes:
        prefix = name.partition(b":")[0]
        parts = [close(prefix + b":" + each, phrase) for each in _EXTENSIONS[name].split()]
        return close(name, space + b"(?:<(?:" + b"|".join((*parts, *more)) + b"))*+")

    others = b"|".join([
        close(b"changefreq", phrase),
        close(b"priority", phrase),
        extend(b"image:image"),
        extend(b"video:video"),
        extend(b"news:news", extend(b"news:publication")),
        b"xhtml:link(?:" + b"|".join(links) + b")" + space + b"/>" + space,
    ])  # fmt: skip
    other = b"(?:<(?:" + others + b"))*+"
    word = _repeat(rb"[!-%'-;=?-~\x80-\xee\xf0-\xf4]", most=MAX_LOC)
    loc = rb"<loc>" + space + rb"((?!<)" + word + rb")" + space + rb"</loc>" + space
    lastmod = rb"<lastmod>" + space + rb"(%b{0,%d}+)" % (ascii_word, MAX_LASTMOD) + space + rb"</lastmod>" + space
    block = rb"<url>" + space + loc + other + rb"(?:" + lastmod + other + rb")?"
    return re.compile(space + block + _END + rb"|(?s:.+)")


def _repeat(characters: bytes, *, most: int | None = None) -> bytes:
    """Any number of these characters and of references. `most`: of the characters before the first reference."""
    first = b"*+" if most is None else b"{0,%d}+" % most
    return characters + first + b"(?:" + _REFERENCE + characters + b"*+)*+"


class FastXmlBody(XmlBody):
    """Equal to `XmlBody` for every input, and faster for plain sitemaps."""

    def __init__(self) -> None:
        super().__init__()
        self._tail = b""
        self._between = False
        self._stride = 0
        # Whether the piece at hand is ASCII, and whether it is valid UTF-8 up to its last end tag.
        self._is_ascii = self._is_text = True

    def read(self, data: bytes) -> None:
        data = self._tail + data
        self._is_ascii = data.isascii()
        self._is_text = self._is_ascii or _is_utf8(data[: data.rfind(_END) + len(_END)])
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
        last = data.rfind(_END, position) + len(_END)
        if last < len(_END) or not self._is_text:
            return position
        pairs: list[Pair] = _compile_plain().findall(data, position, last)
        end = last
        if not pairs[-1][0]:
            del pairs[-1]
            end = _find_rest(data, position, last)
        self.skimmed += len(pairs)
        self._stride = 0 if pairs else min(2 * self._stride + _FIRST_STRIDE, _MAX_STRIDE)
        self._skipped += end - position
        if pairs and (data.find(b"&", position, end) >= 0 or not self._is_ascii):
            pairs = self._resolve(pairs)
        self._pairs += pairs
        return end

    def _resolve(self, pairs: list[Pair]) -> list[Pair]:
        """Replace the references, and drop URLs that are too long or empty."""
        locs, lastmods = zip(*pairs, strict=True)
        # All at once: no URL of the pattern has a line end.
        joined = b"\n".join(locs)
        replaced = joined.replace(b"&amp;", b"&")
        if self._is_ascii and len(joined) - len(replaced) == len(b"amp;") * replaced.count(b"&"):
            # `&amp;` is the only reference.
            locs = tuple(replaced.split(b"\n"))
        else:
            locs = tuple(map(_decode_text, locs))
        pairs = list(zip(locs, lastmods, strict=True))
        if all(locs) and max(map(len, locs)) <= MAX_LOC:
            return pairs
        self.too_long += sum(map(_is_too_long, locs))
        return [pair for pair in pairs if pair[0] and not _is_too_long(pair[0])]

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


def _find_rest(data: bytes, position: int, last: int) -> int:
    """Where the plain blocks from `position` on end."""
    return next(block.start() for block in _compile_plain().finditer(data, position, last) if not block[1])


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode_text(text: bytes) -> bytes:
    """What the parser would make of a text: references replaced, white space of any alphabet removed at both ends."""
    return html.unescape(text.decode()).strip().encode()


def _is_too_long(loc: bytes) -> bool:
    """Counted in characters, of which a byte is one at the most."""
    return len(loc) > MAX_LOC and len(loc.decode()) > MAX_LOC
