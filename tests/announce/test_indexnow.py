"""The IndexNow protocol to the letter: what goes over the wire, and what each answer means."""

import json
import string
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest

from tests.fakes import FakeClock
from tidings.announce.channels.answer import Outcome, Verdict
from tidings.announce.channels.protocols.indexnow import (
    MOST_URLS,
    build_get,
    build_post,
    choose_method,
    encode_component,
    judge_answer,
    submit,
)
from tidings.announce.site.site import Engine, Site, SubmitMethod, make_site
from tidings.core.net.addresses import parse_url
from tidings.core.net.client import Answer, GuardedClient
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.wire.faults import Fault, FaultKind

KEY = "c0ffee00-Feed-4bad-8Bad-F00dDecafBad"
ENGINE = Engine("https://api.indexnow.org/indexnow", "api.indexnow.org")
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOT_VERIFIED = b'{"errorCode":"SiteVerificationNotCompleted"}'
FORBIDDEN = b'{"errorCode":"UserForbiddedToAccessSite","message":"User is unauthorized to access the site."}'

RESERVED = "https://example.com/a b?c=d&e=f+g#h%20/:;,@$!'()*[]{}|^`\"<>\\~-_.="
RESERVED_ENCODED = (
    "https%3A%2F%2Fexample.com%2Fa%20b%3Fc%3Dd%26e%3Df%2Bg%23h%2520%2F%3A%3B%2C%40%24!'()*"
    "%5B%5D%7B%7D%7C%5E%60%22%3C%3E%5C~-_.%3D"
)


@pytest.fixture
def site() -> Site:
    return make_site(sitemap_urls=["https://example.com/sitemap.xml"], key=KEY)


@pytest.fixture
async def engine() -> AsyncIterator[SandboxEngine]:
    async with SandboxEngine("alpha", checks_keys=False) as running:
        yield running


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    elapsed = timedelta(milliseconds=84)
    return Answer(status=status, url=parse_url(ENGINE.endpoint), elapsed=elapsed, headers=named, body=body)


def judge(status: int, body: bytes = b"", **headers: str) -> Outcome:
    return judge_answer(answer(status, body, **headers), now=NOW)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("https://example.com/page?id=1", "https%3A%2F%2Fexample.com%2Fpage%3Fid%3D1"),
        (RESERVED, RESERVED_ENCODED),
        ("grüße 饼干 😀", "gr%C3%BC%C3%9Fe%20%E9%A5%BC%E5%B9%B2%20%F0%9F%98%80"),
        ("\t\n\x7f", "%09%0A%7F"),
        ("", ""),
    ],
)
def test_values_are_encoded_as_encode_uri_component_does(value: str, encoded: str) -> None:
    """A15: the specification's own example, everything reserved, and Unicode."""
    assert encode_component(value) == encoded
    assert unquote(encoded) == value


def test_encode_uri_component_leaves_exactly_its_own_set_alone() -> None:
    """A15: letters, digits and - _ . ! ~ * ' ( ), of all of ASCII."""
    characters = [chr(code) for code in range(128)]
    alone = {character for character in characters if encode_component(character) == character}
    assert alone == set(string.ascii_letters + string.digits + "-_.!~*'()")
    assert {encode_component(c) for c in characters if c not in alone} == {
        f"%{ord(c):02X}" for c in characters if c not in alone
    }


def test_get_carries_url_key_and_key_location(site: Site) -> None:
    """A15: in this order, each encoded; no body and no content type."""
    request = build_get(site, ENGINE, "https://example.com/page?id=1")
    assert request.method == "GET"
    assert request.url == (
        "https://api.indexnow.org/indexnow?url=https%3A%2F%2Fexample.com%2Fpage%3Fid%3D1"
        f"&key={KEY}&keyLocation=https%3A%2F%2Fexample.com%2F{KEY}.txt"
    )
    assert (request.body, dict(request.headers)) == (None, {})


