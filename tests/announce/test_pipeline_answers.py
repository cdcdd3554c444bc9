"""What becomes of a batch by the engine's answer: taken, tried again, split, left for next time, or given up."""

from itertools import pairwise

import pytest

from tests.announce.stage import Events, StageMaker, list_sent, pick_events
from tests.conftest import BenchMaker
from tidings.announce.site.site import SubmitMethod
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.engines.indexnow import FORBIDDEN, NOT_VERIFIED
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind

PARTIAL, SUCCEEDED, FAILED = ExecutionStatus.PARTIAL, ExecutionStatus.SUCCEEDED, ExecutionStatus.FAILED
DOWN = Fault(status=503)
RESET = Fault(FaultKind.RESET)


@pytest.mark.one_database
async def test_a_rate_limit_is_waited_out_for_as_long_as_the_engine_asks(
    make_bench: BenchMaker, open_stage: StageMaker, events: Events
) -> None:
    """A21: Retry-After counts (10 s, here a hundredth of that) instead of 60 s; then the batch goes through."""
    stage = await open_stage(bench=make_bench(retry_scale=0.01))
    engine = stage.engines[0]
    engine.misbehave(Fault(status=429, headers={"Retry-After": "10"}, times=2))
    report = await stage.announce()
    times = [request.at for request in engine.requests]
    assert [request.status for request in engine.requests] == [429, 429, 200]
    assert all(0.1 <= later - earlier < 0.6 for earlier, later in pairwise(times))
    assert (report.status, report.submitted) == (SUCCEEDED, 20)
    assert [event["retry"] for event in pick_events(events, "batch.retry")] == ["retry 1/3", "retry 2/3"]


