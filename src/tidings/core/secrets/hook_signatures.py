"""Signatures of deploy hooks, as GitHub and Netlify write them. Pure; every comparison takes constant time."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

from tidings.core.secrets.secret import Secret

GITHUB_HEADER: Final = "x-hub-signature-256"
NETLIFY_HEADER: Final = "x-webhook-signature"

_LONGEST: Final = 2_048


def find_signature(headers: Mapping[str, str]) -> str | None:
    """The signature of a request from either service; None if there is none."""
    found = headers.get(GITHUB_HEADER) or headers.get(NETLIFY_HEADER)
    return found if found and len(found) <= _LONGEST else None


def is_signed(headers: Mapping[str, str], body: bytes, *, secret: Secret) -> bool:
    """Whether this secret signed the body. `headers` are by name in lower case."""
    key = secret.reveal().encode()
    if github := headers.get(GITHUB_HEADER):
        return hmac.compare_digest(github.encode(), f"sha256={hmac.digest(key, body, hashlib.sha256).hex()}".encode())
    return _is_signed_by_netlify(headers.get(NETLIFY_HEADER, ""), body, key=key)


def _is_signed_by_netlify(token: str, body: bytes, *, key: bytes) -> bool:
    """A JWS whose payload holds the body's SHA-256. Every algorithm but HS256 is refused, in particular `none`."""
    signed, _, signature = token.rpartition(".")
    head, _, payload = signed.partition(".")
    expected = base64.urlsafe_b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).rstrip(b"=")
    if not hmac.compare_digest(signature.encode(), expected):
        return False
    named = _read_part(payload).get("sha256")
    digest = hashlib.sha256(body).hexdigest()
    is_body = isinstance(named, str) and hmac.compare_digest(named.lower().encode(), digest.encode())
    return is_body and _read_part(head).get("alg") == "HS256" and _read_part(payload).get("iss") == "netlify"


def _read_part(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
