"""Baidu as a channel: every documented answer, the quota that Baidu tells, its day, and its place beside the others."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.announce.channel_stage import ChannelStage
from tests.announce.stage import Events, pick_events, read_json
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.protocols.baidu import NOT_SAME_SITE, NOT_VALID
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BaiduSettings
from tidings.announce.site.site import make_site
from tidings.core.clock import to_text
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.engines import baidu as faults
from tidings.sandbox.engines.baidu import SandboxBaidu
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind

TOKEN = "a1B2c3D4e5F6g7H8"
# 18:30 of the same day at Baidu.
MORNING = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
PARTIAL, SUCCEEDED = ExecutionStatus.PARTIAL, ExecutionStatus.SUCCEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class BaiduStage(ChannelStage):
    """A stored site with Baidu switched on, and everything it is announced to."""

    channel = Channel.BAIDU

    baidu: SandboxBaidu

    def list_pushes(self) -> list[int]:
        """The number of URLs of each request, in order."""
        return [len(request.urls) for request in self.baidu.requests]


@asynccontextmanager
async def open_baidu_stage(
    make_bench: BenchMaker, *, pages: int = 20, quota: int = 100, now: datetime = MORNING, assumed: int = 10
) -> AsyncIterator[BaiduStage]:
    clock = StageClock(now)
    served = SandboxSite(pages=pages)
    baidu = SandboxBaidu(sites={}, daily_quota=quota, now=clock.now)
    async with served, SandboxEngine("alpha") as engine, baidu:
        baidu.add_site(served.origin, token=TOKEN)
        bench = make_bench(clock=clock, retry_scale=1, bases=ApiBases(baidu=baidu.address), resubmit_gap=timedelta(0))
        settings = BaiduSettings.make(enabled=True, key=TOKEN, daily_quota=assumed)
        site = make_site(sitemap_urls=[served.sitemap_url], key=served.key, engines=[engine.endpoint], baidu=settings)
        stored = await bench.store(site)
        yield BaiduStage(bench=bench, clock=clock, web=served, engine=engine, baidu=baidu, site=stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """One documented answer to the first request of a day, which carries one page."""

    fault: Fault
    requests: int = 1
    waits: tuple[int, ...] = ()
    # Quota that stays charged.
    used: int = 0
    # Attempts that the page is kept with as failed; 0: no page is to blame.
    attempts: int = 1
    full: bool = False
    off: bool = False
    # The words that people read.
    says: str = ""
    # Pushes of the next execution, with Baidu well again.
    then: list[int] = field(default_factory=lambda: [1, 19])


ROWS = {
    "over quota": AnswerRow(fault=faults.OVER_QUOTA, attempts=0, full=True, says="over quota", then=[]),
    "more than 2000": AnswerRow(fault=faults.TOO_MANY_URLS, says="only 2000 urls"),
    "site error": AnswerRow(fault=faults.SITE_ERROR, off=True, says="site error", then=[]),
    "site init fail": AnswerRow(fault=faults.SITE_INIT_FAIL, says="site init fail"),
    "empty content": AnswerRow(fault=faults.EMPTY_CONTENT, says="empty content"),
    "bad token": AnswerRow(fault=faults.TOKEN_NOT_VALID, off=True, says="token is not valid", then=[]),
    "wrong address": AnswerRow(fault=faults.NOT_FOUND, says="not found"),
    "internal error": AnswerRow(
        fault=faults.INTERNAL_ERROR, requests=4, waits=(1, 2, 4), attempts=4, says="internal error"
    ),
    "an error as HTTP 200": AnswerRow(
        fault=Fault(status=200, body='{"error": 400, "message": "over quota"}'),
        attempts=0,
        full=True,
        says="over quota",
        then=[],
    ),
    "a page of a proxy": AnswerRow(fault=Fault(status=401, body="<html>over quota</html>"), says="over quota"),
    "no number of taken URLs": AnswerRow(fault=Fault(status=200, body='{"remain": 9}'), says="taken URLs"),
    "fewer taken than named": AnswerRow(
        fault=Fault(status=200, body='{"remain": 9, "success": 0}'), says="does not say which"
    ),
    "no answer": AnswerRow(
        fault=Fault(FaultKind.RESET), requests=4, waits=(1, 2, 4), used=4, attempts=4, says="no answer"
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_each_documented_answer(make_bench: BenchMaker, events: Events, row: AnswerRow) -> None:
    """A13, A27, A31, A42: requests, waits, quota, ledger, failed pages and what the next execution does. IndexNow is
    complete each time."""
    async with open_baidu_stage(make_bench, assumed=100) as stage:
        stage.baidu.misbehave(row.fault)
        report = await stage.announce()
        ranked = report.ranked[Channel.BAIDU]
        assert report.status is PARTIAL
        assert dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)
        assert stage.list_pushes() == [1] * row.requests
        assert [each.total_seconds() for each in stage.clock.slept if each >= timedelta(seconds=1)] == list(row.waits)
        quota = await stage.read_quota()
        assert (quota.used, quota.full) == (row.used, row.full)
        assert await stage.find_entered() == set()
        failed = await stage.list_failed()
        assert [(page.engine, page.attempts) for page in failed] == [("baidu", row.attempts)] * bool(row.attempts)
        assert row.says in (read_json(report)["baiduStats"]["errorMessage"] or "")
        assert all(row.says in page.reason for page in failed)
        assert ranked.engine.broken == row.off
        off = pick_events(events, "alert", kind="channel_off", subject=f"{stage.site.id} at baidu")
        assert len(off) == row.off
        assert TOKEN not in json.dumps(read_json(report))
        stage.baidu.recover()
        stage.baidu.daily_quota += row.used
        asked = len(stage.list_pushes())
        again = await stage.announce()
        assert stage.list_pushes()[asked:] == row.then
        assert again.status is (PARTIAL if row.off else SUCCEEDED)


async def test_the_first_push_of_a_day_is_one_page_and_what_remains_counts_from_then_on(
    make_bench: BenchMaker,
) -> None:
    """A42: `remain` corrects the quota in both directions, in the same execution; 10 is only where it begins."""
    async with open_baidu_stage(make_bench, pages=60, quota=50) as stage:
        assert (await stage.read_quota()).limit == 10
        report = await stage.announce()
        # The nine more that were assumed, then as many as Baidu turned out to take.
        assert stage.list_pushes() == [1, 9, 40]
        state = await stage.read_quota()
        assert (state.used, state.limit, state.remaining, state.learned) == (50, 50, 0, True)
        stats = read_json(report)["baiduStats"]
        assert (stats["urlCount"], stats["left"], stats["quota"]["remaining"]) == (50, 10, 0)
        assert len(await stage.find_entered()) == 50
        # Downwards: somebody else pushes 45 on the next day.
        stage.clock.advance(timedelta(days=1))
        stage.baidu.spend(stage.web.origin, 45)
        await stage.announce()
        assert stage.list_pushes()[3:] == [1, 4]
        assert (await stage.read_quota()).remaining == 0


async def test_urls_that_are_not_taken_fail_with_baidus_reason_and_the_others_are_recorded(
    make_bench: BenchMaker,
) -> None:
    """A42: `not_same_site` and `not_valid` name the pages; quota is counted for those that were taken."""
    async with open_baidu_stage(make_bench, assumed=100) as stage:
        strange, broken = stage.web.url(3), stage.web.url(7)
        body = {"remain": 82, "success": 17, "not_same_site": [strange], "not_valid": [broken]}
        first = json.dumps({"remain": 99, "success": 1})
        stage.baidu.misbehave(Fault(status=200, body=first, times=1))
        stage.baidu.misbehave(Fault(status=200, body=json.dumps(body), times=1))
        report = await stage.announce(channel=ChannelChoice.BAIDU)
        assert stage.list_pushes() == [1, 19]
        assert {page.url: page.reason for page in await stage.list_failed()} == {
            strange: NOT_SAME_SITE,
            broken: NOT_VALID,
        }
        assert await stage.find_entered() == set(stage.web.urls()) - {strange, broken}
        quota = await stage.read_quota()
        assert (quota.used, quota.remaining) == (18, 82)
        line = report.ranked[Channel.BAIDU].engine
        assert (report.status, line.succeeded, line.failed, line.left) == (PARTIAL, 18, 2, 0)
        # They go first next time, and only they.
        again = await stage.announce(channel=ChannelChoice.BAIDU)
        assert (again.status, stage.list_pushes()[2:]) == (SUCCEEDED, [2])


@pytest.mark.thorough
async def test_a_token_that_worked_lately_rests_when_it_is_refused(make_bench: BenchMaker) -> None:
    """A31, A42: Baidu says "token is not valid" also to a site that pushes too often; the channel stays on."""
    async with open_baidu_stage(make_bench) as stage:
        await stage.announce()
        stage.web.add(3)
        stage.baidu.misbehave(replace(faults.TOKEN_NOT_VALID, times=1))
        report = await stage.announce()
        assert not report.ranked[Channel.BAIDU].engine.broken
        pushes = len(stage.list_pushes())
        rested = await stage.announce()
        assert len(stage.list_pushes()) == pushes
        assert "the key rests until" in read_json(rested)["baiduStats"]["errorMessage"]
        stage.clock.advance(timedelta(hours=1))
        assert (await stage.announce()).status is SUCCEEDED
        assert await stage.find_entered() == set(stage.web.urls())


@pytest.mark.parametrize(
    ("now", "day", "resets"),
    [
        (datetime(2025, 1, 15, 15, 59, tzinfo=UTC), date(2025, 1, 15), "2025-01-15T16:00:00.000Z"),
        (datetime(2025, 1, 15, 16, 0, tzinfo=UTC), date(2025, 1, 16), "2025-01-16T16:00:00.000Z"),
    ],
)
async def test_the_day_begins_at_midnight_in_beijing(
    make_bench: BenchMaker, now: datetime, day: date, resets: str
) -> None:
    """A28, A42: the quota of 15 January is used up at 15:59 UTC, and new at 16:00."""
    async with open_baidu_stage(make_bench, quota=10, now=now) as stage:
        await stage.announce()
        state = await stage.read_quota()
        assert (state.day, state.used, state.remaining) == (day, 10, 0)
        assert to_text(state.resets_at) == resets
        skipped = await stage.announce()
        assert skipped.status is SUCCEEDED
        assert skipped.ranked[Channel.BAIDU].engine.left == 10
        assert stage.baidu.accepted.total() == 10
        stage.clock.advance(state.resets_at - stage.clock.now())
        await stage.announce()
        assert stage.baidu.accepted.total() == 20
        assert (await stage.read_quota()).used == 10


async def test_the_site_goes_out_under_the_name_that_baidu_verified(make_bench: BenchMaker) -> None:
    """A42: `site` as it is set, the token beside it, one URL a line as plain text; the sandbox's log shows no token."""
    async with open_baidu_stage(make_bench, pages=3) as stage:
        named = replace(stage.site, baidu=replace(stage.site.baidu, site=stage.web.host))
        await replace(stage, site=await stage.bench.store(named)).announce()
        first = stage.baidu.requests[0]
        assert (first.method, first.path, first.fields) == ("POST", "/urls", {"site": stage.web.host})
        assert first.headers["Content-Type"] == "text/plain"
        assert first.query == f"site={stage.web.host}&token=***"
        assert stage.baidu.accepted == dict.fromkeys(stage.web.urls(), 1)
