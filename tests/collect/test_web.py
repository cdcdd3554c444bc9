"""The open web as a platform: feeds, articles, robots.txt and the guard, against a site of the sandbox."""

import asyncio
import gzip
import random
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.collect.platform_stage import Case, as_parameters, make_tools
from tests.fakes import FakeClock
from tests.processes import list_readers
from tests.stage import LOOPBACK
from tidings.collect.crawl.crawler import WantedNote
from tidings.collect.crawl.platforms.open_web.robots import Robots
from tidings.collect.crawl.platforms.open_web.web import Web, name_page
from tidings.collect.crawl.platforms.pace import LocalPace
from tidings.collect.crawl.platforms.protocol import NoteReference, PlatformTools
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import NoteKind
from tidings.core.isolation.pool import ChildPool
from tidings.core.net.addresses import parse_url
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media import openweb
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded
from tidings.settings.collect import CrawlSettings
from tidings.settings.settings import Settings
from tidings.wiring.crawl import open_crawler
from tidings.wiring.opening import open_installation

FORBIDDING = "User-agent: *\nDisallow: /articles/\n"

CASES = (
    Case("403", openweb.FORBIDDEN, ErrorCode.INVALID_INPUT),
    Case("captcha page", openweb.CAPTCHA_PAGE, ErrorCode.INVALID_INPUT),
    Case("404", openweb.NOT_FOUND, ErrorCode.INVALID_INPUT),
    Case("410", openweb.GONE, ErrorCode.INVALID_INPUT),
    Case("429", openweb.TOO_MANY_REQUESTS, ErrorCode.PLATFORM_ERROR),
    Case("503", openweb.UNAVAILABLE, ErrorCode.PLATFORM_ERROR),
    Case("empty body", openweb.EMPTY_BODY, ErrorCode.PLATFORM_ERROR),
    Case("a file", openweb.A_FILE, ErrorCode.INVALID_INPUT),
    Case("no article, no feed", openweb.NO_ARTICLE, ErrorCode.INVALID_INPUT),
    Case("redirects without end", openweb.LOOP, ErrorCode.INVALID_INPUT),
    Case("redirect inside", openweb.TO_PRIVATE, ErrorCode.INVALID_INPUT),
    Case("redirect to a file", Fault(status=301, headers={"Location": "file:///etc/passwd"}), ErrorCode.INVALID_INPUT),
    Case("damaged gzip", Fault(status=200, headers={"Content-Encoding": "gzip"}, body="x"), ErrorCode.PLATFORM_ERROR),
    Case("reset", openweb.RESET, ErrorCode.NETWORK_ERROR),
    Case("cut short", Fault(FaultKind.TRUNCATE), ErrorCode.NETWORK_ERROR),
    Case("hang", Fault(FaultKind.HANG), ErrorCode.TIMEOUT_ERROR),
    Case("slow drip", openweb.DRIP, ErrorCode.TIMEOUT_ERROR),
)


@pytest.fixture
async def site() -> AsyncIterator[SandboxOpenWeb]:
    async with SandboxOpenWeb() as running:
        yield running


OpenWeb = Callable[[PlatformTools], Web]


@pytest.fixture
async def open_web() -> AsyncIterator[OpenWeb]:
    """Opens the platform, as often as a test wants it."""
    async with AsyncExitStack() as stack:

        def open_one(tools: PlatformTools) -> Web:
            opened = Web(tools)
            stack.push_async_callback(opened.close)
            return opened

        yield open_one


@pytest.fixture
def platform(client: GuardedClient, open_web: OpenWeb) -> Web:
    return open_web(make_tools(client, timeout=timedelta(seconds=0.5)))


def refer(url: str) -> NoteReference:
    return NoteReference(note_id=name_page(url), url=url)


def paths(site: SandboxOpenWeb) -> list[str]:
    return [request.path for request in site.requests]


