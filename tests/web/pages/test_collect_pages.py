"""Pages of collection beside notes: cookies are checked, paused platforms resumed; the mirror's lag; and workers."""

import html
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.web.api_stage import ApiStage, open_api
from tests.web.pages.browser import Browser
from tests.web.pages.test_notes_pages import NOTE, store
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.feishu.client import FeishuTarget
from tidings.collect.write.cookies import make_cookie
from tidings.collect.write.values import Failed, NewCandidate
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, SandboxBilibili
from tidings.sandbox.wire.faults import Fault
from tidings.settings.settings import read_settings

pytestmark = pytest.mark.one_database
TARGET = FeishuTarget(
    app_id="cli_1", app_secret=Secret("app-secret-0123456789"), app_token="base1", tables={"tbl_source": "tbl1"}
)


@pytest.fixture
async def bilibili() -> AsyncIterator[SandboxBilibili]:
    async with SandboxBilibili() as service:
        yield service


@pytest.fixture
async def api(sqlite_url: str, tmp_path: Path, bilibili: SandboxBilibili) -> AsyncIterator[ApiStage]:
    default = read_settings({})
    crawl = replace(
        default.crawl,
        base_urls={"bilibili": bilibili.origin},
        platform_interval=timedelta(0),
        cookie_interval=timedelta(0),
    )
    collect = replace(default.collect, feishu=TARGET)
    async with open_api(sqlite_url, tmp_path, crawl=crawl, collect=collect) as api:
        yield api


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cookie", "title"),
    [(DEMO_BILIBILI_COOKIE, "mine is logged in as "), ("SESSDATA=a-stale-session", "mine is not logged in")],
)
async def test_a_cookie_is_checked_at_its_platform(api: ApiStage, browser: Browser, cookie: str, title: str) -> None:
    """The platform itself says who is logged in; a name that is not there is said, too."""
    await api.installation.collect.cookies.add(make_cookie("mine", platform="bilibili", secret=Secret(cookie)))
    answer = await browser.post("/cookies/check", name="mine")
    assert answer.headers["location"] == "/cookies"
    page = (await browser.get("/cookies")).text
    assert title in page
    assert cookie not in page
    await browser.post("/cookies/check", name="nobody")
    assert "There is no cookie nobody" in (await browser.get("/cookies")).text


async def test_a_cookie_that_cannot_be_checked_says_why(
    api: ApiStage, browser: Browser, bilibili: SandboxBilibili
) -> None:
    """In the page's language. A platform that is no longer installed was never asked, and an error is an answer."""
    for name, platform in (("mine", "bilibili"), ("old", "gone")):
        new = make_cookie(name, platform=platform, secret=Secret(DEMO_BILIBILI_COOKIE))
        await api.installation.collect.cookies.add(new)
    await browser.post("/cookies/check", name="old")
    unknown = (await browser.get("/cookies")).text
    assert "Unknown platform; known are bilibili" in unknown
    assert "did not answer" not in unknown
    bilibili.misbehave(Fault(status=500))
    browser.cookies["language"] = "zh"
    await browser.post("/cookies/check", name="mine")
    broken = (await browser.get("/cookies")).text
    assert "平台服务出错（HTTP 500）" in broken
    assert "平台没有应答" not in broken


async def test_a_paused_platform_says_why_and_is_resumed(api: ApiStage, browser: Browser) -> None:
    """C10: the pause ends at once, and its candidate can be leased."""
    writer = api.installation.collect.writer
    execution = (await writer.acquire("collect")).execution
    assert execution is not None
    found = NewCandidate(platform="bilibili", note_id="BV1", note_url=NOTE.url, title="", source_keyword="咖啡")
    await writer.add_candidates(execution, [found])
    await writer.lease(execution, platform="bilibili")
    outage = Failed(note_id="BV1", error=make_error(ErrorCode.NETWORK_ERROR, "the line is cut", asked=True))
    await writer.settle(execution, "bilibili", [outage])
    paused = (await browser.get("/candidates")).text
    assert "Bilibili pauses until" in paused
    assert "the line is cut" in paused
    await browser.post("/candidates/resume", platform="bilibili")
    resumed = (await browser.get("/candidates")).text
    assert "The platform is asked again now." in resumed
    assert "the line is cut" not in resumed
    assert await writer.pauses.list_names() == set()


@pytest.mark.thorough
async def test_the_overview_shows_how_far_the_mirror_is_behind(api: ApiStage, browser: Browser) -> None:
    """C23: rows that wait for Feishu, and for how long."""
    await store(api.installation, NOTE)
    page = (await browser.get("/")).text
    assert "Feishu mirror" in page
    assert "1 row behind" in page


