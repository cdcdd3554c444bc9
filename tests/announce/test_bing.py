"""Bing's protocol to the letter: what goes over the wire, and what each answer means."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from tests.fakes import FakeClock
from tidings.announce.channels.answer import Outcome, Verdict
from tidings.announce.channels.protocols.bing import AskedQuota, BingApi, judge_answer
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site, make_site
from tidings.core.net.addresses import parse_url
from tidings.core.net.client import Answer, GuardedClient
from tidings.sandbox.engines import bing as faults
from tidings.sandbox.engines.bing import SandboxBing, refuse, refuse_exceeded
from tidings.sandbox.wire.faults import Fault, FaultKind

KEY = "b1a2c3d4e5f60718293a4b5c6d7e8f90"
AWKWARD = "aB3+/=&%20#?'\\\"key"
ORIGIN = "https://example.com"
URLS = [f"{ORIGIN}/{number}" for number in range(1, 4)]
NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)


def make_bing_site(sitemap: str = f"{ORIGIN}/sitemap.xml", *, key: str = KEY, host: str | None = None) -> Site:
    bing = BingSettings.make(enabled=True, key=key)
    return make_site(sitemap_urls=[sitemap], key="an-indexnow-key", host=host, bing=bing)


def judge(status: int, body: str | bytes = "", **headers: str) -> Outcome:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body.encode() if isinstance(body, str) else body
    url = parse_url(f"{ORIGIN}/SubmitUrlbatch")
    answer = Answer(status=status, url=url, elapsed=timedelta(milliseconds=84), headers=named, body=raw)
    return judge_answer(answer, now=NOW)


async def submit(api: BingApi, site: Site, urls: Sequence[str]) -> Outcome:
    return await api.submit(site, api.build_request(site, urls), count=len(urls))


def judge_fault(fault: Fault) -> Outcome:
    return judge(fault.status, fault.body)


@dataclass(slots=True)
class Wire:
    """A server that answers every request with the same bytes, and keeps what it was sent."""

    answer: bytes = b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"d":null}'
    base: str = ""
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"(?im)^content-length: (\d+)", head)
        self.heads.append(head)
        self.bodies.append(await reader.readexactly(int(length[1])) if length else b"")
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def open_wire(answer: bytes | None = None) -> AsyncIterator[Wire]:
    wire = Wire() if answer is None else Wire(answer)
    async with await asyncio.start_server(wire.serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        wire.base = f"http://{host}:{port}/webmaster/api.svc/json"
        yield wire


@pytest.fixture
async def bing() -> AsyncIterator[SandboxBing]:
    async with SandboxBing(keys={KEY: [ORIGIN], AWKWARD: [ORIGIN]}, now=lambda: NOW) as running:
        yield running


@pytest.fixture
def api(client: GuardedClient, bing: SandboxBing) -> BingApi:
    return BingApi(client, FakeClock(NOW), bing.address)


async def test_a_batch_goes_out_as_bing_wants_it(client: GuardedClient) -> None:
    """A26: POST, the key encoded in the query and nowhere else, JSON in UTF-8 with siteUrl and urlList alone."""
    urls = [f"{ORIGIN}/a?b=1&c=%20", f"{ORIGIN}/Zürich/新"]
    async with open_wire() as wire:
        outcome = await submit(BingApi(client, FakeClock(NOW), wire.base), make_bing_site(key=AWKWARD), urls)
    [head], [body] = wire.heads, wire.bodies
    line, *headers = head.splitlines()
    assert line == ("POST /webmaster/api.svc/json/SubmitUrlbatch?apikey=aB3%2B%2F%3D%26%2520%23%3F'%5C%22key HTTP/1.1")
    assert "Content-Type: application/json; charset=utf-8" in headers
    assert json.loads(body) == {"siteUrl": ORIGIN, "urlList": urls}
    assert "新".encode() in body
    assert AWKWARD not in "".join(headers) + body.decode()
    assert (outcome.verdict, outcome.status) == (Verdict.ACCEPTED, 200)


async def test_the_quota_is_asked_for_with_get(client: GuardedClient) -> None:
    """A32: GET (Bing answers 405 to a POST) with siteUrl and the key in the query, both encoded, and no body."""
    async with open_wire() as wire:
        await BingApi(client, FakeClock(NOW), wire.base).ask_quota(make_bing_site(key=AWKWARD))
    [head], [body] = wire.heads, wire.bodies
    line, *headers = head.splitlines()
    assert line == (
        "GET /webmaster/api.svc/json/GetUrlSubmissionQuota"
        "?siteUrl=https%3A%2F%2Fexample.com&apikey=aB3%2B%2F%3D%26%2520%23%3F'%5C%22key HTTP/1.1"
    )
    assert body == b""
    assert not [each for each in headers if each.lower().startswith("content-type")]


@pytest.mark.parametrize(
    ("sitemap", "origin"),
    [
        ("https://example.com/sitemap.xml", "https://example.com"),
        ("https://EXAMPLE.com:443/blog/maps/sitemap.xml?x=1", "https://example.com"),
        ("http://www.example.com:8080/sitemap.xml", "http://www.example.com:8080"),
    ],
)
async def test_the_site_is_named_by_the_origin_of_its_sitemap(client: GuardedClient, sitemap: str, origin: str) -> None:
    """A26: scheme, host and a port that is not the scheme's own; nothing of the path, and not the site's host."""
    async with open_wire() as wire:
        site = make_bing_site(sitemap, host="pages.example.com")
        await submit(BingApi(client, FakeClock(NOW), wire.base), site, URLS)
    assert json.loads(wire.bodies[0])["siteUrl"] == origin


async def test_a_redirect_is_not_followed_for_the_key_would_go_along(client: GuardedClient) -> None:
    """A26, A31: it is no answer of Bing's, and where it points is never asked."""
    async with open_wire() as elsewhere:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere.base}\r\nContent-Length: 0\r\n\r\n"
        async with open_wire(moved.encode()) as wire:
            outcome = await submit(BingApi(client, FakeClock(NOW), wire.base), make_bing_site(), URLS)
    assert (outcome.verdict, outcome.reason, len(wire.heads)) == (Verdict.REFUSED, "HTTP 307", 1)
    assert elsewhere.heads == []


