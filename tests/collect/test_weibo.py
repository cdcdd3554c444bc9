"""Weibo as a platform, against the sandbox."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.collect.platform_stage import Case, as_parameters, check_case, make_tools
from tidings.collect.crawl.platforms.protocol import NoteReference
from tidings.collect.crawl.platforms.weibo import Weibo
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import NoteKind
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media import weibo as sandbox
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, DEMO_WEIBO_SESSION, SandboxWeibo
from tidings.sandbox.wire.faults import Fault, FaultKind

COOKIE = Secret(DEMO_WEIBO_COOKIE)
POST = NoteReference(note_id=sandbox.name_post(30))

BOTH = (
    Case("432", sandbox.SESSION_REFUSED, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("ok -100", sandbox.LOGIN_WANTED, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case(
        "captcha",
        Fault(status=200, body='{"ok":0,"url":"/captcha"}'),
        ErrorCode.COOKIE_INVALID,
        blames_cookie=True,
        captcha=True,
    ),
    Case("login redirect", sandbox.LOGIN_REDIRECT, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("login page", sandbox.LOGIN_PAGE, ErrorCode.COOKIE_INVALID, blames_cookie=True),
    Case("HTTP 403", sandbox.FORBIDDEN, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("too often", sandbox.TOO_OFTEN, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("HTTP 418", sandbox.TEAPOT, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("data {}", sandbox.EMPTY_DATA, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("data []", Fault(status=200, body='{"ok":1,"data":[]}'), ErrorCode.PLATFORM_ERROR),
    Case("no ok", Fault(status=200, body='{"data":{"id":1}}'), ErrorCode.PLATFORM_ERROR),
    Case("empty body", sandbox.EMPTY_BODY, ErrorCode.COOKIE_INVALID, blames_cookie=True, captcha=True),
    Case("HTML", sandbox.ERROR_PAGE, ErrorCode.PLATFORM_ERROR),
    Case("text", Fault(status=200, body="busy"), ErrorCode.PLATFORM_ERROR),
    Case("HTTP 412", Fault(status=412), ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("HTTP 429", sandbox.TOO_MANY_REQUESTS, ErrorCode.PLATFORM_ERROR, blocked=True),
    Case("HTTP 404", Fault(status=404), ErrorCode.PLATFORM_ERROR),
    Case("HTTP 503", sandbox.UNAVAILABLE, ErrorCode.PLATFORM_ERROR),
    Case("reset", sandbox.RESET, ErrorCode.NETWORK_ERROR),
    Case("cut short", Fault(FaultKind.TRUNCATE), ErrorCode.NETWORK_ERROR),
    Case("hang", Fault(FaultKind.HANG), ErrorCode.TIMEOUT_ERROR),
    Case("slow drip", sandbox.DRIP, ErrorCode.TIMEOUT_ERROR),
)


@pytest.fixture
async def service() -> AsyncIterator[SandboxWeibo]:
    async with SandboxWeibo() as running:
        yield running


@pytest.fixture
def platform(service: SandboxWeibo, client: GuardedClient) -> Weibo:
    return Weibo(make_tools(client, service.origin, timeout=timedelta(seconds=0.5)))


async def test_a_search_brings_posts_also_from_groups_and_nothing_else(platform: Weibo) -> None:
    """C17: cards of type 9, on their own and in a group; advertisements are left out."""
    page = await platform.search("生活", page=1, cookie=COOKIE)
    assert [hit.note_id for hit in page.hits] == [sandbox.name_post(number) for number in range(1, 11)]
    assert (page.page, page.has_more, page.total) == (1, True, 60)
    assert page.hits[4].title == "咖啡 & 生活 第5篇"
    assert page.hits[4].url == f"https://m.weibo.cn/detail/{sandbox.name_post(5)}"
    last = await platform.search("生活", page=6, cookie=COOKIE)
    assert (len(last.hits), last.has_more) == (10, False)


@pytest.mark.parametrize("keyword", ["咖啡&page=9", "a=b#c", "50%", "no such thing"])
async def test_a_keyword_stays_one_and_finding_nothing_is_no_error(
    service: SandboxWeibo, platform: Weibo, keyword: str
) -> None:
    """C17: `ok: 0` with no content is an empty page; signs in a keyword do not become parameters."""
    page = await platform.search(keyword, page=1, cookie=COOKIE)
    assert (page.hits, page.has_more, page.total) == ((), False, 0)
    assert service.requests[0].urls == (keyword,)


async def test_a_post_becomes_a_note(platform: Weibo) -> None:
    """C17: HTML, counts such as 3.0万 and Weibo's date in the one note model."""
    note = await platform.detail(POST, cookie=COOKIE)
    assert (note.platform, note.note_id, note.kind) == ("weibo", POST.note_id, NoteKind.IMAGES)
    assert note.title == "咖啡 & 生活 第30篇"
    assert note.text == "咖啡 & 生活 第30篇\n今天说说咖啡：第 30 次。\n1 < 2 && 3 > 2，好用吗？[笑而不语]#咖啡#"
    assert (note.author.name, note.place, note.tags) == ("山间小屋", "浙江", ("咖啡",))
    assert note.published_at == datetime(2026, 1, 14, 2, 30, tzinfo=UTC)
    assert (note.counts.likes, note.counts.comments, note.counts.shares) == (30_000, 390, 90)
    assert (note.counts.views, note.counts.favorites) == (None, None)
    assert note.images == ("https://wx1.sinaimg.cn/large/30.jpg",)