@pytest.mark.parametrize("path", [openweb.RSS_PATH, openweb.ATOM_PATH])
async def test_a_feed_is_searched_by_its_address_and_words(site: SandboxOpenWeb, platform: Web, path: str) -> None:
    """C17: RSS and Atom; relative addresses and escaped titles are made whole."""
    everything = await platform.search(site.origin + path, page=1, cookie=None)
    assert (len(everything.hits), everything.has_more, everything.total) == (20, True, 30)
    rest = await platform.search(site.origin + path, page=2, cookie=None)
    assert (len(rest.hits), rest.has_more) == (10, False)
    found = await platform.search(f"{site.origin}{path} 咖啡 第5篇", page=1, cookie=None)
    (hit,) = found.hits
    assert (hit.platform, hit.url, hit.title) == ("web", site.url(5), "咖啡 & 生活 第5篇")
    assert hit.note_id == name_page(site.url(5))
    assert hit.note_id.isalnum()


async def test_words_alone_are_looked_for_in_the_feeds_that_are_set(
    site: SandboxOpenWeb, client: GuardedClient, open_web: OpenWeb
) -> None:
    """C17: several feeds, each entry once; one that fails does not cost the others."""
    broken = f"{site.origin}/broken.rss"
    platform = open_web(make_tools(client, feeds=(broken, site.rss_url, site.atom_url)))
    page = await platform.search("TEA", page=1, cookie=None)
    assert [hit.url for hit in page.hits] == [site.url(number) for number in (3, 8, 13, 18, 23, 28)]
    with pytest.raises(CrawlError) as raised:
        await open_web(make_tools(client, feeds=(broken,))).search("tea", page=1, cookie=None)
    assert raised.value.code == ErrorCode.INVALID_INPUT


async def test_the_feeds_of_a_search_are_read_at_the_same_time(
    site: SandboxOpenWeb, client: GuardedClient, open_web: OpenWeb
) -> None:
    """C16: none is answered before all are asked; what they bring stays in the order of the feeds."""
    feeds = ("/other.rss", openweb.RSS_PATH, openweb.ATOM_PATH)
    site.serve(
        "/other.rss", "<rss version='2.0'><channel><item><title>tea</title><link>/a</link></item></channel></rss>"
    )
    asked: set[str] = set()
    all_asked = asyncio.Event()

    async def wait_for_all(recorded: Recorded) -> None:
        if recorded.path in feeds:
            asked.add(recorded.path)
            if len(asked) == len(feeds):
                all_asked.set()
            await all_asked.wait()

    site.on_request = wait_for_all
    platform = open_web(make_tools(client, feeds=tuple(site.origin + path for path in feeds)))
    page = await platform.search("tea", page=1, cookie=None)
    assert [hit.url for hit in page.hits] == [
        f"{site.origin}/a",
        *(site.url(number) for number in (3, 8, 13, 18, 23, 28)),
    ]


