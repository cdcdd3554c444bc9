"""What follows from Bing's answers beyond the one batch: the batches after it, the other sites with that key, the next
execution and the next day; and that nothing which breaks on the way touches IndexNow's half."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.announce.bing_stage import KEY, MORNING, BingStage, check_indexnow, open_bing_stage, open_twin
from tests.announce.stage import Events, pick_events, read_json
from tests.conftest import BenchMaker
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.execution.report import Report
from tidings.announce.site.channel_settings import BingSettings
from tidings.core.executions import ExecutionStatus
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.engines import bing as faults
from tidings.sandbox.engines.bing import refuse, refuse_quota
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded

pytestmark = pytest.mark.one_database

PARTIAL, SUCCEEDED, FAILED = ExecutionStatus.PARTIAL, ExecutionStatus.SUCCEEDED, ExecutionStatus.FAILED
OTHER_KEY = "00ff00ff00ff00ff00ff00ff00ff00ff"
LOST = "no answer: the server closed the connection without an answer"
EXHAUSTED = "Bing quota exhausted, skipping"


async def test_a_refused_key_switches_bing_off_until_there_is_another(make_bench: BenchMaker, events: Events) -> None:
    """A3, A13, A31: nothing is sent meanwhile, also where Bing alone is asked for; then what had failed goes first."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.bing.revoke(KEY)
        await stage.announce()
        asked = len(stage.bing.requests)
        stage.bing.add_site(stage.web.origin, key=KEY)
        stage.web.add(3)
        stage.clock.advance(timedelta(days=2))
        both, alone = await stage.announce(), await stage.announce(channel=ChannelChoice.BING)
        assert (both.status, alone.status, len(stage.bing.requests)) == (PARTIAL, FAILED, asked)
        assert len(pick_events(events, "alert", kind="channel_off")) == 1
        same = await stage.change(daily_quota=50)
        assert (await same.announce()).status is PARTIAL
        assert len(stage.bing.requests) == asked
        stage.bing.add_site(stage.web.origin, key=OTHER_KEY)
        changed = await stage.change(key=Secret(OTHER_KEY))
        report = await changed.announce()
        assert report.status is SUCCEEDED
        assert [len(urls) for urls in stage.batches()[asked:]] == [20, 3]
        assert dict(stage.bing.accepted) == dict.fromkeys(stage.web.urls(), 1)
        assert await stage.list_failed() == []


