"""Tables full of candidates, made by the database itself in one statement, and the note that each turns out to be."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from benchmarks.postgresql import tidy_tables
from tidings.collect.notes import Author, Counts, Note, NoteKind
from tidings.collect.tables import candidates
from tidings.core.db.database import Database, open_database
from tidings.wiring.opening import prepare_tables

PLATFORMS = 5

# Two rows that are due one after the other lie far apart, as those of different searches do: the step has no divisor in
# common with the number of rows.
_STEP = 7_919
_FILL = text(
    """
    WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows - 1)
    INSERT INTO tbl_candidate (
        platform, note_id, note_url, title, status, retry_count, source_keyword, exec_meta, due_at, created_at,
        updated_at
    )
    SELECT
        CASE WHEN n / 1000 % :platforms = 0 THEN :first ELSE 'platform-' || (n / 1000 % :platforms) END,
        'BV1' || (1000000000 + n),
        'https://www.bilibili.com/video/BV1' || (1000000000 + n),
        '一壶好茶的讲究:从选叶到冲泡,第 ' || n || ' 集',
        CASE WHEN n % 1000 = 0 THEN :rare ELSE :usual END,
        0,
        '茶',
        '{"request_id": "req-1a2b3c4d5e6f", "execution_id": "exec-1763200000000-1a2b3c4d"}',
        :due + CAST(n AS BIGINT) * :step % :rows,
        :due,
        :due
    FROM numbers
    """
)
_LONG_AGO = 1_760_000_000_000

_NOTE = Note(
    platform="bilibili",
    note_id="",
    url="",
    kind=NoteKind.VIDEO,
    title="一壶好茶的讲究:从选叶到冲泡",
    text="\n".join(f"{number}. 水温要合适,茶叶要新鲜,冲泡的时间不能太长也不能太短。" for number in range(1, 31)),
    author=Author(author_id="208259", name="茶馆老板"),
    published_at=datetime(2026, 11, 1, 8, 30, tzinfo=UTC),
    counts=Counts(views=123_456, likes=7_890, comments=321, shares=65, favorites=432, coins=210, danmaku=98),
    tags=("茶", "生活", "教程", "传统文化", "美食"),
    images=tuple(f"https://i0.hdslb.com/bfs/archive/0123456789abcdef0123456789abcdef{n}.jpg" for n in range(6)),
    duration=timedelta(seconds=754),
    place="浙江",
)


def make_note(platform: str, note_id: str) -> Note:
    """About four kilobytes of it."""
    return replace(_NOTE, platform=platform, note_id=note_id, url=f"https://www.bilibili.com/video/{note_id}")


async def make_table(
    url: str, *, rows: int, first: str = "platform-0", platforms: int = 1, usual: str = "pending", rare: str = "pending"
) -> None:
    """All tables on a new database, with so many candidates of this status; one in a thousand has the `rare` one.

    The platforms are `first`, `platform-1`, …, with the same share each. Everything pending is due.
    """
    database = open_database(url)
    try:
        await prepare_tables(database)
        await _fill(database, rows=rows, first=first, platforms=platforms, usual=usual, rare=rare)
    finally:
        await database.close()
    if database.dialect == "postgresql":
        tidy_tables(url)


async def _fill(database: Database, **values: object) -> None:
    indexes = sorted(candidates.indexes, key=lambda index: str(index.name))
    async with database.write() as connection:
        # Made at the end, from all rows at once, which is much quicker.
        for index in indexes:
            await connection.run_sync(index.drop)
        await connection.execute(_FILL, {**values, "due": _LONG_AGO, "step": _STEP})
        for index in indexes:
            await connection.run_sync(index.create)