@pytest.mark.thorough
async def test_a_slow_feed_does_not_sink_the_search(
    site: SandboxOpenWeb, client: GuardedClient, open_web: OpenWeb
) -> None:
    """C16: what has come is answered before whoever asked gives up, and what has not is logged; nothing at all is the
    error."""
    slow = f"{site.origin}/slow.rss"
    site.misbehave(Fault(FaultKind.HANG, path="/slow.rss"))
    limit = timedelta(seconds=4)
    tools = replace(make_tools(client, timeout=timedelta(seconds=30)), search_limit=limit)
    with capture_logs() as events:
        async with asyncio.timeout(limit.total_seconds()):
            page = await open_web(replace(tools, feeds=(slow, site.rss_url))).search("tea", page=1, cookie=None)
    assert [hit.url for hit in page.hits] == [site.url(number) for number in (3, 8, 13, 18, 23, 28)]
    failed = [(event["feed"], event["code"]) for event in events if event["event"] == "feed.failed"]
    assert failed == [(slow, ErrorCode.TIMEOUT_ERROR)]
    async with asyncio.timeout(limit.total_seconds()):
        with pytest.raises(CrawlError) as raised:
            await open_web(replace(tools, feeds=(slow, slow))).search("tea", page=1, cookie=None)
    assert (raised.value.code, slow in raised.value.message) == (ErrorCode.TIMEOUT_ERROR, True)


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ((openweb.NOT_FOUND, openweb.RESET, openweb.GONE), ErrorCode.NETWORK_ERROR),
        ((openweb.GONE, openweb.UNAVAILABLE), ErrorCode.PLATFORM_ERROR),
        ((openweb.UNAVAILABLE, openweb.GONE), ErrorCode.PLATFORM_ERROR),
        ((openweb.NOT_FOUND, openweb.GONE), ErrorCode.INVALID_INPUT),
    ],
)
async def test_a_search_is_given_up_for_good_only_if_every_feed_is(
    site: SandboxOpenWeb, client: GuardedClient, open_web: OpenWeb, faults: Sequence[Fault], code: ErrorCode
) -> None:
    """C15: as long as one of the feeds may come back, the search is worth repeating."""
    for number, fault in enumerate(faults):
        site.misbehave(replace(fault, path=f"/{number}.rss"))
    feeds = tuple(f"{site.origin}/{number}.rss" for number in range(len(faults)))
    with pytest.raises(CrawlError) as raised:
        await open_web(make_tools(client, feeds=feeds)).search("tea", page=1, cookie=None)
    assert raised.value.code == code


@pytest.mark.thorough
async def test_the_crawler_tells_the_web_how_long_a_search_may_take_and_closes_it(
    site: SandboxOpenWeb, sqlite_url: str, tmp_path: Path
) -> None:
    """C16: with a limit of four seconds, what has come by then is answered; and no process outlives the crawler."""
    site.misbehave(Fault(FaultKind.HANG, path="/slow.rss"))
    crawl = CrawlSettings(
        platform_interval=timedelta(0),
        search_timeout=timedelta(seconds=4),
        feeds=(f"{site.origin}/slow.rss", site.rss_url),
    )
    settings = Settings(
        data_dir=tmp_path / "data", database_url=Secret(sqlite_url), allow_networks=LOOPBACK, crawl=crawl
    )
    before = list_readers()
    async with open_installation(settings, redactor=Redactor()) as installation:
        async with open_crawler(installation) as crawler:
            answer = await crawler.search("web", "tea")
            readers = list_readers() - before
        assert list_readers() & readers == set() != readers
    assert answer.data is not None
    assert len(answer.data.hits) == 6


async def test_the_longest_that_one_request_may_take_is_a_setting(
    site: SandboxOpenWeb, sqlite_url: str, tmp_path: Path
) -> None:
    """C16, C26: it goes from the settings to the wire."""
    site.misbehave(Fault(FaultKind.HANG, path=openweb.article_path(5)))
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=Secret(sqlite_url),
        allow_networks=LOOPBACK,
        crawl=CrawlSettings(platform_interval=timedelta(0), request_timeout=timedelta(seconds=0.25)),
    )
    async with open_installation(settings, redactor=Redactor()) as installation, open_crawler(installation) as crawler:
        answer = await crawler.detail("web", WantedNote(url=site.url(5)))
    assert answer.error is not None
    assert (answer.error.code, "in 0.25 s" in answer.error.message) == (ErrorCode.TIMEOUT_ERROR, True)


async def test_the_address_of_a_page_that_names_its_feed_does_too(site: SandboxOpenWeb, platform: Web) -> None:
    """C17: the feed is found through the page's own link."""
    page = await platform.search(f"{site.origin}/ bread", page=1, cookie=None)
    assert [hit.url for hit in page.hits] == [site.url(number) for number in (4, 9, 14, 19, 24, 29)]
    assert paths(site) == ["/robots.txt", "/", openweb.RSS_PATH]


