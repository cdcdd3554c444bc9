"""Bilibili as a platform, against the sandbox that verifies signatures and cookies by itself."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.collect.platform_stage import Case, as_parameters, check_case, make_tools
from tests.fakes import FakeClock
from tidings.collect.crawl.platforms.bilibili import Bilibili
from tidings.collect.crawl.platforms.protocol import NoteReference
from tidings.collect.crawl.platforms.wbi import WbiKey
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Author, NoteKind
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media import bilibili as sandbox
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, DEMO_BILIBILI_SESSION, SandboxBilibili
from tidings.sandbox.wire.faults import Fault, FaultKind

COOKIE = Secret(DEMO_BILIBILI_COOKIE)
VIDEO = NoteReference(note_id=sandbox.name_video(5))

CASES = as_parameters(
    Case("-101", sandbox.NOT_LOGGED_IN, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("-102", sandbox.refuse(-102, "?"), ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("-401", sandbox.refuse(-401, "?"), ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("-503", sandbox.refuse(-503, "?"), ErrorCode.PLATFORM_ERROR),
    Case("-509", sandbox.refuse(-509, "?"), ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("-799", sandbox.refuse(-799, "?"), ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("-352", sandbox.RISK_CONTROL, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("-400", sandbox.BAD_REQUEST, ErrorCode.INVALID_INPUT),
    Case("-403", sandbox.NO_ACCESS, ErrorCode.PLATFORM_ERROR),
    Case("-404", sandbox.NO_SUCH_VIDEO, ErrorCode.INVALID_INPUT),
    Case("-412", sandbox.BLOCKED, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("HTTP 412", sandbox.BLOCKED_WITH_STATUS, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("62002", sandbox.INVISIBLE, ErrorCode.INVALID_INPUT),
    Case("62004", sandbox.UNDER_REVIEW, ErrorCode.INVALID_INPUT),
    Case("62012", sandbox.ONLY_FOR_AUTHOR, ErrorCode.INVALID_INPUT),
    Case("unknown code", sandbox.refuse(-99999, "?"), ErrorCode.PLATFORM_ERROR),
    Case("code as text", Fault(status=200, body='{"code":"0","data":{"a":1}}'), ErrorCode.PLATFORM_ERROR),
    Case("v_voucher", sandbox.V_VOUCHER, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("data {}", sandbox.EMPTY_DATA, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("no data", Fault(status=200, body='{"code":0}'), ErrorCode.PLATFORM_ERROR),
    Case("empty body", sandbox.EMPTY_BODY, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("HTML", sandbox.ERROR_PAGE, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("a list", Fault(status=200, body="[]"), ErrorCode.PLATFORM_ERROR),
    Case("deep JSON", Fault(status=200, body='{"a":' * 100_000), ErrorCode.PLATFORM_ERROR),
    Case("not UTF-8", Fault(status=200, headers={"Content-Encoding": "gzip"}, body="{"), ErrorCode.PLATFORM_ERROR),
    Case("HTTP 302", Fault(status=302, headers={"Location": "/login"}), ErrorCode.PLATFORM_ERROR),
    Case("HTTP 400", Fault(status=400), ErrorCode.INVALID_INPUT),
    Case("HTTP 401", Fault(status=401), ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("HTTP 403", Fault(status=403), ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("HTTP 403 in JSON", Fault(status=403, body="{}"), ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("HTTP 404", Fault(status=404), ErrorCode.PLATFORM_ERROR),
    Case("HTTP 429", sandbox.TOO_MANY_REQUESTS, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("HTTP 503", sandbox.UNAVAILABLE, ErrorCode.PLATFORM_ERROR),
    Case("reset", sandbox.RESET, ErrorCode.NETWORK_ERROR),
    Case("cut short", Fault(FaultKind.TRUNCATE), ErrorCode.NETWORK_ERROR),
    Case("hang", Fault(FaultKind.HANG), ErrorCode.TIMEOUT_ERROR),
    Case("slow drip", sandbox.DRIP, ErrorCode.TIMEOUT_ERROR),
)


@pytest.fixture
async def service() -> AsyncIterator[SandboxBilibili]:
    async with SandboxBilibili() as running:
        yield running


@pytest.fixture
def platform(service: SandboxBilibili, client: GuardedClient) -> Bilibili:
    return Bilibili(make_tools(client, service.origin, timeout=timedelta(seconds=2)))


async def test_a_search_brings_hits_with_clean_titles_page_by_page(platform: Bilibili) -> None:
    """C17: hits of one keyword, without the em tags and entities of the answer."""
    page = await platform.search(" 生活 ", page=1, cookie=COOKIE)
    assert (len(page.hits), page.page, page.has_more, page.total) == (20, 1, True, 60)
    hit = page.hits[4]
    assert (hit.platform, hit.note_id, hit.xsec_token) == ("bilibili", sandbox.name_video(5), None)
    assert (hit.title, hit.url) == ("咖啡 & 生活 第5篇", f"https://www.bilibili.com/video/{sandbox.name_video(5)}")
    last = await platform.search("生活", page=3, cookie=COOKIE)
    assert (len(last.hits), last.has_more) == (20, False)
    assert not {hit.note_id for hit in page.hits} & {hit.note_id for hit in last.hits}


@pytest.mark.parametrize("keyword", ["a b+c", "100% (it's!)*", "咖啡~&=?#/", "é", "really?!"])
async def test_every_keyword_is_signed_as_the_other_side_reads_it(
    service: SandboxBilibili, platform: Bilibili, keyword: str
) -> None:
    """C17: the sandbox checks the signature over what arrives, not over what was meant."""
    page = await platform.search(keyword, page=1, cookie=COOKIE)
    assert (page.hits, page.has_more) == ((), False)
    assert service.requests[-1].query.count("w_rid=") == 1


async def test_a_video_becomes_a_note(platform: Bilibili) -> None:
    """C17: one note model; plain text is not taken for HTML."""
    note = await platform.detail(VIDEO, cookie=COOKIE)
    assert (note.platform, note.note_id, note.kind) == ("bilibili", VIDEO.note_id, NoteKind.VIDEO)
    assert note.title == "咖啡 & 生活 第5篇"
    assert note.text == "今天说说咖啡：第 5 次。\n1 < 2 && 3 > 2，好用吗？"
    assert note.author.name == "山间小屋"
    assert isinstance(note.author, Author)
    assert note.author.author_id.isdigit()
    assert note.published_at == datetime(2026, 1, 6, 19, 30, tzinfo=UTC)
    assert (note.counts.views, note.counts.likes, note.counts.comments) == (100_055, 4_985, 65)
    assert (note.counts.favorites, note.counts.shares) == (505, 15)
    assert (note.counts.coins, note.counts.danmaku) == (2_492, 130)
    assert note.duration == timedelta(seconds=242)
    assert note.images == ("http://i0.hdslb.com/bfs/archive/5.jpg",)


async def test_a_video_is_found_by_its_old_number_too(platform: Bilibili) -> None:
    """C17: av and a number is the older name."""
    note = await platform.detail(NoteReference(note_id="AV900000005"), cookie=COOKIE)
    assert note.note_id == VIDEO.note_id


@CASES
async def test_each_refusal_of_a_search_is_reported_as_what_it_is(
    service: SandboxBilibili, platform: Bilibili, case: Case
) -> None:
    """C15, C17: statuses, codes, soft blocks and broken connections, for a search."""
    await platform.search("tea", page=1, cookie=COOKIE)
    service.misbehave(case.fault)
    with pytest.raises(CrawlError) as raised:
        await platform.search("tea", page=1, cookie=COOKIE)
    check_case(case, raised.value, secret=DEMO_BILIBILI_SESSION)


@CASES
async def test_each_refusal_of_a_detail_is_reported_as_what_it_is(
    service: SandboxBilibili, platform: Bilibili, case: Case
) -> None:
    """C15, C17: the same for a detail."""
    service.misbehave(case.fault)
    with pytest.raises(CrawlError) as raised:
        await platform.detail(VIDEO, cookie=COOKIE)
    check_case(case, raised.value, secret=DEMO_BILIBILI_SESSION)


async def test_keys_are_fetched_once_for_many_and_anew_where_they_changed(
    service: SandboxBilibili, platform: Bilibili
) -> None:
    """C17: a refused signature is tried once more with the keys of the day, before the account is blamed."""

    def count_nav() -> int:
        return sum(request.path == sandbox.NAV_PATH for request in service.requests)

    await asyncio.gather(*(platform.search("tea", page=1, cookie=COOKIE) for _ in range(5)))
    assert count_nav() == 1
    service.rotate_keys()
    assert (await platform.search("tea", page=1, cookie=COOKIE)).hits
    assert count_nav() == 2


async def test_a_search_is_repeated_only_with_keys_that_are_new(service: SandboxBilibili, platform: Bilibili) -> None:
    """C17: a v_voucher although the keys are those of the day is the account's; the platform is not asked again."""
    await platform.search("tea", page=1, cookie=COOKIE)
    service.misbehave(replace(sandbox.V_VOUCHER, path=sandbox.SEARCH_PATH))
    with pytest.raises(CrawlError) as raised:
        await platform.search("tea", page=1, cookie=COOKIE)
    assert (raised.value.code, raised.value.captcha) == (ErrorCode.COOKIE_INVALID, True)
    asked = [sandbox.NAV_PATH, sandbox.SEARCH_PATH, sandbox.SEARCH_PATH, sandbox.NAV_PATH]
    assert [request.path for request in service.requests] == asked


