"""Patterns of unregistered secrets: cookie pairs, headers, query values, fields with telling names. `redaction` handles
secrets that are known by value. A rule is tried only if one of its cues is in the lower-case text, so that an ordinary
line costs a few substring searches. Each rule leaves its own replacements unchanged.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

MARKER: Final = "***REDACTED***"

# The forms that Secret itself gives out may stay: Secret(***), abcd****, ****...****.
_MASK = r"(?:Secret\(\*{3}\)|[\w-]{0,4}\*{4}(?:\.{3}\*{4})?)"
_UNMASKED = rf"(?!{_MASK}(?![\w*.-]))"
_UNMARKED = rf"(?!{re.escape(MARKER)})"
_UNFINISHED = rf"(?!{re.escape(MARKER)}(?:\\*[\"']|\Z))"
_EQUALS = r"(?:=|%3[Dd]|\\+u003[Dd])"
# A name begins here: no letter in front, unless that letter ends an escape (`%20`, `\n`).
_BEGIN = r"(?:(?<![\w-])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"

_LONG_COOKIES = (
    r"web_session|SESSDATA|bili_jct|DedeUserID__ckMd5|ac_time_value|websectiga|sec_poison_id|tidings_session"
)
_SHORT_COOKIES = r"a1|SUBP?|SCF"
_NAMES = (
    r"(?:(?:bing|indexnow|x)[_-]?)?api[_-]?key|indexnow[_-]?key|(?:cookie[_-]?)?master[_-]?key"
    r"|(?:(?:access|refresh|auth|bearer|csrf|id|(?:tenant|app)[_-]?access)[_-]?)?token"
    r"|(?:(?:app|client|webhook)[_-]?)?secret|password|passwd"
)
_ENVIRONMENT = r"(?:[A-Z0-9]+_)+(?:TOKEN|SECRET|KEY|PASSWORD)"
_FIELDS = rf"(?i:cookie[_-]?values?|{_LONG_COOKIES}|{_NAMES}|(?:proxy-)?authorization)|{_SHORT_COOKIES}|{_ENVIRONMENT}"
_COOKIE_FIELDS = r"(?i:(?:set-)?cookies?|cookie[_-]?header)"
# Without a pair it is no cookie: `cookie: xhs-1 is cooling` is ordinary text.
_PAIR_AHEAD = r"(?=[^\s=;:\"'\\]+=)"

# In real cookies a comma may stand inside a value, never at its end.
_COOKIE_VALUE = (
    r"(?:(?P<quote>\\*[\"'])[\w%+/.~-][^\s;\"'\\]*(?P=quote)"
    r"|(?:[^\s;,\"'\\<>]|,(?![\s\"'\\]|$))*+)"
)
_QUERY_VALUE = r"[^\s&;,\"'\\<>#)]+"
# Runs of backslashes: after an odd one a quote is part of the string, after an even one it ends it.
_ODD = r"(?:\\\\)*+\\"
_EVEN = r"(?:\\\\)++(?!\\)"
# Up to the end of the line, however that is written, or of the string that holds it.
_HEADER_VALUE = rf"(?:=\"[^\"\s,:{{}}\[\]\\]*\"|[^\r\n\"\\]|\\++(?![rn\"])|{_ODD}\"|{_EVEN})++"
_PLAIN_BODY = r"(?:(?!(?P=quote))[^\\]|\\.)*+(?P<close>(?P=quote)|\Z)"
# A string inside a string: its quotes are \", its own escapes have more backslashes, a bare quote ends the outer one.
_NESTED_BODY = (
    rf"(?:(?:(?P=slashes)\\){{2}}|(?!(?P=slashes)(?P=quote))(?:(?!(?P=quote))[^\\]|{_ODD}[^\\]|{_EVEN}))*+"
    r"(?P<close>(?:(?P=slashes)(?P=quote))?)"
)


@dataclass(frozen=True)
class _Rule:
    """A pattern, and the cues without which it cannot match: a stem, followed by one of the ends. It is compiled at its
    first use: compiling all takes 40 ms, and most commands need one or two.
    """

    expression: str
    stems: frozenset[str]
    ends: tuple[str, ...]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.expression, re.DOTALL)

    def has_cue(self, lowered: str, present: list[str]) -> bool:
        return any(stem in self.stems and any(stem + end in lowered for end in self.ends) for stem in present)


def _rule(*stems: str, ends: tuple[str, ...] = ("",), keep: str, value: str) -> _Rule:
    return _Rule(f"(?P<keep>{keep}){value}", frozenset(stems), ends)


def _field_rules(*stems: str, names: str, separator: str, condition: str) -> list[_Rule]:
    """A name in quotes and a string after it, as JSON or Python writes them, also inside another string."""
    key = rf"(?<!\\)(?P<key>\\*[\"'])(?:{names})(?P=key)\s*{separator}\s*b?"
    nested = rf"{key}(?P<slashes>\\+)(?P<quote>[\"'])"
    return [
        _rule(*stems, ends=_QUOTE_ENDS, keep=rf"{key}(?P<quote>[\"'])", value=condition + _PLAIN_BODY),
        _rule(*stems, ends=_QUOTE_ENDS, keep=nested, value=condition + _NESTED_BODY),
    ]


_EQUALS_ENDS = ("=", "%3d", "\\")
_QUOTE_ENDS = ('"', "'", "\\")
# A colon, or any white space before it: `cookie_used=c1`, which every crawl logs, is no header.
_COLON_ENDS = tuple(
    ":\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LONG_STEMS = tuple(_LONG_COOKIES.lower().split("|"))
_SHORT_STEMS = ("a1", "sub", "subp", "scf")
_NAME_STEMS = ("token", "key", "secret", "password", "passwd")
_FIELD_STEMS = (*_LONG_STEMS, *_SHORT_STEMS, *_NAME_STEMS, "value", "values", "authorization")
_AUTHORIZATION = r"(?i:(?:proxy-)?authorization)"
_RULES: Final = (
    # Always replaced, even if empty: the audit searches for `web_session=` followed by anything else.
    _rule(*_LONG_STEMS, ends=_EQUALS_ENDS, keep=f"(?i:{_LONG_COOKIES}){_EQUALS}", value=_COOKIE_VALUE),
    _rule(*_SHORT_STEMS, ends=_EQUALS_ENDS, keep=f"{_BEGIN}(?:{_SHORT_COOKIES}){_EQUALS}", value=_COOKIE_VALUE),
    *_field_rules(*_FIELD_STEMS, names=_FIELDS, separator=":", condition=_UNMASKED + _UNFINISHED),
    *_field_rules("cookie", "cookies", "header", names=_COOKIE_FIELDS, separator="[:,]", condition=_PAIR_AHEAD),
    *_field_rules("authorization", names=_AUTHORIZATION, separator=",", condition=_UNMASKED + _UNFINISHED),
    _rule(
        "cookie",
        ends=_COLON_ENDS,
        keep=rf"{_BEGIN}(?i:(?:set-)?cookie)\s*:\s*",
        value=_UNMARKED + _PAIR_AHEAD + _HEADER_VALUE,
    ),
    _rule(
        *("authorization", "api-key", "auth-token"),
        keep=rf"{_BEGIN}(?:{_AUTHORIZATION}|(?i:x-api-key|x-auth-token))\s*:\s*",
        value=_UNMARKED + _UNMASKED + r"(?![\"'\s{\[])" + _HEADER_VALUE,
    ),
    _rule("bearer", keep=r"(?i:\bbearer(?:\s+|%20))", value=r"(?=[^\s\"']*\d)[A-Za-z0-9._~+/=-]{8,}"),
    _rule(
        *_NAME_STEMS,
        ends=_EQUALS_ENDS,
        keep=rf"{_BEGIN}(?:(?i:{_NAMES})|{_ENVIRONMENT}){_EQUALS}",
        value=_UNMASKED + _QUERY_VALUE,
    ),
    # `key=value` is also how our own console lines look, so a bare `key` counts only in a query.
    _rule(
        *("key",),
        ends=_EQUALS_ENDS,
        keep=rf"(?i:(?:[?&]|%3F|%26|&amp;|(?<!\\)\\+u0026)key){_EQUALS}",
        value=_UNMASKED + _QUERY_VALUE,
    ),
    _rule("@", keep=r"://[^\s/@:?#\"'\\]*:", value=r"[^\s/@?#\"'\\]+(?P<close>@)"),
)
_STEMS: Final = tuple(sorted(frozenset().union(*(rule.stems for rule in _RULES))))

_FIELD = re.compile(_FIELDS)
_COOKIE_FIELD = re.compile(_COOKIE_FIELDS)
_PAIR = re.compile(_PAIR_AHEAD)
_WHOLE_MASK = re.compile(_MASK)


def redact_patterns(text: str) -> str:
    """The text with everything that looks like a secret replaced by the marker."""
    lowered = text.lower()
    present = [stem for stem in _STEMS if stem in lowered]
    if present:
        for rule in _RULES:
            if rule.has_cue(lowered, present):
                text = rule.pattern.sub(_mark, text)
    return text


def _mark(match: re.Match[str]) -> str:
    return f"{match['keep']}{MARKER}{match.groupdict().get('close') or ''}"


def redact_field(name: str, value: str) -> str:
    """The value of a field, or the marker when its name says that it is a secret and it is not masked already."""
    if _names_secret(name) and value and not _WHOLE_MASK.fullmatch(value):
        return MARKER
    if _COOKIE_FIELD.fullmatch(name) and _PAIR.match(value):
        return MARKER
    return value


@lru_cache(maxsize=1024)
def _names_secret(name: str) -> bool:
    return _FIELD.fullmatch(name) is not None
