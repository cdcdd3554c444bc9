"""The crawl API without its HTTP, against the sandbox: what it answers, in what time, and with which cookie."""

import asyncio
import io
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

import tidings
from tests.collect.crawl_stage import POST, CrawlStage, OwnPlatform, describe, open_crawl, open_weibo, posts, session_of
from tests.collect.test_cookie_secrets import CANARY, COOKIE, find_traces
from tidings.collect.crawl.crawler import WantedNote
from tidings.collect.crawl.envelope import Envelope
from tidings.collect.crawl.platforms.protocol import SearchPage
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Note, NoteKind
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.logs.request_id import request_id_scope
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.sandbox.media import weibo as sandbox
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, SandboxBilibili, name_video
from tidings.sandbox.media.openweb import RSS_PATH, SandboxOpenWeb
from tidings.sandbox.media.weibo import SandboxWeibo, name_post
from tidings.sandbox.media.xiaohongshu import DEMO_XIAOHONGSHU_COOKIE, SandboxXiaohongshu
from tidings.sandbox.wire.faults import Fault, FaultKind

ACCOUNTS = tuple(f"account-{number}" for number in range(5))
LATENCY = timedelta(milliseconds=200)
SHORT = timedelta(milliseconds=400)
# Long enough that a request arrives on a busy machine.
PATIENT = timedelta(seconds=2)
HASTY = {"search_timeout": SHORT, "detail_timeout": SHORT, "batch_timeout": SHORT}
# Long after every limit of these tests, and long before the sandbox has dripped an answer.
SOON = 10.0


@pytest.fixture
async def weibo() -> AsyncIterator[SandboxWeibo]:
    async with open_weibo(*ACCOUNTS, "bad") as running:
        yield running


@pytest.fixture
async def stage(sqlite_url: str, keys: KeyRing, weibo: SandboxWeibo) -> AsyncIterator[CrawlStage]:
    async with open_crawl(sqlite_url, keys=keys, weibo=weibo.origin) as opened:
        yield opened


@pytest.fixture
def log(stage: CrawlStage) -> Iterator[io.StringIO]:
    """All that is logged, as it is written."""
    stream = io.StringIO()
    configure_logging(format=LogFormat.JSON, level="debug", redactor=stage.redactor, stream=stream)
    yield stream
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), quiet=True)


def read_lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


async def test_a_search_and_the_detail_of_its_hit(database_url: str, keys: KeyRing, weibo: SandboxWeibo) -> None:
    """C13, C17, C18: data and no error, the cookie by name, on both databases; a hit leads to its note."""
    async with open_crawl(database_url, keys=keys, weibo=weibo.origin) as stage:
        await stage.add(ACCOUNTS[0])
        crawler = stage.make()
        found = describe(await crawler.search("weibo", "生活", page=2))
        hit = found["data"]["hits"][0]
        note = describe(await crawler.detail("weibo", WantedNote(note_id=hit["note_id"], url=hit["url"])))
    assert (found["success"], found["error"], found["meta"]["cookie_used"]) == (True, None, ACCOUNTS[0])
    assert (found["data"]["page"], found["data"]["has_more"], found["data"]["total"]) == (2, True, 60)
    assert hit.keys() == {"platform", "note_id", "url", "title", "xsec_token"}
    assert (note["data"]["note_id"], note["data"]["url"]) == (name_post(11), hit["url"])
    assert note["meta"].keys() == {"request_id", "latency_ms", "cookie_used"}


@pytest.mark.parametrize(
    "url",
    [
        "https://www.bilibili.com/video/{}",
        "https://www.bilibili.com/video/{}/?spm_id_from=333.337#reply",
        "https://m.bilibili.com/video/{}?p=1",
    ],
)
async def test_a_note_is_found_by_its_address_alone(sqlite_url: str, keys: KeyRing, url: str) -> None:
    """C16: as people copy it; the answer names the note as it was asked for."""
    asked = WantedNote(url=url.format(name_video(7)))
    async with SandboxBilibili() as bilibili, open_crawl(sqlite_url, keys=keys, bilibili=bilibili.origin) as stage:
        await stage.add_cookie("one", DEMO_BILIBILI_COOKIE, platform="bilibili")
        batch = await stage.make().details("bilibili", [asked])
    assert [(item.id, item.data and item.data.note_id) for item in batch.items] == [(asked.url, name_video(7))]