async def test_keys_are_fetched_anew_after_an_hour(client: GuardedClient, clock: FakeClock) -> None:
    """C17: keys of yesterday are not even tried."""
    async with SandboxBilibili(now=clock.now) as service:
        platform = Bilibili(make_tools(client, service.origin, clock=clock))
        for _ in range(2):
            await platform.search("tea", page=1, cookie=COOKIE)
            clock.advance(timedelta(minutes=61))
        assert [request.path for request in service.requests] == [sandbox.NAV_PATH, sandbox.SEARCH_PATH] * 2


@pytest.mark.parametrize(
    "data", ['{"isLogin":false}', '{"isLogin":true}', '{"isLogin":true,"wbi_img":{"img_url":"x"}}']
)
async def test_without_login_or_keys_nothing_is_searched(
    service: SandboxBilibili, platform: Bilibili, data: str
) -> None:
    """C17: the nav answer tells whether the account is logged in, and holds the keys."""
    service.misbehave(Fault(status=200, body=f'{{"code":0,"data":{data}}}', path=sandbox.NAV_PATH))
    with pytest.raises(CrawlError) as raised:
        await platform.search("tea", page=1, cookie=COOKIE)
    expected = ErrorCode.COOKIE_INVALID if "false" in data else ErrorCode.PLATFORM_ERROR
    assert (raised.value.code, raised.value.blames_cookie) == (expected, "false" in data)
    assert [request.path for request in service.requests] == [sandbox.NAV_PATH]