@pytest.mark.thorough
@pytest.mark.parametrize("throttle", [faults.THROTTLE_USER, faults.THROTTLE_HOST, faults.THROTTLE_IP])
async def test_a_throttled_key_rests_for_an_hour_on_all_its_sites(make_bench: BenchMaker, throttle: Fault) -> None:
    """A31: a site with the same key asks nothing, one with another key is not concerned; after the hour all is sent."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        same = BingSettings.make(enabled=True, key=KEY)
        other = BingSettings.make(enabled=True, key=OTHER_KEY)
        async with open_twin(stage, bing=same) as sister, open_twin(stage, bing=other) as stranger:
            stage.bing.misbehave(replace(throttle, times=1))
            first = await stage.announce()
            assert (first.status, len(stage.bing.requests)) == (PARTIAL, 1)
            second = await sister.announce()
            assert (second.status, len(stage.bing.requests)) == (PARTIAL, 1)
            assert (await stranger.announce()).status is SUCCEEDED
            assert len(stage.bing.accepted) == 20
            stage.clock.advance(timedelta(minutes=59))
            for waiting in (stage, sister):
                assert (await waiting.announce()).status is PARTIAL
            assert len(stage.bing.requests) == 2
            stage.clock.advance(timedelta(minutes=1))
            for rested in (stage, sister):
                assert (await rested.announce()).status is SUCCEEDED
                assert await rested.find_entered() == set(rested.web.urls())
            assert len(stage.bing.accepted) == 60
            assert await stage.list_failed() == []


@pytest.mark.parametrize("said", [[], [faults.QUOTA_EXCEEDED_DOCUMENTED]], ids=["live", "documented"])
async def test_a_full_day_is_over_and_the_next_one_goes_on(make_bench: BenchMaker, said: list[Fault]) -> None:
    """A28, A31: Bing says that nothing remains, no matter what was counted here; at midnight UTC it starts again."""
    async with open_bing_stage(make_bench, pages=150, quota=150) as stage:
        for each in said:
            stage.bing.misbehave(replace(each, times=1))
        stage.bing.spend(stage.web.origin, 150)
        assert (await stage.announce()).status is PARTIAL
        assert (await stage.announce()).status is SUCCEEDED
        stage.clock.set(MORNING.replace(hour=23, minute=59))
        assert (await stage.announce()).status is SUCCEEDED
        assert [len(urls) for urls in stage.batches()] == [100]
        today = await stage.read_quota()
        assert (today.used, today.remaining) == (0, 0)
        stage.clock.set(MORNING.replace(day=16, hour=0, minute=0))
        assert (await stage.announce()).status is SUCCEEDED
        assert [len(urls) for urls in stage.batches()] == [100, 100, 50]
        assert dict(stage.bing.accepted) == dict.fromkeys(stage.web.urls(), 1)
        assert (await stage.read_quota()).used == 150


async def test_a_batch_larger_than_what_remains_is_sent_again_as_large_as_that(
    make_bench: BenchMaker, events: Events
) -> None:
    """A29, A31: refused whole, the count corrected, then exactly N go through, the newest; the rest the next day."""
    async with open_bing_stage(make_bench, pages=150, quota=150) as stage:
        stage.bing.spend(stage.web.origin, 123)
        report = await stage.announce()
        first, second = stage.batches()
        assert (len(first), second) == (100, first[:27])
        assert set(stage.bing.accepted) == await stage.find_entered() == set(second)
        assert (await stage.read_quota()).used == stage.used_at_bing() == 150
        assert report.status is SUCCEEDED
        stats = read_json(report)["bingStats"]
        assert (stats["success"], stats["urlCount"], stats["failed"], stats["left"]) == (True, 27, 0, 123)
        assert (stats["statusCode"], stats["errorCode"]) == (200, "2")
        assert stats["errorMessage"] == "ERROR!!! Quota remaining for today: 27, Submitted: 100"
        [corrected] = pick_events(events, "bing.quota_corrected", log_level="warning")
        assert (corrected["counted"], corrected["used"]) == (0, 123)
        assert len(pick_events(events, EXHAUSTED)) == 1
        await stage.announce()
        assert len(stage.batches()) == 2
        stage.clock.advance(timedelta(days=1))
        await stage.announce()
        assert [len(urls) for urls in stage.batches()[2:]] == [100, 23]
        assert dict(stage.bing.accepted) == dict.fromkeys(stage.web.urls(), 1)


async def test_what_remains_may_grow_less_between_two_answers(make_bench: BenchMaker) -> None:
    """A31: somebody else is sending too: 27, then 5, then 5 go through; it ends by itself."""
    async with open_bing_stage(make_bench, pages=40) as stage:
        for remaining, submitted in ((27, 40), (5, 27)):
            stage.misbehave(
                replace(refuse_quota(remaining=remaining, submitted=submitted), times=1, matching="/pages/")
            )
        report = await stage.submit()
        assert [len(urls) for urls in stage.batches()] == [40, 27, 5]
        assert (report.engine.succeeded, (await stage.read_quota()).used) == (5, 100)


@pytest.mark.parametrize("trouble_first", [True, False])
async def test_trouble_and_a_correction_do_not_get_in_each_others_way(
    make_bench: BenchMaker, trouble_first: bool
) -> None:
    """A31: a server error before or after it, and N are sent all the same, after one second as by the rule."""
    async with open_bing_stage(make_bench, pages=40) as stage:
        stage.bing.spend(stage.web.origin, 73)
        stage.misbehave(Fault(status=503, times=1, after=0 if trouble_first else 1))
        report = await stage.submit()
        sizes = [40, 40, 27] if trouble_first else [40, 27, 27]
        assert [len(urls) for urls in stage.batches()] == sizes
        assert stage.list_waits() == [1]
        assert (report.engine.succeeded, report.engine.failed) == (27, 0)
        assert await stage.list_failed() == []
        assert (await stage.read_quota()).used == 100


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [faults.INVALID_URL, faults.INVALID_URL_DOCUMENTED], ids=["live", "documented"])
@pytest.mark.parametrize("numbers", [(50,), (1, 50, 51, 100)], ids=["one", "four"])
async def test_a_bad_url_is_found_and_all_others_go_through(
    make_bench: BenchMaker, fault: Fault, numbers: tuple[int, ...]
) -> None:
    """A13, A31: it costs no quota, is kept as failed, and is tried first next time, away from the good ones."""
    async with open_bing_stage(make_bench, web=SandboxSite(pages=100, per_sitemap=None), quota=200) as stage:
        bad = {stage.web.url(number) for number in numbers}
        for number in numbers:
            stage.misbehave(replace(fault, matching=f"/{number:07d}/"))
        first = await stage.announce()
        good = set(stage.web.urls()) - bad
        assert (first.status, dict(stage.bing.accepted)) == (PARTIAL, dict.fromkeys(good, 1))
        assert len(stage.batches()) <= 1 + 14 * len(numbers)
        assert await stage.find_entered() == good
        assert (await stage.read_quota()).used == stage.used_at_bing() == len(good)
        assert {(page.url, page.attempts) for page in await stage.list_failed()} == {(url, 1) for url in bad}
        asked = len(stage.batches())
        added = {stage.web.url(number) for number in stage.web.add(5)}
        second = await stage.announce()
        batches = stage.batches()[asked:]
        assert (second.status, set(batches[0]), set(batches[-1])) == (PARTIAL, bad, added)
        assert not any(set(urls) & bad and set(urls) & added for urls in batches)
        assert {(page.url, page.attempts) for page in await stage.list_failed()} == {(url, 2) for url in bad}
        stage.bing.recover()
        assert (await stage.announce()).status is SUCCEEDED
        assert dict(stage.bing.accepted) == dict.fromkeys(stage.web.urls(), 1)
        assert await stage.list_failed() == []


@pytest.mark.thorough
async def test_a_batch_of_bad_urls_is_not_taken_apart_without_end(make_bench: BenchMaker) -> None:
    """A31: sixty requests for a batch, then what is left of it has failed as a whole; nothing is charged."""
    async with open_bing_stage(make_bench, pages=100) as stage:
        stage.misbehave(faults.INVALID_URL)
        report = await stage.submit()
        assert 50 <= len(stage.batches()) <= 60
        assert (report.engine.failed, report.engine.left) == (100, 0)
        assert len(await stage.list_failed()) == 100
        assert (await stage.read_quota()).used == 0


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_a_lost_answer_is_sent_again_and_charged_each_time(make_bench: BenchMaker) -> None:
    """A28, A31: Bing has counted both, and so do we; the second answer settles it."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.misbehave(replace(faults.RESET_AFTER_ACCEPTING, times=1))
        report = await stage.submit()
        assert (len(stage.batches()), stage.list_waits(), report.engine.succeeded) == (2, [1], 20)
        assert (await stage.read_quota()).used == stage.used_at_bing() == 40
        assert await stage.find_entered() == set(stage.web.urls())
        assert await stage.list_failed() == []


