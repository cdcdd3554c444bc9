"""Reads a cookie in the forms that users can copy: a Cookie header, a cookies.txt file, or a request that the browser
copied as cURL, for bash or cmd. Pure. No message repeats a part of the input.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from tidings.core.clock import from_milliseconds
from tidings.core.secrets.secret import Secret

_LONGEST: Final = 16_384
_LONGEST_AGENT: Final = 512
_UNFIT: Final = re.compile(r"[^\x20-\x7e]")
_PAIR: Final = re.compile(r"[^\s=;,]+=[^;]*")
_HEADER_NAME: Final = re.compile(r"cookie\s*:", re.IGNORECASE)
_CURL: Final = re.compile(r"\s*curl(?:\.exe)?\s", re.IGNORECASE)
# In cmd, a caret escapes the next character, and joins two lines at the end of a line.
_CARET: Final = re.compile(r"\^(\r?\n|.)", re.DOTALL)
_BASH_LINE: Final = re.compile(r"\\\r?\n")
# Bash's $'…' with its escapes; browsers write it when a value holds a quote or an exclamation mark.
_ANSI: Final = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ANSI_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_COOKIE_OPTIONS: Final = ("-b", "--cookie")
_HEADER_OPTIONS: Final = ("-H", "--header")
_AGENT_OPTIONS: Final = ("-A", "--user-agent")
_FILE_FIELDS: Final = 7
_HTTP_ONLY: Final = "#HttpOnly_"

# The domain whose cookies a platform's requests carry. Weibo's mobile site has sessions of its own.
DOMAINS: Final = {"bilibili": "bilibili.com", "weibo": "weibo.cn", "xiaohongshu": "xiaohongshu.com"}
# Without these cookies a platform treats a request as not logged in.
NEEDED: Final = {"bilibili": ("SESSDATA",), "weibo": ("SUB",), "xiaohongshu": ("web_session", "a1")}


class CookieError(ValueError):
    """A cookie breaks a rule. The message names the rule and never repeats the cookie."""


@dataclass(frozen=True, slots=True)
class PastedCookie:
    """A cookie as it was pasted."""

    # The value of the Cookie header.
    secret: Secret
    # The User-Agent of the browser that it came from; None if the input does not say.
    user_agent: str | None = None
    # The latest end of the session; None if unknown. It may end earlier.
    expires_at: datetime | None = None


def read_pasted(pasted: Secret, *, platform: str) -> PastedCookie:
    """Read a cookie in any of the forms. Raises CookieError."""
    text = pasted.reveal().strip().lstrip("\ufeff") if pasted else ""
    if _CURL.match(text):
        header, agent = _read_curl(text)
        expires = None
    elif (rows := _read_file(text)) is not None:
        header, expires = _join_rows(rows, platform=platform)
        agent = None
    else:
        header, agent, expires = _HEADER_NAME.sub("", text, count=1).strip(), None, None
    secret = Secret(_check_header(header))
    return PastedCookie(secret, check_agent(agent), _find_expiry(platform, header) or expires)


def list_missing(platform: str, secret: Secret) -> list[str]:
    """The names of cookies that the platform needs and this header lacks."""
    names = set(split_header(secret.reveal()))
    return [name for name in NEEDED.get(platform, ()) if name not in names]


def check_agent(agent: str | None) -> str | None:
    """A User-Agent that can be sent. Raises CookieError."""
    agent = (agent or "").strip()
    if len(agent) > _LONGEST_AGENT or _UNFIT.search(agent):
        raise CookieError(f"the User-Agent must be at most {_LONGEST_AGENT} printable ASCII characters")
    return agent or None


def _check_header(text: str) -> str:
    if _UNFIT.search(text):
        raise CookieError("the cookie must be one line of printable ASCII characters")
    if not 1 <= len(text) <= _LONGEST or not any(_PAIR.fullmatch(part.strip()) for part in text.split(";")):
        raise CookieError(
            f"the cookie must be name=value pairs with ; between them, {_LONGEST:,} characters at most; "
            'or a cookies.txt file; or a request that the browser copied "as cURL"'
        )
    return text


def _read_curl(text: str) -> tuple[str, str | None]:
    """The Cookie header and the User-Agent of a copied command."""
    header, agent = "", None
    for option, value in _pair_options(_split_command(text)):
        name, _, rest = value.partition(":")
        if option in _COOKIE_OPTIONS:
            header = value
        elif option in _AGENT_OPTIONS:
            agent = value
        elif name.strip().lower() == "cookie":
            header = rest.strip()
        elif name.strip().lower() == "user-agent":
            agent = rest.strip()
    if not header:
        raise CookieError(
            "the copied request carries no cookie: copy one that the platform's own page sent while you were logged in"
        )
    return header, agent


def _split_command(text: str) -> list[str]:
    is_cmd = '^"' in text or re.search(r"\^\r?\n", text) is not None
    plain = _CARET.sub(_drop_caret, text) if is_cmd else _ANSI.sub(_quote_ansi, _BASH_LINE.sub(" ", text))
    try:
        return shlex.split(plain)
    except ValueError:
        raise CookieError("the copied command is cut off: a quote is not closed") from None


def _drop_caret(found: re.Match[str]) -> str:
    return " " if found[1].endswith("\n") else found[1]


def _quote_ansi(found: re.Match[str]) -> str:
    return shlex.quote(_ANSI_ESCAPE.sub(_unescape_ansi, found[1]))


def _unescape_ansi(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return {"n": "\n", "r": "\r", "t": "\t"}.get(escape, escape)


def _pair_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The relevant options, each with its value."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if word in (*_COOKIE_OPTIONS, *_HEADER_OPTIONS, *_AGENT_OPTIONS):
            yield word, following
        elif equals and name in ("--cookie", "--header", "--user-agent"):
            yield name, value


def _read_file(text: str) -> list[list[str]] | None:
    """The rows of a cookies.txt file; None for other text."""
    lines = [line.removeprefix(_HTTP_ONLY) for line in text.splitlines()]
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    return rows if rows and all(len(row) == _FILE_FIELDS for row in rows) else None


def _join_rows(rows: Sequence[Sequence[str]], *, platform: str) -> tuple[str, datetime | None]:
    """The header of the platform's cookies in a file, and when the ones that it needs end."""
    domain = DOMAINS.get(platform)
    mine = [row for row in rows if domain is None or _is_domain(row[0], domain)]
    if not mine:
        raise CookieError(f"the file has no cookies of {domain}: export it while you are logged in there")
    needed = NEEDED.get(platform, ())
    ends = [int(row[4]) for row in mine if row[5] in needed and row[4].isdigit() and int(row[4]) > 0]
    # The last of two equal names counts, as in a browser's export the more specific one.
    pairs = {row[5]: row[6] for row in mine}
    return "; ".join(f"{name}={value}" for name, value in pairs.items()), _read_second(min(ends, default=None))


def _is_domain(name: str, domain: str) -> bool:
    name = name.lstrip(".").lower()
    return name == domain or name.endswith(f".{domain}")


def _find_expiry(platform: str, header: str) -> datetime | None:
    """The end that the cookie itself states: Bilibili's SESSDATA and Weibo's ALF hold a Unix second."""
    cookies = split_header(header)
    text = ""
    if platform == "bilibili":
        parts = unquote(cookies.get("SESSDATA", "")).split(",")
        text = parts[1] if len(parts) >= 2 else ""
    elif platform == "weibo":
        text = cookies.get("ALF", "").removeprefix("02_")
    return _read_second(int(text)) if re.fullmatch(r"[0-9]{9,11}", text) else None


def split_header(header: str) -> dict[str, str]:
    """The cookies of a header by name."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _read_second(second: int | None) -> datetime | None:
    return None if second is None or second > 10**11 else from_milliseconds(second * 1000)
