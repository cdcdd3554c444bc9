"""Decodes the body of a sitemap to UTF-8: byte order marks, UTF-16, and the encoding of an XML declaration. The result
starts with the first character that is not white space.
"""

import codecs
import re

from tidings.announce.sitemap.body import RefusedSitemapError
from tidings.core.charsets import find_charset, guess_utf16

# Long enough for any declaration, and shorter than the first piece of a response.
_HEAD = 1_024
# Possessive, because backtracking would take a hundred bytes of memory for each byte of text.
_LEADING = re.compile(rb"(?:[ \t\r\n]++|\xef\xbb\xbf)++")
_DECLARED = re.compile(rb"<\?xml[^>]*?[ \t\r\n]encoding[ \t\r\n]*=[ \t\r\n]*[\"']([A-Za-z0-9._:-]{1,40})[\"']")

# A declaration that is readable as bytes is not UTF-16, even if it says so (.NET's StringWriter does that).
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
        return head if guess_utf16(head) else _strip_leading(head)

    def _open_codec(self) -> bytes:
        head, self._head, self._opened = self._head, b"", True
        self._name = guess_utf16(head) or _find_declared(head) or ""
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


def _find_declared(head: bytes) -> str | None:
    declared = _DECLARED.match(head)
    if declared is None:
        return None
    label = declared[1].decode()
    name = find_charset(label)
    if name is None:
        raise RefusedSitemapError(f"encoding {label!r} is not known")
    return None if name in _READ_AS_UTF8 else name


def _strip_leading(text: bytes) -> bytes:
    leading = _LEADING.match(text)
    return text[leading.end() :] if leading else text
