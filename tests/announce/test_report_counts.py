"""The counts of an execution tell the truth: each page once, each refusal by name, nothing called a success that is
none, and a quota that somebody else overran is on record."""

from datetime import timedelta

import pytest

from tests.announce.bing_stage import MORNING, open_bing_stage
from tests.announce.stage import Events, StageMaker, pick_events, read_json, write_urlset
from tests.announce.test_google import open_google_stage
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import read_days
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import check_schedule
from tidings.core.alerts.translation import Translator
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.engines.bing import THROTTLE_USER, refuse_exceeded
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.wiring.alerts import list_catalogues

FAILED, PARTIAL, SUCCEEDED = ExecutionStatus.FAILED, ExecutionStatus.PARTIAL, ExecutionStatus.SUCCEEDED


async def test_every_page_that_anybody_took_counts_once_and_repeats_count(open_stage: StageMaker) -> None:
    """A37: two engines take twenty pages: 20. One had failed before and takes them now: 20 again. Errors name it."""
    stage = await open_stage(SandboxSite(pages=20), engines=2)
    stage.engines[1].misbehave(Fault(status=403, body="no"))
    first = await stage.announce()
    assert (first.submitted, first.failed) == (20, 0)
    [error] = read_json(first)["errors"]
    assert error == f"{stage.engines[1].host}: 20 of 20 URLs failed: HTTP 403: no"
    stage.engines[1].recover()
    again = await stage.announce()
    assert (again.status, again.new, again.submitted, again.repeated) == (SUCCEEDED, 0, 20, 20)
    shown = read_json(again)
    assert {
        name: shown[name]
        for name in ("total_urls", "new_urls", "waiting", "cached_urls", "submitted_urls", "failed_urls")
    } == {
        "total_urls": 20,
        "new_urls": 0,
        "waiting": 20,
        "cached_urls": 0,
        "submitted_urls": 20,
        "failed_urls": 0,
    }
    assert shown["timestamp"].endswith("Z")


async def test_more_pages_are_accepted_than_were_due_only_where_it_is_said_which(make_bench: BenchMaker) -> None:
    """A37: repeats of earlier failures, and what Bing takes from its backlog, are counted apart from what is due."""
    async with open_bing_stage(make_bench, pages=20, quota=5) as stage:
        stage.engine.misbehave(Fault(status=422, body="no", matching=stage.web.url(7)))
        first = await stage.announce()
        assert (first.new, first.submitted, first.submitted_again, first.submitted_by_quota) == (20, 19, 0, 0)
        stage.engine.recover()
        stage.clock.advance(timedelta(days=1))
        stage.web.add(2)
        second = await stage.announce()
        # Two are new. One that nobody took before is due again, or only waited if the engine took it before the sitemap
        # was read. Bing also takes three that waited for its quota.
        assert second.new + second.waiting == 3
        assert (second.submitted, second.submitted_again, second.submitted_by_quota) == (6, 1, 3)
        shown = read_json(second)
        assert (shown["submittedAgain"], shown["submittedByQuota"]) == (1, 3)


