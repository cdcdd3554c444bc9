"""A mirror of two tables, from before the other two, goes on after the upgrade; and the way back is open."""

import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.collect.feishu_stage import (
    CANDIDATES,
    SOURCES,
    MirrorMaker,
    build_mirror,
    make_service,
    make_target,
    read_expected,
    read_mirrored,
)
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import downgrade_database, upgrade_database
from tidings.core.net.client import GuardedClient
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType, Fields

BEFORE, AFTER = "0011", "0016"
NOTE = json.dumps({"title": "t", "text": "one", "author": {"author_id": "1", "name": "x"}, "tags": [], "counts": {}})
NOW = 1_800_000_000_000
TEXT, NUMBER = BitableFieldType.TEXT, BitableFieldType.NUMBER
FIELDS = {"key": TEXT, "url": TEXT, "keyword": TEXT, "status": TEXT, "created_at": NUMBER, "managed_by": TEXT}


@pytest.fixture
async def older(empty_url: str) -> AsyncIterator[Database]:
    """A database with the tables of before."""
    database = open_database(empty_url)
    await upgrade_database(database, revision=BEFORE)
    yield database
    await database.close()


@pytest.fixture
def make_old(client: GuardedClient, older: Database, tmp_path: Path) -> MirrorMaker:
    return functools.partial(build_mirror, database=older, folder=tmp_path, client=client)


async def insert_rows(database: Database, table: str, *rows: dict[str, Any]) -> None:
    names = list(rows[0])
    values = ", ".join(f":{name}" for name in names)
    async with database.write() as connection:
        await connection.execute(text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"), list(rows))


async def read_keys(database: Database, table: str) -> list[tuple[str, str]]:
    async with database.read() as connection:
        rows = await connection.execute(text(f"SELECT table_name, note_id FROM {table} ORDER BY 1, 2"))
        return [(row.table_name, row.note_id) for row in rows]


async def fill(database: Database, service: SandboxBitable) -> None:
    """A candidate and its note that are mirrored, a note that is about to be created, and the state of the mirror."""
    common = {
        "platform": "weibo",
        "note_url": "https://m.weibo.cn/1",
        "title": "t",
        "retry_count": 0,
        "exec_meta": "{}",
    }
    times = {"due_at": NOW, "created_at": NOW, "updated_at": NOW}
    candidate = {**common, "note_id": "a", "status": "collected", "source_keyword": "tea", **times}
    note = {**common, "kind": "text", "author_name": "x", "content": NOTE, "collected_at": NOW}
    await insert_rows(database, "tbl_candidate", candidate)
    await insert_rows(
        database, "tbl_source", *({**note, "note_id": name, "idempotency_key": f"{name}_v1"} for name in "ab")
    )
    for name, table_id in (("tbl_candidate", CANDIDATES), ("tbl_source", SOURCES)):
        record: Fields = {"key": "weibo:a", "url": "https://old", "managed_by": "tidings-old"}
        service.table(table_id).fields = dict(FIELDS)
        (created,) = service.table(table_id).create([record])
        known = {
            "table_name": name,
            "platform": "weibo",
            "note_id": "a",
            "record_id": created["record_id"],
            "digest": "d",
        }
        target = make_target(service).fingerprint(name)
        state = {"table_name": name, "target": target, "owner": "tidings-old", "signature": "s"}
        await insert_rows(database, "mirror_records", {**known, "digest": "d"})
        await insert_rows(database, "mirror_state", state)
    entry = {"table_name": "tbl_source", "platform": "weibo", "note_id": "b", "created_at": NOW}
    await insert_rows(database, "mirror_outbox", entry)
    body = json.dumps([["weibo", "b", {"key": "weibo:b", "managed_by": "tidings-old"}]])
    intent = {"table_name": "tbl_source", "client_token": "0b5ba4cb-2d0f-4b6d-b1d1-0f2a5f5a9d61", "body": body}
    await insert_rows(database, "mirror_intents", {**intent, "created_at": NOW})


@pytest.mark.thorough
async def test_a_mirror_of_two_tables_goes_on_with_four(older: Database, make_old: MirrorMaker) -> None:
    """C21: no record is doubled or lost; new fields are created, and a number goes on in place of a date."""
    async with make_service() as service:
        await fill(older, service)
        await upgrade_database(older)
        assert await read_keys(older, "mirror_records") == [("tbl_candidate", "a"), ("tbl_source", "a_v1")]
        mirror = make_old(service)
        assert (await mirror.deliver()).failures == {}
        assert (await mirror.deliver()).failures == {}
        assert [row["key"] for row in service.rows(SOURCES)] == ["weibo:a_v1", "weibo:b_v1"]
        assert service.rows(CANDIDATES)[0]["url"] == "https://old"
        assert (await mirror.rebuild()).failures == {}
        for row in service.rows(CANDIDATES) + service.rows(SOURCES):
            row.pop("url", None)
        assert read_mirrored(service) == await read_expected(older)


async def test_the_release_before_finds_its_own_names_again(older: Database) -> None:
    """C27: versions that it does not know are left out."""
    async with make_service() as service:
        await fill(older, service)
        tables = ("mirror_records", "mirror_outbox", "mirror_intents")
        before = [await read_keys(older, table) for table in tables[:2]]
        await upgrade_database(older, revision=AFTER)
        later = {"table_name": "tbl_source", "platform": "weibo", "note_id": "a_v2", "created_at": NOW}
        cookie = {"table_name": "tbl_cookie", "platform": "weibo", "note_id": "mine", "created_at": NOW}
        await insert_rows(older, "mirror_outbox", later, cookie)
        await downgrade_database(older, revision=BEFORE)
        assert [await read_keys(older, table) for table in tables[:2]] == before
        async with older.read() as connection:
            body = (await connection.execute(text("SELECT body FROM mirror_intents"))).scalar_one()
        assert json.loads(body)[0][:2] == ["weibo", "b"]
