"""The redactor: known secrets in every spelling, unknown ones by their looks, and ordinary text left alone."""

import base64
import json
import random
import re
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable

import pytest

from tidings.core.secrets.patterns import MARKER
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

PLAIN = "Zk3canary9Qw7Lm2Xv8R"
AWKWARD = "pä ss/w+ö\"r'd\\%41&=;🔑?"

SPELLINGS: dict[str, Callable[[str], str]] = {
    "clear": str,
    "percent": lambda text: urllib.parse.quote(text, safe=""),
    "percent, slash left": urllib.parse.quote,
    "percent, small hex": lambda text: re.sub("%..", lambda match: match[0].lower(), urllib.parse.quote(text, safe="")),
    "percent, plus": urllib.parse.quote_plus,
    "percent, as encodeURIComponent": lambda text: urllib.parse.quote(text, safe="!'()*"),
    "percent, every byte": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent twice": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe=""),
    "json": lambda text: json.dumps(text)[1:-1],
    "json, characters kept": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "json, every character": lambda text: "".join(
        f"\\u{ord(each):04x}" if ord(each) < 65536 else each for each in text
    ),
    "json, percent": lambda text: urllib.parse.quote(json.dumps(text)),
    "repr": repr,
    "repr of repr": lambda text: repr(repr(text)),
    "repr of bytes": lambda text: repr(text.encode()),
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: text.encode().hex().upper(),
    "hex inside": lambda text: ("é" + text + "é").encode().hex(),
}
for _before in ("", "x", "xy"):
    for _after in ("", "z", "zz"):
        SPELLINGS[f"base64 {len(_before)}+{len(_after)}"] = lambda text, a=_before, b=_after: base64.b64encode(  # type: ignore[misc]
            (a + text + b).encode()
        ).decode()
        SPELLINGS[f"urlsafe base64 {len(_before)}+{len(_after)}"] = lambda text, a=_before, b=_after: (  # type: ignore[misc]
            base64.urlsafe_b64encode((a + text + b).encode()).decode().rstrip("=")
        )
SPELLINGS["base64, percent"] = lambda text: urllib.parse.quote(base64.b64encode(text.encode()).decode(), safe="")


def count_common_parts(text: str, other: str) -> int:
    """How many pieces of 7 characters both have; the neighbours of a secret inside base64 fill 6."""
    return sum(other[start : start + 7] in text for start in range(len(other) - 6))