async def test_no_retry_where_the_quota_does_not_suffice_for_all_of_it(make_bench: BenchMaker, events: Events) -> None:
    """A28, A31: three times thirty of a hundred are charged; the ten that remain are for next time, and used then."""
    async with open_bing_stage(make_bench, pages=30) as stage:
        stage.misbehave(faults.RESET)
        report = await stage.announce()
        assert ([len(urls) for urls in stage.batches()], report.status) == ([30, 30, 30], PARTIAL)
        assert (await stage.read_quota()).used == 90
        assert {(page.reason, page.attempts) for page in await stage.list_failed()} == {(LOST, 3)}
        assert len(pick_events(events, EXHAUSTED)) == 1
        stage.bing.recover()
        again = await stage.submit()
        assert [len(urls) for urls in stage.batches()[3:]] == [10]
        assert (again.engine.succeeded, again.engine.left, (await stage.read_quota()).used) == (10, 20, 100)
        assert len(await stage.list_failed()) == 20


@pytest.mark.thorough
async def test_a_bing_that_is_not_there_costs_no_quota(make_bench: BenchMaker) -> None:
    """A28, A31: nothing can have been counted; waited for and tried again as with a server's error."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await stage.bing.close()
        report = await stage.announce()
        assert (report.status, stage.list_waits()) == (PARTIAL, [1, 2, 4])
        assert (await stage.read_quota()).used == 0
        failed = {(page.reason, page.attempts) for page in await stage.list_failed()}
        assert failed == {("no connection: Connection refused", 4)}
        stats = read_json(report)["bingStats"]
        assert (stats["statusCode"], stats["errorMessage"]) == (None, "no connection: Connection refused")
        await check_indexnow(stage, report)
        await stage.bing.start()
        assert (await stage.announce()).status is SUCCEEDED
        assert (await stage.read_quota()).used == stage.used_at_bing() == 20


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        (replace(faults.SERVER_ERROR, times=1), [1]),
        (replace(faults.UNAVAILABLE, times=3), [1, 2, 4]),
        (replace(faults.TOO_MANY_REQUESTS, times=2), [60, 60]),
        (replace(faults.TOO_MANY_REQUESTS_RETRY_AFTER, times=3), [7, 7, 7]),
    ],
    ids=["500", "503", "429", "429, Retry-After"],
)
async def test_what_a_retry_got_over_is_no_failure(
    make_bench: BenchMaker, events: Events, fault: Fault, waits: list[int]
) -> None:
    """A23, A27, A31: a warning in the log, and an execution that succeeded, as with the engines of IndexNow."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.misbehave(fault)
        report = await stage.announce()
        assert (stage.list_waits(), len(stage.batches())) == (waits, len(waits) + 1)
        assert dict(stage.bing.accepted) == dict.fromkeys(stage.web.urls(), 1)
        assert (await stage.read_quota()).used == 20
        assert await stage.list_failed() == []
        assert [event["log_level"] for event in pick_events(events, "batch.answer")] == ["warning"] * len(waits)
        stats = read_json(report)["bingStats"]
        assert (report.status, stats["success"], stats["urlCount"]) == (SUCCEEDED, True, 20)


