"""`tidings collect` as people run it: keywords are watched, what they find is collected, and what went wrong is shown
and tried again. The platforms are the sandbox's."""

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace

import pytest

from tests.cli.terminal import Ended, Terminal, end
from tidings.collect.write.cookies import make_cookie
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, DEMO_TABLES, SandboxBitable
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.sandbox.media.weibo import (
    DEMO_WEIBO_COOKIE,
    DEMO_WEIBO_SESSION,
    NO_SUCH_POST,
    SHOW_PATH,
    SandboxWeibo,
    name_post,
)
from tidings.sandbox.webhook_sink import SandboxSink
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.settings.settings import read_settings
from tidings.wiring.crawl import make_collect_runner, open_crawler
from tidings.wiring.opening import open_installation

TOPIC = "bread"
WATCH = ("collect", "keywords", "add", "weibo", TOPIC)


@pytest.fixture
async def weibo() -> AsyncIterator[SandboxWeibo]:
    async with SandboxWeibo() as running:
        yield running


@pytest.fixture
async def blog() -> AsyncIterator[SandboxOpenWeb]:
    async with SandboxOpenWeb() as running:
        yield running


@pytest.fixture
def terminal(terminal: Terminal, weibo: SandboxWeibo, blog: SandboxOpenWeb) -> Terminal:
    """In no hurry to be polite: what is asked is the sandbox."""
    terminal.variables |= {
        "WEIBO_BASE_URL": weibo.origin,
        "TIDINGS_FEEDS": blog.rss_url,
        "PLATFORM_INTERVAL_SECONDS": "0",
        "COOKIE_INTERVAL_SECONDS": "0",
        "BACKOFF_SECONDS": "0",
    }
    return terminal


async def prepare(terminal: Terminal, *, discover: bool = True) -> None:
    """A keyword on Weibo, a cookie for it, and what it finds; without a process for each."""
    async with open_installation(read_settings(terminal.variables), redactor=Redactor()) as installation:
        await installation.collect.keywords.add("weibo", TOPIC)
        await installation.collect.cookies.add(make_cookie("mine", platform="weibo", secret=Secret(DEMO_WEIBO_COOKIE)))
        if discover:
            async with open_crawler(installation) as crawler:
                runner = make_collect_runner(installation, crawler=crawler)
                assert (await runner.discover(Stop(clock=installation.clock))).created == 10


def read_rows(ended: Ended) -> list[list[str]]:
    """The words of each line of a table, without its head."""
    return [line.split() for line in ended.out.splitlines()[1:]]


async def test_a_list_of_keywords_fits_a_narrow_terminal(terminal: Terminal) -> None:
    """C19: a keyword with all its wishes has one line in 80 columns; a change keeps its pages."""
    await terminal.run(*WATCH, "--pages", "3")
    await terminal.run(*WATCH, "--refresh", "1d", "--comments", "30")
    narrow = await terminal.run("collect", "keywords", "list", COLUMNS="80", FORCE_COLOR="1", TERM="dumb")
    wide = await terminal.run("collect", "keywords", "list")
    rows = [["weibo", TOPIC, "3", "1d", "/", "7d", "30", "watched", "-", "-"]]
    assert read_rows(narrow) == rows
    assert read_rows(wide) == [[*rows[0][:8], "never", *rows[0][8:]]]


@pytest.mark.thorough
async def test_a_keyword_is_watched_paused_resumed_and_removed(terminal: Terminal) -> None:
    """C19: what is watched can be seen; a paused one is not searched for."""
    added = await terminal.run(*WATCH, "--pages", "3")
    again = await terminal.run(*WATCH, "--pages", "2")
    listed = await terminal.run("collect", "keywords", "list", "--json")
    paused = await terminal.run("collect", "keywords", "pause", "weibo", TOPIC)
    shown, idle = await asyncio.gather(terminal.run("collect", "keywords", "list"), terminal.run("collect", "discover"))
    resumed = await terminal.run("collect", "keywords", "resume", "weibo", TOPIC)
    removed = await terminal.run("collect", "keywords", "remove", "weibo", TOPIC)
    gone = await asyncio.gather(
        *(terminal.run("collect", "keywords", verb, "weibo", TOPIC) for verb in ("pause", "resume", "remove"))
    )
    assert [(each.code, each.out) for each in (added, again, paused, resumed, removed)] == [
        (0, "Watching bread on weibo.\n"),
        (0, "Still watching bread on weibo.\n"),
        (0, "Paused bread on weibo.\n"),
        (0, "Resumed bread on weibo.\n"),
        (0, "Removed bread on weibo.\n"),
    ]
    (keyword,) = listed.document["keywords"]
    assert (keyword["platform"], keyword["keyword"], keyword["pages"], keyword["enabled"]) == ("weibo", TOPIC, 2, True)
    assert read_rows(shown) == [["weibo", TOPIC, "2", "paused", "never", "-", "-"]]
    assert (idle.code, "no keyword is watched" in idle.complaint) == (2, True)
    assert [(each.code, "is not watched on weibo" in each.complaint) for each in gone] == [(2, True)] * 3


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        pytest.param(
            ("collect", "keywords", "add", "myspace", TOPIC),
            "there is no platform 'myspace'; the platforms are bilibili, weibo, xiaohongshu, web",
            id="no such platform",
        ),
        pytest.param(("collect", "keywords", "add", "weibo", "  "), "1 to 200 printable characters", id="no keyword"),
        pytest.param((*WATCH, "--pages", "21"), "from 1 to 20", id="too many pages"),
        pytest.param((*WATCH, "--since", "foo"), "--since must be a day such as 2026-01-01", id="no day"),
        pytest.param((*WATCH, "--until", "2026-13-01"), "--until must be a day such as 2026-01-01", id="no month"),
        pytest.param(("collect", "run", "--platform", "myspace"), "there is no platform 'myspace'", id="run"),
        pytest.param(("collect", "mirror"), "no mirror is set up", id="no mirror"),
    ],
)
async def test_bad_input_ends_with_2_and_one_line(terminal: Terminal, words: tuple[str, ...], rule: str) -> None:
    """C19: the line says what there is instead."""
    ended = await terminal.run(*words)
    assert (ended.code, rule in ended.complaint) == (2, True)