async def test_without_a_key_nothing_is_sent(bing: SandboxBing, api: BingApi) -> None:
    """A3: the rule is named."""
    site = make_site(sitemap_urls=[f"{ORIGIN}/sitemap.xml"], key="an-indexnow-key")
    with pytest.raises(SiteError, match="bingApiKey is required when bingEnabled is true"):
        await submit(api, site, URLS)
    assert not bing.requests


ACCEPTED, REFUSED, BAD_KEY = Verdict.ACCEPTED, Verdict.REFUSED, Verdict.FORBIDDEN
INVALID_URL, QUOTA_FULL, THROTTLED = Verdict.BAD_URLS, Verdict.QUOTA_FULL, Verdict.THROTTLED
RATE_LIMITED, UNAVAILABLE = Verdict.RATE_LIMITED, Verdict.UNAVAILABLE


@pytest.mark.parametrize(
    ("fault", "verdict", "code"),
    [
        (faults.INVALID_URL, INVALID_URL, "7"),
        (faults.INVALID_URL_DOCUMENTED, INVALID_URL, "ERROR_INVALID_URL"),
        (refuse(2, "ERROR_INVALID_URL"), INVALID_URL, "2"),
        (faults.INVALID_API_KEY, BAD_KEY, "3"),
        (faults.INVALID_API_KEY_DOCUMENTED, BAD_KEY, "ERROR_INVALID_API_KEY"),
        (faults.INVALID_API_KEY_IN_MESSAGE, BAD_KEY, "2"),
        (refuse(2, "ERROR_INVALID_API_KEY"), BAD_KEY, "2"),
        (faults.UNAUTHORIZED, BAD_KEY, None),
        (faults.NOT_AUTHORIZED, BAD_KEY, "14"),
        (refuse(2, "ERROR!!! NotAuthorized", status=403), BAD_KEY, "2"),
        (refuse_exceeded(quota=10), QUOTA_FULL, "2"),
        (faults.QUOTA_EXCEEDED_AS_8, QUOTA_FULL, "8"),
        (faults.QUOTA_EXCEEDED_DOCUMENTED, QUOTA_FULL, "ERROR_QUOTA_EXCEEDED"),
        (refuse(2, "ERROR_QUOTA_EXCEEDED"), QUOTA_FULL, "2"),
        (faults.FORBIDDEN, QUOTA_FULL, None),
        (faults.TOO_MANY_REQUESTS, RATE_LIMITED, None),
        (refuse(2, "slow down", status=429), RATE_LIMITED, "2"),
        (faults.THROTTLE_USER, THROTTLED, "4"),
        (faults.THROTTLE_HOST, THROTTLED, "5"),
        (faults.THROTTLE_IP, THROTTLED, "17"),
        (refuse("ThrottleUser", "later"), THROTTLED, "ThrottleUser"),
        (faults.SERVER_ERROR, UNAVAILABLE, None),
        (faults.UNAVAILABLE, UNAVAILABLE, None),
        (refuse(1, "ERROR!!! InternalError", status=500), UNAVAILABLE, "1"),
        (refuse(3, "ERROR!!! InvalidApiKey", status=500), BAD_KEY, "3"),
        # The number alone does not decide.
        (faults.UNKNOWN_ERROR, REFUSED, "2"),
        (faults.INTERNAL_ERROR, REFUSED, "1"),
        (faults.INVALID_PARAMETER, REFUSED, "8"),
        (refuse(2, ""), REFUSED, "2"),
        (refuse(3, "ERROR!!! something else"), REFUSED, "3"),
        (refuse(4, "ERROR!!! something else"), REFUSED, "4"),
        (refuse(7, "ERROR!!! something else"), REFUSED, "7"),
        (refuse(14, "ERROR!!! something else"), REFUSED, "14"),
        (refuse(17, "ERROR!!! something else"), REFUSED, "17"),
        # Neither does a page of HTML, nor nothing, nor a status of no meaning here.
        (faults.UNREADABLE, REFUSED, None),
        (Fault(status=400), REFUSED, None),
        (Fault(status=404, body="<html>no</html>"), REFUSED, None),
        (Fault(status=400, body="[1, 2]"), REFUSED, None),
        (Fault(status=202, body='{"d":null}'), REFUSED, None),
        # A success that says that it is none.
        (refuse(2, "ERROR!!! UnknownError", status=200), REFUSED, "2"),
        (refuse(3, "ERROR!!! InvalidApiKey", status=200), BAD_KEY, "3"),
        (refuse(17, "ERROR!!! ThrottleIP", status=200), THROTTLED, "17"),
    ],
)
def test_an_answer_is_judged_by_its_message_or_a_telling_status(
    fault: Fault, verdict: Verdict, code: str | None
) -> None:
    """A31: both families of answers; and whatever it means, ErrorCode and Message are kept for the log."""
    outcome = judge_fault(fault)
    assert (outcome.verdict, outcome.status, outcome.code) == (verdict, fault.status, code)
    assert not outcome.accepted
    assert outcome.reason.startswith(f"HTTP {fault.status}")
    assert outcome.advice
    if code is not None:
        message = json.loads(fault.body)["Message"]
        assert outcome.message == message
        assert outcome.reason == ": ".join(filter(None, (f"HTTP {fault.status}", f"ErrorCode {code}", message)))


