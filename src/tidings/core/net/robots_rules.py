"""Reads robots.txt (RFC 9309). Pure; callers run it in a child process.

`select_rules` keeps the lines that concern one user agent, because a parser's cost for a whole file is agents times
rules. `judge_url` then asks Protego, which knows wildcards, priorities and common spelling mistakes.
"""

import functools
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protego import Protego

# Of the file; the rest is not read.
LONGEST: Final = 500 * 1024
# The largest sites have a few thousand rules for one agent. A file with more cannot be honoured.
MOST_RULES: Final = 10_000

_ANY_AGENT: Final = "*"
# One byte more than the limit shows whether the file is longer.
_TAKEN: Final = LONGEST + 1
_LONGEST_DELAY: Final = 3_600.0
# The spellings that Protego knows.
_FIELDS: Final = {
    "user-agent": "User-agent",
    "useragent": "User-agent",
    "user agent": "User-agent",
    "allow": "Allow",
    "disallow": "Disallow",
    "dissallow": "Disallow",
    "dissalow": "Disallow",
    "disalow": "Disallow",
    "diasllow": "Disallow",
    "disallaw": "Disallow",
    "crawl-delay": "Crawl-delay",
    "crawl delay": "Crawl-delay",
}
# These do not end a list of agents.
_SITE_WIDE: Final = frozenset({"sitemap", "sitemaps", "site-map", "host"})
_WORDS: Final = re.compile(r"(\S+)(?:\s+(\S+))?\s*(.*)")


def unpack_robots(body: bytes, *, encoding: str) -> bytes:
    """The whole lines within the limit, without the Content-Encoding. Raises ValueError if it cannot be undone."""
    try:
        text = _unpack(body, encoding=encoding)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError("a damaged encoding") from error
    if len(text) < _TAKEN:
        return text
    # Half a line would be another rule: `Allow: /` instead of `Allow: /public`.
    return text[: max(text.rfind(b"\n"), text.rfind(b"\r")) + 1]


def select_rules(body: bytes, *, user_agent: str) -> str | None:
    """The rules for this agent as a robots.txt of one group; empty if there are none, None if there are too many.

    The group that names the agent by its longest part counts; without one the group of `*`.
    """
    # A byte order mark would hide the first line.
    groups = list(_list_groups(body.decode("utf-8-sig", "replace").splitlines()))
    names = {name for agents, _ in groups for name in agents}
    best = max(names, key=lambda name: (_score(name, user_agent), name), default=_ANY_AGENT)
    if not _score(best, user_agent):
        return ""
    rules = [rule for agents, lines in groups if best in agents for rule in lines]
    if len(rules) > MOST_RULES:
        return None
    return "\n".join((f"User-agent: {best}", *rules)) if rules else ""


def judge_url(body: bytes, *, url: str, user_agent: str) -> tuple[bool, float]:
    """Whether rules of `select_rules` allow the URL, and their Crawl-delay in seconds (at most an hour)."""
    rules = _parse(body)
    delay = rules.crawl_delay(user_agent) or 0.0
    return rules.can_fetch(url, user_agent), min(delay, _LONGEST_DELAY) if math.isfinite(delay) else 0.0


@functools.lru_cache(maxsize=32)
def _parse(body: bytes) -> "Protego":
    # Loaded by the child alone: the service needs only `unpack_robots`.
    from protego import Protego

    return Protego.parse(body.decode())


def _unpack(body: bytes, *, encoding: str) -> bytes:
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            with gzip.GzipFile(fileobj=BytesIO(body)) as file:
                return file.read(_TAKEN)
        case "deflate":
            inflater = zlib.decompressobj()
            text = inflater.decompress(body, _TAKEN)
            if not inflater.eof and len(text) < _TAKEN:
                raise EOFError
            return text
        case _:
            raise ValueError("an unknown encoding")


def _list_groups(lines: Iterable[str]) -> Iterator[tuple[set[str], list[str]]]:
    """Each group's agents and rules. Agents that follow each other form one group."""
    agents: set[str] = set()
    rules: list[str] = []
    in_rules = False
    for line in lines:
        field, value = _read_line(line)
        if field == "User-agent":
            if in_rules:
                yield agents, rules
                agents, rules, in_rules = set(), [], False
            agents.update(_read_agents(value))
        elif field and field not in _SITE_WIDE:
            in_rules = True
            if field in _FIELDS.values() and value:
                rules.append(f"{field}: {value}")
    yield agents, rules


def _read_line(line: str) -> tuple[str, str]:
    """The field and its value; empty if the line has none. The colon may be missing."""
    text = line.partition("#")[0].strip()
    field, colon, value = text.partition(":")
    name = field.strip().lower()
    if colon and (name in _FIELDS or name in _SITE_WIDE):
        return _FIELDS.get(name, name), value.strip()
    if colon and (not value or value[0].isspace()):
        return name, ""
    words = _WORDS.match(text)
    if words is None:
        return "", ""
    first, second, rest = words[1].lower(), words[2] or "", words[3]
    if first in _FIELDS or first in _SITE_WIDE:
        return _FIELDS.get(first, first), f"{second} {rest}".strip()
    if (both := f"{first} {second.lower()}") in _FIELDS:
        return _FIELDS[both], rest
    return (name, "") if colon else ("", "")


def _read_agents(value: str) -> Iterator[str]:
    """The names of an agent line. A name with wildcards also counts without them."""
    name = value.strip().lower()
    if name:
        yield name
    if name != _ANY_AGENT and "*" in name and (plain := name.replace("*", "")):
        yield plain


def _score(name: str, user_agent: str) -> int:
    """How well a name fits: its length if a word of the user agent begins with it, 1 for `*`, else 0."""
    if name == _ANY_AGENT:
        return 1
    agent = user_agent.strip().lower()
    place = agent.find(name)
    while place != -1:
        if place == 0 or not (agent[place - 1].isalnum() or agent[place - 1] in "-_"):
            return len(name)
        place = agent.find(name, place + 1)
    return 0
