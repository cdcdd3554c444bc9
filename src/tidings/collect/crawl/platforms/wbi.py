"""Bilibili's WBI signature. Two keys, the names of two images that change daily, are shuffled into one. `w_rid` is the
MD5 of the sorted query followed by that key. Pure; `bilibili` fetches the keys.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlsplit

# The order of the characters of both keys together; the web client uses the first 32.
_ORDER: Final = (
    *(46, 47, 18, 2, 53, 8, 23, 32, 15, 50, 10, 31, 58, 3, 45, 35),
    *(27, 43, 5, 49, 33, 9, 42, 19, 29, 28, 14, 39, 12, 38, 41, 13),
)
_KEY_LENGTH: Final = 32
_LEFT_OUT: Final = str.maketrans("", "", "!'()*")


@dataclass(frozen=True, slots=True)
class WbiKey:
    """The shuffled key."""

    mixed: str = field(repr=False)

    @classmethod
    def from_images(cls, img_url: str, sub_url: str) -> "WbiKey | None":
        """The key from the URLs of the two images; None if they are not valid."""
        both = _read_name(img_url) + _read_name(sub_url)
        if len(both) != 2 * _KEY_LENGTH:
            return None
        return cls("".join(both[place] for place in _ORDER))

    def sign(self, parameters: Mapping[str, str], *, at: datetime) -> str:
        """The query for these parameters, signed."""
        values = {**parameters, "wts": str(int(at.timestamp()))}
        query = "&".join(f"{_escape(name)}={_escape(values[name].translate(_LEFT_OUT))}" for name in sorted(values))
        digest = hashlib.md5((query + self.mixed).encode(), usedforsecurity=False).hexdigest()
        return f"{query}&w_rid={digest}"


def _read_name(url: str) -> str:
    """The file name without its extension."""
    try:
        return urlsplit(url).path.rpartition("/")[2].partition(".")[0]
    except ValueError:
        return ""


def _escape(text: str) -> str:
    return quote(text, safe="")