@pytest.mark.thorough
async def test_from_a_keyword_to_the_table(terminal: Terminal, weibo: SandboxWeibo) -> None:
    """C19, C27: discover, run, and the second time there is nothing left to do."""
    await prepare(terminal, discover=False)
    await terminal.run("collect", "keywords", "add", "web", TOPIC)
    found = await terminal.run("collect", "discover")
    document = (await terminal.run("collect", "discover", "--json")).document
    collected = await terminal.run("collect", "run")
    nothing = await terminal.run("collect", "run")
    assert (found.code, collected.code) == (0, 0)
    assert found.out.splitlines()[0] == "succeeded discover: 16 found, 16 new"
    assert (document["found"], document["created"], document["execution"]["status"]) == (16, 0, "succeeded")
    rows = {row[0]: row[1:] for row in read_rows(collected)}
    # Results that did not occur have no column.
    assert rows == {"web": ["succeeded", "6"], "weibo": ["succeeded", "10"]}
    assert (nothing.code, nothing.out) == (0, "No candidate is due.\n")
    with closing(sqlite3.connect(terminal.data_dir / "tidings.db")) as connection:
        counts = connection.execute("SELECT platform, count(*) FROM tbl_source GROUP BY platform").fetchall()
    assert dict(counts) == {"web": 6, "weibo": 10}
    assert DEMO_WEIBO_SESSION not in terminal.log + found.out + collected.out
    assert sum(request.path == SHOW_PATH for request in weibo.requests) == 10


@pytest.mark.thorough
async def test_what_was_given_up_is_listed_and_tried_again(terminal: Terminal, weibo: SandboxWeibo) -> None:
    """C10, C15: with its reason; a person decides to try it again."""
    await prepare(terminal)
    weibo.misbehave(replace(NO_SUCH_POST, matching=name_post(9)))
    first = await terminal.run("collect", "run", "--json")
    failed, elsewhere, shown = await asyncio.gather(
        terminal.run("collect", "failed"),
        terminal.run("collect", "failed", "--platform", "web", "--json"),
        terminal.run("collect", "status", "--json"),
    )
    status = shown.document
    weibo.recover()
    kept = await terminal.run("collect", "retry", "--platform", "web")
    retried = await terminal.run("collect", "retry", "--platform", "weibo")
    second = await terminal.run("collect", "run")
    after = await terminal.run("collect", "failed")
    (report,) = first.document["platforms"]
    assert (first.code, report["created"], report["failed"], report["execution"]["status"]) == (1, 9, 1, "partial")
    assert "INVALID_INPUT: weibo: the post does not exist" in failed.out
    assert elsewhere.document == {"failed": []}
    assert status["candidates"]["weibo"] == {"pending": 0, "processing": 0, "collected": 9, "failed": 1, "deleted": 0}
    assert [(each["kind"], each["subject"]) for each in status["alerts"]] == [("notes_skipped", "weibo")]
    assert (kept.out, retried.out) == ("0 candidates are due again.\n", "1 candidate is due again.\n")
    assert (second.code, after.out) == (0, "No candidate was given up.\n")


@pytest.mark.thorough
async def test_without_a_cookie_a_person_is_reported_what_to_do(terminal: Terminal, weibo: SandboxWeibo) -> None:
    """C24: on the terminal, and at the destination of alerts, also where no service runs."""
    async with SandboxSink() as sink:
        terminal.variables["TIDINGS_WEBHOOK_URL"] = sink.address
        await terminal.run(*WATCH)
        ended = await terminal.run("collect", "discover")
        status = await terminal.run("collect", "status")
        reported = [json.loads(str(recorded.fields["body"]))["data"]["kind"] for recorded in sink.taken]
    assert (ended.code, "no cookie for weibo can be used: there is none" in ended.out) == (1, True)
    assert reported == ["no_active_cookie"]
    assert "tidings cookies add NAME --platform weibo" in status.out
    assert "Cookies that can be used: none." in status.out
    assert len(weibo.requests) == 0


