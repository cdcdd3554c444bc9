"""Characters written in another way, and back. One half undoes percent, JSON and repr escapes, so that `redaction`
finds a secret in any spelling. The other half escapes what would let a logged value break or disguise a line.
"""

import re
from functools import lru_cache
from typing import Final

# Every match means exactly one character; locate_origins relies on it.
ESCAPE: Final = re.compile(
    r"%[0-7][0-9A-Fa-f]"
    r"|%[C-Fc-f][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){1,3}"
    r"|\\u[dD][89ABab][0-9A-Fa-f]{2}\\u[dD][C-Fc-f][0-9A-Fa-f]{2}"
    r"|\\u[0-9A-Fa-f]{4}"
    r"|\\U00[01][0-9A-Fa-f]{5}"
    r"|\\x[C-Fc-f][0-9A-Fa-f](?:\\x[89ABab][0-9A-Fa-f]){1,3}"
    r"|\\x[0-9A-Fa-f]{2}"
    r"|\\.",
    re.DOTALL,
)
_CONTROL_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
# C0, DEL, C1, line and paragraph separators, marks and overrides of direction, byte order mark, lone surrogates.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_UNSAFE_IN_BLOCK: Final = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def unescape(text: str) -> str:
    """The text with each escape of any kind replaced by its character; one level only."""
    return ESCAPE.sub(lambda match: _decode(match[0]), text)


def locate_origins(text: str) -> list[int]:
    """For each character of `unescape(text)`, and for its end, where it begins in the text."""
    starts: list[int] = []
    position = 0
    for match in ESCAPE.finditer(text):
        starts.extend(range(position, match.start() + 1))
        position = match.end()
    starts.extend(range(position, len(text) + 1))
    return starts


@lru_cache(maxsize=4096)
def _decode(escape: str) -> str:
    kind, digits = escape[1], escape[2:]
    if escape[0] == "%":
        return _decode_utf8(escape.replace("%", ""))
    if kind == "x" and digits:
        return _decode_utf8(escape.replace("\\x", ""))
    if kind == "u" and digits:
        units = bytes.fromhex(escape.replace("\\u", ""))
        return units.decode("utf-16-be", "surrogatepass")
    if kind == "U" and digits:
        return chr(min(int(digits, 16), 0x10FFFF))
    return _CONTROL_LETTERS.get(kind, kind)


def _decode_utf8(digits: str) -> str:
    data = bytes.fromhex(digits)
    if len(data) == 1:
        return chr(data[0])
    text = data.decode("utf-8", "replace")
    return text if len(text) == 1 else "\ufffd"


def escape_controls(text: str) -> str:
    """The text on one line and without characters that a terminal obeys, written as in Python: `\\n`, `\\x1b`."""
    return _UNSAFE.sub(_spell_character, text)


def escape_controls_in_block(text: str) -> str:
    """The same for text that has lines of its own, such as a traceback: newline and tab stay."""
    return _UNSAFE_IN_BLOCK.sub(_spell_character, text)


def escape_controls_in_json(text: str) -> str:
    """The same for a JSON document without line breaks: only its strings can hold such characters."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _spell_character(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
