"""What engines do wrong, and what becomes of the pages: nothing is lost or sent twice, no other engine is harmed."""

import asyncio
from dataclasses import replace

import pytest

from tests.announce.stage import StageMaker, list_sent, write_urlset
from tests.conftest import BenchMaker
from tidings.announce.site.site import SubmitMethod, parse_engine
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.engines.indexnow import NOT_VERIFIED
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

PARTIAL, SUCCEEDED = ExecutionStatus.PARTIAL, ExecutionStatus.SUCCEEDED
DOWN = Fault(status=503)
RESET = Fault(FaultKind.RESET)
ONE_BAD = Fault(status=422, matching="/0000003/")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "missed"),
    [(DOWN, range(1, 21)), (RESET, range(1, 21)), (ONE_BAD, [3]), (NOT_VERIFIED, range(1, 21))],
    ids=["503", "reset", "422", "not verified"],
)
async def test_an_engine_that_fails_harms_no_other_and_gets_its_pages_first_next_time(
    open_stage: StageMaker, fault: Fault, missed: list[int]
) -> None:
    """A13, A18: the ledger has what the other engine took; the one that failed gets just what it missed, first."""
    stage = await open_stage(SandboxSite(pages=20, per_sitemap=None), engines=2)
    web, [alpha, beta] = stage.web, stage.engines
    alpha.misbehave(fault)
    first = await stage.announce()
    assert (first.status, first.submitted, first.failed) == (PARTIAL, 20, 0)
    assert dict(beta.accepted) == dict.fromkeys(web.urls(), 1)
    assert await stage.find_entered(list(web.urls())) == set(web.urls())
    pending = {web.url(number) for number in missed}
    failed = await stage.list_failed()
    assert {page.url for page in failed} == pending
    assert {page.engine for page in failed} == {alpha.endpoint}
    assert all(page.reason and page.attempts for page in failed)
    alpha.recover()
    web.add(2)
    marks = [len(engine.requests) for engine in stage.engines]
    second = await stage.announce()
    assert (second.status, second.repeated, second.submitted) == (SUCCEEDED, len(pending), len(pending) + 2)
    assert set(alpha.requests[marks[0]].urls) == pending
    assert sorted(list_sent(alpha, since=marks[0])) == sorted([*pending, web.url(21), web.url(22)])
    assert sorted(list_sent(beta, since=marks[1])) == [web.url(21), web.url(22)]
    for engine in stage.engines:
        assert dict(engine.accepted) == dict.fromkeys(web.urls(), 1)
    assert await stage.list_failed() == []


async def test_pages_of_an_engine_that_the_site_no_longer_has_go_to_the_present_ones(open_stage: StageMaker) -> None:
    """A13: the name of an engine was wrong. Once it is right, the pages go out, although no sitemap file changed."""
    stage = await open_stage(SandboxSite(pages=20), engines=3)
    wrong, alpha, beta = stage.engines
    named = [parse_engine(engine.endpoint) for engine in stage.engines]
    wrong.misbehave(RESET)
    before = await stage.bench.store(replace(stage.site, engines=(named[0],)))
    first = await replace(stage, site=before).announce()
    assert (first.status, first.submitted, first.failed) == (ExecutionStatus.FAILED, 0, 20)
    stage = replace(stage, site=await stage.bench.store(replace(stage.site, engines=(named[1], named[2]))))
    second = await stage.announce()
    assert (second.status, second.submitted, second.waiting) == (SUCCEEDED, 20, 20)
    for engine in (alpha, beta):
        assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)
    assert await stage.list_failed() == []
    assert (await stage.announce()).submitted == 0


async def test_a_page_that_another_engine_took_waits_for_the_engine_that_missed_it(open_stage: StageMaker) -> None:
    """A13, A18: the missing engine is left out for one execution; nothing goes to the other one twice."""
    stage = await open_stage(SandboxSite(pages=20), engines=2)
    alpha, beta = stage.engines
    beta.misbehave(ONE_BAD)
    assert (await stage.announce()).submitted == 20
    without_beta = replace(stage, site=replace(stage.site, engines=(parse_engine(alpha.endpoint),)))
    assert (await without_beta.announce()).submitted == 0
    beta.recover()
    assert (await stage.announce()).status is SUCCEEDED
    for engine in stage.engines:
        assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.thorough
@pytest.mark.parametrize("method", [SubmitMethod.GET, SubmitMethod.POST])
async def test_a_page_that_no_engine_took_is_not_entered_and_is_counted_once(
    open_stage: StageMaker, method: SubmitMethod
) -> None:
    """A11, A13, A37: it is failed, for both engines, however often; once they take it, it was submitted once."""
    stage = await open_stage(SandboxSite(pages=8, per_sitemap=None), engines=2, submit_method=method)
    web = stage.web
    bad = [web.url(3), web.url(5)]
    for engine in stage.engines:
        engine.misbehave(Fault(status=422, matching="/0000003/"))
        engine.misbehave(Fault(status=422, matching="/0000005/"))
    first = await stage.announce()
    assert (first.status, first.submitted, first.failed) == (PARTIAL, 6, 2)
    assert await stage.find_entered(list(web.urls())) == set(web.urls()) - set(bad)
    tried = {(page.url, page.engine): page.attempts for page in await stage.list_failed()}
    assert {url for url, _ in tried} == set(bad)
    again = await stage.announce()
    assert (again.submitted, again.failed) == (0, 2)
    assert all(page.attempts > tried[page.url, page.engine] for page in await stage.list_failed())
    for engine in stage.engines:
        engine.recover()
    last = await stage.announce()
    assert (last.status, last.submitted, last.failed) == (SUCCEEDED, 2, 0)
    assert await stage.find_entered(bad) == set(bad)
    for engine in stage.engines:
        assert dict(engine.accepted) == dict.fromkeys(web.urls(), 1)