async def test_a_partial_execution_says_why_also_where_no_page_failed(make_bench: BenchMaker) -> None:
    """A31, A37: Bing throttles the key. No page is to blame, they wait, and the execution names Bing and its reason."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.bing.misbehave(THROTTLE_USER)
        report = await stage.announce()
        shown = read_json(report)
        assert (report.status, report.failed, shown["errors"]) == (PARTIAL, 0, [])
        [line] = shown["warnings"]
        assert line.startswith("Bing: 20 URLs wait for the next execution: ")
        assert "Throttle" in line
        assert Translator(list_catalogues()).translate(line).startswith("必应：20 个网址留待下次执行：")


async def test_pages_that_an_execution_sends_itself_do_not_count_as_announced(open_stage: StageMaker) -> None:
    """A37: 5 of 20 wait for an engine, read again or in a file that did not change: 15 need nothing, and it adds up."""
    stage = await open_stage(SandboxSite(pages=20, per_sitemap=10), engines=2)
    await stage.announce()
    stage.web.change_many([1, 2, 3, 4, 11])
    stage.engines[1].misbehave(Fault(status=403, body="no"))
    await stage.announce()
    again = await stage.announce()
    assert (again.files_unchanged > 0, again.new, again.waiting, again.cached) == (True, 0, 5, 15)
    stage.web.change_many([12])
    stage.engines[1].recover()
    last = await stage.announce()
    assert (last.new, last.waiting, last.cached, last.submitted) == (1, 5, 14, 6)
    assert last.total == last.new + last.waiting + last.cached
    done = await stage.announce()
    assert (done.new, done.waiting, done.cached) == (0, 0, 20)


async def test_pages_that_nobody_looked_up_are_not_called_announced(make_bench: BenchMaker) -> None:
    """A37, A43: Google gets the sitemap alone; the execution knows nothing of its pages."""
    async with open_google_stage(make_bench, pages=5) as stage:
        report = await stage.announce(channel=ChannelChoice.GOOGLE)
        assert (report.status, report.total, report.new, report.cached) == (SUCCEEDED, 5, 0, 0)
        assert (await stage.announce()).new == 5
        assert (await stage.announce()).cached == 5


async def test_a_channel_alone_counts_its_own_pages(make_bench: BenchMaker) -> None:
    """A37: what Bing took needs nothing, what its quota did not cover is due, a change of a minute ago is too soon."""
    async with open_bing_stage(make_bench, pages=20, quota=12, resubmit_gap=timedelta(minutes=10)) as stage:
        await stage.announce(channel=ChannelChoice.BING)
        stage.clock.advance(timedelta(minutes=1))
        [taken, *_] = stage.bing.accepted
        stage.web.change_many([list(stage.web.urls()).index(taken) + 1])
        report = await stage.announce(channel=ChannelChoice.BING)
        assert (report.total, report.new, report.too_soon, report.cached) == (20, 8, 1, 11)


async def test_a_page_that_is_repeated_and_changed_counts_once_a_day(
    open_stage: StageMaker, make_bench: BenchMaker
) -> None:
    """A34: an engine takes yesterday's backlog and another one today's change of the same page: one page."""
    clock = StageClock(MORNING)
    stage = await open_stage(SandboxSite(pages=5), engines=2, bench=make_bench(clock=clock, retry_scale=1))
    stage.engines[1].misbehave(Fault(status=403, body="no"))
    await stage.announce()
    clock.advance(timedelta(days=1))
    stage.engines[1].recover()
    stage.web.change_many([3])
    report = await stage.announce()
    assert report.submitted == 5
    today = clock.now().date()
    count = (await read_days(stage.bench.database, today=today, days=1))[today][Channel.INDEXNOW]
    assert (count.total, count.successful) == (5, 5)


async def test_bing_alone_that_meets_its_quota_is_no_failure(make_bench: BenchMaker, events: Events) -> None:
    """A29, A37: Bing says that 100 are used, and 50 are set: the true number is on record and in the log. The next
    execution for Bing alone shows the backlog, and nobody is alarmed."""
    async with open_bing_stage(make_bench, pages=20, quota=50) as stage:
        stage.bing.misbehave(refuse_exceeded(quota=100))
        met = await stage.announce(channel=ChannelChoice.BING)
        assert met.status is SUCCEEDED
        quota = await stage.read_quota()
        assert (quota.used, quota.limit, quota.remaining) == (100, 50, 0)
        [logged] = pick_events(events, "bing.quota_exceeded", log_level="warning")
        assert (logged["used"], logged["quota"]) == (100, 50)
        stats = read_json(met)["bingStats"]
        assert (stats["statusCode"], stats["due"], stats["left"]) == (400, 20, 20)
        later = await stage.announce(channel=ChannelChoice.BING)
        stats = read_json(later)["bingStats"]
        assert (later.status, stats["due"], stats["left"], stats["urlCount"]) == (SUCCEEDED, 20, 20, 0)
        assert pick_events(events, "alert") == []


@pytest.mark.parametrize("remaining", [True, False])
async def test_bings_own_quota_asked_at_midday_is_not_taken_for_the_whole_day(
    make_bench: BenchMaker, remaining: bool
) -> None:
    """A32: 40 of Bing's 100 are used when `auto` is switched on. Bing answers its rest or its total, nobody knows: the
    day still has 100, and 60 more go out. Nothing is called an overrun."""
    async with open_bing_stage(make_bench, pages=150, quota=100) as stage:
        stage.bing.reports_remaining = remaining
        await (await stage.change(daily_quota=40)).announce(channel=ChannelChoice.BING)
        report = await (await stage.change(auto=True)).announce(channel=ChannelChoice.BING)
        quota = report.ranked[Channel.BING].quota
        assert quota is not None
        assert (quota.used, quota.limit, stage.used_at_bing()) == (100, 100, 100)
        assert report.status is SUCCEEDED


async def test_bings_last_answer_stands_beside_its_success(make_bench: BenchMaker) -> None:
    """A37: an error that was recovered from stays as the error, and the status is that of the last answer."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.bing.misbehave(Fault(status=503, times=1))
        stats = read_json(await stage.announce())["bingStats"]
        assert (stats["success"], stats["statusCode"], stats["urlCount"]) == (True, 200, 20)
        assert stats["errorMessage"] == "HTTP 503"


@pytest.mark.parametrize(
    ("url", "words", "advice"),
    [
        ("https://www.example.com/a", "none of its URLs is of", "www. or not"),
        (None, "it lists no pages that can be announced", "Open the address"),
    ],
)
async def test_a_site_without_a_page_to_announce_is_no_success(
    open_stage: StageMaker, events: Events, url: str | None, words: str, advice: str
) -> None:
    """A7, A40: every URL dropped, or none there: it failed, with the words and the advice of `tidings check`."""
    stage = await open_stage(engines=1)
    stage.web.serve("/sitemap.xml", write_urlset([url] if url else []))
    report = await stage.announce()
    assert report.status is FAILED
    [error] = read_json(report)["errors"]
    assert words in error
    assert advice in error
    [alert] = pick_events(events, "alert")
    assert (alert["kind"], words in alert["reason"], advice in alert["action"]) == ("no_urls", True, True)


@pytest.mark.parametrize(
    ("name", "cron"), [("@daily", "0 0 * * *"), ("@Hourly", "0 * * * *"), ("5 4 * * 1", "5 4 * * 1")]
)
def test_names_of_schedules_are_accepted(name: str, cron: str) -> None:
    """A2: as cron itself takes them; others are refused."""
    assert check_schedule(name) == cron
    with pytest.raises(SiteError, match="@daily"):
        check_schedule("@never")
