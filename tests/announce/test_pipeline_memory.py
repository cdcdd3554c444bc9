"""What an execution remembers for the next: validators, submissions, changes that must wait, pages that are gone."""

from datetime import timedelta

import pytest

from tests.announce.stage import AdjustableClock, Stage, StageMaker, list_sent, write_index, write_urlset
from tests.conftest import BenchMaker
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded

GAP = timedelta(minutes=10)
SUCCEEDED = ExecutionStatus.SUCCEEDED


def list_children(stage: Stage, *, since: int) -> dict[str, Recorded]:
    """The requests for children of the index, by path."""
    return {request.path: request for request in stage.web.requests[since:] if "/sitemaps/" in request.path}


@pytest.mark.thorough
async def test_unchanged_children_cost_one_request_and_only_a_changed_one_is_read(open_stage: StageMaker) -> None:
    """A9: once all is accepted, children are asked for with their ETag and answer 304; a changed one answers 200."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10), engines=2)
    web = stage.web
    await stage.announce()
    seen, sent = len(web.requests), len(stage.engines[0].requests)
    second = await stage.announce()
    children = list_children(stage, since=seen)
    assert [request.status for request in children.values()] == [304, 304, 304]
    assert all(request.headers["If-None-Match"] for request in children.values())
    assert (second.status, second.total, second.new, second.files_unchanged) == (SUCCEEDED, 30, 0, 3)
    web.change(15)
    seen = len(web.requests)
    third = await stage.announce()
    statuses = {path: request.status for path, request in list_children(stage, since=seen).items()}
    assert statuses == {"/sitemaps/1.xml": 304, "/sitemaps/2.xml": 200, "/sitemaps/3.xml": 304}
    assert (third.total, third.changed, third.submitted) == (30, 1, 1)
    for engine in stage.engines:
        assert list_sent(engine, since=sent) == [web.url(15)]


async def test_a_page_that_no_engine_took_waits_in_the_outbox_and_its_file_answers_304(
    open_stage: StageMaker,
) -> None:
    """A9, A13: every page of the file is on record, accepted or waiting; the failed one is sent from the outbox."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10))
    web, engine = stage.web, stage.engines[0]
    engine.misbehave(Fault(status=422, matching="/0000015/"))
    first = await stage.announce()
    assert (first.status, first.submitted, first.failed) == (ExecutionStatus.PARTIAL, 29, 1)
    engine.recover()
    seen, sent = len(web.requests), len(engine.requests)
    second = await stage.announce()
    assert [request.status for request in list_children(stage, since=seen).values()] == [304, 304, 304]
    assert (second.status, second.repeated, second.submitted) == (SUCCEEDED, 1, 1)
    assert list_sent(engine, since=sent) == [web.url(15)]
    assert dict(engine.accepted) == dict.fromkeys(web.urls(), 1)


async def test_expired_pages_are_read_in_full_and_sent_again(make_bench: BenchMaker, open_stage: StageMaker) -> None:
    """A9, A11: a child is remembered no longer than the first of its pages; one day before, nothing is due."""
    clock = AdjustableClock()
    stage = await open_stage(bench=make_bench(clock=clock))
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    clock.advance(timedelta(days=29))
    assert (await stage.announce()).new == 0
    clock.advance(timedelta(days=1, minutes=1))
    seen = len(web.requests)
    report = await stage.announce()
    assert [request.status for request in list_children(stage, since=seen).values()] == [200, 200]
    assert (report.status, report.new, report.submitted) == (SUCCEEDED, 20, 20)
    assert dict(engine.accepted) == dict.fromkeys(web.urls(), 2)


async def test_a_child_expires_with_its_oldest_page(make_bench: BenchMaker, open_stage: StageMaker) -> None:
    """A9, A11: a page that was sent later does not keep the others of its file from expiring in time."""
    clock = AdjustableClock()
    stage = await open_stage(SandboxSite(pages=10, per_sitemap=10), bench=make_bench(clock=clock))
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    clock.advance(timedelta(days=20))
    [new] = web.add(1)
    web.serve("/sitemaps/2.xml", write_urlset([]))
    old = [web.url(number) for number in range(1, 11)]
    web.serve("/sitemaps/1.xml", write_urlset([*old, web.url(new)]), headers={"ETag": '"grown"'})
    await stage.announce()
    clock.advance(timedelta(days=11))
    sent = len(engine.requests)
    await stage.announce()
    assert sorted(list_sent(engine, since=sent)) == old


@pytest.mark.one_database
async def test_only_a_changed_page_is_sent_again_and_only_once(open_stage: StageMaker) -> None:
    """A11, A12: a lastmod later than the submission makes a page due; the same one tells nothing new after that."""
    stage = await open_stage(SandboxSite(pages=20))
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    sent = len(engine.requests)
    web.change(7)
    report = await stage.announce()
    await stage.announce()
    assert list_sent(engine, since=sent) == [web.url(7)]
    assert (report.new, report.changed, report.cached) == (1, 1, 19)


