"""Bing's scenarios as the source text tells them, one test each: over HTTP, on both databases, at the hour that the
scenario says. What each error answer leads to is in `test_bing_answers`, the quota by itself in `test_quota`."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.announce.bing_stage import KEY, MORNING, BingStage, open_bing_stage
from tests.announce.stage import Events, list_sent, pick_events, write_urlset
from tests.conftest import BenchMaker
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.enabled_channels import ChannelDisabledError
from tidings.announce.channels.protocols.bing import DEFAULT_BASE
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BingSettings, PagePriority
from tidings.announce.site.errors import SiteError
from tidings.core.executions import ExecutionStatus
from tidings.core.stop import Stop
from tidings.sandbox.engines.bing import INVALID_PARAMETER, SERVER_ERROR, TOO_MANY_REQUESTS, UNKNOWN_ERROR
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded
from tidings.sandbox.wire.stand_in import MASK

pytestmark = pytest.mark.one_database

SUCCEEDED, PARTIAL = ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
EXHAUSTED = "Bing quota exhausted, skipping"


def list_newest(stage: BingStage) -> list[str]:
    """All pages of the site, the latest lastmod first."""
    numbers = range(1, len(stage.web.pages) + 1)
    return [stage.web.url(number) for number in sorted(numbers, key=stage.web.lastmod, reverse=True)]


def list_children(stage: BingStage, *, since: int) -> dict[str, int | None]:
    """How the children of the index were answered from request number `since` on, by path."""
    asked = stage.web.requests[since:]
    return {request.path: request.status for request in asked if "/sitemaps/" in request.path}


def write_stamped(pages: Mapping[str, datetime | None]) -> str:
    """A sitemap of pages with a lastmod and pages without."""
    entries = "".join(
        f"<url><loc>{url}</loc>{f'<lastmod>{timestamp.isoformat()}</lastmod>' if timestamp else ''}</url>"
        for url, timestamp in pages.items()
    )
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'


@pytest.mark.both_databases
async def test_urls_are_submitted_to_bing(make_bench: BenchMaker) -> None:
    """A26, scenario "成功提交 URL 到 Bing": one POST with the site's origin and its URLs; 200 is success."""
    assert f"{DEFAULT_BASE}/SubmitUrlbatch" == "https://ssl.bing.com/webmaster/api.svc/json/SubmitUrlbatch"
    async with open_bing_stage(make_bench, pages=20) as stage:
        report = await stage.submit()
        [request] = stage.bing.requests
        assert (request.method, request.path) == ("POST", "/webmaster/api.svc/json/SubmitUrlbatch")
        assert request.query == f"apikey={MASK}"
        assert request.headers["Content-Type"] == "application/json; charset=utf-8"
        assert request.fields == {"siteUrl": stage.web.origin}
        assert sorted(request.urls) == sorted(stage.web.urls())
        assert (request.status, report.engine.succeeded, report.trouble) == (200, 20, False)
        assert await stage.find_entered() == set(stage.web.urls())


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [(INVALID_PARAMETER, "8", "ERROR!!! InvalidParameter"), (UNKNOWN_ERROR, "2", "ERROR!!! UnknownError")],
)
async def test_an_error_answer_is_logged_and_costs_nothing(
    make_bench: BenchMaker, events: Events, fault: Fault, code: str, message: str
) -> None:
    """A28, A31, scenario "Bing API 返回错误": logged with ErrorCode and Message, no quota used, nothing entered."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.use(10)
        stage.misbehave(fault)
        report = await stage.announce()
        assert report.status is PARTIAL
        [logged] = pick_events(events, "batch.answer", log_level="error")
        assert (logged["status"], logged["error_code"], logged["error_message"]) == (400, code, message)
        assert ((await stage.read_quota()).used, await stage.find_entered()) == (10, set())


@pytest.mark.parametrize(("refused", "accepted"), [(3, 20), (None, 0)])
async def test_a_rate_limit_is_waited_for_three_times(
    make_bench: BenchMaker, events: Events, refused: int | None, accepted: int
) -> None:
    """A31, scenario "Bing API 限流 (HTTP 429)": 60 s each, at most 3 retries; then it is logged and given up."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.misbehave(Fault(status=TOO_MANY_REQUESTS.status, times=refused))
        report = await stage.submit()
        assert (len(stage.batches()), stage.clock.slept.count(MINUTE)) == (4, 3)
        retries = [event["retry"] for event in pick_events(events, "batch.retry", wait_s=60)]
        assert retries == ["retry 1/3", "retry 2/3", "retry 3/3"]
        assert (report.engine.succeeded, report.engine.failed) == (accepted, 20 - accepted)
        assert len(pick_events(events, "batch.answer", status=429)) == (refused or 4)
        assert ((await stage.read_quota()).used, len(await stage.find_entered())) == (accepted, accepted)


