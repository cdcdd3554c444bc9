"""The whole way, as a user goes it: a keyword is named on the command line, a service is started, and what was found
stands in the tables and in Feishu, exactly once; with one id to follow it by."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import openpyxl  # type: ignore[import-untyped]
import pytest
from aiohttp import ClientSession
from sqlalchemy import select, text

from tests.cli.terminal import Terminal
from tests.test_serve import TOKEN, Served, Server
from tests.waiting import wait_until
from tidings.collect.mirror_tables import mirror_outbox
from tidings.collect.tables import candidates, sources
from tidings.core.clock import to_text
from tidings.core.db.database import Database, open_database
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, DEMO_TABLES, SandboxBitable
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, DEMO_WEIBO_SESSION, SandboxWeibo, name_post

CANDIDATES, SOURCES = DEMO_TABLES
TOPIC = "bread"
FOUND = 10


@pytest.fixture
async def feishu() -> AsyncIterator[SandboxBitable]:
    async with SandboxBitable() as running:
        yield running


@pytest.fixture
async def terminal(tmp_path: Path, feishu: SandboxBitable) -> AsyncIterator[Terminal]:
    async with SandboxWeibo() as weibo:
        opened = Terminal(tmp_path)
        opened.variables |= {
            "TIDINGS_TOKEN": TOKEN,
            "WEIBO_BASE_URL": weibo.origin,
            "PLATFORM_INTERVAL_SECONDS": "0",
            "COOKIE_INTERVAL_SECONDS": "0",
            "FEISHU_APP_ID": DEMO_APP_ID,
            "FEISHU_APP_SECRET": DEMO_APP_SECRET,
            "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
            "FEISHU_TABLE_CANDIDATE": CANDIDATES,
            "FEISHU_TABLE_SOURCE": SOURCES,
            "FEISHU_BASE_URL": feishu.origin,
        }
        yield opened
        await opened.close()


@pytest.fixture
async def service(terminal: Terminal) -> AsyncIterator[Served]:
    added = await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given=DEMO_WEIBO_COOKIE)
    assert added.code == 0, added.err
    watched = await terminal.run("collect", "keywords", "add", "weibo", TOPIC)
    assert watched.code == 0, watched.err
    async with ClientSession() as client:
        yield await Server(terminal, client).start()


async def wait_until_mirrored(database: Database, feishu: SandboxBitable) -> None:
    """Until every note is collected and Feishu has everything."""

    async def is_mirrored() -> bool:
        async with database.read() as connection:
            statuses = (await connection.execute(select(candidates.c.status))).scalars().all()
            waiting = (await connection.execute(select(mirror_outbox.c.id))).first()
        return statuses == ["collected"] * FOUND and waiting is None

    await wait_until(is_mirrored)


@pytest.mark.thorough
async def test_a_keyword_becomes_rows_in_the_tables_and_in_feishu_and_one_id_leads_from_end_to_end(
    terminal: Terminal, service: Served, feishu: SandboxBitable
) -> None:
    """C2, C6, C7, C11, C19, C21, C27: exactly once each; the id of a record is in Feishu and in the log of its search,
    its crawl and its write; no cookie is anywhere in clear."""
    database = open_database(f"sqlite:///{terminal.data_dir / 'tidings.db'}")
    await wait_until_mirrored(database, feishu)
    await service.end()
    async with database.read() as connection:
        stored = {row.note_id: row for row in await connection.execute(select(sources))}
        found = list(await connection.execute(select(candidates)))
        executions = set(await connection.execute(text("SELECT workflow_name, status FROM tbl_crawl_execution")))
    await database.close()

    assert len(stored) == len(found) == FOUND
    assert executions == {("discover", "succeeded"), ("collect:weibo", "succeeded")}
    mirrored = {table: {row["key"]: row for row in feishu.rows(table)} for table in DEMO_TABLES}
    assert len(feishu.rows(SOURCES)) == len(feishu.rows(CANDIDATES)) == FOUND
    for note_id, row in stored.items():
        request_id = json.loads(row.exec_meta)["request_id"]
        assert request_id in str(mirrored[SOURCES][f"weibo:{note_id}_v1"]["exec_meta"])
        assert mirrored[SOURCES][f"weibo:{note_id}_v1"]["title"] == row.title
        assert mirrored[CANDIDATES][f"weibo:{note_id}"]["status"] == "collected"
        assert list_events(terminal.log, request_id) >= {"candidates.leased", "crawl.item", "candidates.settled"}
    searched = {json.loads(row.exec_meta)["request_id"] for row in found} - {"-"}
    assert searched
    assert DEMO_WEIBO_SESSION not in terminal.log
    assert DEMO_APP_SECRET not in terminal.log


CURL = f"""curl 'https://m.weibo.cn/api/config' \\
  -H 'accept: application/json' \\
  -H 'cookie: {DEMO_WEIBO_COOKIE}' \\
  -H 'user-agent: Mozilla/5.0 (acceptance)' \\
  --compressed
