"""Xiaohongshu as a platform, against the sandbox that verifies signatures, accounts and tokens by itself."""

import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.collect.platform_stage import Case, as_parameters, check_case, make_tools, refer_to
from tests.fakes import FakeClock
from tidings.collect.crawl.platforms.protocol import NoteReference
from tidings.collect.crawl.platforms.xiaohongshu import Xiaohongshu
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import NoteKind
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media import xiaohongshu as sandbox
from tidings.sandbox.media.xiaohongshu import DEMO_XIAOHONGSHU_COOKIE, DEMO_XIAOHONGSHU_SESSION, SandboxXiaohongshu
from tidings.sandbox.wire.faults import Fault, FaultKind

COOKIE = Secret(DEMO_XIAOHONGSHU_COOKIE)
NOTE = NoteReference(note_id=sandbox.name_note(5), xsec_token=sandbox.make_token(5))

CASES = as_parameters(
    Case("461", sandbox.CAPTCHA_461, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("471", sandbox.CAPTCHA_471, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("300011", sandbox.ACCOUNT_ABNORMAL, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("300012", sandbox.ADDRESS_BLOCKED, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("300013", sandbox.refuse(300013, "?"), ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("300017", sandbox.refuse(300017, "?"), ErrorCode.INVALID_INPUT),
    Case("300015", sandbox.BAD_SIGNATURE, ErrorCode.PLATFORM_ERROR),
    Case("-100", sandbox.SESSION_EXPIRED, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("-101", sandbox.NOT_LOGGED_IN, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("-104", sandbox.NO_PERMISSION, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("-510000", sandbox.NOTE_GONE, ErrorCode.INVALID_INPUT),
    Case("-510001", sandbox.NOTE_UNAVAILABLE, ErrorCode.INVALID_INPUT),
    Case("unknown code", sandbox.refuse(-1, "?"), ErrorCode.PLATFORM_ERROR),
    Case("no success", Fault(status=200, body='{"code":0,"success":false}'), ErrorCode.PLATFORM_ERROR),
    Case("data {}", sandbox.EMPTY_DATA, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("no data", Fault(status=200, body='{"code":0,"success":true}'), ErrorCode.PLATFORM_ERROR),
    Case("empty body", sandbox.EMPTY_BODY, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("HTML", sandbox.ERROR_PAGE, ErrorCode.PLATFORM_ERROR),
    Case("HTTP 401", Fault(status=401), ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("HTTP 406", sandbox.SIGNATURE_REFUSED, ErrorCode.PLATFORM_ERROR),
    Case("HTTP 429", sandbox.TOO_MANY_REQUESTS, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("HTTP 503", sandbox.UNAVAILABLE, ErrorCode.PLATFORM_ERROR),
    Case("reset", sandbox.RESET, ErrorCode.NETWORK_ERROR),
    Case("cut short", Fault(FaultKind.TRUNCATE), ErrorCode.NETWORK_ERROR),
    Case("hang", Fault(FaultKind.HANG), ErrorCode.TIMEOUT_ERROR),
    Case("slow drip", sandbox.DRIP, ErrorCode.TIMEOUT_ERROR),
)


@pytest.fixture
async def service() -> AsyncIterator[SandboxXiaohongshu]:
    async with SandboxXiaohongshu() as running:
        yield running


@pytest.fixture
def platform(service: SandboxXiaohongshu, client: GuardedClient) -> Xiaohongshu:
    return Xiaohongshu(make_tools(client, service.origin, timeout=timedelta(seconds=0.5)))


async def test_a_search_brings_notes_with_their_tokens_and_no_suggestions(platform: Xiaohongshu) -> None:
    """C17: rec_query is skipped; xsec_token is part of a hit."""
    page = await platform.search("生活", page=1, cookie=COOKIE)
    assert [hit.note_id for hit in page.hits] == [sandbox.name_note(number) for number in range(1, 21)]
    assert (page.has_more, page.total) == (True, None)
    hit = page.hits[4]
    assert (hit.title, hit.xsec_token) == ("咖啡 & 生活 第5篇", sandbox.make_token(5))
    assert hit.url.startswith(f"https://www.xiaohongshu.com/explore/{sandbox.name_note(5)}?xsec_token=AB")
    last = await platform.search("生活", page=3, cookie=COOKIE)
    assert (len(last.hits), last.has_more) == (20, False)


@pytest.mark.parametrize("keyword", ["a b+c", '引号"\\', "咖啡😀", "</script>"])
async def test_every_keyword_is_signed_as_it_is_sent(platform: Xiaohongshu, keyword: str) -> None:
    """C17: the sandbox checks the signature over the very bytes that arrive; finding nothing is no error."""
    page = await platform.search(keyword, page=1, cookie=COOKIE)
    assert (page.hits, page.has_more) == ((), False)


async def test_the_token_travels_from_search_to_detail_in_either_form(platform: Xiaohongshu) -> None:
    """C17: in the reference, or in the URL alone, which is what a table keeps."""
    page = await platform.search("咖啡", page=1, cookie=COOKIE)
    hit = page.hits[0]
    by_token = await platform.detail(refer_to(hit), cookie=COOKIE)
    by_url = await platform.detail(NoteReference(note_id=hit.note_id, url=hit.url), cookie=COOKIE)
    assert by_token == by_url
    assert by_token.url == hit.url


async def test_a_note_becomes_a_note(platform: Xiaohongshu) -> None:
    """C17: counts as text, milliseconds and topic marks in the one note model."""
    reference = NoteReference(note_id=sandbox.name_note(20), xsec_token=sandbox.make_token(20))
    note = await platform.detail(reference, cookie=COOKIE)
    assert (note.platform, note.note_id, note.kind) == ("xiaohongshu", sandbox.name_note(20), NoteKind.VIDEO)
    assert note.title == "咖啡 & 生活 第20篇"
    assert note.text == "今天说说咖啡：第 20 次。\n1 < 2 && 3 > 2，好用吗？ #咖啡 #日常"
    assert (note.author.name, note.place, note.tags) == ("山间小屋", "浙江", ("咖啡", "日常"))
    assert note.published_at == datetime(2026, 1, 11, 4, 30, tzinfo=UTC)
    assert note.updated_at == datetime(2026, 1, 11, 5, 30, tzinfo=UTC)
    assert (note.counts.likes, note.counts.comments) == (20_000, 260)  # 1.9940万 is shown as 2.0万
    assert (note.counts.favorites, note.counts.shares) == (2_020, 60)
    assert len(note.images) == 2


@CASES
async def test_each_refusal_of_a_search_is_reported_as_what_it_is(
    service: SandboxXiaohongshu, platform: Xiaohongshu, case: Case
) -> None:
    """C15, C17: captchas, codes, soft blocks and broken connections, for a search."""
    service.misbehave(case.fault)
    with pytest.raises(CrawlError) as raised:
        await platform.search("tea", page=1, cookie=COOKIE)
    check_case(case, raised.value, secret=DEMO_XIAOHONGSHU_SESSION)


@CASES
async def test_each_refusal_of_a_detail_is_reported_as_what_it_is(
    service: SandboxXiaohongshu, platform: Xiaohongshu, case: Case
) -> None:
    """C15, C17: the same for a detail."""
    service.misbehave(case.fault)
    with pytest.raises(CrawlError) as raised:
        await platform.detail(NOTE, cookie=COOKIE)
    check_case(case, raised.value, secret=DEMO_XIAOHONGSHU_SESSION)


@pytest.mark.parametrize(
    ("cookie", "blames_cookie", "sent"),
    [
        (f"web_session={DEMO_XIAOHONGSHU_SESSION}", True, 0),
        ("a1=19a0another", True, 1),
        ("a1=19a0another; web_session=stranger", True, 1),
    ],
)
async def test_a_cookie_without_its_two_parts_is_to_blame(
    service: SandboxXiaohongshu, platform: Xiaohongshu, cookie: str, *, blames_cookie: bool, sent: int
) -> None:
    """C17: without a1 nothing can be signed; without web_session nobody is logged in."""
    with pytest.raises(CrawlError) as raised:
        await platform.detail(NOTE, cookie=Secret(cookie))
    assert (raised.value.code, raised.value.blames_cookie) == (ErrorCode.COOKIE_INVALID, blames_cookie)
    assert len(service.requests) == sent


@pytest.mark.parametrize(
    "reference",
    [
        NoteReference(note_id="65A0", xsec_token="AB="),
        NoteReference(note_id=sandbox.name_note(5)),
        NoteReference(note_id=sandbox.name_note(5), url="https://www.xiaohongshu.com/explore/1?xsec_source=x"),
        NoteReference(note_id=sandbox.name_note(5), url="http://[bad"),
        NoteReference(note_id=sandbox.name_note(5), xsec_token='"}'),
    ],
)
async def test_a_note_without_name_or_token_is_refused_before_anything_is_sent(
    service: SandboxXiaohongshu, platform: Xiaohongshu, reference: NoteReference
) -> None:
    """C15: INVALID_INPUT, and the platform is spared."""
    with pytest.raises(CrawlError) as raised:
        await platform.detail(reference, cookie=COOKIE)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert not service.requests


@pytest.mark.parametrize("token", ["ABwrong=", sandbox.make_token(6)])
async def test_a_wrong_token_gets_no_note(platform: Xiaohongshu, token: str) -> None:
    """C17: the stand-in checks the token against the note."""
    with pytest.raises(CrawlError) as raised:
        await platform.detail(NoteReference(note_id=NOTE.note_id, xsec_token=token), cookie=COOKIE)
    assert raised.value.code == ErrorCode.INVALID_INPUT


async def test_an_answer_about_another_note_is_not_taken(service: SandboxXiaohongshu, platform: Xiaohongshu) -> None:
    """C17: what is stored under a name is what was asked for."""
    card = f'{{"note_card":{{"note_id":"{sandbox.name_note(6)}"}}}}'
    for items in ("[]", "null", f"[{card}]"):
        service.misbehave(Fault(status=200, body=f'{{"code":0,"data":{{"items":{items}}}}}', times=1))
        with pytest.raises(CrawlError) as raised:
            await platform.detail(NOTE, cookie=COOKIE)
        assert raised.value.code == ErrorCode.PLATFORM_ERROR


async def test_the_signature_is_of_the_time_it_is_sent(client: GuardedClient, clock: FakeClock) -> None:
    """C17: time comes from the clock that was given; the sandbox refuses an old signature."""
    async with SandboxXiaohongshu(now=clock.now) as service:
        platform = Xiaohongshu(make_tools(client, service.origin, clock=clock))
        await platform.detail(NOTE, cookie=COOKIE)
        assert service.requests[0].headers["x-t"] == str(int(clock.now().timestamp() * 1000))
        late = Xiaohongshu(make_tools(client, service.origin, clock=FakeClock(clock.now() - timedelta(hours=1))))
        with pytest.raises(CrawlError) as raised:
            await late.detail(NOTE, cookie=COOKIE)
        assert raised.value.code == ErrorCode.PLATFORM_ERROR


async def test_nothing_is_sent_that_pretends_to_be_a_browser(
    service: SandboxXiaohongshu, platform: Xiaohongshu
) -> None:
    """C17, C31: no disguise: the honest name, the platform's own Referer and Origin, and no invented fingerprint."""
    await platform.detail(NOTE, cookie=COOKIE)
    headers = {name.lower() for name in service.requests[0].headers}
    assert service.requests[0].headers["User-Agent"] == "tests"
    assert {"x-s", "x-t", "origin", "referer"} <= headers
    assert not headers & {"x-s-common", "x-rap-param", "x-b3-traceid", "x-xray-traceid"}


def test_without_the_package_that_signs_the_message_says_how_to_get_it(
    client: GuardedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C15, C17: xhshow is an optional extra; None in sys.modules is how Python marks a package that is not there. No
    note is to blame for that, so it is not INVALID_INPUT."""
    monkeypatch.setitem(sys.modules, "xhshow", None)
    with pytest.raises(CrawlError) as raised:
        Xiaohongshu(make_tools(client))
    assert raised.value.code == ErrorCode.PLATFORM_ERROR
    assert "pip install --no-deps --require-hashes -r requirements/xiaohongshu.txt" in raised.value.message
