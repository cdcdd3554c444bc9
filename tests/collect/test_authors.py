"""What a keyword can be besides words: an author, or a period. And long posts, which are read in full."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.announce.bing_stage import MORNING
from tests.collect.platform_stage import make_tools
from tests.collect.runner_stage import RunnerStage, open_runner
from tests.fakes import StageClock
from tidings.collect.archive.archive import NoteArchive
from tidings.collect.crawl.platforms.bilibili import Bilibili
from tidings.collect.crawl.platforms.protocol import find_notes
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, SandboxBilibili, name_video
from tidings.sandbox.media.posts import Post, PostLibrary
from tidings.sandbox.media.weibo import EXTEND_PATH, name_post
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

COOKIE = Secret(DEMO_BILIBILI_COOKIE)
LONG = "很长的一段话。" * 100


@pytest.fixture
async def stage(database_url: str, keys: KeyRing, process_lock: ProcessLock) -> AsyncIterator[RunnerStage]:
    async with open_runner(database_url, clock=StageClock(MORNING), keys=keys, process_lock=process_lock) as opened:
        yield opened


def find_author(library: PostLibrary) -> tuple[int, list[Post]]:
    """An author and the posts, the newest first."""
    post = library.find(1)
    assert post is not None
    return post.author_id, library.list_of(post.author_id)


async def test_a_watched_author_becomes_candidates_and_notes(stage: RunnerStage) -> None:
    """C32: all pages of the author's list, through the same searches, cookies, candidates and leases."""
    author, posts = find_author(stage.weibo.library)
    assert len(posts) == 12
    await stage.add_cookies("one")
    await stage.watch_keyword("weibo", f"author:{author}", pages=3)
    report = await stage.runner.discover(stage.make_stop())
    assert (report.found, report.created, report.failed) == (12, 12, 0)
    assert set(await stage.read_candidates()) == {name_post(post.number) for post in posts}
    await stage.runner.collect(stage.make_stop())
    sources = await stage.read_sources()
    assert {(row.author_id, row.source_keyword) for row in sources} == {(str(author), f"author:{author}")}
    assert len(sources) == 12
    assert (await stage.runner.discover(stage.make_stop())).created == 0


async def test_a_platform_without_author_lists_says_so(stage: RunnerStage) -> None:
    """C32: before anything is asked, when the keyword is added and when it is searched."""
    with pytest.raises(CrawlError, match="cannot be watched"):
        stage.crawler.check_keyword("web", "author:7")
    answer = await stage.crawler.search("web", "author:7")
    assert answer.error is not None
    assert answer.error.code is ErrorCode.INVALID_INPUT
    await stage.add_cookies("one")
    wrong = await stage.crawler.search("weibo", "author:abc")
    assert wrong.error is not None
    assert wrong.error.code is ErrorCode.INVALID_INPUT


async def test_authors_of_bilibili_are_listed_page_by_page(client: GuardedClient) -> None:
    """C32: signed, with the Referer of the author's page. Keys that are refused there are fetched anew."""
    library = PostLibrary(200)
    author, posts = find_author(library)
    async with SandboxBilibili(library=library) as service:
        platform = Bilibili(make_tools(client, service.origin))
        first = await platform.list_notes(str(author), page=1, cookie=COOKIE)
        second = await platform.list_notes(str(author), page=2, cookie=COOKIE)
        assert [hit.note_id for hit in (*first.hits, *second.hits)] == [name_video(post.number) for post in posts]
        assert (first.has_more, second.has_more, first.total) == (True, False, len(posts))
        service.rotate_keys()
        with pytest.raises(CrawlError):
            await platform.list_notes(str(author), page=1, cookie=COOKIE)
        assert await platform.list_notes(str(author), page=1, cookie=COOKIE) == first


async def test_a_period_of_bilibili_has_its_days_alone(client: GuardedClient) -> None:
    """C32: from the first day on, before the last, in China; one end may be open."""
    async with SandboxBilibili() as service:
        platform = Bilibili(make_tools(client, service.origin))
        posts = service.library.search("生活")

        async def find(keyword: str) -> set[str]:
            pages = [await find_notes(platform, keyword, page=page, cookie=COOKIE) for page in (1, 2, 3)]
            return {hit.note_id for each in pages for hit in each.hits}

        begin, end = (datetime(2026, 1, day, tzinfo=timezone(timedelta(hours=8))) for day in (9, 14))
        after = {name_video(post.number) for post in posts if post.published >= begin}
        before = {name_video(post.number) for post in posts if post.published < end}
        assert await find("生活 since:2026-01-09") == after
        assert await find("until:2026-01-14 生活") == before
        both = await find("生活 since:2026-01-09 until:2026-01-14")
        assert both == after & before
        assert 0 < len(both) < len(after)


@pytest.mark.parametrize(
    ("platform", "keyword"),
    [
        ("weibo", "tea since:2026-01-01"),
        ("bilibili", "tea since:2026-13-01"),
        ("bilibili", "tea since:2026-02-01 until:2026-02-01"),
        ("bilibili", "since:2026-02-01"),
        ("bilibili", "author:7 since:2026-02-01"),
    ],
)
async def test_a_period_that_cannot_be_searched_is_refused(stage: RunnerStage, platform: str, keyword: str) -> None:
    """C32: when the keyword is added."""
    with pytest.raises(CrawlError) as refused:
        stage.crawler.check_keyword(platform, keyword)
    assert refused.value.code is ErrorCode.INVALID_INPUT


async def test_a_long_post_is_read_in_full_or_not_at_all(stage: RunnerStage) -> None:
    """C32: Weibo shows the beginning; without the rest the note is tried again, not stored in part."""
    post = stage.weibo.library.add("bread", LONG, published=datetime(2026, 11, 1, tzinfo=UTC))
    await stage.add_cookies("one")
    await stage.add_candidate(post.number)
    stage.weibo.misbehave(Fault(status=200, body='{"ok":1,"data":{"longTextContent":""}}', path=EXTEND_PATH))
    await stage.runner.collect(stage.make_stop())
    assert await stage.read_sources() == []
    stage.weibo.recover()
    await stage.writer.pauses.resume("weibo")
    await stage.runner.collect(stage.make_stop())
    found = await NoteArchive(stage.database).find("weibo", name_post(post.number))
    assert found is not None
    assert LONG in found.note.text