async def test_an_article_becomes_a_note(site: SandboxOpenWeb, platform: Web) -> None:
    """C17: the text without menus, footers and scripts, in the one note model."""
    note = await platform.detail(refer(site.url(5)), cookie=None)
    assert (note.platform, note.note_id, note.url, note.kind) == (
        "web",
        name_page(site.url(5)),
        site.url(5),
        NoteKind.ARTICLE,
    )
    assert note.title == "咖啡 & 生活 第5篇"
    assert "1 < 2 && 3 > 2，好用吗？" in note.text
    assert not any(word in note.text for word in ("Home", "Imprint", "track"))
    assert (note.author.name, note.tags) == ("Ada Lovelace", ("咖啡", "日常"))
    assert note.published_at == datetime(2026, 1, 6, 19, 30, tzinfo=UTC)
    assert note.images == ("https://example.org/5.jpg",)


@pytest.mark.parametrize(
    ("named", "kept"),
    [("/one.jpg", ("{origin}/one.jpg",)), ("javascript:alert(1)", ()), ("data:image/png;base64,AAAA", ())],
)
async def test_the_image_of_a_page_is_an_address_of_the_web(
    site: SandboxOpenWeb, platform: Web, named: str, kept: tuple[str, ...]
) -> None:
    """C16: readers may open it."""
    text = "A quiet morning on the mountain, with coffee and a book. " * 20
    page = f'<html><head><meta property="og:image" content="{named}"></head><body><article><p>{text}</p></article>'
    site.serve("/page", page, content_type="text/html")
    note = await platform.detail(refer(f"{site.origin}/page"), cookie=None)
    assert note.images == tuple(each.format(origin=site.origin) for each in kept)


async def test_a_reference_may_be_the_address_alone(site: SandboxOpenWeb, platform: Web) -> None:
    """C16: whoever has only the address gets the same note."""
    note = await platform.detail(NoteReference(note_id=site.url(5)), cookie=None)
    assert note.note_id == name_page(site.url(5))


@as_parameters(*CASES)
async def test_each_refusal_is_reported_as_what_it_is(site: SandboxOpenWeb, platform: Web, case: Case) -> None:
    """C15, C17: statuses, redirects, pages that are none and broken connections; no cookie is ever to blame."""
    for path, asking in (
        (openweb.article_path(5), lambda: platform.detail(refer(site.url(5)), cookie=None)),
        (openweb.RSS_PATH, lambda: platform.search(site.rss_url, page=1, cookie=None)),
    ):
        site.misbehave(replace(case.fault, path=path))
        if case.fault is openweb.LOOP:
            site.serve("/loop", "", status=302, headers={"Location": "/loop"})
        with pytest.raises(CrawlError) as raised:
            await asking()
        assert (raised.value.code, raised.value.blames_cookie) == (case.code, False)