async def test_the_open_web_takes_no_cookie(sqlite_url: str, keys: KeyRing) -> None:
    """C18: where none is needed, none is lent, and the answer names none."""
    async with SandboxOpenWeb() as web, open_crawl(sqlite_url, keys=keys) as stage:
        found = await stage.make().search("web", f"{web.origin}{RSS_PATH}")
        assert found.data is not None
        note = await stage.make().detail("web", WantedNote(url=found.data.hits[0].url))
    assert (found.success, found.meta.cookie_used) == (True, None)
    assert (note.error, note.meta.cookie_used) == (None, None)


@pytest.mark.parametrize(
    ("fault", "code", "retryable"),
    [
        (sandbox.SESSION_REFUSED, ErrorCode.COOKIE_INVALID, True),
        (sandbox.EMPTY_DATA, ErrorCode.COOKIE_INVALID, True),
        (sandbox.TOO_OFTEN, ErrorCode.PLATFORM_ERROR, True),
        (sandbox.UNAVAILABLE, ErrorCode.PLATFORM_ERROR, True),
        (sandbox.RESET, ErrorCode.NETWORK_ERROR, True),
        (Fault(FaultKind.HANG), ErrorCode.TIMEOUT_ERROR, True),
        (sandbox.NO_SUCH_POST, ErrorCode.INVALID_INPUT, False),
    ],
    ids=["432", "data {}", "too often", "503", "reset", "hang", "no such post"],
)
async def test_every_refusal_is_reported_once_with_its_code_and_the_cookie(
    stage: CrawlStage, weibo: SandboxWeibo, fault: Fault, code: ErrorCode, retryable: bool
) -> None:
    """C13, C15: one request, no hidden retry although another cookie is free; the workflow decides."""
    await stage.add(*ACCOUNTS[:2])
    weibo.misbehave(fault)
    answer = describe(await stage.make(request_timeout=PATIENT).detail("weibo", POST))
    assert (answer["success"], answer["data"]) == (False, None)
    assert answer["error"].keys() == {"code", "message", "retryable", "captcha", "blocked", "asked", "retry_after"}
    assert (answer["error"]["code"], answer["error"]["retryable"]) == (code, retryable)
    assert answer["meta"]["cookie_used"] in ACCOUNTS[:2]
    assert len(weibo.requests) == 1


@pytest.mark.parametrize(
    ("platform", "keyword", "page"), [("myspace", "x", 1), ("weibo", "  ", 1), ("weibo", "x", 0), ("weibo", "x", 101)]
)
async def test_what_cannot_be_asked_costs_no_cookie(
    stage: CrawlStage, weibo: SandboxWeibo, platform: str, keyword: str, page: int
) -> None:
    """C15, C18: INVALID_INPUT, and neither a request nor a use."""
    await stage.add(ACCOUNTS[0], daily_limit=1)
    crawler = stage.make()
    refused: list[Envelope[SearchPage | Note]] = [await crawler.search(platform, keyword, page=page) for _ in range(3)]
    answers = [*refused, await crawler.detail("weibo", WantedNote())]
    assert {answer.error and answer.error.code for answer in answers} == {ErrorCode.INVALID_INPUT}
    assert {answer.meta.cookie_used for answer in answers} == {None}
    assert (len(weibo.requests), (await crawler.detail("weibo", POST)).success) == (0, True)


async def test_three_asked_and_one_times_out(stage: CrawlStage, weibo: SandboxWeibo) -> None:
    """C8, C14: two results and one error, in the order asked, PARTIAL_FAIL, retryable."""
    await stage.add(*ACCOUNTS[:2])
    weibo.misbehave(Fault(FaultKind.HANG, matching=name_post(2)))
    batch = describe(await stage.make(request_timeout=PATIENT).details("weibo", posts(3)))
    assert [(item["id"], item["success"]) for item in batch["items"]] == [
        (name_post(1), True),
        (name_post(2), False),
        (name_post(3), True),
    ]
    assert batch["summary"] == {"total": 3, "succeeded": 2, "failed": 1}
    assert (batch["success"], batch["error"]["code"], batch["error"]["retryable"]) == (False, "PARTIAL_FAIL", True)
    assert batch["items"][1]["error"]["code"] == "TIMEOUT_ERROR"
    assert batch["meta"]["cookie_used"] is None
    assert {item["cookie_used"] for item in batch["items"]} <= set(ACCOUNTS[:2])