@pytest.mark.one_database
async def test_an_engine_in_its_rate_limit_does_not_hold_up_another(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A18, A21: while one waits to be asked again, the other takes everything."""
    stage = await open_stage(engines=2, bench=make_bench(retry_scale=0.01))
    alpha, beta = stage.engines
    alpha.misbehave(Fault(status=429, times=1))
    report = await stage.announce()
    assert report.status is SUCCEEDED
    assert [len(engine.accepted) for engine in stage.engines] == [20, 20]
    assert beta.requests[-1].at < alpha.requests[1].at


@pytest.mark.thorough
@pytest.mark.one_database
async def test_an_engine_that_does_not_answer_delays_no_other_engine(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A18: the other takes every page before the first answers anything, also when that one's queue is long full."""
    bench = make_bench(max_concurrent_requests=1)
    stage = await open_stage(SandboxSite(pages=30_001, per_sitemap=None), engines=2, bench=bench)
    alpha, beta = stage.engines
    all_taken = asyncio.Event()

    def note(_: Recorded) -> None:
        if len(beta.accepted) == 30_001:
            all_taken.set()

    async def wait(_: Recorded) -> None:
        async with asyncio.timeout(20):
            await all_taken.wait()

    alpha.on_request, beta.on_answer = wait, note
    report = await stage.announce()
    assert (report.status, report.submitted) == (SUCCEEDED, 30_001)
    assert {request.status for request in alpha.requests} == {200}
    assert dict(alpha.accepted) == dict(beta.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.thorough
@pytest.mark.one_database
async def test_an_engine_that_is_down_is_not_asked_for_every_single_page(open_stage: StageMaker) -> None:
    """A13, A18: after ten failures in a row the rest waits for the next execution, in which all of it is sent."""
    stage = await open_stage(SandboxSite(pages=60, per_sitemap=None), engines=2, submit_method=SubmitMethod.GET)
    alpha, beta = stage.engines
    alpha.misbehave(DOWN)
    first = await stage.announce()
    assert len(alpha.requests) <= 4 * 12
    assert (first.status, len(beta.accepted)) == (PARTIAL, 60)
    alpha.recover()
    second = await stage.announce()
    assert second.status is SUCCEEDED
    assert dict(alpha.accepted) == dict(beta.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.thorough
@pytest.mark.one_database
async def test_a_removal_that_an_engine_missed_does_not_undo_the_pages_return(open_stage: StageMaker) -> None:
    """A13, A14: the page is back before the second engine hears that it went; both know it then, and it stays known."""
    stage = await open_stage(SandboxSite(pages=6, per_sitemap=None), engines=2, announce_removed=True)
    web, [alpha, beta] = stage.web, stage.engines
    sitemap = "/sitemap.xml"
    await stage.announce()
    everything = write_urlset(web.urls())
    page = web.url(2)
    beta.misbehave(DOWN)
    web.remove(2)
    await stage.announce()
    beta.recover()
    taken = asyncio.Event()

    def note(recorded: Recorded) -> None:
        if page in recorded.urls:
            taken.set()

    async def wait(_: Recorded) -> None:
        async with asyncio.timeout(20):
            await taken.wait()

    alpha.on_answer, beta.on_request = note, wait
    web.serve(sitemap, everything)
    returned = await stage.announce()
    assert returned.status is SUCCEEDED
    asked = [len(engine.requests) for engine in stage.engines]
    assert await stage.find_entered([page]) == {page}
    after = await stage.announce()
    assert (after.new, [len(engine.requests) for engine in stage.engines]) == (0, asked)


@pytest.mark.thorough
async def test_an_engine_that_is_down_for_long_keeps_no_change_from_another(open_stage: StageMaker) -> None:
    """A12, A13, A18: a page that is open at one engine is planned again for the other alone; both get everything."""
    stage = await open_stage(SandboxSite(pages=6, per_sitemap=None), engines=2)
    web, [alpha, beta] = stage.web, stage.engines
    beta.misbehave(DOWN)
    for execution in range(3):
        if execution:
            web.change(2)
            [added] = web.add(1)
        assert (await stage.announce()).status is PARTIAL
    assert {url: times for url, times in alpha.accepted.items() if times > 1} == {web.url(2): 3}
    beta.recover()
    asked = len(beta.requests)
    last = await stage.announce()
    assert (last.status, last.repeated, last.submitted) == (SUCCEEDED, 8, 8)
    assert sorted(list_sent(beta, since=asked)) == sorted(web.urls())
    assert await stage.find_entered([web.url(added)]) == {web.url(added)}
