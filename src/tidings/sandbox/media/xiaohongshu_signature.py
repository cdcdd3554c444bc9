"""Reads Xiaohongshu's request signature `x-s`: which request it was made for. Layout and constants are those of the web
client. This module cannot make a signature.

    XYS_ base64(JSON{x0…x4}), x3 = mns0301_ base64(144 bytes, masked), both with alphabets of their own; the bytes are
    version 4 · seed 4 · time 8 · other 16 · length 4 · digest 8 (masked with the seed) · 52 · a1 52 · 10 · app 10 · …
"""

import base64
import binascii
import hashlib
import json
import string
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_STANDARD = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_OUTER = str.maketrans("ZmserbBoHQtNP+wOcza/LpngG8yJq42KWYj0DSfdikx3VT16IlUAFM97hECvuRX5", _STANDARD)
_INNER = str.maketrans("MfgqrsbcyzPQRStuvC7mn501HIJBo2DEFTKdeNOwxWXYZap89+/A4UVLhijkl63G", _STANDARD)
_MASK = bytes.fromhex(
    "71a302257793271ddd273bcee3e4b98d9d7935e1da33f5765e2ea8afb6dc77a51a499d23b67c20660025860cbf13d454"
    "0d92497f58686c574e508f46e1956344f39139bf4faf22a3eef120b79258145b2feb5193b6478669961298e79bedca64"
    "6e1a693a926154a5a7a1bd1c"
)
_VERSION = bytes([121, 104, 96, 41])
_LENGTH = 144
_APP = "xhs-pc-web"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 10**14


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The request that a signature was made for."""

    # Milliseconds since the epoch.
    milliseconds: int
    # Bytes of path and body.
    length: int
    # The first 8 bytes of the MD5 of path and body.
    digest: bytes
    # The cookie a1, up to 52 characters.
    a1: str = field(repr=False)

    @property
    def at(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=min(self.milliseconds, _LATEST))

    def fits(self, *, path: str, body: bytes, a1: str) -> bool:
        content = path.encode() + body
        digest = hashlib.md5(content, usedforsecurity=False).digest()[:8]
        return (self.length, self.digest, self.a1) == (len(content), digest, a1[:52])


def read_signature(text: str) -> SignedRequest | None:
    """The content of a signature. None for another layout."""
    try:
        outer = json.loads(base64.b64decode(text.removeprefix("XYS_").translate(_OUTER), validate=True))
        if outer["x1"] != _APP or not text.startswith("XYS_") or not outer["x3"].startswith("mns0301_"):
            return None
        masked = base64.b64decode(outer["x3"].removeprefix("mns0301_").translate(_INNER), validate=True)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None
    return _read_bytes(masked) if len(masked) == _LENGTH else None


def _read_bytes(masked: bytes) -> SignedRequest | None:
    plain = bytes(letter ^ mask for letter, mask in zip(masked, _MASK, strict=False))
    if plain[:4] != _VERSION or plain[44] != 52 or plain[98:108] != _APP.encode():
        return None
    seed = plain[4]
    return SignedRequest(
        milliseconds=int.from_bytes(plain[8:16], "little"),
        length=int.from_bytes(plain[32:36], "little"),
        digest=bytes(letter ^ seed for letter in plain[36:44]),
        a1=plain[45:97].rstrip(b"\0").decode("ascii", "replace"),
    )