async def test_an_ended_session_is_the_cookies_fault(service: SandboxBilibili, platform: Bilibili) -> None:
    """C17: -101 from the stand-in itself, which looks at the cookie."""
    service.log_out(DEMO_BILIBILI_SESSION)
    for asking in (platform.search("tea", page=1, cookie=COOKIE), platform.detail(VIDEO, cookie=COOKIE)):
        with pytest.raises(CrawlError) as raised:
            await asking
        assert (raised.value.code, raised.value.blames_cookie) == (ErrorCode.COOKIE_INVALID, True)


@pytest.mark.parametrize("note_id", ["", "BV1", "BV1sb000000&x=1", "av0", "avx", "https://www.bilibili.com/video/BV1"])
async def test_a_wrong_name_is_refused_before_anything_is_sent(
    service: SandboxBilibili, platform: Bilibili, note_id: str
) -> None:
    """C15: INVALID_INPUT, and the platform is spared."""
    with pytest.raises(CrawlError) as raised:
        await platform.detail(NoteReference(note_id=note_id), cookie=COOKIE)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert not service.requests


@pytest.mark.parametrize(
    ("keyword", "page"), [("", 1), ("  ", 1), ("x" * 201, 1), ("a\nb", 1), ("\ud83d", 1), ("a", 0), ("a", 51)]
)
async def test_a_wrong_search_is_refused_before_anything_is_sent(
    service: SandboxBilibili, platform: Bilibili, keyword: str, page: int
) -> None:
    """C15: INVALID_INPUT, and the platform is spared."""
    with pytest.raises(CrawlError) as raised:
        await platform.search(keyword, page=page, cookie=COOKIE)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert not service.requests


