"""The whole way of a person who works in Feishu: a cookie as the browser gives it, a keyword in the base, and what was
found in the base and in a spreadsheet."""

from collections.abc import AsyncIterator
from pathlib import Path

import openpyxl  # type: ignore[import-untyped]
import pytest

from tests.cli.terminal import Terminal
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, DEMO_WEIBO_SESSION, SandboxWeibo

FOUND = 10
AGENT = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"
CURL = f"""curl 'https://m.weibo.cn/api/config' \\
  -H 'User-Agent: {AGENT}' \\
  -H 'Accept: application/json' \\
  -H 'Cookie: {DEMO_WEIBO_COOKIE}'"""


@pytest.fixture
async def feishu() -> AsyncIterator[SandboxBitable]:
    """A base as Feishu makes it."""
    async with SandboxBitable(tables={"tblDefault": {"文本": BitableFieldType.TEXT}}) as running:
        yield running


@pytest.fixture
async def terminal(tmp_path: Path, feishu: SandboxBitable) -> AsyncIterator[Terminal]:
    async with SandboxWeibo() as weibo:
        opened = Terminal(tmp_path)
        opened.variables |= {
            "WEIBO_BASE_URL": weibo.origin,
            "PLATFORM_INTERVAL_SECONDS": "0",
            "COOKIE_INTERVAL_SECONDS": "0",
            "FEISHU_APP_ID": DEMO_APP_ID,
            "FEISHU_APP_SECRET": DEMO_APP_SECRET,
            "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
            "FEISHU_BASE_URL": feishu.origin,
        }
        yield opened
        await opened.close()


async def run(terminal: Terminal, words: str) -> str:
    ended = await terminal.run(*words.split())
    assert ended.code == 0, ended.err
    return ended.out


@pytest.mark.thorough
async def test_a_pasted_cookie_and_a_keyword_in_feishu_become_notes_in_feishu_and_in_a_spreadsheet(
    terminal: Terminal, feishu: SandboxBitable
) -> None:
    """C21, C28, C31: every note stands in the base and in the file once, with the same content; no cookie does."""
    added = await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given=CURL)
    assert added.code == 0, added.err
    setup = await run(terminal, "collect feishu setup --yes")
    terminal.variables |= dict(line.split("=") for line in setup.splitlines() if line.startswith("FEISHU_TABLE_"))
    feishu.edit_records("tbl_keyword", add=[{"keyword": "bread", "platform": "weibo"}])
    await run(terminal, "collect mirror")
    assert feishu.rows(feishu.find_table("tbl_keyword"))[0]["status"] == "watched"

    await run(terminal, "collect discover")
    await run(terminal, "collect run")
    await run(terminal, "collect mirror")
    await run(terminal, "collect notes export notes.xlsx")

    sheet = openpyxl.load_workbook(terminal.folder / "notes.xlsx")["notes"]
    titles, *lines = sheet.iter_rows(values_only=True)
    exported = {line["note_id"]: line for line in (dict(zip(titles, line, strict=True)) for line in lines)}
    shown = {row["note_id"]: row for row in feishu.rows(feishu.find_table("tbl_source"))}
    assert len(lines) == len(exported) == len(shown) == FOUND
    assert exported.keys() == shown.keys()
    for note_id, line in exported.items():
        assert (line["title"], line["text"]) == (shown[note_id]["title"], shown[note_id]["text"])
    statuses = {row["status"] for row in feishu.rows(feishu.find_table("tbl_candidate"))}
    assert statuses == {"collected"}
    assert [row["cookie_name"] for row in feishu.rows(feishu.find_table("tbl_cookie"))] == ["mine"]
    everything = str([feishu.rows(feishu.find_table(name)) for name in ("tbl_cookie", "tbl_source")])
    assert DEMO_WEIBO_SESSION not in everything + terminal.log