async def test_what_remains_of_the_quota_is_sent(make_bench: BenchMaker) -> None:
    """A28, scenario "查询剩余配额": 85 of 100 used → 15 remain, and 15 are sent."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.use(85)
        assert (await stage.read_quota()).remaining == 15
        report = await stage.submit()
        assert [len(batch) for batch in stage.batches()] == [15]
        assert (report.due, report.engine.succeeded, report.engine.left) == (20, 15, 5)
        assert report.quota is not None
        assert (report.quota.used, report.quota.remaining) == (100, 0)
        assert report.quota.resets_at == datetime(2025, 1, 16, tzinfo=UTC)


async def test_an_exhausted_quota_is_skipped_without_harm(make_bench: BenchMaker, events: Events) -> None:
    """A27, A28, scenario "配额耗尽时跳过提交": logged, Bing is not asked, IndexNow goes on, nothing has failed."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.use(100)
        report = await stage.announce()
        assert (report.status, report.submitted, stage.batches()) == (SUCCEEDED, 20, [])
        [logged] = pick_events(events, EXHAUSTED, log_level="info")
        assert (logged["site"], logged["day"], logged["quota"]) == (stage.site.id, "2025-01-15", 100)
        assert set(stage.engine.accepted) == await stage.find_entered(Channel.INDEXNOW) == set(stage.web.urls())
        assert await stage.find_entered() == set()
        assert (await stage.read_quota()).used == 100


async def test_bing_alone_with_an_exhausted_quota_alarms_nobody(make_bench: BenchMaker, events: Events) -> None:
    """A28, A40: nothing was to be done, and a sitemap that was not read is not one without URLs."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.use(100)
        report = await stage.announce(channel=ChannelChoice.BING)
        assert (report.status, len(pick_events(events, EXHAUSTED)), stage.batches()) == (SUCCEEDED, 1, [])
        assert pick_events(events, "alert") == []


async def test_time_that_runs_out_after_the_last_of_the_quota_interrupts_nothing(make_bench: BenchMaker) -> None:
    """A20, A28: what is left then waits for a new day, not for more time."""
    async with open_bing_stage(make_bench, pages=150) as stage:
        stop = Stop(clock=stage.clock, budget=5 * MINUTE)
        stage.bing.on_answer = lambda _: stage.clock.advance(6 * MINUTE)
        report = await stage.announce(stop=stop)
        assert (len(await stage.find_entered()), (await stage.read_quota()).remaining) == (100, 0)
        assert (report.status, report.warnings) == (SUCCEEDED, [])


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_a_new_day_has_a_new_quota_until_all_is_sent(make_bench: BenchMaker) -> None:
    """A28, A30, scenario "跨日配额重置": 250 pages in three days, the newest first, none twice."""
    async with open_bing_stage(make_bench, web=SandboxSite(pages=250, per_sitemap=60)) as stage:
        newest = list_newest(stage)
        for part in (newest[:100], newest[100:200], newest[200:]):
            fresh = await stage.read_quota()
            assert (fresh.used, fresh.remaining) == (0, 100)
            sent = len(stage.batches())
            for _ in range(2):
                assert (await stage.announce()).status is SUCCEEDED
            assert stage.batches()[sent:] == [part]
            assert (await stage.read_quota()).used == stage.used_at_bing() == len(part)
            stage.clock.set((stage.clock.now() + DAY).replace(hour=0, minute=0, second=0))
        await stage.announce()
        assert dict(stage.bing.accepted) == dict.fromkeys(newest, 1)
        assert dict(stage.engine.accepted) == dict.fromkeys(newest, 1)


async def test_success_adds_to_the_quota_with_a_timestamp(make_bench: BenchMaker) -> None:
    """A28, scenario "提交成功后更新配额": 50 + 30 → 80, at the time of the submission."""
    async with open_bing_stage(make_bench, pages=30) as stage:
        await stage.use(50)
        stage.clock.advance(HOUR)
        await stage.announce()
        state = await stage.read_quota()
        assert (state.used, stage.used_at_bing()) == (80, 80)
        assert state.updated_at == state.submitted_at
        assert state.submitted_at is not None
        assert MORNING + HOUR <= state.submitted_at <= stage.clock.now()


async def test_an_execution_past_midnight_counts_for_the_day_it_began_on(make_bench: BenchMaker) -> None:
    """A28, scenario "执行跨越 UTC 午夜": begun at 23:58 with 90 used, 10 sent at 00:03: 100 on the 15th."""
    first, second = date(2025, 1, 15), date(2025, 1, 16)
    async with open_bing_stage(make_bench, pages=20, now=datetime(2025, 1, 15, 23, 58, tzinfo=UTC)) as stage:
        await stage.use(90)
        sent_at: list[datetime] = []
        stage.engine.on_request = lambda _: stage.clock.advance(5 * MINUTE)
        stage.bing.on_request = lambda _: sent_at.append(stage.clock.now())
        await stage.announce()
        assert [f"{timestamp:%d %H:%M}" for timestamp in sent_at] == ["16 00:03"]
        assert [len(batch) for batch in stage.batches()] == [10]
        assert [(await stage.read_quota(day)).used for day in (first, second)] == [100, 0]
        await stage.announce()
        assert [len(batch) for batch in stage.batches()] == [10, 10]
        assert [(await stage.read_quota(day)).used for day in (first, second)] == [100, 10]


@pytest.mark.both_databases
async def test_what_two_really_used_is_recorded_and_logged(make_bench: BenchMaker, events: Events) -> None:
    """A29, scenario "并发执行配额冲突": both saw 5 left and sent 5: 95 + 5 + 5 → 105, logged; then nothing is sent."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.use(95)
        both = [stage.quota(), stage.quota()]
        assert [(await quota.read()).remaining for quota in both] == [5, 5]
        for quota in both:
            async with stage.bench.database.write() as connection:
                await quota.record(connection, 5)
        state = await stage.read_quota()
        assert (state.used, state.remaining) == (105, 0)
        [logged] = pick_events(events, "bing.quota_exceeded", log_level="warning")
        assert (logged["used"], logged["quota"]) == (105, 100)
        assert (await stage.announce()).status is SUCCEEDED
        assert (stage.batches(), len(pick_events(events, EXHAUSTED))) == ([], 1)