@pytest.mark.parametrize(
    ("robots", "allowed"),
    [
        ("User-agent: *\nDisallow: /articles/\n", False),
        ("User-agent: *\nDisallow: /\nAllow: /articles/\n", True),
        ("User-agent: TidingsTests\nDisallow: /\n\nUser-agent: *\nAllow: /\n", False),
        ("User-agent: otherbot\nDisallow: /\n", True),
        ("<html>not robots</html>", True),
        ("", True),
        (None, True),
    ],
)
async def test_robots_txt_is_respected(
    site: SandboxOpenWeb, platform: Web, robots: str | None, *, allowed: bool
) -> None:
    """C17: what robots.txt forbids is not fetched; a site without one allows everything."""
    site.robots = robots
    if allowed:
        assert await platform.detail(refer(site.url(5)), cookie=None)
        return
    with pytest.raises(CrawlError) as raised:
        await platform.detail(refer(site.url(5)), cookie=None)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert "robots.txt" in raised.value.message
    assert paths(site) == ["/robots.txt"]


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"\xef\xbb\xbf" + FORBIDDING.encode(), ""),
        (gzip.compress(FORBIDDING.encode()), "gzip"),
        (gzip.compress(FORBIDDING.encode()), "X-GZIP"),
        (gzip.compress(b"User-agent: *\n") + gzip.compress(b"Disallow: /articles/\n"), "gzip"),
        (gzip.compress(f"{FORBIDDING}{'#' * 5_000_000}".encode()), "gzip"),
        (zlib.compress(FORBIDDING.encode()), "deflate"),
        (FORBIDDING.encode(), "identity"),
    ],
    ids=["byte order mark", "gzip", "x-gzip", "two members", "a bomb", "deflate", "identity"],
)
async def test_robots_txt_in_other_clothes_is_respected_too(
    site: SandboxOpenWeb, platform: Web, body: bytes, encoding: str
) -> None:
    """C17: with a mark before its first line, or compressed although not asked for."""
    site.serve("/robots.txt", body, headers={"Content-Encoding": encoding} if encoding else {})
    with pytest.raises(CrawlError) as raised:
        await platform.detail(refer(site.url(5)), cookie=None)
    assert (raised.value.code, "robots.txt" in raised.value.message) == (ErrorCode.INVALID_INPUT, True)
    assert paths(site) == ["/robots.txt"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ending", "encoding", "compress"),
    [
        ("\n", "identity", bytes),
        ("\r\n", "identity", bytes),
        ("\r", "identity", bytes),
        ("\n", "gzip", gzip.compress),
        ("\n", "deflate", zlib.compress),
    ],
)
@pytest.mark.parametrize(
    ("fits", "allowed"), [(len("Allow: /"), False), (len("Allow: /articles"), True), (len("Allow: /articles\n"), True)]
)
async def test_half_a_line_of_a_long_robots_txt_is_no_rule(
    site: SandboxOpenWeb,
    platform: Web,
    ending: str,
    encoding: str,
    compress: Callable[[bytes], bytes],
    fits: int,
    *,
    allowed: bool,
) -> None:
    """C17: 500 KiB are read, and of `Allow: /articles` that ends beyond, nothing; one that just fits is a rule."""
    rules = f"User-agent: *{ending}Disallow: /{ending}"
    comment = "#" * (500 * 1024 - fits - len(rules) - len(ending))
    body = f"{rules}{comment}{ending}Allow: /articles{ending}# and so on{ending}".encode()
    site.serve("/robots.txt", compress(body), headers={"Content-Encoding": encoding})
    if allowed:
        assert await platform.detail(refer(site.url(5)), cookie=None)
        return
    with pytest.raises(CrawlError) as raised:
        await platform.detail(refer(site.url(5)), cookie=None)
    assert (raised.value.code, "robots.txt" in raised.value.message) == (ErrorCode.INVALID_INPUT, True)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(b"x", "gzip"), (gzip.compress(FORBIDDING.encode())[:-12], "gzip"), (b"x", "deflate"), (b"x", "br")],
    ids=["damaged gzip", "cut off", "damaged deflate", "unknown"],
)
async def test_robots_txt_that_cannot_be_unpacked_allows_nothing(
    site: SandboxOpenWeb, platform: Web, body: bytes, encoding: str
) -> None:
    """C17: there are rules, and they are not known."""
    site.serve("/robots.txt", body, headers={"Content-Encoding": encoding})
    with pytest.raises(CrawlError) as raised:
        await platform.detail(refer(site.url(5)), cookie=None)
    assert raised.value.code == ErrorCode.PLATFORM_ERROR
    assert paths(site) == ["/robots.txt"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (openweb.UNAVAILABLE, ErrorCode.PLATFORM_ERROR),
        (openweb.TOO_MANY_REQUESTS, ErrorCode.PLATFORM_ERROR),
        (openweb.RESET, ErrorCode.NETWORK_ERROR),
        (openweb.DRIP, ErrorCode.TIMEOUT_ERROR),
    ],
)
async def test_while_robots_txt_cannot_be_had_nothing_is_fetched(
    site: SandboxOpenWeb, client: GuardedClient, open_web: OpenWeb, clock: FakeClock, fault: Fault, code: ErrorCode
) -> None:
    """C17: unreachable is not the same as absent; it is asked again after a minute, and not with every page."""
    platform = open_web(make_tools(client, clock=clock, timeout=timedelta(seconds=0.5)))
    site.robots = "User-agent: *\nAllow: /\n"
    site.misbehave(replace(fault, path="/robots.txt", times=1))
    for number in (5, 6, 7):
        with pytest.raises(CrawlError) as raised:
            await platform.detail(refer(site.url(number)), cookie=None)
        assert (raised.value.code, "robots.txt" in raised.value.message) == (code, True)
        clock.advance(timedelta(seconds=29))
    assert await platform.detail(refer(site.url(5)), cookie=None)
    assert paths(site) == ["/robots.txt", "/robots.txt", openweb.article_path(5)]


