"""Keywords that cannot work are refused when they are added; those that need too much are taken with a warning."""

import pytest

from tests.cli.terminal import Terminal
from tidings.collect.crawl.platforms.open_web.feeds import list_entries

COOKIE = "SESSDATA=a-long-session"
ADD = ("collect", "keywords", "add")


async def test_a_keyword_for_a_platform_that_cannot_work_is_refused(terminal: Terminal) -> None:
    """C19: no feeds are set, and an unknown platform gets the nearest name; a feed of the keyword's own is fine."""
    refused = [await terminal.run(*ADD, "web", "coffee"), await terminal.run(*ADD, "weibbo", "coffee")]
    taken = await terminal.run(*ADD, "web", "https://example.org/feed.xml coffee")
    assert [each.code for each in (*refused, taken)] == [2, 2, 0]
    assert "TIDINGS_FEEDS" in refused[0].err
    assert "did you mean weibo?" in refused[1].err


@pytest.mark.thorough
async def test_keywords_that_need_more_than_the_cookies_allow_are_warned_of(terminal: Terminal) -> None:
    """C18: the defaults fit five keywords with two pages; twenty pages more do not."""
    await terminal.pipe("cookies", "add", "mine", "--platform", "bilibili", given=COOKIE)
    fine = [await terminal.run(*ADD, "bilibili", f"word {number}", "--pages", "2") for number in range(5)]
    heavy = await terminal.run(*ADD, "bilibili", "more", "--pages", "20")
    assert [each.err for each in fine] == [""] * 5
    assert "needs 720 uses a day, and its cookies allow 500" in heavy.err
    assert heavy.code == 0


@pytest.mark.parametrize(
    ("link", "url"),
    [
        ("https://example.org/a post.html", "https://example.org/a%20post.html"),
        ("/a|b?q=x y", "https://example.org/a%7Cb?q=x%20y"),
        ("https://example.org/a%20b", "https://example.org/a%20b"),
    ],
)
def test_links_of_a_feed_are_encoded_and_not_dropped(link: str, url: str) -> None:
    """C17: feeds write spaces into links."""
    body = f"<rss version='2.0'><channel><item><link>{link}</link><title>t</title></item></channel></rss>".encode()
    entries = list_entries(body, url="https://example.org/feed", content_type="application/rss+xml")
    assert [entry[0] for entry in entries or ()] == [url]
