"""The search for a secret in all that was written or shown, in every spelling in which it could get out."""

import base64
import json
from urllib.parse import quote

# A secret that is cut somewhere is a leak too; the four characters of a hint are none.
PIECE = 12


def spell(secret: str) -> dict[str, str]:
    """Every spelling in which it could get out, by name."""
    raw = secret.encode()
    once = quote(secret, safe="")
    forms = {
        "clear": secret,
        "URL-encoded": once,
        "URL-encoded, small": "".join(char if char.isalnum() else f"%{ord(char):02x}" for char in secret),
        "URL-encoded twice": quote(once, safe=""),
        "JSON": json.dumps(secret)[1:-1],
        "JSON, slashes": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "JSON, code points": "".join(char if char.isalnum() else f"\\u{ord(char):04x}" for char in secret),
        "JSON, code points, large": "".join(char if char.isalnum() else f"\\u{ord(char):04X}" for char in secret),
        "repr": repr(secret)[1:-1],
        "hex": raw.hex(),
        "hex, large": raw.hex().upper(),
    }
    for before in range(3):
        whole = base64.b64encode(bytes(before) + raw + bytes(2)).decode()
        core = whole[-(-8 * before // 6) : 8 * (before + len(raw)) // 6]
        forms[f"base64, {before}"] = core
        forms[f"base64 for URLs, {before}"] = core.replace("+", "-").replace("/", "_")
    return forms


def find_traces(shown: str | bytes, secret: str) -> set[str]:
    """The spellings in which the secret, or a piece of it, stands in there."""
    data = shown.encode("utf-8", "surrogatepass") if isinstance(shown, str) else shown
    pieces = [secret[start : start + PIECE] for start in range(len(secret) - PIECE + 1)]
    return {name for piece in pieces for name, form in spell(piece).items() if form.encode() in data}