def test_post_carries_a_json_document(site: Site) -> None:
    """A16: host, key, keyLocation and urlList, declared as JSON in UTF-8."""
    urls = ["https://example.com/a?b=c&d", 'https://example.com/"q"', "https://example.com/饼干"]
    request = build_post(site, ENGINE, urls)
    assert (request.method, request.url) == ("POST", ENGINE.endpoint)
    assert request.headers["Content-Type"] == "application/json; charset=utf-8"
    assert request.body is not None
    assert "饼干".encode() in request.body
    assert json.loads(request.body) == {
        "host": "example.com",
        "key": KEY,
        "keyLocation": f"https://example.com/{KEY}.txt",
        "urlList": urls,
    }


def test_a_request_cannot_print_the_key(site: Site) -> None:
    """A4: it may end up in a traceback or a log line."""
    requests = [build_get(site, ENGINE, "https://example.com/"), build_post(site, ENGINE, ["https://example.com/"])]
    assert KEY not in f"{requests}"


@pytest.mark.parametrize(
    ("method", "count", "chosen"),
    [
        (SubmitMethod.AUTO, 1, SubmitMethod.GET),
        (SubmitMethod.AUTO, 2, SubmitMethod.POST),
        (SubmitMethod.AUTO, MOST_URLS, SubmitMethod.POST),
        (SubmitMethod.GET, 1, SubmitMethod.GET),
        (SubmitMethod.GET, MOST_URLS, SubmitMethod.GET),
        (SubmitMethod.POST, 1, SubmitMethod.POST),
        (SubmitMethod.POST, MOST_URLS, SubmitMethod.POST),
    ],
)
def test_one_url_goes_by_get_and_more_by_post_unless_set_otherwise(
    method: SubmitMethod, count: int, chosen: SubmitMethod
) -> None:
    """A16: auto decides by the count, get and post do not."""
    assert choose_method(method, count=count) is chosen
    assert MOST_URLS == 10_000


@pytest.mark.parametrize("status", [200, 202])
def test_received_is_success_whatever_the_body_says(status: int) -> None:
    """A11: 202 too, where the key is still to be checked."""
    assert judge(status, b"UserForbiddedToAccessSite") == Outcome(
        Verdict.ACCEPTED, f"HTTP {status}", status=status, elapsed=timedelta(milliseconds=84)
    )
    assert judge(status).accepted


@pytest.mark.parametrize(
    ("status", "body", "verdict", "advice"),
    [
        (400, b'{"errorCode":"InvalidRequestParameters"}', Verdict.BAD_URLS, "URLs"),
        (422, b"", Verdict.BAD_URLS, "URLs"),
        (401, b"", Verdict.REFUSED, "tidings check"),
        (403, b"", Verdict.REFUSED, "tidings check"),
        (403, b'{"errorCode":"SomethingElse"}', Verdict.REFUSED, "tidings check"),
        (403, NOT_VERIFIED, Verdict.UNVERIFIED, "next time"),
        (403, FORBIDDEN, Verdict.FORBIDDEN, "Rotate the key"),
        (400, FORBIDDEN, Verdict.BAD_URLS, "URLs"),
        (429, b"", Verdict.RATE_LIMITED, "REQUEST_INTERVAL_MS"),
        (429, FORBIDDEN, Verdict.RATE_LIMITED, "REQUEST_INTERVAL_MS"),
        (500, b"", Verdict.UNAVAILABLE, "next time"),
        (502, b"<html>Bad Gateway</html>", Verdict.UNAVAILABLE, "next time"),
        (503, NOT_VERIFIED, Verdict.UNAVAILABLE, "next time"),
        (599, b"", Verdict.UNAVAILABLE, "next time"),
        (201, b"", Verdict.REFUSED, "address"),
        (204, b"", Verdict.REFUSED, "address"),
        (304, b"", Verdict.REFUSED, "address"),
        (404, b"", Verdict.REFUSED, "address"),
        (405, b"", Verdict.REFUSED, "address"),
        (410, b"", Verdict.REFUSED, "address"),
    ],
)
def test_every_other_answer_has_its_meaning(status: int, body: bytes, verdict: Verdict, advice: str) -> None:
    """A21, A22: with the full reason for the record, and what to check for a person."""
    outcome = judge(status, body)
    assert (outcome.verdict, outcome.accepted, outcome.status) == (verdict, False, status)
    assert outcome.reason == f"HTTP {status}" + (f": {body.decode()}" if body else "")
    assert advice in outcome.advice
    assert outcome.elapsed == timedelta(milliseconds=84)


