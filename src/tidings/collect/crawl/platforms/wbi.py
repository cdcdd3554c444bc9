"""Bilibili's WBI signature: two keys, which are the names of two images and change daily, are shuffled into one, and
the MD5 of the sorted query with that key behind it goes along as `w_rid`. Pure; `bilibili` fetches the keys.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlsplit

# Which character of both keys, one after the other, comes first, second and so on; the web client uses 32 of them.
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
        """From the addresses of the two images; None where they are not what they should be."""
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
    """The name of the file, without its ending."""
    try:
        return urlsplit(url).path.rpartition("/")[2].partition(".")[0]
    except ValueError:
        return ""


def _escape(text: str) -> str:
    return quote(text, safe="")