async def test_status_shows_how_collecting_stands(terminal: Terminal) -> None:
    """C19: candidates, executions, keywords, cookies; before anything has run, too."""
    empty = await terminal.run("collect", "status")
    await prepare(terminal)
    shown = await terminal.run("collect", "status")
    assert (empty.code, empty.out.splitlines()[0]) == (0, "There are no candidates yet.")
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["weibo", "10", "0", "0", "0", "0"] in lines
    assert any(line[:1] == ["discover"] and "succeeded" in line for line in lines)
    assert "Keywords: 1 watched, 0 paused." in shown.out
    assert "Cookies that can be used: weibo 1 of 1." in shown.out
    assert "Feishu" not in shown.out


async def test_ctrl_c_gives_back_what_was_being_read(terminal: Terminal, weibo: SandboxWeibo) -> None:
    """C19: it ends with 1 and a reason; nothing counts as a failure."""
    await prepare(terminal)
    weibo.misbehave(Fault(FaultKind.HANG))
    before = len(weibo.requests)
    process = await terminal.start("collect", "run")
    await weibo.wait_for_requests(before + 1)
    process.send_signal(signal.SIGINT)
    ended = await end(process)
    with closing(sqlite3.connect(terminal.data_dir / "tidings.db")) as connection:
        rows = connection.execute("SELECT DISTINCT status, retry_count, processing_lock FROM tbl_candidate").fetchall()
    assert (ended.code, "interrupted" in ended.out, "SIGINT was received" in ended.out) == (1, True, True)
    assert rows == [("pending", 0, None)]


@pytest.mark.thorough
async def test_what_a_killed_process_held_is_recovered(terminal: Terminal, weibo: SandboxWeibo) -> None:
    """C5: by the next command that looks, for the process is surely dead."""
    await prepare(terminal)
    weibo.misbehave(Fault(FaultKind.HANG))
    before = len(weibo.requests)
    process = await terminal.start("collect", "run")
    await weibo.wait_for_requests(before + 1)
    process.kill()
    await process.communicate()
    weibo.recover()
    recovered = await terminal.run("collect", "recover")
    again = await terminal.run("collect", "recover", "--json")
    collected = await terminal.run("collect", "run")
    assert (recovered.code, "released 10 records" in recovered.out) == (0, True)
    assert again.document == {"executions": [], "records": 0, "failed": 0}
    assert collected.code == 0


@pytest.mark.thorough
async def test_two_discoveries_at_once_are_one(terminal: Terminal, weibo: SandboxWeibo) -> None:
    """C3: the other learns who has the right to run, and ends with 1."""
    await prepare(terminal, discover=False)
    weibo.misbehave(Fault(FaultKind.HANG))
    first = await terminal.start("collect", "discover")
    await weibo.wait_for_requests(1)
    second = await terminal.run("collect", "discover")
    weibo.recover()
    first.send_signal(signal.SIGINT)
    await end(first)
    assert (second.code, "discover is already running as exec-" in second.complaint) == (1, True)


@pytest.mark.thorough
async def test_the_mirror_is_brought_up_to_date(terminal: Terminal) -> None:
    """C21: what was collected stands there once, however often it is delivered; the status has a line for it."""
    async with SandboxBitable() as bitable:
        terminal.variables |= {
            "FEISHU_APP_ID": DEMO_APP_ID,
            "FEISHU_APP_SECRET": DEMO_APP_SECRET,
            "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
            "FEISHU_TABLE_CANDIDATE": DEMO_TABLES[0],
            "FEISHU_TABLE_SOURCE": DEMO_TABLES[1],
            "FEISHU_BASE_URL": bitable.origin,
        }
        await prepare(terminal)
        await terminal.run("collect", "run")
        waiting = (await terminal.run("collect", "status", "--json")).document["mirror"]
        delivered = await terminal.run("collect", "mirror", "--json")
        rebuilt = await terminal.run("collect", "mirror", "--rebuild")
        shown = await terminal.run("collect", "status")
    assert waiting["waiting"] > 0
    assert (delivered.code, delivered.document["created"], delivered.document["failures"]) == (0, 20, {})
    assert (rebuilt.code, rebuilt.out.startswith("0 created")) == (0, True)
    assert "Feishu: no change waits." in shown.out
    assert DEMO_APP_SECRET not in terminal.log + delivered.out + rebuilt.out + shown.out


async def test_a_mirror_that_is_not_reached_ends_with_1_and_its_reason(terminal: Terminal) -> None:
    """C21: what waits goes on waiting."""
    async with SandboxBitable() as bitable:
        origin = bitable.origin
    terminal.variables |= {
        "FEISHU_APP_ID": DEMO_APP_ID,
        "FEISHU_APP_SECRET": DEMO_APP_SECRET,
        "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
        "FEISHU_TABLE_SOURCE": DEMO_TABLES[1],
        "FEISHU_BASE_URL": origin,
    }
    await prepare(terminal)
    ended = await terminal.run("collect", "mirror")
    assert (ended.code, "tbl_source" in ended.err) == (1, True)