@pytest.mark.parametrize("body", ['{"d":null}', '{"d": null, "more": [1]}', "", refuse(0, "None", status=200).body])
def test_a_200_without_an_error_is_a_success(body: str) -> None:
    """A26, A31: its body is nothing to tell."""
    outcome = judge(200, body)
    assert (outcome.verdict, outcome.reason, outcome.code, outcome.message) == (ACCEPTED, "HTTP 200", None, None)
    assert (outcome.accepted, outcome.advice) == (True, "")


@pytest.mark.parametrize(
    ("message", "verdict", "remaining"),
    [
        ("ERROR!!! Quota remaining for today: 27, Submitted: 73", Verdict.QUOTA_REMAINING, 27),
        ("Quota remaining for today:1, Submitted: 2", Verdict.QUOTA_REMAINING, 1),
        ("quota REMAINING for today : 499", Verdict.QUOTA_REMAINING, 499),
        ("You have exceeded your quota. Quota remaining for today: 5", Verdict.QUOTA_REMAINING, 5),
        ("ERROR!!! Quota remaining for today: 0, Submitted: 73", QUOTA_FULL, 0),
        ("ERROR!!! Quota remaining for today: many", REFUSED, None),
        ("ERROR!!! Quota remaining for today: -3", REFUSED, None),
    ],
)
@pytest.mark.parametrize("code", [2, 8])
@pytest.mark.parametrize("status", [400, 403])
def test_what_remains_of_the_quota_is_read_from_the_message(
    message: str, verdict: Verdict, remaining: int | None, code: int, status: int
) -> None:
    """A31: under any number; nothing remaining is a full day. Without a count that can be read, the status decides."""
    outcome = judge_fault(refuse(code, message, status=status))
    expected = QUOTA_FULL if verdict is REFUSED and status == 403 else verdict
    assert (outcome.verdict, outcome.remaining) == (expected, remaining)