@pytest.mark.thorough
async def test_a_redirect_asks_robots_txt_of_where_it_leads(
    site: SandboxOpenWeb, client: GuardedClient, platform: Web
) -> None:
    """C17: a door that is open does not open the next one; the note keeps the name it was asked by."""
    async with SandboxOpenWeb(robots="User-agent: *\nDisallow: /articles/00005.html\n") as other:
        for number in (5, 6):
            site.serve(f"/to/{number}", "", status=302, headers={"Location": other.url(number)})
        with pytest.raises(CrawlError) as raised:
            await platform.detail(refer(f"{site.origin}/to/5"), cookie=None)
        assert raised.value.code == ErrorCode.INVALID_INPUT
        note = await platform.detail(refer(f"{site.origin}/to/6"), cookie=None)
        assert (note.note_id, note.url) == (name_page(f"{site.origin}/to/6"), f"{site.origin}/to/6")
        assert paths(other) == ["/robots.txt", openweb.article_path(6)]


async def test_robots_txt_is_fetched_once_an_hour_and_its_delay_kept(
    site: SandboxOpenWeb, client: GuardedClient, open_web: OpenWeb, clock: FakeClock
) -> None:
    """C17: Crawl-delay goes before a shorter interval of our own."""
    site.robots = "User-agent: *\nCrawl-delay: 7\n"
    pace = LocalPace(clock=clock, platform_interval=timedelta(seconds=1))
    platform = open_web(make_tools(client, clock=clock, pace=pace))
    for _ in range(3):
        await platform.detail(refer(site.url(5)), cookie=None)
    assert paths(site).count("/robots.txt") == 1
    assert timedelta(seconds=15) <= sum(clock.slept, timedelta()) < timedelta(seconds=16)
    clock.advance(timedelta(hours=1))
    await platform.detail(refer(site.url(5)), cookie=None)
    assert paths(site).count("/robots.txt") == 2


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "http://user:pass@example.org/",
        "not an address",
        "",
    ],
)
async def test_an_address_that_nobody_may_fetch_is_refused(platform: Web, url: str) -> None:
    """C17: every address that a request names goes through the guard."""
    with pytest.raises(CrawlError) as raised:
        await platform.detail(NoteReference(note_id="x", url=url), cookie=None)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert "pass" not in raised.value.message.replace("passwd", "").replace("password", "")


async def test_words_without_a_feed_are_refused_with_advice(platform: Web) -> None:
    """C15: INVALID_INPUT that says what to do."""
    with pytest.raises(CrawlError) as raised:
        await platform.search("coffee", page=1, cookie=None)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert "feed" in raised.value.message