"""
WATCHED = "咖啡"


@pytest.mark.thorough
async def test_from_a_pasted_curl_and_a_row_in_feishu_to_a_table_in_excel(tmp_path: Path) -> None:
    """C19, C21, C27, C28, C31: every step is a command that people type; each cell equals what the platform shows."""
    async with SandboxBitable(tables={}) as feishu, SandboxWeibo() as weibo:
        terminal = Terminal(tmp_path)
        terminal.variables |= {
            "WEIBO_BASE_URL": weibo.origin,
            "PLATFORM_INTERVAL_SECONDS": "0",
            "COOKIE_INTERVAL_SECONDS": "0",
            "FEISHU_APP_ID": DEMO_APP_ID,
            "FEISHU_APP_SECRET": DEMO_APP_SECRET,
            "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
            "FEISHU_BASE_URL": feishu.origin,
        }
        added = await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given=CURL)
        assert added.code == 0, added.err
        setup = await terminal.run("collect", "feishu", "setup", "--json")
        terminal.variables |= setup.document["settings"]
        feishu.edit_records("tbl_keyword", add=[{"keyword": WATCHED, "platform": "weibo", "pages": 2}])
        steps = [("mirror",), ("discover",), ("run",), ("mirror",), ("notes", "export", "notes.xlsx")]
        for step in steps:
            ended = await terminal.run("collect", *step)
            assert ended.code == 0, (step, ended.out, ended.err)
        shown = await terminal.run("collect", "notes", "list", "--keyword", WATCHED, "--limit", "100", "--json")
        expected = {name_post(post.number): post for post in weibo.library.search(WATCHED)}
        mirrored = {row["note_id"]: row for row in feishu.rows(feishu.find_table("tbl_source"))}
        await terminal.close()
    titles, *rows = openpyxl.load_workbook(tmp_path / "notes.xlsx")["notes"].iter_rows(values_only=True)
    exported = {row["note_id"]: row for row in (dict(zip(titles, cells, strict=True)) for cells in rows)}
    listed = {each["note_id"]: each for each in shown.document["notes"]}
    assert len(expected) > 10
    assert set(exported) == set(listed) == set(mirrored) == set(expected)
    for note_id, post in expected.items():
        row, note = exported[note_id], listed[note_id]
        assert (row["title"], row["text"], row["author"], row["url"]) == (
            note["title"],
            note["text"],
            post.author,
            note["url"],
        )
        assert (row["comments"], row["shares"]) == (post.comments, post.shares)
        # The platform shows 1.5万 of 14,955.
        assert row["likes"] == note["counts"]["likes"] == pytest.approx(post.likes, rel=0.05)
        assert (row["published_at"], row["keyword"]) == (to_text(post.published), WATCHED)
        assert mirrored[note_id]["title"] == row["title"]
        assert post.text in row["text"]
    assert DEMO_WEIBO_SESSION not in terminal.log


def list_events(log: str, request_id: str) -> set[str]:
    """What the log says happened under this id: grep, and the names of the events."""
    lines = [line for line in log.splitlines() if request_id in line]
    return {event for line in lines for event in re.findall(r"[a-z]+\.[a-z_]+", line)}