@pytest.mark.one_database
async def test_without_retry_after_a_rate_limit_is_a_minute_of_rest_for_the_engine(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A21: 60 s (here a hundredth of that), in which other pages are not sent either, but for those under way."""
    stage = await open_stage(bench=make_bench(retry_scale=0.01), submit_method=SubmitMethod.GET)
    engine = stage.engines[0]
    engine.misbehave(Fault(status=429, times=1))
    await stage.announce()
    began = engine.requests[0].at
    assert len([request for request in engine.requests if request.at - began < 0.6]) <= 6
    assert len(engine.requests) == 21
    assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.one_database
async def test_the_engine_rests_after_the_last_attempt_too(make_bench: BenchMaker, open_stage: StageMaker) -> None:
    """A21: without a retry the page is left for next time, and no other page is sent before the minute is over."""
    bench = make_bench(retry_scale=0.01, max_retries=0)
    stage = await open_stage(bench=bench, submit_method=SubmitMethod.GET)
    engine = stage.engines[0]
    engine.misbehave(Fault(status=429, times=1))
    report = await stage.announce()
    began = engine.requests[0].at
    assert len([request for request in engine.requests if request.at - began < 0.6]) <= 6
    assert (len(engine.requests), report.submitted, report.failed) == (20, 19, 1)


@pytest.mark.parametrize(("fault", "waits"), [(DOWN, (1, 2, 4)), (RESET, (1, 2, 4)), (Fault(status=429), (60, 60, 60))])
async def test_four_attempts_then_the_batch_is_left_for_next_time(
    make_bench: BenchMaker, open_stage: StageMaker, fault: Fault, waits: tuple[int, ...]
) -> None:
    """A21: 5xx and lost connections after 1, 2 and 4 s, a rate limit after 60 s each (here a hundredth or less)."""
    scale = 0.01 if waits[0] == 1 else 0.001
    stage = await open_stage(bench=make_bench(retry_scale=scale))
    engine = stage.engines[0]
    engine.misbehave(fault)
    first = await stage.announce()
    times = [request.at for request in engine.requests]
    assert len(times) == 4
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(gap >= wait * scale for gap, wait in zip(gaps, waits, strict=True))
    assert (first.status, first.submitted) == (FAILED, 0)
    assert await stage.find_entered(list(stage.web.urls())) == set()
    engine.recover()
    second = await stage.announce()
    assert (second.status, second.submitted) == (SUCCEEDED, 20)
    assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.one_database
async def test_a_failed_batch_does_not_keep_the_next_from_being_sent(open_stage: StageMaker) -> None:
    """A21: one page's requests fail to the last; all the others are taken."""
    stage = await open_stage(SandboxSite(pages=12, per_sitemap=None), submit_method=SubmitMethod.GET)
    engine = stage.engines[0]
    engine.misbehave(Fault(status=500, matching="/0000004/"))
    report = await stage.announce()
    assert (report.status, report.submitted, report.failed) == (PARTIAL, 11, 1)
    assert len([url for url in list_sent(engine) if url == stage.web.url(4)]) == 4


@pytest.mark.one_database
@pytest.mark.parametrize("status", [400, 422])
async def test_a_batch_with_bad_urls_is_split_until_they_are_found(open_stage: StageMaker, status: int) -> None:
    """A22: exactly the bad ones fail, not retried, and every good one goes through, once."""
    stage = await open_stage(SandboxSite(pages=100, per_sitemap=None))
    web, engine = stage.web, stage.engines[0]
    numbers = (1, 50, 51, 100)
    bad = {web.url(number) for number in numbers}
    for number in numbers:
        engine.misbehave(Fault(status=status, matching=f"/{number:07d}/"))
    report = await stage.announce()
    assert (report.status, report.submitted, report.failed) == (PARTIAL, 96, 4)
    assert {page.url for page in await stage.list_failed()} == bad
    assert dict(engine.accepted) == dict.fromkeys(set(web.urls()) - bad, 1)
    alone = [request.urls[0] for request in engine.requests if len(request.urls) == 1 and request.urls[0] in bad]
    assert sorted(alone) == sorted(bad)


@pytest.mark.one_database
@pytest.mark.parametrize("fault", [Fault(status=401), Fault(status=403, body="no"), NOT_VERIFIED, Fault(status=404)])
async def test_a_refusal_is_not_retried_now_but_next_time(open_stage: StageMaker, events: Events, fault: Fault) -> None:
    """A21, A22: one request, its detail and what to check in the log; the next execution sends everything."""
    stage = await open_stage()
    engine = stage.engines[0]
    engine.misbehave(fault)
    first = await stage.announce()
    assert (first.status, len(engine.requests)) == (FAILED, 1)
    [failed] = pick_events(events, "batch.failed")
    assert (failed["status"], failed["urls"]) == (fault.status, 20)
    assert failed["reason"].startswith(f"HTTP {fault.status}")
    assert failed["check"]
    assert pick_events(events, "alert", kind="channel_broken") == []
    engine.recover()
    second = await stage.announce()
    assert second.status is SUCCEEDED
    assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


async def test_an_engine_that_forbids_the_key_is_left_alone_until_there_is_a_new_one(
    open_stage: StageMaker, events: Events
) -> None:
    """A13, A22: marked broken, with an alert that says to rotate the key; with a new one it gets what had failed."""
    stage = await open_stage(engines=2)
    alpha, beta = stage.engines
    alpha.misbehave(FORBIDDEN)
    first = await stage.announce()
    assert (first.status, first.submitted) == (PARTIAL, 20)
    [alert] = pick_events(events, "alert", kind="channel_broken")
    assert alert["subject"] == f"{stage.site.id} at {alpha.host}"
    assert "UserForbiddedToAccessSite" in alert["reason"]
    assert alert["action"].startswith("Rotate the key")
    alpha.recover()
    asked = len(alpha.requests)
    stage.web.add(1)
    second = await stage.announce()
    assert len(alpha.requests) == asked
    assert len(beta.accepted) == 21
    assert second.status is PARTIAL
    assert second.engines[alpha.endpoint].broken
    rotated = await stage.rotate_key("a-new-key-0123456789")
    third = await rotated.announce()
    assert third.status is SUCCEEDED
    assert {request.fields["key"] for request in alpha.requests[asked:]} == {"a-new-key-0123456789"}
    assert [alpha.accepted[stage.web.url(number)] for number in range(1, 21)] == [1] * 20
    assert dict(beta.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.one_database
async def test_a_site_whose_key_every_engine_forbids_fails_and_asks_nobody(
    open_stage: StageMaker, events: Events
) -> None:
    """A22, A24: the execution fails without a single request; people are notified once, and once more when a new key
    has ended it."""
    stage = await open_stage()
    engine = stage.engines[0]
    engine.misbehave(FORBIDDEN)
    await stage.announce()
    engine.recover()
    asked = len(engine.requests)
    report = await stage.announce()
    assert (report.status, len(engine.requests)) == (FAILED, asked)
    assert len(pick_events(events, "alert", kind="execution_failed")) == 1
    assert pick_events(events, "execution.finished", status="failed")[-1]["log_level"] == "error"
    rotated = await stage.rotate_key("a-new-key-0123456789")
    assert (await rotated.announce()).status is SUCCEEDED
    assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)
    over = {event["kind"] for event in pick_events(events, "alert.resolved")}
    assert (
        over
        == {event["kind"] for event in pick_events(events, "alert")}
        == {"execution_failed", "many_failures", "channel_broken"}
    )


@pytest.mark.one_database
async def test_a_202_is_a_success(open_stage: StageMaker) -> None:
    """A11: the key is still to be checked, but the pages were taken."""
    stage = await open_stage()
    stage.engines[0].misbehave(Fault(status=202))
    report = await stage.announce()
    assert {request.status for request in stage.engines[0].requests} == {202}
    assert (report.status, report.submitted, (await stage.announce()).new) == (SUCCEEDED, 20, 0)


@pytest.mark.one_database
async def test_an_answer_lost_on_the_way_is_asked_for_again(open_stage: StageMaker) -> None:
    """A21: the engine may have taken it, but nobody knows: it is sent again, and entered once it is answered."""
    stage = await open_stage(SandboxSite(pages=3, per_sitemap=None))
    engine = stage.engines[0]
    engine.misbehave(Fault(FaultKind.RESET_AFTER_ACCEPTING, times=1))
    report = await stage.announce()
    assert (report.status, report.submitted, len(engine.requests)) == (SUCCEEDED, 3, 2)