@pytest.mark.parametrize(
    ("value", "wait"),
    [("7", 7), ("Wed, 15 Jan 2025 10:32:00 GMT", 120), ("soon", None), ("Wed, 15 Jan 2025 10:29:00 GMT", None)],
)
def test_retry_after_is_read_in_both_forms(value: str, wait: int | None) -> None:
    """A31: seconds or a date; nonsense and the past count as none."""
    expected = None if wait is None else timedelta(seconds=wait)
    assert judge(429, Retry_After=value).retry_after == expected


def test_what_bing_says_is_one_clean_short_line() -> None:
    """A31: nobody can forge a line of the log through it, and it does not grow with the answer."""
    document = {"ErrorCode": "2\r\nx", "Message": "one\n  two\x00\x1b[31m\u202e\ud800" + "é" * 5_000}
    outcome = judge(400, json.dumps(document))
    assert outcome.code == "2 x"
    assert outcome.message is not None
    assert outcome.message.startswith("one two\\x00\\x1b[31m\\u202e\\ud800éé")
    assert len(outcome.message) <= 300
    assert outcome.reason.isprintable()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"ErrorCode":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"ErrorCode":' + b"9" * 60_000 + b"}",
        b'{"ErrorCode":NaN,"Message":Infinity}',
        b'{"ErrorCode":{"a":1},"Message":[1,2]}',
        b"\xff\xfe\x00\x80",
        b'{"ErrorCode":2,"Message":"broken o',
        b"null",
        b'"InvalidPage"',
    ],
    ids=["deep", "deep code", "long number", "not a number", "objects", "not UTF-8", "broken", "null", "text"],
)
def test_nonsense_is_a_refusal_and_no_crash(body: bytes) -> None:
    """A31: no matter what stands in the body of an error."""
    outcome = judge(400, body)
    assert outcome.verdict is REFUSED
    assert outcome.reason.isprintable()
    assert len(outcome.reason) < 700


@pytest.mark.parametrize("body", ["<html>" + "x" * 3_000_000, refuse(2, "x" * 3_000_000).body], ids=["page", "JSON"])
async def test_of_a_huge_answer_only_the_start_is_read(bing: SandboxBing, api: BingApi, body: str) -> None:
    """A31: it is judged all the same, and what is kept of it is short."""
    bing.misbehave(Fault(status=400, body=body))
    outcome = await submit(api, make_bing_site(), URLS)
    assert (outcome.verdict, outcome.status) == (REFUSED, 400)
    assert len(outcome.reason) < 400


Prepare = Callable[[SandboxBing], object]


@pytest.mark.parametrize(
    ("prepare", "verdict"),
    [
        (lambda bing: None, ACCEPTED),
        (lambda bing: bing.revoke(KEY), BAD_KEY),
        (lambda bing: bing.spend(ORIGIN, 100), QUOTA_FULL),
        (lambda bing: bing.spend(ORIGIN, 98), Verdict.QUOTA_REMAINING),
    ],
    ids=["good", "unknown key", "spent", "nearly spent"],
)
async def test_what_bing_does_by_itself_is_understood(
    bing: SandboxBing, api: BingApi, prepare: Prepare, verdict: Verdict
) -> None:
    """A31: as it really answers."""
    prepare(bing)
    outcome = await submit(api, make_bing_site(), URLS)
    assert outcome.verdict is verdict
    assert len(bing.accepted) == (3 if outcome.accepted else 0)