async def test_a_batch_in_which_all_fail_is_a_partial_failure_too(stage: CrawlStage) -> None:
    """C14: the items tell that there is no cookie; one that goes well is no failure at all."""
    nothing = await stage.make().details("weibo", posts(2))
    assert nothing.error is not None
    assert nothing.error.code is ErrorCode.PARTIAL_FAIL
    assert [item.error and item.error.code for item in nothing.items] == [ErrorCode.COOKIE_EXHAUSTED] * 2
    await stage.add(ACCOUNTS[0])
    everything = describe(await stage.make().details("weibo", posts(2)))
    assert (everything["success"], everything["error"]) == (True, None)


@pytest.mark.parametrize("kind", ["search", "detail", "batch"])
async def test_the_limits_hold_while_a_platform_drips(stage: CrawlStage, weibo: SandboxWeibo, kind: str) -> None:
    """C16: a byte a second never runs into a timeout between two bytes; the whole answer has its time."""
    await stage.add(ACCOUNTS[0])
    weibo.misbehave(sandbox.DRIP)
    crawler = stage.make(**HASTY, request_timeout=timedelta(minutes=5))
    began = time.monotonic()
    async with asyncio.timeout(SOON):
        match kind:
            case "search":
                answer: dict[str, Any] = describe(await crawler.search("weibo", "生活"))
            case "detail":
                answer = describe(await crawler.detail("weibo", POST))
            case _:
                answer = describe(await crawler.details("weibo", [POST]))["items"][0]
                answer["meta"] = answer
    assert time.monotonic() - began >= SHORT.total_seconds()
    assert (answer["error"]["code"], answer["meta"]["cookie_used"]) == ("TIMEOUT_ERROR", ACCOUNTS[0])
    await weibo.wait_until_idle()


@pytest.mark.thorough
async def test_a_batch_gives_what_it_has_when_its_time_ends(stage: CrawlStage, weibo: SandboxWeibo) -> None:
    """C14, C16: the rest are timeouts, which say that nothing was asked where no cookie came free."""
    await stage.add(ACCOUNTS[0])
    weibo.misbehave(Fault(FaultKind.HANG, after=2))
    async with asyncio.timeout(SOON):
        batch = await stage.make(batch_timeout=timedelta(seconds=1.5), request_timeout=timedelta(minutes=5)).details(
            "weibo", posts(5)
        )
    assert [item.error and item.error.code for item in batch.items] == [None] * 2 + [ErrorCode.TIMEOUT_ERROR] * 3
    assert [item.cookie_used for item in batch.items] == [ACCOUNTS[0]] * 3 + [None] * 2
    assert batch.items[4].error is not None
    assert "nothing was asked" in batch.items[4].error.message
    assert len(weibo.requests) == 3


@pytest.mark.thorough
async def test_fifty_items_are_read_with_all_cookies_in_parallel(stage: CrawlStage, weibo: SandboxWeibo) -> None:
    """C16, C18: five cookies read five notes at a time, ten notes each, and never two with one cookie."""
    await stage.add(*ACCOUNTS)
    weibo.misbehave(Fault(FaultKind.SLOW, latency=LATENCY))
    batch = await stage.make().details("weibo", posts(50))
    uses = Counter(item.cookie_used for item in batch.items)
    assert (batch.summary.failed, uses, weibo.max_in_flight) == (0, dict.fromkeys(ACCOUNTS, 10), 5)


async def test_a_refused_cookie_is_reported_and_the_next_tries_use_another(
    stage: CrawlStage, weibo: SandboxWeibo
) -> None:
    """C15, C18: the three retries of COOKIE_INVALID are enough to get past a bad cookie that is the first choice."""
    await stage.add("bad", priority=9)
    await stage.add(ACCOUNTS[0])
    weibo.log_out(session_of("bad"))
    crawler = stage.make()
    answers = [await crawler.detail("weibo", POST) for _ in range(4)]
    assert [(answer.error and answer.error.code, answer.meta.cookie_used) for answer in answers] == [
        *[(ErrorCode.COOKIE_INVALID, "bad")] * 3,
        (None, ACCOUNTS[0]),
    ]