async def test_workers_are_shown_with_what_they_do(api: ApiStage, browser: Browser) -> None:
    """Each process that takes jobs: its machine and release, its queues, jobs and places, its heartbeat."""
    [worker] = await api.installation.dispatcher.list_workers()
    page = (await browser.get("/workers")).text
    for shown in (worker.name, worker.machine, worker.release, ", ".join(worker.queues)):
        assert shown in page
    assert f"{worker.jobs} / {worker.places}" in page
    assert "Alive" in page


async def test_a_keyword_is_followed_as_the_form_says(api: ApiStage, browser: Browser) -> None:
    """C32: how often and how long its notes are read again; a wrong plan is said at its field, `off` ends it."""
    watch = {"platform": "bilibili", "keyword": "咖啡", "pages": "1"}
    wrong = await browser.post("/keywords", **watch, refresh="1s")
    assert (wrong.status, "Notes can be read again every 10 minutes" in wrong.text) == (400, True)
    assert (await browser.post("/keywords", **watch, refresh="12h", period="14d")).status == 303
    assert "read again every 12 h, for 14 days" in (await browser.get("/keywords")).text
    await browser.post("/keywords", **watch)
    [kept] = await api.installation.collect.keywords.list_all()
    assert kept.refresh is not None
    await browser.post("/keywords", **watch, refresh="off")
    [ended] = await api.installation.collect.keywords.list_all()
    assert ended.refresh is None


async def test_a_keyword_asks_for_comments_and_a_period_as_the_form_says(api: ApiStage, browser: Browser) -> None:
    """C32: the choices of `keywords add`. The period is a part of the keyword; a wrong value is said at its field."""
    watch, keywords = {"platform": "bilibili", "keyword": "咖啡", "pages": "1"}, api.installation.collect.keywords
    wrong = await browser.post(
        "/keywords", **watch, comments="1001", since="yesterday", until="2026-13-01", period="7d"
    )
    assert wrong.status == 400
    for name, said in (
        ("comments", "A number from 0 to 1,000."),
        ("since", "A day such as 2026-01-31."),
        ("until", "A day such as 2026-01-31."),
        ("period", "Also say how often notes are read again."),
    ):
        assert re.search(rf'id="hint-{name}">.*{said}', wrong.text), name
    backwards = await browser.post("/keywords", **watch, since="2026-02-01", until="2026-01-01")
    assert (backwards.status, "The period must begin before it ends" in backwards.text) == (400, True)
    unable = await browser.post("/keywords", **watch | {"platform": "web", "keyword": "a.example"}, comments="5")
    assert unable.status == 400
    assert await keywords.list_all() == []
    await browser.post("/keywords", **watch, comments="60", since="2026-01-01", until="2026-02-01")
    page = (await browser.get("/keywords")).text
    assert "咖啡 since:2026-01-01 until:2026-02-01" in page
    assert "up to 60 comments of each note" in page
    watch["keyword"] = "咖啡 since:2026-01-01 until:2026-02-01"
    await browser.post("/keywords", **watch)
    assert [each.comments for each in await keywords.list_all()] == [60]
    await browser.post("/keywords", **watch, comments="0")
    assert [each.comments for each in await keywords.list_all()] == [0]


async def test_removing_a_keyword_or_a_cookie_asks_first(api: ApiStage, browser: Browser) -> None:
    """Destructive actions ask: the list leads to a question, and only its form removes."""
    collect = api.installation.collect
    await collect.keywords.add("bilibili", "咖啡 & <b>")
    await collect.cookies.add(make_cookie("mine", platform="bilibili", secret=Secret(DEMO_BILIBILI_COOKIE)))
    for path, target, fields in (
        ("/keywords", "/keywords/remove", {"platform": "bilibili", "keyword": "咖啡 & <b>"}),
        ("/cookies", "/cookies/remove", {"name": "mine"}),
    ):
        [link] = re.findall(rf'href="({target}/confirm[^"]+)"', (await browser.get(path)).text)
        asked = (await browser.get(html.unescape(link))).text
        assert f'action="{target}"' in asked
        sent = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked.partition("<main")[2]))
        assert {name: html.unescape(value) for name, value in sent.items() if name != "form_key"} == fields
        await browser.post(target, **fields)
    assert await collect.keywords.list_all() == []
    assert await collect.cookies.list_all() == []
