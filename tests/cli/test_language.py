"""Command output in Chinese: the catalogue has every text that the commands say, and the commands use it."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidings.cli
from tests.cli.terminal import Terminal, announce_words, make_sandbox
from tidings.cli.language import CATALOGUE
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, SandboxWeibo

pytestmark = pytest.mark.one_database

FIELD = re.compile(r"\{[^}]*\}")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def list_texts() -> Iterator[str]:
    """Every text that a command says. It must be written out where it is said."""
    for path in Path(tidings.cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say":
                (text,) = node.args
                assert isinstance(text, ast.Constant), f"{path}:{node.lineno}"
                yield str(text.value)


def test_the_catalogue_has_every_text_and_no_other() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh; no text is missing, none is left over, and both have the same fields."""
    chinese = tomllib.loads(CATALOGUE.read_text())
    assert set(list_texts()) == set(chinese)
    assert [text for text in chinese if set(FIELD.findall(text)) != set(FIELD.findall(chinese[text]))] == []
    assert [text for text in chinese if not CHINESE.search(chinese[text]) and CHINESE.search(text)] == []


async def test_announce_says_its_summary_in_chinese(terminal: Terminal) -> None:
    """A23: summary, table and errors."""
    terminal.variables["TIDINGS_LANGUAGE"] = "zh"
    async with make_sandbox(pages=5) as sandbox:
        ran = await terminal.run(*announce_words(sandbox))
        unknown = await terminal.run("run", "nowhere.example")
    assert ran.code == 0
    assert "成功" in ran.out
    assert "共 5 页，待推送 5 页，已推送过 0 页" in ran.out
    assert ran.out.splitlines()[1].split()[:2] == ["引擎", "已接受"]
    assert (unknown.code, "没有站点 'nowhere.example'" in unknown.err) == (2, True)


async def test_collect_says_its_results_in_chinese(terminal: Terminal) -> None:
    """C21, C24: from the setup of Feishu to the status; JSON and settings stay as they are."""
    base = {"tblDefault": {"文本": BitableFieldType.TEXT}}
    async with SandboxWeibo() as weibo, SandboxBitable(tables=base) as feishu:
        terminal.variables |= {
            "TIDINGS_LANGUAGE": "zh",
            "WEIBO_BASE_URL": weibo.origin,
            "PLATFORM_INTERVAL_SECONDS": "0",
            "COOKIE_INTERVAL_SECONDS": "0",
            "FEISHU_APP_ID": DEMO_APP_ID,
            "FEISHU_APP_SECRET": DEMO_APP_SECRET,
            "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
            "FEISHU_BASE_URL": feishu.origin,
        }
        setup = await terminal.run("collect", "feishu", "setup", "--yes")
        terminal.variables |= dict(line.split("=") for line in setup.out.splitlines() if line.startswith("FEISHU_"))
        nothing = await terminal.run("collect", "discover")
        await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given=DEMO_WEIBO_COOKIE)
        feishu.edit_records("tbl_keyword", add=[{"keyword": "bread", "platform": "weibo"}])
        await terminal.run("collect", "mirror")
        found = await terminal.run("collect", "discover")
        ran = await terminal.run("collect", "run")
        mirrored = await terminal.run("collect", "mirror")
        status = await terminal.run("collect", "status")
        document = (await terminal.run("collect", "status", "--json")).document
        answer = feishu.rows(feishu.find_table("tbl_keyword"))[0]["status"]
    assert "tbl_cookie: 创建数据表和全部字段" in setup.out
    assert (nothing.code, "没有关注任何关键词" in nothing.err) == (2, True)
    assert answer == "已关注"
    assert "找到 10 条，新增 10 条" in found.out
    assert ran.out.splitlines()[0].split()[:3] == ["平台", "状态", "已采集"]
    assert mirrored.out.startswith("新增 2")
    assert "飞书：没有等待同步的变化。" in status.out
    assert "可用的 Cookie：weibo 1/1。" in status.out
    assert document["candidates"]["weibo"]["collected"] == 10
