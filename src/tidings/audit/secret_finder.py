"""Finds secrets in bytes: known ones in every spelling, and text that looks like a cookie or an API token. Independent
of the redactor on purpose, so that the audit finds errors of the redactor.

Known secrets are found through an index of four-byte words. One of the first four words of a spelling lies on a
multiple of four in the data, so one lookup per word finds any number of secrets.
"""

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import quote, quote_plus, unquote

from tidings.core.secrets.patterns import MARKER
from tidings.core.secrets.secret import Secret

_SHORTEST: Final = 8
_SHORTEST_PART: Final = 16
_LONGEST_WHOLE: Final = 64
_PIECE: Final = 48
_WORD: Final = 4

# Any value of these is a secret. The other names are so short that they occur by chance.
_LONG_NAMES: Final = (
    b"web_session", b"sessdata", b"bili_jct", b"dedeuserid__ckmd5", b"ac_time_value", b"websectiga", b"sec_poison_id",
)  # fmt: skip
_SHORT_NAMES: Final = (b"a1", b"SUB", b"SUBP", b"SCF")
_EQUALS: Final = rb"(?:=|%(?:25)*3[Dd]|\\+u003[Dd])"
# The forms in which browsers export cookies: JSON by name, JSON with separate name and value, tab-separated.
_EXPORTED: Final = rb"[\\\"']*(?:\t|\s*(?:,[^{}]{0,300}?[\"']value[\\\"']*\s*)?:\s*)"
_VALUE: Final = rb"(?P<value>[A-Za-z0-9%_.~+/-]{16,4096})"
_UNMARKED: Final = re.compile(_EQUALS + rb"(?!" + re.escape(MARKER.encode()) + rb")")
_REAL: Final = re.compile(rb"(?:" + _EQUALS + rb"|" + _EXPORTED + rb")[\\\"']*" + _VALUE)
_REAL_PAIR: Final = re.compile(_EQUALS + rb"[\\\"']*" + _VALUE)
_NAME_CHARACTER: Final = re.compile(rb"[A-Za-z0-9_-]")
_TOKEN: Final = re.compile(rb"tid_(?P<value>[A-Za-z0-9_-]{43})(?![A-Za-z0-9_-])")


@dataclass(frozen=True, slots=True)
class KnownSecret:
    """A secret of this installation."""

    # What it is, for a finding: `TIDINGS_TOKEN`.
    what: str
    # Texts of fewer than 8 characters are not searched for, because they occur everywhere.
    value: Secret
    # An IndexNow key is published on purpose, in a file of its name.
    published: bool = False


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """A place in the data where a secret, or text that looks like one, begins."""

    # Bytes from the start of the data.
    position: int
    what: str


class Patterns(Enum):
    """Which unknown text counts as a secret."""

    # For what Tidings writes: after a well-known cookie's name and `=`, only the redaction is allowed.
    STRICT = auto()
    # For what people write: after such a name, no value that looks real is allowed.
    REALISTIC = auto()
    # For other people's text: only known secrets count.
    NONE = auto()


def split_cookie(what: str, cookie: Secret) -> list[KnownSecret]:
    """The random-looking values of a cookie header, each a secret of its own; the whole header where there is none."""
    values = [value.strip() for _, _, value in (pair.partition("=") for pair in cookie.reveal().split(";"))]
    parts = [value for value in values if len(value) >= _SHORTEST_PART and looks_random(value.encode())]
    return [KnownSecret(what, Secret(part)) for part in parts] or [KnownSecret(what, cookie)]


def looks_random(value: bytes) -> bool:
    """Whether this could be a real cookie: not a word, an example or one of the sandbox's."""
    letters, digits = re.search(rb"[A-Za-z]", value), re.search(rb"[0-9]", value)
    return bool(letters and digits) and len(set(value)) >= _SHORTEST and b"sandbox" not in value.lower()