async def test_a_change_within_the_gap_waits_and_is_not_forgotten(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A9, A12: not sent now, nor is its file remembered, so that the first execution after the gap sends it."""
    clock = AdjustableClock()
    stage = await open_stage(bench=make_bench(clock=clock, resubmit_gap=GAP))
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    sent = len(engine.requests)
    web.change(3)
    within = await stage.announce()
    still_within = await stage.announce()
    assert (within.too_soon, still_within.too_soon, len(engine.requests)) == (1, 1, sent)
    clock.advance(GAP)
    after = await stage.announce()
    assert (after.changed, list_sent(engine, since=sent)) == (1, [web.url(3)])
    clock.advance(GAP)
    seen = len(web.requests)
    await stage.announce()
    assert [request.status for request in list_children(stage, since=seen).values()] == [304, 304]
    assert engine.accepted[web.url(3)] == 2


async def test_a_sitemap_that_stamps_every_page_now_is_not_believed_until_it_stops(open_stage: StageMaker) -> None:
    """A12: nothing is sent again for it, which the report says; new pages are sent; later lastmods are believed."""
    stage = await open_stage()
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    sent = len(engine.requests)
    web.stamp_everything_now = True
    [new] = web.add(1)
    stamped = await stage.announce()
    assert list_sent(engine, since=sent) == [web.url(new)]
    assert stamped.not_believed == 20
    assert sum("not believed" in warning for warning in stamped.warnings) == 2
    web.stamp_everything_now = False
    web.change(5)
    believed = await stage.announce()
    assert believed.warnings == []
    assert list_sent(engine, since=sent) == [web.url(new), web.url(5)]


async def test_a_page_stamped_now_from_the_first_day_on_is_sent_once(open_stage: StageMaker) -> None:
    """A12: new pages are sent also with such a lastmod."""
    stage = await open_stage()
    stage.web.stamp_everything_now = True
    await stage.announce()
    await stage.announce()
    assert dict(stage.engines[0].accepted) == dict.fromkeys(stage.web.urls(), 1)


async def test_removed_pages_are_announced_once_and_a_page_that_returns_is_new(open_stage: StageMaker) -> None:
    """A14: opt-in; pages of a file that answers 304 are still there; what was announced is out of the ledger."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10), engines=2, announce_removed=True)
    web = stage.web
    await stage.announce()
    marks = [len(engine.requests) for engine in stage.engines]
    gone = [web.url(4), web.url(9)]
    for number in (4, 9):
        web.remove(number)
    report = await stage.announce()
    assert (report.status, report.removed, report.total) == (SUCCEEDED, 2, 28)
    assert (await stage.announce()).removed == 0
    for engine, mark in zip(stage.engines, marks, strict=True):
        assert sorted(list_sent(engine, since=mark)) == gone
    assert await stage.find_entered(gone) == set()
    web.serve("/sitemaps/1.xml", write_urlset([web.url(number) for number in range(1, 11)]))
    returned = await stage.announce()
    assert (returned.new, returned.removed) == (2, 0)
    for engine, mark in zip(stage.engines, marks, strict=True):
        assert sorted(list_sent(engine, since=mark)) == sorted(2 * gone)


@pytest.mark.one_database
async def test_removed_pages_are_not_announced_unless_it_is_wanted(open_stage: StageMaker) -> None:
    """A14: without the site's word nothing is sent for a page that is gone."""
    stage = await open_stage(announce_removed=False)
    await stage.announce()
    sent = len(stage.engines[0].requests)
    stage.web.remove(4)
    report = await stage.announce()
    assert (report.removed, len(stage.engines[0].requests)) == (0, sent)


@pytest.mark.one_database
async def test_nothing_is_taken_for_removed_while_a_part_of_the_sitemap_is_missing(open_stage: StageMaker) -> None:
    """A14: after a partial crawl nothing is announced as removed, after the next complete one it is."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10), announce_removed=True)
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    sent = len(engine.requests)
    web.remove(4)
    web.misbehave(Fault(status=404, path="/sitemaps/3.xml"))
    partial = await stage.announce()
    assert (partial.status, partial.removed) == (ExecutionStatus.PARTIAL, 0)
    web.recover()
    complete = await stage.announce()
    assert (complete.status, complete.removed) == (SUCCEEDED, 1)
    assert list_sent(engine, since=sent) == [web.url(4)]


async def test_a_page_that_another_unchanged_file_still_lists_is_not_taken_for_removed(open_stage: StageMaker) -> None:
    """A9, A14: it left one of its two files; the other, which answers 304 and is not read, still has it."""
    stage = await open_stage(sitemaps=["/index.xml"], announce_removed=True)
    web, engine = stage.web, stage.engines[0]
    # Children of the sandbox's own, because those answer 304.
    [first, second] = (f"{web.origin}/sitemaps/{part}.xml" for part in (1, 2))
    web.serve("/index.xml", write_index([first, second, f"{web.origin}/extra.xml"]))
    web.serve("/extra.xml", write_urlset([web.url(1), f"{web.origin}/extra"]))
    await stage.announce()
    web.serve("/extra.xml", write_urlset([f"{web.origin}/extra"]))
    await stage.announce()
    report = await stage.announce()
    assert report.files_unchanged == 2
    assert report.removed == 0
    assert engine.accepted[web.url(1)] == 1
