"""Pages, feeds and robots.txt that are made to take minutes or gigabytes, through the crawler and over HTTP. Each is
given up at the deadline, and the process goes on meanwhile."""

import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from protego import Protego

from tests.processes import wait_for_no_reader_at_work
from tests.stage import LOOPBACK, open_stage
from tests.waiting import feel_pulse
from tidings.collect.crawl.crawler import Crawler, WantedNote
from tidings.collect.errors import ErrorCode
from tidings.core.net.robots_rules import MOST_RULES, judge_url, select_rules
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.settings.collect import CrawlSettings
from tidings.wiring.crawl import open_crawler

pytestmark = pytest.mark.one_database

LIMIT = timedelta(seconds=1.5)
# The longest that the event loop may stand still, in seconds. Other processes share this machine.
LONGEST_SILENCE = 1.0
TEXT = "<p>" + "A quiet morning on the mountain, with coffee and a book. " * 20 + "</p>"


def make_page(*, head: str = "", body: str = TEXT) -> str:
    return f"<html><head><title>t</title>{head}</head><body><article>{body}</article></body></html>"


def make_feed(item: str) -> str:
    return f"<rss version='2.0'><channel><item><title>t</title><link>/a</link>{item}</item></channel></rss>"


PAGES = {
    "JSON-LD of authors": make_page(
        head='<script type="application/ld+json">{"@type":"Article",'
        + '"author":{"@type":"Person"' * 4_000
        + "</script>"
    ),
    "a tag of 40,000 attributes": make_page(body=f"<p {' '.join(f'a{number}=1' for number in range(40_000))}>x{TEXT}"),
    "3.9 MB of commas": make_page(head=f'<meta name="keywords" content="{"," * 3_900_000}">'),
    "a million tags": make_page(head=f'<meta name="keywords" content="{",".join(map(str, range(400_000)))}">'),
    "deep": make_page(body="<div>" * 59_000 + TEXT),
}
FEEDS = {
    "an author of 40 KB": make_feed(f"<author>{'a@' * 20_000}</author>"),
    "29,000 categories": make_feed("".join(f"<category>{number}</category>" for number in range(29_000))),
    "billion laughs": "<!DOCTYPE rss ["
    + '<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(10))
    + "]>"
    + make_feed("<description>&k;</description>"),
}
CHARSETS = ("punycode", "idna", "zlib", "unicode_escape", "utf-7")


@pytest.fixture
async def site() -> AsyncIterator[SandboxOpenWeb]:
    async with SandboxOpenWeb() as running:
        yield running


@pytest.fixture
async def crawler(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Crawler]:
    crawl = CrawlSettings(platform_interval=timedelta(0), search_timeout=LIMIT, detail_timeout=LIMIT)
    async with AsyncExitStack() as stack:
        installation = await stack.enter_async_context(
            open_stage(sqlite_url, tmp_path, allow_networks=LOOPBACK, crawl=crawl)
        )
        yield await stack.enter_async_context(open_crawler(installation))


async def read_page(crawler: Crawler, url: str) -> ErrorCode | None:
    answer = await crawler.detail("web", WantedNote(url=url))
    return None if answer.error is None else answer.error.code


async def read_in_peace(crawler: Crawler, *urls: str) -> list[str]:
    """Error messages of pages, in the time of a batch: a process that reads pages has to start first."""
    answer = await crawler.details("web", [WantedNote(url=url) for url in urls])
    return [item.error.message if item.error is not None else "" for item in answer.items]


async def read_feed(crawler: Crawler, url: str) -> ErrorCode | None:
    answer = await crawler.search("web", url)
    return None if answer.error is None else answer.error.code


READERS = {**dict.fromkeys(PAGES, read_page), **dict.fromkeys(FEEDS, read_feed)}


@pytest.mark.thorough
@pytest.mark.parametrize("name", READERS)
async def test_a_hostile_page_costs_its_own_answer_and_nothing_else(
    site: SandboxOpenWeb, crawler: Crawler, name: str
) -> None:
    """C16: it is given up at the deadline, no process reads it any more, and the event loop goes on meanwhile."""
    site.serve("/hostile", {**PAGES, **FEEDS}[name], content_type="text/html; charset=utf-8")
    assert await read_in_peace(crawler, site.url(4)) == [""]
    async with feel_pulse() as pulse:
        began = time.monotonic()
        code = await READERS[name](crawler, f"{site.origin}/hostile")
        took = time.monotonic() - began
    assert code in (None, ErrorCode.TIMEOUT_ERROR, ErrorCode.INVALID_INPUT)
    assert took < LIMIT.total_seconds() + LONGEST_SILENCE
    assert pulse.longest < LONGEST_SILENCE
    if code == ErrorCode.TIMEOUT_ERROR:
        # On a busy machine the time is up while the page is fetched. The reader has nothing to do then, and stays.
        await wait_for_no_reader_at_work()
    assert await read_in_peace(crawler, site.url(5)) == [""]