class SecretFinder:
    """Finds the given secrets, and text that looks like one."""

    def __init__(self, secrets: Iterable[KnownSecret]) -> None:
        self._index: dict[int, tuple[tuple[int, bytes, str], ...]] = {}
        for secret in secrets:
            for form, spelling in _spell_secret(secret.value.reveal()).items():
                self._index_form(form, secret.what + spelling)

    def find(self, data: bytes, *, patterns: Patterns) -> Iterator[FoundSecret]:
        """Every secret in the data."""
        yield from self._find_known(data)
        if patterns is not Patterns.NONE:
            yield from _find_cookies(data, strict=patterns is Patterns.STRICT)
            yield from _find_tokens(data)

    def _index_form(self, form: bytes, what: str) -> None:
        for offset in range(_WORD):
            word = int.from_bytes(form[offset : offset + _WORD], sys.byteorder)
            self._index[word] = (*self._index.get(word, ()), (offset, form, what))

    def _find_known(self, data: bytes) -> Iterator[FoundSecret]:
        words = memoryview(data + bytes(-len(data) % _WORD)).cast("I")
        if self._index.keys().isdisjoint(words):
            return
        for number, word in enumerate(words):
            for offset, form, what in self._index.get(word, ()):
                position = number * _WORD - offset
                if position >= 0 and data.startswith(form, position):
                    yield FoundSecret(position, what)


def _find_cookies(data: bytes, *, strict: bool) -> Iterator[FoundSecret]:
    lowered = data.lower()
    for name in _LONG_NAMES:
        for position in _find_all(lowered, name):
            after = position + len(name)
            if (strict and _UNMARKED.match(data, after)) or _is_real(_REAL.match(data, after)):
                yield FoundSecret(position, f"a cookie of the name {name.decode()}")
    for name in _SHORT_NAMES:
        for position in _find_all(data, name):
            begins = position == 0 or not _NAME_CHARACTER.match(data, position - 1)
            if begins and _is_real(_REAL_PAIR.match(data, position + len(name))):
                yield FoundSecret(position, f"a cookie of the name {name.decode()}")


def _find_tokens(data: bytes) -> Iterator[FoundSecret]:
    for position in _find_all(data, b"tid_"):
        if _is_real(_TOKEN.match(data, position)):
            yield FoundSecret(position, "a token of this API")


def _is_real(match: re.Match[bytes] | None) -> bool:
    return match is not None and looks_random(match["value"])


def _find_all(data: bytes, wanted: bytes) -> Iterator[int]:
    position = data.find(wanted)
    while position >= 0:
        yield position
        position = data.find(wanted, position + 1)


def _spell_secret(text: str) -> dict[bytes, str]:
    """Every spelling to search for, with the words that name it in a finding."""
    if len(text) < _SHORTEST:
        return {}
    forms: dict[bytes, str] = {}
    for piece in _cut_long(text):
        data = piece.encode("utf-8", "surrogatepass")
        forms |= dict.fromkeys((data.hex().encode(), data.hex().upper().encode()), ", as hexadecimal")
        forms |= dict.fromkeys(_spell_base64(data), ", as base64")
        forms |= dict.fromkeys(_spell_url(piece), ", URL-encoded")
        forms |= dict.fromkeys((json.dumps(piece)[1:-1].encode(), piece.replace("/", "\\/").encode()), ", as JSON")
        forms |= {unquote(piece).encode("utf-8", "surrogatepass"): "", data: ""}
    return {form: spelling for form, spelling in forms.items() if len(form) >= _SHORTEST}


def _cut_long(text: str) -> list[str]:
    """The beginning and the end of a long text, because SQLite splits a long value over pages that may lie apart."""
    return [text] if len(text) <= _LONGEST_WHOLE or "://" in text else [text[:_PIECE], text[-_PIECE:]]


def _spell_base64(data: bytes) -> Iterator[bytes]:
    """The characters of a larger base64 text that depend on these bytes alone, at each of the three alignments."""
    for before in range(3):
        padded = base64.b64encode(bytes(before) + data + bytes(2))
        core = padded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield core
        yield core.replace(b"+", b"-").replace(b"/", b"_")


def _spell_url(text: str) -> Iterator[bytes]:
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    for encoded in (quote(text), quote(text, safe=""), quote_plus(text), quote(quote(text, safe=""))):
        yield encoded.encode()
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), encoded).encode()