async def test_another_quota_takes_effect_at_once(make_bench: BenchMaker) -> None:
    """A3, A28: 100 → 150 on the same day lets 50 more through; less than what was used lets none."""
    async with open_bing_stage(make_bench, pages=200) as stage:
        await stage.announce()
        stage.bing.daily_quota = 150
        raised = await stage.change(daily_quota=150)
        await raised.announce()
        assert [len(batch) for batch in stage.batches()] == [100, 50]
        assert (await raised.read_quota()).used == stage.used_at_bing() == 150
        lowered = await stage.change(daily_quota=40)
        report = await lowered.submit()
        assert (report.skipped is not None, len(stage.batches())) == (True, 2)
        assert (await lowered.read_quota()).remaining == 0


@pytest.mark.parametrize("first", [ChannelChoice.INDEXNOW, ChannelChoice.BING])
async def test_a_url_sent_on_one_channel_is_due_on_the_other(make_bench: BenchMaker, first: ChannelChoice) -> None:
    """A10, scenario "URL 已提交到 IndexNow 但未提交到 Bing", and the reverse: each channel gets every page once."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        every = dict.fromkeys(stage.web.urls(), 1)
        sent = {ChannelChoice.INDEXNOW: stage.engine.accepted, ChannelChoice.BING: stage.bing.accepted}
        [other] = set(sent) - {first}
        await stage.announce(channel=first)
        assert (dict(sent[first]), dict(sent[other])) == (every, {})
        await stage.announce()
        assert (dict(sent[first]), dict(sent[other])) == (every, every)


@pytest.mark.both_databases
async def test_a_url_sent_on_both_channels_is_due_on_neither(make_bench: BenchMaker) -> None:
    """A10, scenario "URL 已提交到两个渠道": its file is read again for a new page, and only that one is sent."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.announce()
        requests = len(stage.engine.requests)
        [added] = stage.web.add(1)
        report = await stage.announce()
        assert (report.total, report.new, report.ranked[Channel.BING].due) == (
            21,
            1,
            1,
        )
        assert stage.batches()[1:] == [[stage.web.url(added)]]
        assert list_sent(stage.engine, since=requests) == [stage.web.url(added)]