@pytest.mark.parametrize(
    ("cookie", "code"),
    [
        (None, ErrorCode.COOKIE_EXHAUSTED),
        (Secret(""), ErrorCode.COOKIE_EXHAUSTED),
        (Secret("SESSDATA=a\r\nX-Evil: 1"), ErrorCode.COOKIE_INVALID),
        (Secret("SESSDATA=甲"), ErrorCode.COOKIE_INVALID),
    ],
)
async def test_no_cookie_or_one_that_is_no_header_is_never_sent(
    service: SandboxBilibili, platform: Bilibili, cookie: Secret | None, code: ErrorCode
) -> None:
    """C7, C15: nothing goes out without a cookie, or with one that would forge headers."""
    with pytest.raises(CrawlError) as raised:
        await platform.detail(VIDEO, cookie=cookie)
    assert (raised.value.code, raised.value.blames_cookie) == (code, code == ErrorCode.COOKIE_INVALID)
    assert not service.requests


async def test_an_answer_about_another_video_is_not_taken(service: SandboxBilibili, platform: Bilibili) -> None:
    """C17: what is stored under a name is what was asked for."""
    service.misbehave(Fault(status=200, body='{"code":0,"data":{"bvid":"BV1sb0000006","title":"other"}}'))
    with pytest.raises(CrawlError) as raised:
        await platform.detail(VIDEO, cookie=COOKIE)
    assert raised.value.code == ErrorCode.PLATFORM_ERROR


async def test_what_is_odd_in_an_answer_is_left_out_and_the_rest_kept(
    service: SandboxBilibili, platform: Bilibili
) -> None:
    """C17: one broken item does not cost the page, nor a missing field the note."""
    items = (
        '[null, 3, {"type":"ketang","bvid":"BV1sb0000001"}, {"type":"video"}, {"type":"video","bvid":"BV1sb0000002"}]'
    )
    body = f'{{"code":0,"data":{{"result":{items},"numPages":"many"}}}}'
    service.misbehave(Fault(status=200, body=body, path=sandbox.SEARCH_PATH))
    page = await platform.search("tea", page=1, cookie=COOKIE)
    assert [(hit.note_id, hit.title) for hit in page.hits] == [("BV1sb0000002", "")]
    assert (page.has_more, page.total) == (False, None)
    data = '{"bvid":"BV1sb0000005","stat":[],"owner":null,"duration":999999999999999}'
    service.misbehave(Fault(status=200, body=f'{{"code":0,"data":{data}}}'))
    note = await platform.detail(VIDEO, cookie=COOKIE)
    assert (note.title, note.published_at, note.counts.views, note.images) == ("", None, None, ())
    assert note.duration is None


async def test_the_cookie_goes_along_with_an_honest_name(service: SandboxBilibili, platform: Bilibili) -> None:
    """C17: no disguise; the stand-in sees the client's own User-Agent."""
    await platform.detail(VIDEO, cookie=COOKIE)
    headers = service.requests[0].headers
    assert (headers["User-Agent"], headers["Cookie"]) == ("tests", "SESSDATA=***; buvid3=***")


def test_the_signature_is_the_published_one() -> None:
    """C17: the example that is published with the algorithm."""
    folder = "https://i0.hdslb.com/bfs/wbi"
    key = WbiKey.from_images(
        f"{folder}/7cd084941338484aae1ad9425b84077c.png", f"{folder}/4932caff0ff746eab6f01bf08b70ac45.png"
    )
    assert key is not None
    query = key.sign({"foo": "114", "bar": "514", "zab": "1919810"}, at=datetime.fromtimestamp(1702204169, UTC))
    assert query == "bar=514&foo=114&wts=1702204169&zab=1919810&w_rid=8f6f2b5b3d485fe1886cec6a0be8c5d4"
    assert WbiKey.from_images("http://[", "") is None