@pytest.mark.parametrize("fault", [sandbox.EMPTY_DATA, sandbox.EMPTY_BODY], ids=["data {}", "empty body"])
async def test_a_captcha_rests_the_cookie_at_once_and_tells_the_caller_and_a_person(
    stage: CrawlStage, weibo: SandboxWeibo, log: io.StringIO, fault: Fault
) -> None:
    """C17: the answer says it in the error, alone or in a batch; the log has one event for each, with the name."""
    await stage.add("bad", priority=9)
    await stage.add(ACCOUNTS[0], priority=5)
    await stage.add(ACCOUNTS[1])
    weibo.misbehave(replace(fault, times=2))
    crawler = stage.make()
    alone = describe(await crawler.detail("weibo", POST))
    (item,) = describe(await crawler.details("weibo", posts(1)))["items"]
    after = describe(await crawler.detail("weibo", POST))
    errors = [(each["code"], each["captcha"]) for each in (alone["error"], item["error"])]
    assert errors == [("COOKIE_INVALID", True)] * 2
    used = [alone["meta"]["cookie_used"], item["cookie_used"], after["meta"]["cookie_used"]]
    assert (used, after["success"]) == (["bad", ACCOUNTS[0], ACCOUNTS[1]], True)
    events = [line for line in read_lines(log) if line["event"] == "crawl.captcha"]
    assert [(line["platform"], line["cookie_name"]) for line in events] == [("weibo", "bad"), ("weibo", ACCOUNTS[0])]


async def test_a_refused_session_is_no_captcha(stage: CrawlStage, weibo: SandboxWeibo, log: io.StringIO) -> None:
    """C9, C17: 432 is an error like others, of which it takes three."""
    await stage.add(ACCOUNTS[0])
    weibo.misbehave(sandbox.SESSION_REFUSED)
    answer = await stage.make().detail("weibo", POST)
    assert answer.error is not None
    assert (answer.error.code, answer.error.captcha) == (ErrorCode.COOKIE_INVALID, False)
    assert "crawl.captcha" not in log.getvalue()


