"""Pages of collected notes: search, filters, one note, export and deletion; candidates that were given up."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert

from tests.web.api_stage import ApiStage
from tests.web.pages.browser import Browser
from tidings.collect.comments import Comment
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.notes import Author, Counts, Note, NoteKind
from tidings.collect.tables import note_snapshots
from tidings.collect.write.comments.stage import ReadComments
from tidings.collect.write.values import Collected, Failed, NewCandidate
from tidings.core.clock import to_milliseconds
from tidings.wiring.installation import Installation

ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
NOTE = Note(
    platform="bilibili",
    note_id="BV1",
    url="https://www.bilibili.com/video/BV1",
    kind=NoteKind.VIDEO,
    title="手冲咖啡入门：水温与研磨度",
    text="从磨豆到注水，每一步都会影响萃取。先说结论。\n水温 92 °C。",
    author=Author(author_id="7", name="豆子与水"),
    published_at=datetime(2026, 11, 1, 8, 30, tzinfo=UTC),
    counts=Counts(views=60_033, likes=2_991, comments=39),
    tags=("咖啡",),
    images=("https://i0.hdslb.com/bfs/one.jpg", "javascript:alert(1)"),
    duration=timedelta(seconds=242),
)


async def store(installation: Installation, *notes: Note, failed: str = "") -> None:
    """Collect these notes, and give one candidate up."""
    writer = installation.collect.writer
    execution = (await writer.acquire("collect")).execution
    assert execution is not None
    for note in notes:
        found = {"note_url": note.url, "title": note.title, "source_keyword": "咖啡"}
        await writer.add_candidates(execution, [NewCandidate(platform=note.platform, note_id=note.note_id, **found)])
        await writer.lease(execution, platform=note.platform)
        await writer.settle(execution, note.platform, [Collected(note_id=note.note_id, note=note)])
    if failed:
        found = {"note_url": "javascript:alert(1)", "title": failed, "source_keyword": failed}
        await writer.add_candidates(execution, [NewCandidate(platform="weibo", note_id="lost", **found)])
        await writer.lease(execution, platform="weibo")
        gone = Failed(note_id="lost", error=make_error(ErrorCode.INVALID_INPUT, f"gone {failed}"))
        await writer.settle(execution, "weibo", [gone])
    await writer.finish(execution)


async def read_comments(installation: Installation, note: Note, *comments: Comment) -> None:
    """Collect this note for a keyword that asks for comments, and read them as one page."""
    collect = installation.collect
    await collect.keywords.add(note.platform, "咖啡", comments=1_000)
    await store(installation, note)
    execution = (await collect.writer.acquire("collect")).execution
    assert execution is not None
    await collect.comments.lease(execution, platform=note.platform, limit=10)
    page = ReadComments(note_id=note.note_id, comments=comments, cursor="", cookie_used=None)
    [settled] = await collect.comments.settle(execution, note.platform, [page])
    assert settled.created == len(comments)
    await collect.writer.finish(execution)


@pytest.mark.thorough
async def test_notes_are_searched_filtered_and_exported(api: ApiStage, browser: Browser) -> None:
    """C28: a word of two characters is found and marked; filters keep the search; the export has the same notes."""
    tea = replace(
        NOTE, platform="weibo", note_id="W/2?x", kind=NoteKind.TEXT, title="喝茶的讲究", text="先喝茶。", tags=()
    )
    await store(api.installation, NOTE, tea)
    found = (await browser.get("/notes?q=%E5%92%96%E5%95%A1")).text
    assert "手冲<mark>咖啡</mark>入门" in found
    assert "喝茶的讲究" not in found
    assert "喝茶的讲究" in (await browser.get("/notes?platform=weibo&kind=text&days=365")).text
    assert "No note matches." in (await browser.get("/notes?kind=article")).text
    assert 'href="/notes/weibo/W%2F2%3Fx"' in (await browser.get("/notes")).text
    assert "喝茶的讲究" in (await browser.get("/notes/weibo/W%2F2%3Fx")).text
    exported = await browser.get("/api/notes/export?q=%E5%92%96%E5%95%A1&format=jsonl")
    assert exported.text.count("\n") == 1
    assert "手冲咖啡入门" in exported.text


@pytest.mark.thorough
async def test_a_note_shows_its_text_counts_and_image_addresses(api: ApiStage, browser: Browser) -> None:
    """Images are text with a copy button: the page loads nothing from elsewhere."""
    await store(api.installation, NOTE)
    page = (await browser.get("/notes/bilibili/BV1")).text
    for shown in ("水温 92 °C", "60,033", "豆子与水", "https://i0.hdslb.com/bfs/one.jpg", "4 min 02 s", "BV1_v1"):
        assert shown in page
    assert "<img" not in page
    assert 'href="javascript' not in page
    assert (await browser.get("/notes/bilibili/unknown")).status == 404


@pytest.mark.thorough
async def test_counts_over_time_are_a_line_and_a_table(api: ApiStage, browser: Browser) -> None:
    """C32: one series at a time, from the second reading on; the table has all of them."""
    await store(api.installation, NOTE)
    assert "Counts over time" not in (await browser.get("/notes/bilibili/BV1")).text
    later = to_milliseconds(api.installation.clock.now() + timedelta(days=1))
    row = {"platform": "bilibili", "note_id": "BV1", "taken_at": later, "views": 70_033, "likes": 3_100, "comments": 50}
    async with api.installation.database.write() as connection:
        await connection.execute(insert(note_snapshots), [row])
    views = (await browser.get("/notes/bilibili/BV1")).text
    assert (views.count("<circle"), views.count('class="trend"')) == (2, 1)
    assert "+10,000 since " in views
    assert [shown in views for shown in (">70,033<", ">3,100<", ">50<", ">60,033<")] == [True] * 4
    likes = (await browser.get("/notes/bilibili/BV1?count=likes")).text
    assert "+109 since " in likes
    assert 'href="/notes/bilibili/BV1?count=likes" aria-current="true"' in likes


async def test_a_note_shows_its_comments_page_by_page(api: ApiStage, browser: Browser) -> None:
    """C32: the text first, then who wrote it, when, where and its likes; a reply is known as one. No empty state."""
    await store(api.installation, replace(NOTE, note_id="BV2"))
    assert "Comments <span" not in (await browser.get("/notes/bilibili/BV2")).text
    author, at = Author(author_id="8", name="路人"), datetime(2026, 11, 2, 9, tzinfo=UTC)
    first = Comment(comment_id="c0", text="第一条\n换行", author=author, published_at=at, likes=1, place="上海")
    reply = Comment(comment_id="c1", parent_id="c0", text="同意", likes=1_200)
    others = [Comment(comment_id=f"c{n}", text=f"comment {n:02}.") for n in range(2, 60)]
    await read_comments(api.installation, NOTE, first, reply, *others)
    # A pseudonym, unless the settings say otherwise.
    known = (await api.installation.collect.stored_comments.list_page("bilibili", "BV1", limit=1)).comments[0].comment
    page = (await browser.get("/notes/bilibili/BV1")).text
    assert 'Comments <span class="count">60</span>' in page
    assert (
        page.index("第一条\n换行") < page.index(known.author.name) < page.index("上海 · 1 like<") < page.index("同意")
    )
    assert '<li class="comment reply"><p dir="auto">同意</p><p class="small muted">Reply · 1,200 likes</p>' in page
    assert [shown in page for shown in ("comment 49.", "comment 50.", "First page")] == [True, False, False]
    [following] = re.findall(r'href="(/notes/bilibili/BV1\?after=\d+)#comments-title" rel="next"', page)
    rest = (await browser.get(following)).text
    assert [shown in rest for shown in ("comment 49.", "comment 50.", "comment 59.", "First page")] == [
        *(False, True, True, True)
    ]
    assert 'rel="next"' not in rest


@pytest.mark.thorough
async def test_a_note_is_deleted_after_a_question(api: ApiStage, browser: Browser) -> None:
    await store(api.installation, NOTE)
    asked = (await browser.get("/notes/delete/confirm?platform=bilibili&note_id=BV1")).text
    assert "is not collected again" in asked
    answer = await browser.post("/notes/delete", platform="bilibili", note_id="BV1")
    assert answer.headers["location"] == "/notes"
    assert (await browser.get("/notes/bilibili/BV1")).status == 404
    assert "No notes yet" in (await browser.get("/notes")).text


async def test_what_a_platform_writes_is_text_and_never_markup(api: ApiStage, browser: Browser) -> None:
    """XSS: all texts of a note and of its comments; title, keyword and error of a candidate."""
    evil = replace(
        NOTE,
        note_id="evil<b>",
        title=ATTACK,
        text=ATTACK,
        author=Author(author_id=ATTACK, name=ATTACK),
        tags=(ATTACK,),
        place=ATTACK,
        images=(ATTACK,),
        url="javascript:alert(1)",
    )
    said = Comment(comment_id="c", text=ATTACK, author=Author(author_id=ATTACK, name=ATTACK), place=ATTACK)
    await read_comments(api.installation, evil, said, replace(said, comment_id="d", published_at=NOTE.published_at))
    await store(api.installation, failed=ATTACK)
    for path in ("/notes", "/notes?q=script", "/notes/bilibili/evil%3Cb%3E", "/candidates", "/"):
        text = (await browser.get(path)).text
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
        assert "<b>" not in text, path
        assert 'href="javascript' not in text, path


@pytest.mark.thorough
async def test_a_candidate_that_was_given_up_is_tried_again_alone(api: ApiStage, browser: Browser) -> None:
    """C30: its last error is shown, and its button asks for it alone."""
    await store(api.installation, failed="a note")
    page = (await browser.get("/candidates")).text
    assert "The platform cannot do this" in page
    assert "gone a note" in page
    answer = await browser.post("/candidates/retry", platform="weibo", note_id="lost")
    assert "1 candidate is tried again" in (await browser.get(answer.headers["location"])).text
    assert "No candidate was given up" in (await browser.get("/candidates")).text