async def test_a_post_is_found_by_its_short_name_too(platform: Weibo) -> None:
    """C17: the bid is the name in the address bar; the note keeps the number as its key."""
    note = await platform.detail(NoteReference(note_id="Sb0000030"), cookie=COOKIE)
    assert note.note_id == POST.note_id


@as_parameters(*BOTH, Case("no such post", sandbox.NO_SUCH_POST, ErrorCode.PLATFORM_ERROR))
async def test_each_refusal_of_a_search_is_reported_as_what_it_is(
    service: SandboxWeibo, platform: Weibo, case: Case
) -> None:
    """C15, C17: statuses, soft blocks and broken connections, for a search."""
    service.misbehave(case.fault)
    with pytest.raises(CrawlError) as raised:
        await platform.search("tea", page=1, cookie=COOKIE)
    check_case(case, raised.value, secret=DEMO_WEIBO_SESSION)


@as_parameters(
    *BOTH,
    Case("no such post", sandbox.NO_SUCH_POST, ErrorCode.INVALID_INPUT),
    Case("a page that says so", sandbox.NO_SUCH_POST_PAGE, ErrorCode.INVALID_INPUT),
    Case("nothing found", sandbox.NOTHING_FOUND, ErrorCode.PLATFORM_ERROR),
    Case("another post", Fault(status=200, body='{"ok":1,"data":{"id":"1"}}'), ErrorCode.PLATFORM_ERROR),
)
async def test_each_refusal_of_a_detail_is_reported_as_what_it_is(
    service: SandboxWeibo, platform: Weibo, case: Case
) -> None:
    """C15, C17: the same for a detail, where a post that is gone is the caller's."""
    service.misbehave(case.fault)
    with pytest.raises(CrawlError) as raised:
        await platform.detail(POST, cookie=COOKIE)
    check_case(case, raised.value, secret=DEMO_WEIBO_SESSION)


async def test_gone_and_ended_are_reported_apart_by_the_stand_in_itself(service: SandboxWeibo, platform: Weibo) -> None:
    """C17: no fault set: the stand-in looks for the post and at the cookie."""
    service.library.remove(30)
    with pytest.raises(CrawlError) as gone:
        await platform.detail(POST, cookie=COOKIE)
    assert gone.value.code == ErrorCode.INVALID_INPUT
    service.log_out(DEMO_WEIBO_SESSION)
    with pytest.raises(CrawlError) as ended:
        await platform.search("tea", page=1, cookie=COOKIE)
    assert (ended.value.code, ended.value.blames_cookie) == (ErrorCode.COOKIE_INVALID, True)


@pytest.mark.parametrize("note_id", ["", "12", "1&id=2", "../x/yy", "x" * 33])
async def test_a_wrong_name_is_refused_before_anything_is_sent(
    service: SandboxWeibo, platform: Weibo, note_id: str
) -> None:
    """C15: INVALID_INPUT, and the platform is spared."""
    with pytest.raises(CrawlError) as raised:
        await platform.detail(NoteReference(note_id=note_id), cookie=COOKIE)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert not service.requests


async def test_odd_cards_cost_nothing_but_themselves(service: SandboxWeibo, platform: Weibo) -> None:
    """C17: one broken card does not cost the page; a post that stands twice is one hit."""
    post = '{"card_type":9,"mblog":{"mid":"5000000000000001","text":"a<br/>b"}}'
    cards = f'[null, {{"card_type":9}}, {{"card_type":9,"mblog":{{"id":null}}}}, {post}, {{"card_group":[{post}]}}]'
    service.misbehave(Fault(status=200, body=f'{{"ok":1,"data":{{"cards":{cards}}}}}'))
    page = await platform.search("tea", page=1, cookie=COOKIE)
    assert [(hit.note_id, hit.title) for hit in page.hits] == [("5000000000000001", "a")]
    assert (page.has_more, page.total) == (True, None)


@pytest.mark.parametrize(
    ("post", "kind", "images"),
    [
        ('"pics":[{"url":"https://a/1"},{},3]', NoteKind.IMAGES, ("https://a/1",)),
        ('"page_info":{"type":"video"}', NoteKind.VIDEO, ()),
        ('"pics":null', NoteKind.TEXT, ()),
    ],
)
async def test_the_kind_of_a_post_is_reported_by_what_it_holds(
    service: SandboxWeibo, platform: Weibo, post: str, kind: NoteKind, images: tuple[str, ...]
) -> None:
    """C17: pictures, a video or only words."""
    service.misbehave(Fault(status=200, body=f'{{"ok":1,"data":{{"id":"{POST.note_id}",{post}}}}}'))
    note = await platform.detail(POST, cookie=COOKIE)
    assert (note.kind, note.images, note.title) == (kind, images, "")


async def test_without_a_cookie_nothing_is_sent(service: SandboxWeibo, platform: Weibo) -> None:
    """C15: COOKIE_EXHAUSTED is not the platform's fault."""
    with pytest.raises(CrawlError) as raised:
        await platform.search("tea", page=1, cookie=None)
    assert raised.value.code == ErrorCode.COOKIE_EXHAUSTED
    assert not service.requests