async def test_a_changed_page_is_due_again_by_each_channels_own_submission(make_bench: BenchMaker) -> None:
    """A10, A12: due where its lastmod is later than the submission to that channel, and there alone."""
    async with open_bing_stage(make_bench, pages=3, sitemaps=["/dated.xml"]) as stage:
        old, early, late = stage.web.urls()
        timestamps: dict[str, datetime | None] = dict.fromkeys((old, early, late), MORNING - DAY)

        async def announce(hour: int, channel: ChannelChoice) -> tuple[list[str], list[list[str]]]:
            """What went to the engine and to Bing."""
            stage.web.serve("/dated.xml", write_stamped(timestamps))
            stage.clock.set(MORNING.replace(hour=hour))
            to_engine, to_bing = len(stage.engine.requests), len(stage.batches())
            await stage.announce(channel=channel)
            return list_sent(stage.engine, since=to_engine), stage.batches()[to_bing:]

        await announce(11, ChannelChoice.ALL)
        timestamps[early] = MORNING.replace(hour=12)
        assert await announce(13, ChannelChoice.BING) == ([], [[early]])
        timestamps[late] = MORNING.replace(hour=14)
        assert await announce(15, ChannelChoice.INDEXNOW) == ([early, late], [])
        assert await announce(16, ChannelChoice.ALL) == ([], [[late]])
        assert await announce(17, ChannelChoice.ALL) == ([], [])


async def test_a_page_listed_twice_is_due_once(make_bench: BenchMaker) -> None:
    """A8, A37: in one file or in two, it is sent once and counted once, and nothing is left of it."""
    async with open_bing_stage(make_bench, pages=4, sitemaps=["/one.xml", "/two.xml"]) as stage:
        first, second, third, fourth = stage.web.urls()
        stage.web.serve("/one.xml", write_urlset([first, second, second]))
        stage.web.serve("/two.xml", write_urlset([second, third, fourth]))
        report = await stage.submit()
        assert dict(stage.bing.accepted) == dict.fromkeys(stage.web.urls(), 1)
        assert (report.due, report.engine.succeeded, report.engine.left) == (4, 4, 0)


@pytest.mark.both_databases
async def test_newest_takes_the_latest_in_order(make_bench: BenchMaker) -> None:
    """A30, scenario "使用 newest 策略选择 URL": of 200 due over several files, the 50 latest, the latest first."""
    async with open_bing_stage(make_bench, web=SandboxSite(pages=200, per_sitemap=30)) as stage:
        await stage.use(50)
        report = await stage.submit()
        assert stage.batches() == [list_newest(stage)[:50]]
        assert (report.due, report.engine.left) == (200, 150)


async def test_random_takes_any_and_others_each_time(make_bench: BenchMaker) -> None:
    """A30, scenario "使用 random 策略选择 URL": 50 of 200; when all are due again, 50 others."""
    web = SandboxSite(pages=200, per_sitemap=30)
    async with open_bing_stage(make_bench, web=web, priority=PagePriority.RANDOM) as stage:
        for _ in range(2):
            await stage.use(50)
            assert (await stage.submit()).due == 200
            stage.clock.advance(31 * DAY)
        first, second = map(set, stage.batches())
        assert len(first) == len(second) == 50
        assert first | second <= set(stage.web.urls())
        assert first not in (second, set(list_newest(stage)[:50]))


@pytest.mark.parametrize("priority", PagePriority)
async def test_fewer_than_remain_are_all_sent(make_bench: BenchMaker, priority: PagePriority) -> None:
    """A30, scenario "待提交 URL 少于剩余配额": all 30, with 100 left."""
    async with open_bing_stage(make_bench, pages=30, priority=priority) as stage:
        await stage.announce()
        [batch] = stage.batches()
        assert sorted(batch) == sorted(stage.web.urls())
        assert (await stage.read_quota()).remaining == 70


async def test_pages_without_lastmod_come_last_and_at_random(make_bench: BenchMaker) -> None:
    """A30, scenario "URL 缺少 lastmod 时的处理": 30 with and 70 without, 50 left: the 30, then 20 of the 70, any."""
    async with open_bing_stage(make_bench, pages=100, sitemaps=["/mixed.xml"]) as stage:
        urls = list(stage.web.urls())
        dated = [url for at, url in enumerate(urls) if at % 10 in (2, 5, 9)]
        timestamps = {url: MORNING - at * HOUR for at, url in enumerate(dated, start=1)}
        stage.web.serve("/mixed.xml", write_stamped({url: timestamps.get(url) for url in urls}))
        for _ in range(2):
            await stage.use(50)
            await stage.announce()
            stage.clock.advance(31 * DAY)
        first, second = stage.batches()
        assert (first[:30], second[:30]) == (dated, dated)
        for batch in (first, second):
            assert len(set(batch[30:])) == 20
            assert set(batch[30:]) <= set(urls) - set(dated)
        assert set(first) != set(second)