async def test_a_platform_that_lacks_a_package_costs_no_cookie(
    stage: CrawlStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C15, C17: PLATFORM_ERROR that says what to install, before a cookie is lent; afterwards it works without more."""
    await stage.add_cookie("one", DEMO_XIAOHONGSHU_COOKIE, platform="xiaohongshu", daily_limit=1)
    async with SandboxXiaohongshu() as service:
        crawler = replace(stage, base_urls={"xiaohongshu": service.origin}).make()
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "xhshow", None)
            refused = [await crawler.search("xiaohongshu", "生活") for _ in range(2)]
        found = await crawler.search("xiaohongshu", "生活")
    errors = [answer.error for answer in refused if answer.error is not None]
    assert [(error.code, error.retryable) for error in errors] == [(ErrorCode.PLATFORM_ERROR, True)] * 2
    assert all(
        "pip install --no-deps --require-hashes -r requirements/xiaohongshu.txt" in error.message for error in errors
    )
    assert [answer.meta.cookie_used for answer in (*refused, found)] == [None, None, "one"]
    assert found.success


async def test_a_caller_that_never_reports_cannot_overrun_a_daily_limit(stage: CrawlStage, weibo: SandboxWeibo) -> None:
    """C18: also not with a batch; the items beyond are COOKIE_EXHAUSTED, which is not retryable."""
    await stage.add(ACCOUNTS[0], daily_limit=3)
    crawler = stage.make()
    assert (await crawler.search("weibo", "生活")).success
    batch = await crawler.details("weibo", posts(5))
    codes = Counter(item.error and item.error.code for item in batch.items)
    assert codes == {None: 2, ErrorCode.COOKIE_EXHAUSTED: 3}
    assert len(weibo.requests) == 3
    alone = await crawler.detail("weibo", POST)
    assert alone.error is not None
    assert (alone.error.code, alone.error.retryable) == (ErrorCode.COOKIE_EXHAUSTED, False)


async def test_the_request_id_is_in_the_answer_and_in_every_line(stage: CrawlStage, log: io.StringIO) -> None:
    """C6: the caller's, or one that is made; also in the lines about the items, which are tasks of their own."""
    await stage.add(ACCOUNTS[0])
    with request_id_scope("asked-by-me"):
        batch = await stage.make().details("weibo", [*posts(2), WantedNote(note_id="?")])
        alone = await stage.make().detail("weibo", POST)
    assert (batch.meta.request_id, alone.meta.request_id) == ("asked-by-me", "asked-by-me")
    lines = [line for line in read_lines(log) if line["event"].startswith("crawl.")]
    assert Counter(line["event"] for line in lines) == {"crawl.item": 3, "crawl.batch": 1, "crawl.detail": 1}
    assert {line["request_id"] for line in lines} == {"asked-by-me"}
    assert (await stage.make().detail("weibo", POST)).meta.request_id.startswith("req-")


@pytest.mark.parametrize("statement", ["DELETE FROM tbl_cookie", "UPDATE tbl_cookie SET daily_used = 0"])
async def test_the_crawlers_database_cannot_be_written_to(database_url: str, keys: KeyRing, statement: str) -> None:
    """C1: with the crawler at work on it, the database itself refuses; and no other database is taken."""
    async with open_weibo(*ACCOUNTS) as weibo, open_crawl(database_url, keys=keys, weibo=weibo.origin) as stage:
        await stage.add(ACCOUNTS[0])
        crawler = stage.make()
        assert (await crawler.detail("weibo", POST)).success
        async with stage.reader.read() as connection:
            with pytest.raises(DBAPIError, match=r"(?i)read-?only"):
                await connection.execute(text(statement))
        assert (await crawler.detail("weibo", POST)).success
        writable = CrawlStage(stage.writer, stage.writer, keys, stage.client, {})
        with pytest.raises(TypeError, match="only reads"):
            writable.make()


@pytest.mark.thorough
def test_what_crawls_knows_neither_the_writing_half_nor_the_mirror() -> None:
    """C1: in a process that has loaded all of it, and by the grep."""
    source = Path(tidings.__file__).parent
    names = "tidings.web.routes.collect.crawler, tidings.collect.crawl.platforms.open_web.web"
    loaded = f"import sys, {names}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout.split()
    writing = ("tidings.collect.write", "tidings.collect.run", "tidings.collect.feishu", "tidings.announce")
    assert "tidings.collect.crawl.cookies.pool" in modules
    assert [name for name in modules if name.startswith(writing)] == []
    files = [*source.glob("collect/crawl/**/*.py"), *source.glob("web/*/crawler.py")]
    assert len(files) > 10
    assert [path.name for path in files if "feishu" in path.read_text().lower()] == []


def blow_up(cookie: str) -> NoReturn:
    raise ValueError(f"the platform's parser failed on {cookie}")


def blame(cookie: str) -> NoReturn:
    raise CrawlError(ErrorCode.COOKIE_INVALID, f"refused: {cookie}")


def echo(cookie: str) -> Note:
    return Note(platform="weibo", note_id="1", url="https://m.weibo.cn/", kind=NoteKind.TEXT, title=f"hi {cookie}")


async def test_a_platform_that_fails_is_an_internal_error_and_the_log_says_why(
    stage: CrawlStage, log: io.StringIO
) -> None:
    """C13: code that raises what it must not; one item of a batch does not take the others along."""
    await stage.add(ACCOUNTS[0])
    calls = iter([echo, blow_up, echo])
    batch = await stage.make_with(OwnPlatform(lambda _: next(calls)("x"))).details("weibo", posts(3))
    assert [item.error and item.error.code for item in batch.items] == [None, ErrorCode.INTERNAL_ERROR, None]
    failed = [line for line in read_lines(log) if line["event"] == "crawl.failed"]
    assert ["ValueError" in line["exception"] for line in failed] == [True]


async def test_no_trace_of_a_cookie_on_any_path(stage: CrawlStage, weibo: SandboxWeibo, log: io.StringIO) -> None:
    """C7: every refusal, every broken connection, code that repeats the cookie in its errors and in its notes."""
    await stage.add_cookie("canary", f"{COOKIE}; SUB={session_of(ACCOUNTS[0])}", daily_limit=1_000)
    shown: list[object] = []
    mirrored = Fault(status=200, body=json.dumps({"ok": 0, "msg": COOKIE}))
    named = [fault for fault in vars(sandbox).values() if isinstance(fault, Fault)]
    for fault in (None, mirrored, *named, Fault(FaultKind.TRUNCATE), Fault(FaultKind.HANG), Fault(status=500)):
        weibo.recover()
        if fault is not None:
            weibo.misbehave(fault)
        crawler = stage.make(request_timeout=timedelta(seconds=0.1))
        shown += [await crawler.search("weibo", "生活"), await crawler.details("weibo", [POST])]
    for answer in (blow_up, blame, echo):
        crawler = stage.make_with(OwnPlatform(answer))
        shown += [await crawler.detail("weibo", POST), await crawler.details("weibo", [POST])]
    answers = [describe(envelope) for envelope in shown]
    codes = Counter(answer["error"] and answer["error"]["code"] for answer in answers)
    assert codes.keys() >= {None, *list(ErrorCode)[1:7], "INTERNAL_ERROR"}
    assert CANARY not in json.dumps(answers, ensure_ascii=False)
    assert [find_traces(part) for part in (json.dumps(answers), repr(shown), log.getvalue())] == [set()] * 3
    assert "crawl.failed" in log.getvalue()
