"""Comments as each platform gives them: paging, replies, refusals. Weibo's are in test_comments."""

from dataclasses import replace

import pytest

from tests.collect.platform_stage import make_tools
from tidings.collect.comments import Comment
from tidings.collect.crawl.platforms.bilibili import Bilibili
from tidings.collect.crawl.platforms.protocol import NoteReference, Platform, read_comments
from tidings.collect.crawl.platforms.weibo import Weibo
from tidings.collect.crawl.platforms.xiaohongshu import Xiaohongshu
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Author
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media import bilibili, weibo, xiaohongshu
from tidings.sandbox.media.comments import PostComment, list_comments
from tidings.sandbox.media.posts import PostLibrary
from tidings.sandbox.wire.faults import Fault

BILIBILI = Secret(bilibili.DEMO_BILIBILI_COOKIE)
XIAOHONGSHU = Secret(xiaohongshu.DEMO_XIAOHONGSHU_COOKIE)
WEIBO = Secret(weibo.DEMO_WEIBO_COOKIE)
POST = 5


def list_written(library: PostLibrary) -> list[PostComment]:
    """The comments of the post in the platform's order, each followed by its replies."""
    post = library.find(POST)
    assert post is not None
    return [each for root in list_comments(post) for each in (root, *root.replies)]


async def read_all(platform: Platform, reference: NoteReference, cookie: Secret) -> tuple[list[Comment], int]:
    """The comments of all pages, and how many pages there are."""
    found: list[Comment] = []
    cursor, pages = "", 0
    while pages < 50:
        page = await read_comments(platform, reference, cursor=cursor, cookie=cookie)
        found += page.comments
        pages += 1
        if page.cursor is None:
            break
        cursor = page.cursor
    return found, pages


async def test_comments_of_bilibili(client: GuardedClient) -> None:
    """C32: signed, by the video's number; the pinned comment stands in three places and is read once."""
    async with bilibili.SandboxBilibili() as service:
        platform = Bilibili(make_tools(client, service.origin))
        reference = NoteReference(note_id=bilibili.name_video(POST))
        found, pages = await read_all(platform, reference, BILIBILI)
        written = list_written(service.library)
        assert [each.comment_id for each in found] == [str(each.number) for each in written]
        assert pages == 4
        fourth, reply = found[3:5]
        assert fourth == Comment(
            comment_id=str(written[3].number),
            text=written[3].text,
            author=Author(author_id=str(written[3].reader_id), name=written[3].reader),
            published_at=written[3].published,
            likes=written[3].likes,
            replies=1,
            place=written[3].place,
        )
        assert reply.parent_id == fourth.comment_id
        asked = [request.path for request in service.requests]
        assert (asked.count(bilibili.VIEW_PATH), asked.count(bilibili.COMMENTS_PATH)) == (1, 4)
        by_number = replace(reference, note_id=f"av{900_000_000 + POST}")
        assert (await read_all(platform, by_number, BILIBILI))[0] == found


async def test_closed_comments_of_bilibili_are_none_and_old_keys_are_fetched_anew(client: GuardedClient) -> None:
    """C32: 12002 is no failure. A signature that is refused there is refused plainly, so the next try has new keys."""
    async with bilibili.SandboxBilibili() as service:
        platform = Bilibili(make_tools(client, service.origin))
        reference = NoteReference(note_id=bilibili.name_video(POST))
        service.misbehave(replace(bilibili.COMMENTS_CLOSED, path=bilibili.COMMENTS_PATH, times=1))
        page = await platform.list_comments(reference, cursor="", cookie=BILIBILI)
        assert (page.comments, page.cursor) == ((), None)
        service.rotate_keys()
        with pytest.raises(CrawlError) as refused:
            await platform.list_comments(reference, cursor="", cookie=BILIBILI)
        assert refused.value.code is ErrorCode.PLATFORM_ERROR
        assert len((await platform.list_comments(reference, cursor="", cookie=BILIBILI)).comments) == 25


