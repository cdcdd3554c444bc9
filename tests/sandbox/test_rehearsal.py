"""docs/rehearsal.md is true: the sandbox takes each of its requests, and its commands and cookies exist."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.cli.test_help import read_help, walk
from tidings.sandbox.bundle import Sandbox, serve_sandbox
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE
from tidings.sandbox.media.xiaohongshu import DEMO_XIAOHONGSHU_COOKIE

PAGE = (Path(__file__).parents[2] / "docs" / "rehearsal.md").read_text()
# Requests that steer a stand-in. Those to tables need the tables that `feishu setup` makes.
STEERED = re.findall(r"^curl (?:-X (\w+) )?\$C/(?!feishu/tables)(\S+)(?: -d '(.+)')?$", PAGE, re.MULTILINE)
COMMANDS = sorted(set(re.findall(r"\btidings ((?:alerts|announce|collect|cookies|sandbox)\b[^|)#&`\\\n]*)", PAGE)))


@pytest.fixture
async def control() -> AsyncIterator[str]:
    """The control address of everything that `tidings sandbox` starts."""
    ready: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_sandbox(port=0, pages=3, on_ready=ready.set_result))
    yield (await ready).control_url
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_the_sandbox_takes_every_request_of_the_page(client: ClientSession, control: str) -> None:
    """C33: faults, log-outs, posts, pages and the record, as they are written there."""
    assert len(STEERED) > 20
    for method, path, body in STEERED:
        document = json.loads(body) if body else None
        asked = method or ("POST" if body else "GET")
        async with client.request(asked, control + path, json=document) as answer:
            assert answer.status in (200, 204), (asked, path, body, await answer.text())


def test_every_command_of_the_page_exists_with_its_options() -> None:
    """C33."""
    known = sorted(walk(), key=len, reverse=True)
    assert len(COMMANDS) > 12
    for line in COMMANDS:
        words = line.split()
        path = next(each for each in known if list(each) == words[: len(each)])
        assert len(path) > 0, line
        help_text = read_help(*path)
        assert [option for option in re.findall(r"--[a-z-]+", line) if option not in help_text] == [], line


def test_the_cookies_of_the_page_are_those_that_the_sandbox_takes() -> None:
    """C33."""
    for cookie in (DEMO_BILIBILI_COOKIE, DEMO_WEIBO_COOKIE, DEMO_XIAOHONGSHU_COOKIE):
        assert f"echo '{cookie}'" in PAGE
