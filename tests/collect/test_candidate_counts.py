"""The numbers of candidates, which triggers keep: always those that counting the rows would give."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select, text

from tests.collect.writer_stage import begin, collect, make_candidates
from tests.fakes import FakeClock
from tidings.collect.candidate_counts import count_candidates, fold_counts
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.tables import candidates
from tidings.collect.write.values import Failed
from tidings.collect.write.writer import Writer
from tidings.core.backup.backup import restore_backup, write_backup
from tidings.core.backup.file import open_backup
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import downgrade_database, prepare_database
from tidings.core.process_lock import ProcessLock


async def read_both(database: Database) -> tuple[Any, Any]:
    """The kept numbers, and those of the rows."""
    key = (candidates.c.platform, candidates.c.status)
    async with database.read() as connection:
        kept = await count_candidates(connection)
        rows = await connection.execute(select(*key, func.count()).group_by(*key))
        counted: dict[str, dict[str, int]] = {}
        for platform, status, number in rows:
            counted.setdefault(platform, {})[status] = number
    return kept, counted


async def test_the_numbers_follow_every_change(database: Database, writer: Writer) -> None:
    """C30: found, leased, collected, failed, tried again, deleted, given back, and gone."""
    execution = await begin(writer)

    async def check(expected: dict[str, int]) -> None:
        kept, counted = await read_both(database)
        assert kept == counted == ({"bilibili": expected} if expected else {})

    await writer.add_candidates(execution, make_candidates(*"abcdefgh"))
    await writer.add_candidates(execution, make_candidates(*"abc"))
    await check({"pending": 8})
    leased = await writer.lease(execution, limit=6)
    await check({"pending": 2, "processing": 6})
    failures = [Failed(note_id=leased[3].note_id, error=make_error(ErrorCode.INVALID_INPUT, "gone"))]
    await writer.settle(execution, "bilibili", [*collect(leased[:3]), *failures])
    await check({"pending": 2, "processing": 2, "collected": 3, "failed": 1})
    await writer.heartbeat(execution)
    await writer.corrections.delete_note("bilibili", leased[0].note_id)
    await writer.corrections.requeue()
    await writer.finish(execution)
    await check({"pending": 5, "collected": 2, "deleted": 1})
    async with database.write() as connection:
        await connection.execute(delete(candidates))
    await check({})


@pytest.mark.thorough
async def test_a_restored_backup_has_the_right_numbers(
    database: Database, writer: Writer, clock: FakeClock, process_lock: ProcessLock, tmp_path: Path
) -> None:
    """C30: they are no part of the backup, and an installation that was taken back and forth has them too."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates(*"abcd"))
    await writer.settle(execution, "bilibili", collect(await writer.lease(execution, limit=3)))
    await writer.finish(execution)
    expected = {"bilibili": {"pending": 1, "collected": 3}}
    await write_backup(database, tmp_path / "backup", clock=clock, release="1")
    with open_backup(tmp_path / "backup") as backup:
        await restore_backup(database, backup, process_lock=process_lock, data_dir=tmp_path, clock=clock)
    assert await read_both(database) == (expected, expected)
    await downgrade_database(database, revision="0024")
    await prepare_database(database)
    assert await read_both(database) == (expected, expected)


@pytest.mark.one_database
async def test_writers_and_those_who_sum_up_do_not_wait_for_each_other(postgres_url: str) -> None:
    """C30: on PostgreSQL, with a writer and a sum that are not committed yet; nothing is lost or counted twice."""
    database = open_database(postgres_url)
    insert = text(
        "INSERT INTO tbl_candidate (platform, note_id, note_url, title, status, retry_count, source_keyword, exec_meta,"
        " due_at, created_at, updated_at) VALUES (:platform, :note, '', '', 'pending', 0, '', '{}', 0, 0, 0)"
    )
    async with asyncio.timeout(20):
        async with database.write() as first:
            await first.execute(insert, {"platform": "weibo", "note": "1"})
        async with database.write() as first, database.write() as second, database.write() as third:
            await first.execute(insert, {"platform": "weibo", "note": "2"})
            await fold_counts(second)
            await fold_counts(third)
            await third.execute(insert, {"platform": "weibo", "note": "3"})
    async with database.write() as connection:
        await fold_counts(connection)
        rows = (await connection.execute(text("SELECT platform, status, number FROM candidate_counts"))).all()
    await database.close()
    assert rows == [("weibo", "pending", 3)]