async def test_a_cookie_is_never_sent_to_the_open_web(site: SandboxOpenWeb, platform: Web) -> None:
    """C7: even where one is given."""
    await platform.detail(refer(site.url(5)), cookie=Secret("web_session=secret"))
    assert not any("Cookie" in request.headers for request in site.requests)


async def test_pages_in_other_clothes_are_read_too(site: SandboxOpenWeb, platform: Web) -> None:
    """C17: compressed although not asked for, and in another charset than UTF-8."""
    text = "咖啡店在山上，早上很安静。" * 30
    page = f"<html><head><title>山上</title></head><body><article><p>{text}</p></article></body></html>"
    compressed = gzip.compress(page.encode("gb18030"))
    site.serve("/gb", compressed, headers={"Content-Encoding": "gzip"}, content_type="text/html; charset=GB18030")
    site.serve("/odd", page.encode(), content_type="text/html; charset=no-such-thing")
    for path in ("/gb", "/odd"):
        note = await platform.detail(refer(site.origin + path), cookie=None)
        assert "咖啡店在山上" in note.text
        assert note.published_at is None


async def test_a_compressed_bomb_is_not_unpacked(site: SandboxOpenWeb, platform: Web) -> None:
    """C17: a small answer cannot fill the memory."""
    bomb = gzip.compress(b"<p>" + b"a" * 50_000_000)
    site.serve("/bomb", bomb, headers={"Content-Encoding": "gzip"})
    with pytest.raises(CrawlError) as raised:
        await platform.detail(refer(f"{site.origin}/bomb"), cookie=None)
    assert raised.value.code == ErrorCode.PLATFORM_ERROR


@pytest.mark.parametrize("piece", ["<div>", "a<br>", "<ul><li>a", "<rss><item>", "<p>&amp;"])
async def test_a_page_made_to_take_long_is_given_up_at_once(site: SandboxOpenWeb, platform: Web, piece: str) -> None:
    """C16: time limits also hold for reading what was fetched."""
    site.serve("/long", piece * 100_000)
    began = time.monotonic()
    for asking in (
        platform.detail(refer(f"{site.origin}/long"), cookie=None),
        platform.search(f"{site.origin}/long", page=1, cookie=None),
    ):
        with pytest.raises(CrawlError) as raised:
            await asking
        assert raised.value.code == ErrorCode.INVALID_INPUT
    assert time.monotonic() - began < 2


@pytest.mark.thorough
async def test_whatever_a_page_holds_there_is_a_note_or_an_error_of_ours(
    site: SandboxOpenWeb, client: GuardedClient, platform: Web
) -> None:
    """C15: pages and feeds that went wrong, cut and shuffled, never raise anything else."""
    odd = (b"<", b">", b"&", b"\0", b"\xff", b"<!--", b"]]>", b"<svg>", b'"', b"<?")
    for path, kind in ((openweb.article_path(5), "text/html"), (openweb.RSS_PATH, "application/rss+xml")):
        answer = await client.request("GET", site.origin + path, timeout=timedelta(seconds=5))
        for seed in range(40):
            chance = random.Random(seed)
            body = bytearray(answer.body[: chance.randrange(len(answer.body))])
            for _ in range(chance.randrange(1, 60)):
                place = chance.randrange(len(body) + 1)
                body[place:place] = chance.choice(odd)
            site.serve("/odd", bytes(body), content_type=kind)
            with suppress(CrawlError):
                await platform.detail(refer(f"{site.origin}/odd"), cookie=None)
            with suppress(CrawlError):
                await platform.search(f"{site.origin}/odd", page=1, cookie=None)


async def test_a_feed_in_utf_16_is_a_feed(site: SandboxOpenWeb, platform: Web) -> None:
    """C17: whatever charset it declares."""
    item = "<item><title>茶</title><link>/a</link></item>"
    feed = f'<?xml version="1.0" encoding="utf-16"?><rss version="2.0"><channel>{item}</channel></rss>'
    site.serve("/wide.rss", feed.encode("utf-16"), content_type="application/rss+xml")
    page = await platform.search(f"{site.origin}/wide.rss", page=1, cookie=None)
    assert [hit.title for hit in page.hits] == ["茶"]