@pytest.mark.parametrize(("body", "verdict"), [(NOT_VERIFIED, Verdict.UNVERIFIED), (FORBIDDEN, Verdict.FORBIDDEN)])
@pytest.mark.parametrize("padding", [0, 250, 1_000])
def test_both_kinds_of_403_are_distinguished_wherever_the_code_stands(
    body: bytes, verdict: Verdict, padding: int
) -> None:
    """A22: behind a long message too; the spelling is the engines' own, and one of them clears by itself."""
    document = {"detail": "d" * padding, **json.loads(body)}
    assert judge(403, json.dumps(document).encode()).verdict is verdict
    assert judge(403, json.dumps(document, indent=4).encode()).verdict is verdict


def test_a_long_body_is_cut_and_put_on_one_line() -> None:
    """A21: an HTML error page does not fill the record; its beginning is there, on one line, readable."""
    outcome = judge(404, b"<html>\r\n\t<h1>Not\xff  found</h1>\n" + b"x" * 100_000)
    assert outcome.reason.startswith("HTTP 404: <html> <h1>Not\ufffd found</h1> xxx")
    assert "\n" not in outcome.reason
    assert 300 <= len(outcome.reason) <= 320


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        ("Sun, 15 Nov 2026 12:02:30 GMT", 150),
        ("Sun, 15 Nov 2026 11:59:00 GMT", None),
        ("Sun, 15 Nov 2026 12:00:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("Sun, 15 Nov 99999999999999999999 12:00:00 GMT", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_read_in_both_forms(value: str, seconds: int | None, status: int) -> None:
    """A21: seconds or a date; what is wrong or past counts as missing and breaks nothing."""
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert judge(status, Retry_After=value).retry_after == expected
    assert judge(status).retry_after is None


async def test_get_arrives_exactly_as_encoded(
    site: Site, engine: SandboxEngine, client: GuardedClient, clock: FakeClock
) -> None:
    """A15: nothing on the way encodes it again or decodes it, and the engine reads the URL that was meant."""
    url = "https://example.com/gr%C3%BC%C3%9Fe/a+b;c='d'?e=f&g=%20!*()"
    request = build_get(site, Engine(engine.endpoint, engine.host), url)
    outcome = await submit(request, key=site.key, client=client, clock=clock)
    assert (outcome.verdict, outcome.status) == (Verdict.ACCEPTED, 200)
    (recorded,) = engine.requests
    assert f"{engine.origin}{recorded.path}?{recorded.query}" == request.url
    assert recorded.urls == (url,)
    assert recorded.fields == {"key": KEY, "keyLocation": site.key_location}
    assert "Content-Type" not in recorded.headers


async def test_the_longest_url_of_a_sitemap_fits_into_a_get(
    site: Site, engine: SandboxEngine, client: GuardedClient, clock: FakeClock
) -> None:
    """A15: 2,048 characters, most of which take three once they are encoded."""
    url = "https://example.com/".ljust(2_048, "/")
    outcome = await submit(
        build_get(site, Engine(engine.endpoint, engine.host), url), key=site.key, client=client, clock=clock
    )
    assert outcome.accepted
    assert engine.requests[0].urls == (url,)


async def test_post_arrives_as_json(site: Site, engine: SandboxEngine, client: GuardedClient, clock: FakeClock) -> None:
    """A16: 10,000 URLs in one request."""
    urls = [f"https://example.com/{number}" for number in range(MOST_URLS)]
    outcome = await submit(
        build_post(site, Engine(engine.endpoint, engine.host), urls), key=site.key, client=client, clock=clock
    )
    assert outcome.accepted
    (recorded,) = engine.requests
    assert (recorded.method, recorded.query, list(recorded.urls)) == ("POST", "", urls)
    assert recorded.headers["Content-Type"] == "application/json; charset=utf-8"
    assert recorded.fields == {"host": "example.com", "key": KEY, "keyLocation": site.key_location}


@pytest.mark.parametrize(
    ("fault", "verdict", "retry_after"),
    [
        (Fault(status=429, headers={"retry-after": "5"}), Verdict.RATE_LIMITED, timedelta(seconds=5)),
        (Fault(status=403, body=NOT_VERIFIED.decode()), Verdict.UNVERIFIED, None),
        (Fault(status=403, body=FORBIDDEN.decode()), Verdict.FORBIDDEN, None),
        (Fault(FaultKind.RESET), Verdict.UNAVAILABLE, None),
        (Fault(FaultKind.RESET_AFTER_ACCEPTING), Verdict.UNAVAILABLE, None),
        (Fault(status=500, body="x" * 500_000), Verdict.UNAVAILABLE, None),
    ],
)
async def test_what_an_engine_does_wrong_is_judged_and_not_retried(
    site: Site,
    engine: SandboxEngine,
    client: GuardedClient,
    clock: FakeClock,
    fault: Fault,
    verdict: Verdict,
    retry_after: timedelta | None,
) -> None:
    """A21, A22: a lost connection too; one call is one request, and the key is not in the reason."""
    engine.misbehave(fault)
    request = build_get(site, Engine(engine.endpoint, engine.host), "https://example.com/")
    outcome = await submit(request, key=site.key, client=client, clock=clock)
    assert (outcome.verdict, outcome.retry_after) == (verdict, retry_after)
    assert outcome.reason
    assert outcome.advice
    assert KEY not in outcome.reason
    assert len(engine.requests) == 1


async def test_an_engine_that_repeats_the_key_does_not_put_it_on_record(
    site: Site, engine: SandboxEngine, client: GuardedClient, clock: FakeClock
) -> None:
    """A4: the reason is stored and shown; engines like to say which key they did not like."""
    engine.misbehave(Fault(status=403, body=f"Key {KEY} of https://example.com/{KEY}.txt is not valid"))
    for request in (
        build_get(site, Engine(engine.endpoint, engine.host), "https://example.com/"),
        build_post(site, Engine(engine.endpoint, engine.host), ["https://example.com/"]),
    ):
        outcome = await submit(request, key=site.key, client=client, clock=clock)
        assert outcome.verdict is Verdict.REFUSED
        assert "is not valid" in outcome.reason
        assert KEY not in outcome.reason


async def test_an_engine_that_cannot_be_reached_is_unavailable(
    site: Site, engine: SandboxEngine, client: GuardedClient, clock: FakeClock
) -> None:
    """A21: it is tried again as after a 5xx."""
    await engine.close()
    request = build_get(site, Engine(engine.endpoint, engine.host), "https://example.com/")
    outcome = await submit(request, key=site.key, client=client, clock=clock)
    assert (outcome.verdict, outcome.status) == (Verdict.UNAVAILABLE, None)
    assert "reached" in outcome.advice
    assert KEY not in outcome.reason


async def test_an_engine_that_may_not_be_reached_is_refused(
    site: Site, engine: SandboxEngine, clock: FakeClock
) -> None:
    """A21: an address that the guard forbids does not get better by trying again."""
    request = build_get(site, Engine(engine.endpoint, engine.host), "https://example.com/")
    async with GuardedClient(user_agent="tests") as guarded:
        outcome = await submit(request, key=site.key, client=guarded, clock=clock)
    assert (outcome.verdict, outcome.status) == (Verdict.REFUSED, None)
    assert "address" in outcome.advice
    assert (len(engine.requests), KEY in outcome.reason) == (0, False)