async def test_a_longer_wait_than_there_is_time_for_is_not_begun(make_bench: BenchMaker) -> None:
    """A20, A31: Bing asks for two hours; the batch is left for next time at once."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.misbehave(Fault(status=429, headers={"Retry-After": "7200"}))
        report = await stage.announce(stop=Stop(clock=stage.clock, budget=timedelta(minutes=5)))
        assert (report.status, stage.list_waits(), len(stage.batches())) == (PARTIAL, [], 1)
        assert {page.attempts for page in await stage.list_failed()} == {1}
        assert (await stage.read_quota()).used == 0


@pytest.mark.parametrize(
    ("fault", "sizes", "failed", "left"),
    [
        (replace(faults.UNKNOWN_ERROR, times=1), [100, 100, 50], 100, 0),
        (faults.UNKNOWN_ERROR, [100, 100], 200, 50),
        (faults.SERVER_ERROR, [100] * 4, 100, 150),
        (faults.TOO_MANY_REQUESTS, [100] * 4, 100, 150),
        (faults.INVALID_API_KEY, [100], 100, 150),
        (faults.THROTTLE_USER, [100], 0, 250),
        (replace(faults.THROTTLE_USER, after=1), [100, 100], 0, 150),
    ],
    ids=["refused once", "refused", "500", "429", "bad key", "throttled", "throttled later"],
)
async def test_the_batches_after_one_that_was_not_taken(
    make_bench: BenchMaker, fault: Fault, sizes: list[int], failed: int, left: int
) -> None:
    """A31: one refusal stops nothing, two in a row do, and so does what the next batch would meet as well."""
    async with open_bing_stage(make_bench, pages=250, quota=500) as stage:
        stage.misbehave(fault)
        report = await stage.submit()
        assert [len(urls) for urls in stage.batches()] == sizes
        assert (report.engine.failed, report.engine.left, len(stage.bing.accepted)) == (
            failed,
            left,
            250 - failed - left,
        )
        assert (await stage.read_quota()).used == stage.used_at_bing() == 250 - failed - left


async def test_what_bing_says_cannot_forge_or_break_the_record(make_bench: BenchMaker, events: Events) -> None:
    """A31, A37: line breaks, NUL and terminal codes are escaped wherever it is kept, on both databases; and cut."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.misbehave(refuse("2\n9", "one\r\ntwo \x00\x1b[31m\u2028" + "x" * 5_000, status=401))
        await stage.announce()
        await stage.announce()
        start = "one two \\x00\\x1b[31m xx"
        [second, first] = [record.result["bingStats"] for record in await stage.list_executions()]
        assert (first["errorCode"], first["errorMessage"][: len(start)]) == ("2 9", start)
        assert len(first["errorMessage"]) <= 300
        [alert] = pick_events(events, "alert", kind="channel_off")
        [answer] = pick_events(events, "batch.answer")
        reasons = [page.reason for page in await stage.list_failed()]
        for shown in (second["errorMessage"], alert["reason"], answer["error_message"], *reasons):
            assert start in shown
            assert shown.isprintable()


async def drop_table(stage: BingStage, table: str) -> None:
    async with stage.bench.database.write() as connection:
        await connection.execute(text(f"DROP TABLE {table}"))


@pytest.mark.parametrize("table", ["channel_quota", "key_rests"])
async def test_whatever_breaks_in_bings_part_leaves_indexnow_whole(
    make_bench: BenchMaker, events: Events, table: str
) -> None:
    """A27: here a table is gone before it begins; the execution is partial, and says so."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        await drop_table(stage, table)
        report = await stage.announce()
        await check_broken(stage, report, events)
        assert stage.batches() == []


async def test_what_breaks_while_bing_answers_leaves_indexnow_whole(make_bench: BenchMaker, events: Events) -> None:
    """A27: IndexNow's result is on record before Bing is asked for anything."""
    async with open_bing_stage(make_bench, pages=20) as stage:

        async def pull_the_rug(_: Recorded) -> None:
            [running] = await stage.list_executions()
            assert running.progress["submitted"] == running.items_processed == 20
            await drop_table(stage, "channel_quota")

        stage.bing.on_request = pull_the_rug
        await check_broken(stage, await stage.announce(), events)
        assert len(stage.batches()) == 1
        assert await stage.find_entered() == set()


async def check_broken(stage: BingStage, report: Report, events: Events) -> None:
    [saved] = await stage.list_executions()
    assert (report.status, saved.status) == (PARTIAL, PARTIAL)
    assert (saved.items_processed, saved.items_failed) == (20, 0)
    broken = pick_events(events, "bing.broken", log_level="error")
    assert broken
    assert all(event["exc_info"] for event in broken)
    stats = saved.result["bingStats"]
    assert (stats["success"], stats["urlCount"]) == (False, 0)
    assert "unexpected trouble" in (stats["errorMessage"] or "")
    await check_indexnow(stage, report)