async def test_more_than_a_hundred_go_in_two_requests(make_bench: BenchMaker) -> None:
    """A26, scenario "单次请求超过 100 条 URL": 150 due and a quota of 150: 100 + 50, and 150 are used."""
    async with open_bing_stage(make_bench, pages=150, quota=150) as stage:
        report = await stage.submit()
        newest = list_newest(stage)
        assert stage.batches() == [newest[:100], newest[100:]]
        assert report.engine.requests == 2
        assert (await stage.read_quota()).used == stage.used_at_bing() == 150


async def test_a_site_with_a_key_gets_the_defaults(make_bench: BenchMaker) -> None:
    """A3, scenarios "创建站点时启用 Bing" and "启用 Bing 但未提供 API Key": as stored, and the key is required."""
    async with open_bing_stage(make_bench) as stage:
        await stage.bench.store(stage.site)
        stored = await stage.bench.records.find(stage.site.id)
        assert stored is not None
        assert stored.bing == BingSettings.make(enabled=True, key=KEY)
        assert (stored.bing.daily_quota, stored.bing.priority) == (100, PagePriority.NEWEST)
    with pytest.raises(SiteError, match=r"^bingApiKey is required when bingEnabled is true$"):
        BingSettings.make(enabled=True)


@pytest.mark.both_databases
async def test_bing_switched_on_later_gets_every_page_of_files_that_did_not_change(make_bench: BenchMaker) -> None:
    """A3, A9, scenario "为现有站点启用 Bing": files that IndexNow is done with are read once more for Bing."""
    web = SandboxSite(pages=30, per_sitemap=10)
    async with open_bing_stage(make_bench, web=web, bing_enabled=False) as stage:
        assert (await stage.announce()).ranked == {}
        assert (await stage.announce()).files_unchanged == 3
        enabled = await stage.change(enabled=True)
        seen = len(web.requests)
        await enabled.announce()
        assert list(list_children(stage, since=seen).values()) == [200, 200, 200]
        assert dict(stage.bing.accepted) == dict(stage.engine.accepted) == dict.fromkeys(web.urls(), 1)
        assert (await enabled.announce()).files_unchanged == 3


@pytest.mark.thorough
async def test_a_file_is_not_read_again_once_both_channels_took_all_of_it(make_bench: BenchMaker) -> None:
    """A9: IndexNow took everything on the first day, Bing what its quota allowed: files with a rest are read again."""
    web = SandboxSite(pages=40, per_sitemap=5)
    async with open_bing_stage(make_bench, web=web, quota=30) as stage:
        await stage.announce()
        taken = await stage.find_entered()
        parts = {
            f"/sitemaps/{part}.xml": {web.url(number) for number in range(5 * part - 4, 5 * part + 1)}
            for part in range(1, 9)
        }
        expected = {path: 304 if urls <= taken else 200 for path, urls in parts.items()}
        assert set(expected.values()) == {200, 304}
        stage.clock.advance(DAY)
        seen = len(web.requests)
        await stage.announce()
        assert list_children(stage, since=seen) == expected
        assert dict(stage.bing.accepted) == dict.fromkeys(web.urls(), 1)
        stage.clock.advance(DAY)
        seen = len(web.requests)
        assert (await stage.announce()).files_unchanged == 8
        assert set(list_children(stage, since=seen).values()) == {304}


