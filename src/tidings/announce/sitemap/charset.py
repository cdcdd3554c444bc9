"""Decodes the body of a sitemap to UTF-8: byte order marks, UTF-16, and the encoding of an XML declaration. The result
starts with the first character that is not white space.
"""

import codecs
import re

from tidings.announce.sitemap.body import RefusedSitemapError

# Long enough for any declaration, and shorter than the first piece of a response.
_HEAD = 1_024
# Possessive, because backtracking would take a hundred bytes of memory for each byte of text.
_LEADING = re.compile(rb"(?:[ \t\r\n]++|\xef\xbb\xbf)++")
_DECLARED = re.compile(rb"<\?xml[^>]*?[ \t\r\n]encoding[ \t\r\n]*=[ \t\r\n]*[\"']([A-Za-z0-9._:-]{1,40})[\"']")

# An allowlist, because Python also has codecs that decompress (zlib, bz2) or are no charset.
_TRANSCODED = frozenset(
    [f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))]
    + [f"cp{page}" for page in (437, 850, 852, 855, 866, 874, 932, 949, 950, *range(1250, 1259))]
    + ["big5", "big5hkscs", "gb18030", "euc_jp", "euc_jis_2004", "iso2022_jp", "johab"]
    + ["koi8-r", "koi8-u", "mac-cyrillic", "mac-roman", "tis-620"]
)
# Files that declare the smaller charset are often written in the larger one, which contains it.
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}
# A declaration that is readable as bytes is not UTF-16, whatever it declares (.NET's StringWriter does that).
_READ_AS_UTF8 = frozenset({"utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be"})


class Utf8Decoder:
    """Decodes a body piece by piece. After a `fault`, which is the reason, it gives nothing more."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self._head = b""
        self._opened = False
        self._begun = False
        self._name = ""
        self._codec: codecs.IncrementalDecoder | None = None

    def decode(self, data: bytes, *, final: bool = False) -> bytes:
        """The decoded text so far. Raises RefusedSitemapError for an unknown encoding."""
        if not self._opened:
            self._head = self._strip(self._head + data)
            if len(self._head) < _HEAD and not final:
                return b""
            data = self._open_codec()
        text = self._transcode(data, final=final)
        if not self._begun:
            text = _strip_leading(text)
            self._begun = bool(text)
        return text

    def _strip(self, head: bytes) -> bytes:
        return head if _guess_utf16(head) else _strip_leading(head)

    def _open_codec(self) -> bytes:
        head, self._head, self._opened = self._head, b"", True
        self._name = _guess_utf16(head) or _find_declared(head) or ""
        if self._name:
            self._codec = codecs.getincrementaldecoder(self._name)()
        return head

    def _transcode(self, data: bytes, *, final: bool) -> bytes:
        if self._codec is None:
            return data
        if self.fault is not None:
            return b""
        try:
            return self._codec.decode(data, final).encode()
        except UnicodeDecodeError as error:
            self.fault = f"not valid {self._name}: {error.reason}"
            # The text before the bad byte is valid. A stateful charset may lose its last piece here.
            return error.object[: error.start].decode(self._name, "ignore").encode()


def _guess_utf16(head: bytes) -> str | None:
    if head.startswith(codecs.BOM_UTF16_LE) or (len(head) > 1 and head[0] and not head[1]):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE) or (len(head) > 1 and head[1] and not head[0]):
        return "utf-16-be"
    return None


def _find_declared(head: bytes) -> str | None:
    declared = _DECLARED.match(head)
    if declared is None:
        return None
    label = declared[1].decode()
    try:
        name = codecs.lookup(label).name
    except LookupError:
        name = ""
    if name in _READ_AS_UTF8:
        return None
    name = _WIDER.get(name, name)
    if name not in _TRANSCODED:
        raise RefusedSitemapError(f"encoding {label!r} is not known")
    return name


def _strip_leading(text: bytes) -> bytes:
    leading = _LEADING.match(text)
    return text[leading.end() :] if leading else text
