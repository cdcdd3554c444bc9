"""The redactor replaces known secrets in any text and any encoding, and text that looks like a secret (`patterns`). It
knows nothing of logging: every text that leaves the program can go through it.

Known secrets are found through an index of four-letter pieces, not by one regular expression: Python's alternation
tries every branch at every position, so its cost grows with the number of secrets. The index holds the pieces that
begin at the first few places of a secret, as many as the stride is long. Wherever a secret stands, one of these pieces
falls on a multiple of the stride. So only those positions of the text are looked up, for any number of secrets.
"""

import base64
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from tidings.core.secrets.escapes import ESCAPE, locate_origins, unescape
from tidings.core.secrets.patterns import MARKER, redact_patterns
from tidings.core.secrets.secret import Secret

_SHORTEST: Final = 6
_SHORTEST_COOKIE_PART: Final = 16
_PIECE: Final = 4
_LONGEST_STRIDE: Final = 8
_LEVELS: Final = 4
_PASSES: Final = 8

_Span = tuple[int, int]


class Redactor:
    """Replaces known secrets in text. Thread-safe.

    `redact` is idempotent. Secrets of fewer than 6 characters are ignored: they would destroy ordinary text.
    """

    def __init__(self, secrets: Iterable[Secret | str] = ()) -> None:
        self._index: dict[str, tuple[tuple[int, str], ...]] = {}
        self._stride = _LONGEST_STRIDE
        self._added: set[str] = set()
        self._lock = threading.Lock()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: Secret | str) -> None:
        """Register a secret. For a cookie header, register its long values, too."""
        text = secret.reveal() if isinstance(secret, Secret) else secret
        if text in self._added:
            return
        with self._lock:
            for value in (text, *_split_cookies(text)):
                for form in _spell_secret(value):
                    self._index_form(form)
            self._added.add(text)

    def redact(self, text: str) -> str:
        """The text with every known secret, and all that looks like one, replaced by `***REDACTED***`."""
        # A replacement may join two parts of the text into something that looks like a secret.
        for _ in range(_PASSES):
            before, text = text, redact_patterns(self._redact_known(text))
            if text == before:
                break
        return text

    def recognises(self, text: str) -> bool:
        """Whether the text holds a known secret in any spelling. A text that only looks like one does not count."""
        return next(self._find_spans(text), None) is not None

    def _index_form(self, form: str) -> None:
        # Readers look up without the lock: an entry is replaced whole, and a shorter stride only leaves some unused.
        self._stride = min(self._stride, len(form) - _PIECE + 1)
        for offset in range(self._stride):
            piece = form[offset : offset + _PIECE]
            entries = self._index.get(piece, ())
            if (offset, form) not in entries:
                self._index[piece] = (*entries, (offset, form))

    def _redact_known(self, text: str) -> str:
        if not self._index:
            return text
        spans = list(self._find_spans(text))
        return _replace_spans(text, spans) if spans else text

    def _find_spans(self, text: str) -> Iterator[_Span]:
        """Where secrets stand in the text, in clear or behind up to four levels of escapes."""
        yield from self._match(text)
        views = [text]
        while len(views) <= _LEVELS and ("%" in views[-1] or "\\" in views[-1]):
            view = unescape(views[-1])
            if view == views[-1]:
                return
            if found := self._match(view):
                origins = _compose_origins(views)
                yield from ((origins[start], origins[end]) for start, end in found)
            views.append(view)

    def _match(self, text: str) -> list[_Span]:
        index, stride = self._index, self._stride
        pieces = [text[at : at + _PIECE] for at in range(0, len(text) - _PIECE + 1, stride)]
        if index.keys().isdisjoint(pieces):
            return []
        spans = []
        for number, piece in enumerate(pieces):
            for offset, form in index.get(piece, ()):
                start = number * stride - offset
                if start >= 0 and text.startswith(form, start):
                    spans.append((start, start + len(form)))
        return spans


def _split_cookies(text: str) -> list[str]:
    """The values of a cookie header that are long enough to be secrets; none for any other text."""
    pairs = [pair.strip().partition("=") for pair in text.split(";")]
    return [value for _, equals, value in pairs if equals and len(value) >= _SHORTEST_COOKIE_PART]


def _spell_secret(text: str) -> set[str]:
    """Every encoding to search for, except escapes: the text and the secret are unescaped instead."""
    if len(text) < _SHORTEST:
        return set()
    clear = {text, _unescape_fully(text)}
    clear |= {form.replace(" ", "+") for form in clear}
    data = text.encode("utf-8", "surrogatepass")
    forms = clear | {data.hex(), data.hex().upper(), *_spell_base64(data)}
    return {form for form in forms if len(form) >= _SHORTEST}


def _spell_base64(data: bytes) -> Iterator[str]:
    """The characters of a larger base64 text that depend on these bytes alone, at each of the three alignments."""
    for before in range(3):
        padded = base64.b64encode(bytes(before) + data + bytes(2)).decode()
        first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
        core = padded[first:last]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _unescape_fully(text: str) -> str:
    for _ in range(_LEVELS):
        text = unescape(text)
    return text


def _compose_origins(views: list[str]) -> list[int]:
    """Map positions in the next view to positions in the first one."""
    origins = locate_origins(views[0])
    for view in views[1:]:
        origins = [origins[place] for place in locate_origins(view)]
    return origins


def _replace_spans(text: str, spans: list[_Span]) -> str:
    pieces, position = [], 0
    for start, end in _merge_spans(_widen_spans(text, spans)):
        pieces += [text[position:start], MARKER]
        position = end
    return "".join(pieces) + text[position:]


def _widen_spans(text: str, spans: list[_Span]) -> Iterator[_Span]:
    """Widen spans so that they do not split an escape, which could break a JSON string, and keep earlier markers
    whole."""
    escapes = [match.span() for match in ESCAPE.finditer(text)]
    inside = {place: escape for escape in escapes for place in range(escape[0] + 1, escape[1])}
    markers = [match.span() for match in re.finditer(re.escape(MARKER), text)]
    for start, end in spans:
        if any(start < marker_end and marker_start < end for marker_start, marker_end in markers):
            continue
        yield inside.get(start, (start, end))[0], inside.get(end, (start, end))[1]


def _merge_spans(spans: Iterable[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