async def test_indexnow_is_saved_before_bing_is_asked_and_keeps_its_result(make_bench: BenchMaker) -> None:
    """A27, A37, scenario "Bing 提交失败但 IndexNow 成功": the execution is marked, IndexNow's half stands."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        saved: list[tuple[int, int, int]] = []

        async def look(_request: Recorded) -> None:
            entered = await stage.find_entered(Channel.INDEXNOW)
            running = (await stage.list_executions())[0]
            saved.append((len(entered), running.progress.get("total", 0), running.items_processed))

        stage.bing.on_request = look
        stage.misbehave(SERVER_ERROR)
        report = await stage.announce()
        assert saved == [(20, 20, 20)] * 4
        assert (report.status, report.submitted, report.failed) == (PARTIAL, 20, 0)
        [record] = await stage.list_executions()
        assert (record.status, record.items_processed) == (PARTIAL, 20)
        assert [engine["succeeded"] for engine in record.result["engines"]] == [20]
        stats = record.result["bingStats"]
        assert (stats["success"], stats["urlCount"], stats["failed"], stats["statusCode"]) == (False, 0, 20, 500)
        assert await stage.find_entered() == set()
        stage.bing.recover()
        assert (await stage.announce()).status is SUCCEEDED
        assert saved[4:] == [(20, 20, 0)]
        assert dict(stage.bing.accepted) == dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


async def test_a_key_that_bing_refuses_does_not_hold_indexnow_up(make_bench: BenchMaker, events: Events) -> None:
    """A27, A31, scenario "Bing 配置无效不阻塞 IndexNow": the refusal is recorded, the execution goes to its end."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.bing.revoke(KEY)
        report = await stage.announce()
        assert (report.status, report.submitted) == (PARTIAL, 20)
        assert set(stage.engine.accepted) == await stage.find_entered(Channel.INDEXNOW) == set(stage.web.urls())
        [logged] = pick_events(events, "batch.answer", log_level="error")
        assert (logged["error_code"], logged["error_message"]) == ("3", "ERROR!!! InvalidApiKey")
        [record] = await stage.list_executions()
        stats = record.result["bingStats"]
        assert (stats["switchedOff"], stats["errorCode"], stats["errorMessage"]) == (
            True,
            "3",
            "ERROR!!! InvalidApiKey",
        )
        assert record.completed_at is not None
        stage.web.add(1)
        assert (await stage.announce()).submitted == 1


async def test_trouble_of_one_channel_leaves_the_other_alone(make_bench: BenchMaker) -> None:
    """A27: Bing that is not there at all costs IndexNow nothing, and IndexNow's engine costs Bing nothing."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.bing.close()
        report = await stage.announce()
        assert (report.status, report.submitted) == (PARTIAL, 20)
        assert await stage.find_entered(Channel.INDEXNOW) == set(stage.web.urls())
        await stage.bing.start()
        await stage.engine.close()
        added = {stage.web.url(number) for number in stage.web.add(5)}
        report = await stage.announce()
        assert (report.status, report.submitted, report.failed) == (PARTIAL, 25, 5)
        assert await stage.find_entered() == set(stage.web.urls())
        assert await stage.find_entered(Channel.INDEXNOW) == set(stage.web.urls()) - added


async def test_bing_alone_skips_indexnow(make_bench: BenchMaker) -> None:
    """A35, scenario "仅触发 Bing 提交": nothing goes to an engine, and the counts are Bing's."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        report = await stage.announce(channel=ChannelChoice.BING)
        assert set(stage.bing.accepted) == set(stage.web.urls())
        assert (len(stage.engine.requests), await stage.find_entered(Channel.INDEXNOW)) == (0, set())
        assert (report.status, report.engines) == (SUCCEEDED, {})
        assert (report.total, report.new, report.submitted) == (20, 20, 20)


async def test_indexnow_alone_skips_bing(make_bench: BenchMaker) -> None:
    """A35: nothing goes to Bing, and none of its quota is used."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        report = await stage.announce(channel=ChannelChoice.INDEXNOW)
        assert (report.status, report.submitted, report.ranked.get(Channel.BING)) == (SUCCEEDED, 20, None)
        assert (len(stage.bing.requests), (await stage.read_quota()).used) == (0, 0)
        assert await stage.find_entered() == set()


async def test_all_is_both_channels(make_bench: BenchMaker) -> None:
    """A35, scenario "触发全部渠道": also what is done where nothing is said; without Bing it is IndexNow alone."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.announce(channel=ChannelChoice.ALL)
        assert set(stage.bing.accepted) == set(stage.engine.accepted) == set(stage.web.urls())
        disabled = await stage.change(enabled=False)
        [added] = stage.web.add(1)
        assert (await disabled.announce()).status is SUCCEEDED
        assert (stage.engine.accepted[stage.web.url(added)], len(stage.bing.requests)) == (1, 1)


async def test_bing_alone_is_refused_where_it_is_not_enabled(make_bench: BenchMaker) -> None:
    """A35, scenario "触发 Bing 但站点未启用": with these words, and before an execution begins."""
    async with open_bing_stage(make_bench, bing_enabled=False) as stage:
        with pytest.raises(ChannelDisabledError) as refusal:
            await stage.announce(channel=ChannelChoice.BING)
        assert str(refusal.value) == "Bing submission is not enabled for this site; it needs bingApiKey"
        assert (await stage.list_executions(), len(stage.web.requests)) == ([], 0)