async def test_a_site_that_is_not_in_the_account_and_a_foreign_url_are_distinguished(api: BingApi) -> None:
    """A31: the one is the key's fault, the other the URL's."""
    stranger = await submit(api, make_bing_site("https://other.example/sitemap.xml"), URLS)
    foreign = await submit(api, make_bing_site(), [*URLS, "https://other.example/"])
    assert (stranger.verdict, foreign.verdict) == (BAD_KEY, INVALID_URL)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (faults.RESET, "the server closed the connection without an answer"),
        (faults.RESET_AFTER_ACCEPTING, "the server closed the connection without an answer"),
        (Fault(FaultKind.TRUNCATE), "the answer broke off"),
    ],
)
async def test_a_connection_lost_after_sending_is_uncertain(
    bing: SandboxBing, api: BingApi, fault: Fault, words: str
) -> None:
    """A28, A31: nobody knows whether Bing counted it; no address is repeated, since the key is in it."""
    bing.misbehave(fault)
    outcome = await submit(api, make_bing_site(), URLS)
    assert (outcome.verdict, outcome.status, outcome.code) == (Verdict.UNCERTAIN, None, None)
    assert outcome.reason == f"no answer: {words}"


async def test_a_bing_that_is_not_there_has_counted_nothing(bing: SandboxBing, api: BingApi) -> None:
    """A28, A31: nothing was sent, so this is trouble of a server and not uncertain."""
    await bing.close()
    outcome = await submit(api, make_bing_site(), URLS)
    assert (outcome.verdict, outcome.reason) == (UNAVAILABLE, "no connection: Connection refused")


async def test_an_address_that_may_not_be_asked_is_a_refusal() -> None:
    """A31: BING_API_BASE goes through the guard like any other address; nothing was sent."""
    async with open_wire() as wire, GuardedClient(user_agent="tests") as strict:
        outcome = await submit(BingApi(strict, FakeClock(NOW), wire.base), make_bing_site(), URLS)
    assert outcome.verdict is REFUSED
    assert "is not a public address" in outcome.reason
    assert wire.heads == []


@pytest.mark.parametrize(("reports_remaining", "daily", "monthly"), [(True, 60, 3_100), (False, 100, 3_100)])
async def test_bing_is_asked_for_its_quota_in_either_meaning(
    bing: SandboxBing, api: BingApi, reports_remaining: bool, daily: int, monthly: int
) -> None:
    """A32: the numbers as they are given, be it what remains or the total; nothing is used up by asking."""
    bing.spend(ORIGIN, 40)
    bing.reports_remaining = reports_remaining
    assert await api.ask_quota(make_bing_site(key=AWKWARD)) == AskedQuota(daily=daily, monthly=monthly)
    assert bing.used(ORIGIN) == 40


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (faults.INVALID_API_KEY, BAD_KEY),
        (faults.UNAUTHORIZED, BAD_KEY),
        (faults.NOT_AUTHORIZED, BAD_KEY),
        (faults.THROTTLE_IP, THROTTLED),
        (faults.TOO_MANY_REQUESTS, RATE_LIMITED),
        (faults.UNAVAILABLE, UNAVAILABLE),
        (faults.RESET, Verdict.UNCERTAIN),
        (Fault(status=405), REFUSED),
    ],
)
async def test_an_error_instead_of_the_quota_is_judged_like_any_other(
    bing: SandboxBing, api: BingApi, fault: Fault, verdict: Verdict
) -> None:
    """A31, A32: nothing is retried."""
    bing.misbehave(fault)
    asked = await api.ask_quota(make_bing_site())
    assert isinstance(asked, Outcome)
    assert (asked.verdict, len(bing.requests)) == (verdict, 1)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>Welcome</html>",
        "null",
        "[]",
        '{"d":null}',
        '{"d":[]}',
        '{"d":{}}',
        '{"d":{"DailyQuota":10}}',
        '{"d":{"DailyQuota":"many","MonthlyQuota":1}}',
        '{"d":{"DailyQuota":null,"MonthlyQuota":1}}',
        '{"d":{"DailyQuota":NaN,"MonthlyQuota":1}}',
        '{"d":{"DailyQuota":Infinity,"MonthlyQuota":1}}',
        '{"d":{"DailyQuota":-1,"MonthlyQuota":1}}',
        '{"d":' + "[" * 60_000,
    ],
)
async def test_a_200_without_a_quota_is_a_refusal(bing: SandboxBing, api: BingApi, body: str) -> None:
    """A32: nonsense is called what it is, and never raises."""
    bing.misbehave(Fault(status=200, body=body))
    asked = await api.ask_quota(make_bing_site())
    assert isinstance(asked, Outcome)
    assert (asked.verdict, asked.reason) == (REFUSED, "HTTP 200, but not with a quota")