async def test_comments_of_xiaohongshu(client: GuardedClient) -> None:
    """C32: the query is signed as it is sent; the token of the note travels in its address."""
    async with xiaohongshu.SandboxXiaohongshu() as service:
        platform = Xiaohongshu(make_tools(client, service.origin))
        note_id, token = xiaohongshu.name_note(POST), xiaohongshu.make_token(POST)
        url = f"https://www.xiaohongshu.com/explore/{note_id}?xsec_token={token}&xsec_source=pc_search"
        found, pages = await read_all(platform, NoteReference(note_id=note_id, url=url), XIAOHONGSHU)
        written = list_written(service.library)
        assert [each.text for each in found] == [each.text for each in written]
        assert [each.likes for each in found] == [each.likes for each in written]
        assert {each.parent_id for each in found if each.parent_id} <= {each.comment_id for each in found}
        assert pages == 7
        with pytest.raises(CrawlError) as refused:
            await platform.list_comments(
                NoteReference(note_id=note_id, xsec_token="another"), cursor="", cookie=XIAOHONGSHU
            )
        assert refused.value.code is ErrorCode.INVALID_INPUT


async def test_no_comments_are_no_failure_and_too_often_is(client: GuardedClient) -> None:
    """C32: Weibo answers both with `ok: 0`."""
    async with weibo.SandboxWeibo() as service:
        service.library.edit(POST, comments=0)
        platform = Weibo(make_tools(client, service.origin))
        reference = NoteReference(note_id=weibo.name_post(POST))
        assert (await platform.list_comments(reference, cursor="", cookie=WEIBO)).comments == ()
        service.misbehave(replace(weibo.TOO_OFTEN, path=weibo.COMMENTS_PATH))
        with pytest.raises(CrawlError) as refused:
            await platform.list_comments(reference, cursor="", cookie=WEIBO)
        assert refused.value.blocked
        [asked, _] = [request for request in service.requests if request.path == weibo.COMMENTS_PATH]
        assert asked.headers["Referer"] == f"https://m.weibo.cn/detail/{weibo.name_post(POST)}"


@pytest.mark.parametrize("cursor", ["x", "1", "page 0", "5 1\n"])
async def test_a_cursor_of_nobody_is_refused_before_anything_is_sent(client: GuardedClient, cursor: str) -> None:
    """C32: on every platform."""
    async with weibo.SandboxWeibo() as service:
        tools = make_tools(client, service.origin)
        platforms: dict[str, Platform] = {
            "weibo": Weibo(tools),
            "bilibili": Bilibili(tools),
            "xiaohongshu": Xiaohongshu(tools),
        }
        for name, platform in platforms.items():
            if name == "xiaohongshu" and cursor in ("x", "1"):
                continue
            reference = NoteReference(note_id="65a0" + 20 * "0", xsec_token="AB=")
            with pytest.raises(CrawlError) as refused:
                await read_comments(platform, reference, cursor=cursor, cookie=WEIBO)
            assert refused.value.code is ErrorCode.INVALID_INPUT
        assert list(service.requests) == []


async def test_authors_of_xiaohongshu_are_listed_page_by_page(client: GuardedClient) -> None:
    """C32: the platform names the next page by a cursor, so an unknown one is reached from the first."""
    library = PostLibrary(400)
    async with xiaohongshu.SandboxXiaohongshu(library=library) as service:
        post = library.find(1)
        assert post is not None
        author, posts = f"5f{post.author_id:022x}", library.list_of(post.author_id)
        platform = Xiaohongshu(make_tools(client, service.origin))
        pages = [await platform.list_notes(author, page=page, cookie=XIAOHONGSHU) for page in (1, 2, 3)]
        assert [hit.note_id for page in pages for hit in page.hits] == [
            xiaohongshu.name_note(each.number) for each in posts
        ]
        assert [page.has_more for page in pages] == [True, True, False]
        assert len(service.requests) == 3
        fresh = Xiaohongshu(make_tools(client, service.origin))
        assert await fresh.list_notes(author, page=3, cookie=XIAOHONGSHU) == pages[2]
        assert (await fresh.list_notes(author, page=9, cookie=XIAOHONGSHU)).hits == ()
        hit = pages[2].hits[0]
        note = await fresh.detail(NoteReference(note_id=hit.note_id, url=hit.url), cookie=XIAOHONGSHU)
        assert note.author.author_id == author
        with pytest.raises(CrawlError) as refused:
            await fresh.list_notes("7", page=1, cookie=XIAOHONGSHU)
        assert refused.value.code is ErrorCode.INVALID_INPUT
        service.misbehave(Fault(status=461))
        with pytest.raises(CrawlError) as stopped:
            await fresh.list_notes(author, page=1, cookie=XIAOHONGSHU)
        assert stopped.value.captcha
