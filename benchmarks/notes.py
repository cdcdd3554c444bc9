"""Many notes with their candidates, keywords and cookies, stored by Tidings' own writer."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random

from sqlalchemy import text

from benchmarks.candidates import make_note
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.notes import Author, Counts, Note, NoteKind
from tidings.collect.write.cookies import make_cookie
from tidings.collect.write.values import Collected, Failed, NewCandidate
from tidings.core.executions import Execution
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.settings.settings import read_settings
from tidings.wiring.installation import Installation
from tidings.wiring.opening import open_installation

PLATFORMS = ("bilibili", "xiaohongshu", "weibo", "web")
KEYWORDS = ("咖啡", "手冲咖啡", "茶", "露营", "滑雪")
_WORDS = (
    "水温",
    "研磨",
    "入门",
    "教程",
    "周末",
    "城市",
    "清单",
    "对比",
    "夜景",
    "山路",
    "雪场",
    "帐篷",
    "拿铁",
    "单品",
)
_BLOCK = 500
# One in so many candidates is given up, and one in so many waits.
_FAILED, _WAITING = 97, 89
# They were collected over a year, one every five minutes.
_SPREAD = "UPDATE tbl_candidate SET updated_at = updated_at - CAST(substr(note_id, 6) AS BIGINT) * 300000"


def fill_notes(environment: dict[str, str], *, notes: int) -> None:
    """Store so many notes, dated over a year, with keywords and cookies."""
    asyncio.run(_fill_notes(environment, notes=notes))


async def _fill_notes(environment: dict[str, str], *, notes: int) -> None:
    async with open_installation(read_settings(environment), redactor=Redactor()) as installation:
        await _add_sources(installation)
        acquired = await installation.collect.writer.acquire("collect")
        assert acquired.execution is not None
        for start in range(0, notes, _BLOCK):
            platform = PLATFORMS[start // _BLOCK % len(PLATFORMS)]
            made = [_make_note(installation, platform, number) for number in range(start, min(notes, start + _BLOCK))]
            await _store(installation, acquired.execution, platform, made)
        await installation.collect.writer.finish(acquired.execution)
        async with installation.database.write() as connection:
            await connection.execute(text(_SPREAD))


async def _add_sources(installation: Installation) -> None:
    for platform in PLATFORMS:
        for keyword in KEYWORDS:
            await installation.collect.keywords.add(platform, keyword)
        for number in range(0 if platform == "web" else 5):
            secret = Secret(f"session=benchmark-{number}")
            await installation.collect.cookies.add(
                make_cookie(f"{platform}-{number}", platform=platform, secret=secret)
            )


async def _store(installation: Installation, execution: Execution, platform: str, notes: Sequence[Note]) -> None:
    writer = installation.collect.writer
    new = [
        NewCandidate(
            platform=platform, note_id=note.note_id, note_url=note.url, title=note.title, source_keyword=note.tags[0]
        )
        for note in notes
    ]
    await writer.add_candidates(execution, new)
    by_id = {note.note_id: (number, note) for number, note in enumerate(notes)}
    # A lease holds fewer than a block.
    while leased := await writer.lease(execution, limit=_BLOCK, platform=platform):
        results: list[Collected | Failed] = []
        for each in leased:
            number, note = by_id[each.note_id]
            if number % _WAITING == 1:
                continue
            if number % _FAILED == 1:
                results.append(
                    Failed(note_id=each.note_id, error=make_error(ErrorCode.INVALID_INPUT, "the note is gone"))
                )
            else:
                results.append(Collected(note_id=each.note_id, note=note))
        await writer.settle(execution, platform, results)


def _make_note(installation: Installation, platform: str, number: int) -> Note:
    chance = Random(number)
    words = [chance.choice(_WORDS) for _ in range(60)]
    keyword = chance.choice(KEYWORDS)
    return replace(
        make_note(platform, f"note-{number:07}"),
        kind=chance.choice(list(NoteKind)),
        title=f"{keyword}：{words[0]}{words[1]}，第 {number} 篇",
        text="，".join(words) + "。",
        author=Author(author_id=str(number % 997), name=f"作者 {number % 997}"),
        published_at=installation.clock.now() - timedelta(minutes=5 * number),
        counts=Counts(views=chance.randrange(200_000), likes=chance.randrange(9_000), comments=chance.randrange(300)),
        tags=(keyword, *words[:3]),
    )