@pytest.mark.parametrize("feed", ["http://127.0.0.1:9/other.rss", "/etc/passwd", "<rss"])
async def test_what_looks_like_an_address_or_a_path_is_not_opened(
    site: SandboxOpenWeb, platform: Web, feed: str
) -> None:
    """C17: what is fetched is data, also for a library that would open it."""
    site.serve("/evil.rss", feed, content_type="application/rss+xml")
    with pytest.raises(CrawlError) as raised:
        await platform.search(f"{site.origin}/evil.rss", page=1, cookie=None)
    assert raised.value.code == ErrorCode.INVALID_INPUT
    assert paths(site) == ["/robots.txt", "/evil.rss"]


LAUGHS = "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))


@pytest.mark.parametrize(
    ("before", "item"),
    [
        ("", "<title>no link</title>"),
        ("", "<title>x</title><link>javascript:alert(1)</link>"),
        ("", "<title>x</title><link>http://user:word@example.org/</link>"),
        (f'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">{LAUGHS}]>', "<title>&j;</title><link>/a</link>"),
        ('<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>', "<title>&x;</title><link>/a</link>"),
    ],
    ids=["no link", "a script", "a password", "many laughs", "a file"],
)
async def test_a_feed_that_means_harm_brings_nothing_of_it(
    site: SandboxOpenWeb, platform: Web, before: str, item: str
) -> None:
    """C17: an entry opens no file, fills no memory, and leads nowhere but to a page."""
    feed = f"{before}<rss version='2.0'><channel><item>{item}</item></channel></rss>"
    site.serve("/evil.rss", feed, content_type="application/rss+xml")
    page = await platform.search(f"{site.origin}/evil.rss", page=1, cookie=None)
    assert {hit.url for hit in page.hits} <= {f"{site.origin}/a"}
    assert not any("root:" in hit.title or "aaaa" in hit.title for hit in page.hits)
    assert paths(site) == ["/robots.txt", "/evil.rss"]


def test_a_site_that_asks_us_again_to_wait_is_not_the_first_to_be_forgotten(
    client: GuardedClient, clock: FakeClock
) -> None:
    """C17: a process that runs for months meets more sites that once asked than it remembers."""
    robots = Robots(make_tools(client, clock=clock), ChildPool(1))
    often, *others = (parse_url(f"https://s{number}.example/") for number in range(10_001))
    for url in (often, *others[:-1], often, others[-1]):
        robots.close(url, timedelta(hours=1))
    assert robots.find_wait(often) == timedelta(hours=1)
    assert robots.find_wait(others[0]) == timedelta(0)


@pytest.mark.thorough
async def test_a_site_that_asked_us_to_wait_is_remembered_among_thousands(
    site: SandboxOpenWeb, client: GuardedClient, open_web: OpenWeb, clock: FakeClock
) -> None:
    """C17: a discovery meets so many others within the hour; here none of them answers at all."""
    platform = open_web(make_tools(client, clock=clock))
    site.misbehave(Fault(status=429, headers={"Retry-After": "3600"}, path=openweb.article_path(5), times=1))
    with pytest.raises(CrawlError, match="asks us to wait"):
        await platform.detail(refer(site.url(5)), cookie=None)
    for number in range(1_100):
        with pytest.raises(CrawlError) as raised:
            await platform.detail(refer(f"http://127.1.{number // 250}.{number % 250}:9/"), cookie=None)
        assert raised.value.code is ErrorCode.NETWORK_ERROR
    with pytest.raises(CrawlError, match="asks us to wait"):
        await platform.detail(refer(site.url(5)), cookie=None)
    assert paths(site) == ["/robots.txt", openweb.article_path(5)]