async def test_a_charset_that_is_none_is_not_used(site: SandboxOpenWeb, crawler: Crawler) -> None:
    """C17: neither from the header nor from the feed itself; the text is read all the same."""
    assert await read_in_peace(crawler, site.url(4)) == [""]
    for charset in CHARSETS:
        site.serve("/page", make_page(body=TEXT + "x" * 200_000), content_type=f"text/html; charset={charset}")
        declared = f'<?xml version="1.0" encoding="{charset}"?>'
        feed = declared + make_feed(f"<description>{'é' * 200_000}</description>")
        site.serve("/feed", feed, content_type=f"application/rss+xml; charset={charset}")
        assert await read_page(crawler, f"{site.origin}/page") is None
        found = await crawler.search("web", f"{site.origin}/feed é")
        assert found.data is not None, found
        assert [hit.title for hit in found.data.hits] == ["t"]


ROBOTS = {
    "agents times rules": "".join(f"User-agent: a{number}\n" for number in range(1_500))
    + "User-agent: *\n"
    + "".join(f"Disallow: /{number}\n" for number in range(1_500)),
    "every name is ours": "".join(f"User-agent: {'Tidings'[: 1 + number % 7]}{'*' * number}\n" for number in range(700))
    + "".join(f"Disallow: /{number}\n" for number in range(9_000)),
    "wildcards": f"User-agent: *\nDisallow: /{'*a' * 200_000}b\n",
}


@pytest.mark.parametrize("name", ROBOTS)
async def test_a_hostile_robots_txt_costs_a_moment_and_its_rules_hold(
    site: SandboxOpenWeb, crawler: Crawler, name: str
) -> None:
    """C17: the rules that concern us are read out of a file that names thousands of others."""
    site.serve("/robots.txt", ROBOTS[name])
    site.serve("/7", make_page())
    async with feel_pulse() as pulse:
        allowed, forbidden = await read_in_peace(crawler, site.url(5), f"{site.origin}/7")
    assert pulse.longest < LONGEST_SILENCE
    assert allowed == ""
    assert ("forbids" in forbidden) == (name != "wildcards")


async def test_a_robots_txt_with_more_rules_than_can_be_kept_allows_nothing(
    site: SandboxOpenWeb, crawler: Crawler
) -> None:
    """C17: rules that are not known cannot be respected."""
    site.robots = "User-agent: *\n" + "Allow: /x\n" * (MOST_RULES + 1)
    (message,) = await read_in_peace(crawler, site.url(5))
    assert "too many rules" in message


LINES = (
    *("User-agent: *", "User-agent: Tidings", "user agent tiding", "User-agent: tidings*", "User-agent: otherbot"),
    *("Disallow: /a", "Dissallow /b", "Allow: /a/b", "Disallow: /*.php$", "Disallow:", "Crawl-delay: 3"),
    *("Sitemap: https://example.org/s.xml", "Host: example.org", "Unknown: x", "noise", "", "# note", "User-agent:"),
    *("Disallow: /c # why", "Request-rate: 1/5", "Visit-time: 0400-0845", "Crawl delay 2"),
)


@pytest.mark.parametrize("user_agent", ["Tidings/0.9", "Mozilla/5.0 (compatible; Tidings/0.9)"])
def test_the_selected_rules_decide_as_the_whole_file_does(user_agent: str) -> None:
    """C17: for files of every shape, the same answer as Protego's for the whole file."""
    chance = random.Random(7)
    verdicts = set()
    for _ in range(2_000):
        text = "\n".join(chance.choices(LINES, k=chance.randrange(1, 14)))
        whole = Protego.parse(text)
        selected = select_rules(text.encode(), user_agent=user_agent)
        assert selected is not None
        for path in ("/a/x", "/a/b/c", "/b", "/c", "/x.php"):
            url = f"https://example.org{path}"
            expected = (whole.can_fetch(url, user_agent), whole.crawl_delay(user_agent) or 0.0)
            assert judge_url(selected.encode(), url=url, user_agent=user_agent) == expected, text
            verdicts.add(expected)
    assert len(verdicts) >= 6