@pytest.mark.parametrize("secret", [PLAIN, AWKWARD], ids=["plain", "awkward"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_known_secret_is_found_in_every_spelling(secret: str, spelling: str) -> None:
    """C23: clear, URL-encoded, base64 at each alignment, hex, JSON and repr, and combinations."""
    spelled = SPELLINGS[spelling](secret)
    redacted = Redactor([Secret(secret)]).redact(f"before {spelled} after")
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert redacted.count(MARKER) == 1
    assert count_common_parts(redacted.replace(MARKER, ""), spelled) == 0


@pytest.mark.parametrize("offset", range(30))
def test_a_known_secret_is_found_wherever_it_stands(offset: int) -> None:
    """C23: the index looks at some positions only, so every one is tried, with secrets of every length beside it."""
    redactor = Redactor(PLAIN[:length] for length in range(6, len(PLAIN)))
    for length in range(6, len(PLAIN)):
        assert redactor.redact("-" * offset + PLAIN[:length] + "-") == "-" * offset + MARKER + "-"


def test_several_secrets_and_overlapping_ones_leave_nothing() -> None:
    """C23: two secrets that share characters are taken out together."""
    redactor = Redactor(["abcdefgh", "efghijkl", "zyxwvuts"])
    assert redactor.redact("1 abcdefghijkl 2 zyxwvuts 3 abcdefgh") == f"1 {MARKER} 2 {MARKER} 3 {MARKER}"


def test_a_secret_inside_another_leaves_nothing_of_the_longer_one() -> None:
    """C23: the longer of two that begin differently decides."""
    assert Redactor(["abcdefghijkl", "defghi"]).redact("1 abcdefghijkl 2 defghi") == f"1 {MARKER} 2 {MARKER}"


def test_no_escape_is_cut_in_two() -> None:
    """C23: a secret whose first letter happens to end an escape takes the escape along, so JSON stays JSON."""
    redactor = Redactor(["nZk3canary", "9Qw7Lm2\\"])
    assert redactor.redact(json.dumps("x\nZk3canary y")) == f'"x{MARKER} y"'
    assert redactor.redact(json.dumps('x 9Qw7Lm2" y')) == f'"x {MARKER} y"'


def test_short_secrets_are_ignored() -> None:
    """C23: fewer than 6 characters would destroy ordinary text."""
    redactor = Redactor(["", "ab", "abcde", Secret("12345")])
    assert redactor.redact("abcde 12345 ab") == "abcde 12345 ab"
    redactor.add("abcdef")
    assert redactor.redact("abcde abcdef") == f"abcde {MARKER}"


def test_the_hint_of_a_registered_key_survives() -> None:
    """A4: logs show the first 4 characters of an IndexNow key, and no more."""
    key = Secret("abcd1234efgh5678")
    redactor = Redactor([key])
    assert redactor.redact(f"key {key.hint} is {key.reveal()}") == f"key abcd**** is {MARKER}"
    for text in (
        f"https://e/indexnow?url=x&key={key.hint}&a=b",
        f'"indexnowKey": "{key.hint}"',
        f"apikey={key.masked}",
    ):
        assert redactor.redact(text) == text


def test_the_values_of_a_registered_cookie_header_are_secrets_too() -> None:
    """C7: a cookie logged in parts, under names that nobody listed, is found; its short values are ordinary words."""
    redactor = Redactor(["webBuild=4.1.2; site=xhs-pc-web; unread=q8w7e6r5t4y3u2i1o0; x=1"])
    assert redactor.redact("v q8w7e6r5t4y3u2i1o0 4.1.2 xhs-pc-web") == f"v {MARKER} 4.1.2 xhs-pc-web"


PATTERNS = {
    "web_session=030037af": f"web_session={MARKER}",
    "web_session=a,b&c|d": f"web_session={MARKER}",
    "web_session=": f"web_session={MARKER}",
    'web_session="0300 37"': f'web_session={MARKER}"0300 37"',
    'web_session="030037"; x': f"web_session={MARKER}; x",
    "xweb_session=1; SESSDATA=2, next": f"xweb_session={MARKER}; SESSDATA={MARKER}, next",
    "bili_jct=3": f"bili_jct={MARKER}",
    "a1=18c; SUB=_2A25; SUBP=003": f"a1={MARKER}; SUB={MARKER}; SUBP={MARKER}",
    '{"m": "x\\na1=18c"}': f'{{"m": "x\\na1={MARKER}"}}',
    "x%3B%20a1%3D18c": f"x%3B%20a1%3D{MARKER}",
    "web_session%3D18c%3B%20rest": f"web_session%3D{MARKER}",
    '{"cookie_value": "xxx", "b": "c"}': f'{{"cookie_value": "{MARKER}", "b": "c"}}',
    '{"cookie_value":"x\\"y\\\\", "b": "c"}': f'{{"cookie_value":"{MARKER}", "b": "c"}}',
    "{'cookie_value': 'xxx', 'b': 'c'}": f"{{'cookie_value': '{MARKER}', 'b': 'c'}}",
    "{'cookie_value': \"it's\", 'b': 'c'}": f"{{'cookie_value': \"{MARKER}\", 'b': 'c'}}",
    "{'cookie_value': b'xxx'}": f"{{'cookie_value': b'{MARKER}'}}",
    '"{\\"cookie_value\\": \\"x\\\\\\"y\\", \\"b\\": 1}"': f'"{{\\"cookie_value\\": \\"{MARKER}\\", \\"b\\": 1}}"',
    '"{\\"cookie_value\\": \\"x\\\\\\\\\\", \\"b\\": 1}"': f'"{{\\"cookie_value\\": \\"{MARKER}\\", \\"b\\": 1}}"',
    '{"cookie_value": "cut off': f'{{"cookie_value": "{MARKER}',
    '{"a1": "x", "SUB": "y"}': f'{{"a1": "{MARKER}", "SUB": "{MARKER}"}}',
    '{"web_session": "z"}': f'{{"web_session": "{MARKER}"}}',
    "Cookie: a=b; c=d\r\nHost: h": f"Cookie: {MARKER}\r\nHost: h",
    'cookie: a="b"; c=d': f"cookie: {MARKER}",
    '{"m": "Cookie: a=b; c=\\"d\\"; e=f\\r\\nHost: h"}': f'{{"m": "Cookie: {MARKER}\\r\\nHost: h"}}',
    "Set-Cookie: sid=1; HttpOnly": f"Set-Cookie: {MARKER}",
    "CIMultiDict('Cookie': 'x=1', 'Host': 'h')": f"CIMultiDict('Cookie': '{MARKER}', 'Host': 'h')",
    "((b'Cookie', b'x=1'), (b'Authorization', b'zz'))": f"((b'Cookie', b'{MARKER}'), (b'Authorization', b'{MARKER}'))",
    "Authorization: Bearer abc.def-123": f"Authorization: {MARKER}",
    '{"authorization": "Basic eDp5"}': f'{{"authorization": "{MARKER}"}}',
    "got Bearer abcdef123456 here": f"got Bearer {MARKER} here",
    "X-Api-Key: abc": f"X-Api-Key: {MARKER}",
    "https://ssl.bing.com/x?apikey=abc&y=1": f"https://ssl.bing.com/x?apikey={MARKER}&y=1",
    "https://e/indexnow?url=u&key=abc&keyLocation=l": f"https://e/indexnow?url=u&key={MARKER}&keyLocation=l",
    "https%3A%2F%2Fe%3Fkey%3Dabc": f"https%3A%2F%2Fe%3Fkey%3D{MARKER}",
    "api_key=abc, token=def)": f"api_key={MARKER}, token={MARKER})",
    "TIDINGS_TOKEN=abc COOKIE_MASTER_KEY=def": f"TIDINGS_TOKEN={MARKER} COOKIE_MASTER_KEY={MARKER}",
    '{"bingApiKey": "abc", "token": "t-1"}': f'{{"bingApiKey": "{MARKER}", "token": "{MARKER}"}}',
    '{"tenant_access_token": "t-1"}': f'{{"tenant_access_token": "{MARKER}"}}',
    "postgresql://user:pass@host:5432/db": f"postgresql://user:{MARKER}@host:5432/db",
}  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
def test_what_looks_like_a_secret_is_redacted(text: str) -> None:
    """C23: the two patterns of the source, in JSON, repr and nested JSON, and their relatives."""
    assert Redactor().redact(text) == PATTERNS[text]


COOKIES = (
    "web_session", "SESSDATA", "bili_jct", "DedeUserID__ckMd5", "ac_time_value", "websectiga", "sec_poison_id",
    "tidings_session", "a1", "SUB", "SUBP", "SCF",
)  # fmt: skip


def test_a_cookie_header_is_found_with_any_space_before_its_colon() -> None:
    """C7: the quick look for a cue knows every white space that the pattern takes."""
    spaces = [character for character in map(chr, range(sys.maxunicode + 1)) if character.isspace()]
    for space in ["", *spaces]:
        assert "c0ffee" not in Redactor().redact(f"Cookie{space}: session=c0ffee"), repr(space)
    ordinary = "crawl.detail cookie_used=xhs-1 code=None"
    assert Redactor().redact(ordinary) == ordinary


@pytest.mark.parametrize("name", COOKIES)
def test_every_cookie_that_matters_is_known_by_name(name: str) -> None:
    """C23: as a pair, as a field and as a field inside a string."""
    redactor = Redactor()
    assert redactor.redact(f"x; {name}=18c; y") == f"x; {name}={MARKER}; y"
    document = json.dumps({name: "18c", "y": 1})
    redacted = json.dumps({name: MARKER, "y": 1})
    assert redactor.redact(document) == redacted
    assert redactor.redact(json.dumps(document)) == json.dumps(redacted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "batch.sent engine=api.indexnow.org key=value urls=100 request_id=req-0123456789abcdef",
        "monkey=banana keyword=饼干 SUBMIT=1 ba1=2 sub=user",
        "cookie: xhs-1 is cooling, cookie_used=xhs-1 cookie_name=xhs-1",
        '{"cookie": "xhs-1", "cookie_used": null, "key": "value", "sub": "user", "cookie_value": null}',
        '["cookie", "token", "authorization"]',
        "Bearer authentication is required; the token is missing; no secret: none",
        "https://example.com/search?page_token=abc&xsec_token=ABdef&client_token=1#key=2",
        "http://169.254.169.254:8888\\@example.org/ http://host:8080/@user user@example.com",
        "Secret(***) token=Secret(***) password=**** apikey=****...****",
        "100% sure \\ %zz \\u12 \\x1",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """C23: logs stay useful: our own fields, names of cookies and masked values are no secrets."""
    assert Redactor([PLAIN, AWKWARD]).redact(text) == text


@pytest.mark.parametrize("secrets", [["REDACTED"], [MARKER, "REDACTED"], ["***abc", "**secret-tail", "CTED***"]])
def test_a_secret_like_the_marker_cannot_make_a_text_grow(secrets: list[str]) -> None:
    """C23: idempotent even with a secret that is, or touches, the marker's own text."""
    redactor = Redactor(secrets)
    once = redactor.redact(f"web_session={MARKER} REDACTED {MARKER}abc {MARKER}secret-tail")
    assert redactor.redact(once) == once
    assert len(once) < 100


def make_text(chance: random.Random) -> str:
    """Fragments of all kinds in any order, some encoded, often glued together."""
    fragments = [*PATTERNS, *PATTERNS.values(), PLAIN, AWKWARD, "\\", '"', "'", "%", "\n", "=", ": ", ", ", " ", MARKER]
    spell = list(SPELLINGS.values())
    pieces = [chance.choice(fragments) for _ in range(chance.randint(1, 6))]
    return "".join(chance.choice(spell)(piece) if chance.random() < 0.3 else piece for piece in pieces)


def test_redacting_twice_changes_nothing() -> None:
    """C23: idempotent, over 1,000 random texts; and none is left with a pair that the audit would find."""
    redactor, chance = Redactor([PLAIN, AWKWARD]), random.Random(23)
    for _ in range(1000):
        once = redactor.redact(make_text(chance))
        assert redactor.redact(once) == once
        assert not re.search(rf"web_session=(?!{re.escape(MARKER)})", once)
        assert PLAIN not in once
        assert AWKWARD not in once


@pytest.mark.thorough
def test_a_redacted_json_document_is_still_json() -> None:
    """C23: a log line stays readable by machines, no matter what was taken out of it: 1,000 random documents."""
    redactor, chance = Redactor([PLAIN, AWKWARD, "n" + PLAIN[:9], "u00e4" + PLAIN]), random.Random(22)
    for _ in range(1000):
        document = {"event": make_text(chance), make_text(chance): [make_text(chance)], "last": 1}
        redacted = json.loads(redactor.redact(json.dumps(document, ensure_ascii=chance.random() < 0.5)))
        assert redacted["last"] == 1


HOSTILE = ("\\", '"token": "', "\\u0026", "A_", "cookie: ", "://a:", "%25", " ", "a1=,", "\\'", 'Cookie: a="')


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_text_cannot_hold_the_log_up(part: str) -> None:
    """C23: the cost grows with the length of a text and not with its square, also for text made to go wrong."""
    redactor = Redactor([PLAIN])

    def measure(length: int) -> float:
        text = 'token "token" web_session= cookie key=' + part * (length // len(part))
        start = time.process_time()
        redactor.redact(text)
        return time.process_time() - start

    assert measure(40_000) < 8 * measure(10_000) + 0.05


def test_secrets_can_be_added_while_others_redact() -> None:
    """C23: thread-safe: a secret is gone from the moment add() has returned."""
    redactor = Redactor()
    failures: list[str] = []

    def add_and_redact(number: int) -> None:
        for count in range(60):
            secret = f"{number}-{count}-of-a-thread"
            redactor.add(secret)
            if secret in redactor.redact(f"a line with {secret} in it"):
                failures.append(secret)

    threads = [threading.Thread(target=add_and_redact, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not failures
