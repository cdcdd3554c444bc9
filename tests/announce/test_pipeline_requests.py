"""How pages travel: the form of each request, how many go at once, how far apart, and what is saved meanwhile."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from tests.announce.stage import Events, StageMaker, pick_events
from tests.conftest import BenchMaker
from tests.waiting import SOON
from tidings.announce.site.site import SubmitMethod
from tidings.core.executions import ExecutionStatus
from tidings.core.net.pace import pace
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

INTERVAL = timedelta(milliseconds=30)


class AllTogether:
    """Holds requests back until so many wait, however long each of them takes to come. Then all go on."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._all_are_there = asyncio.Event()

    async def wait(self, _: Recorded) -> None:
        self._count -= 1
        if not self._count:
            self._all_are_there.set()
        await self._all_are_there.wait()


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("method", "pages", "requests"),
    [
        (SubmitMethod.GET, 3, ["GET"] * 3),
        (SubmitMethod.POST, 3, ["POST"]),
        (SubmitMethod.POST, 1, ["POST"]),
        (SubmitMethod.AUTO, 3, ["POST"]),
        (SubmitMethod.AUTO, 1, ["GET"]),
    ],
)
async def test_the_method_decides_how_many_urls_a_request_carries(
    open_stage: StageMaker, method: SubmitMethod, pages: int, requests: list[str]
) -> None:
    """A16: `get` is one request a URL, `post` many in one, `auto` GET for one and POST for more."""
    stage = await open_stage(SandboxSite(pages=pages, per_sitemap=None), submit_method=method)
    engine = stage.engines[0]
    await stage.announce()
    assert [request.method for request in engine.requests] == requests
    assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.one_database
async def test_a_get_carries_url_key_and_key_location_encoded(open_stage: StageMaker) -> None:
    """A15: each value as encodeURIComponent writes it; the key file defaults to the root of the host."""
    stage = await open_stage(SandboxSite(pages=1, per_sitemap=None))
    await stage.announce()
    [request] = stage.engines[0].requests
    origin = f"http%3A%2F%2F127.0.0.1%3A{stage.web.port}"
    page = stage.web.url(1).rpartition("/pages/")[2].replace("/", "%2F")
    assert request.query == (
        f"url={origin}%2Fpages%2F{page}&key={stage.web.key}&keyLocation={origin}%2F{stage.web.key}.txt"
    )


@pytest.mark.one_database
async def test_a_post_carries_host_key_and_key_location(open_stage: StageMaker) -> None:
    """A16: the fields of the protocol, as JSON in UTF-8."""
    stage = await open_stage()
    await stage.announce()
    [request] = stage.engines[0].requests
    web = stage.web
    assert request.fields == {"host": web.host, "key": web.key, "keyLocation": web.key_location}
    assert request.headers["Content-Type"] == "application/json; charset=utf-8"


@pytest.mark.thorough
@pytest.mark.one_database
async def test_progress_is_saved_and_logged_after_each_batch(
    make_bench: BenchMaker, open_stage: StageMaker, events: Events
) -> None:
    """A19, A36: while it runs, the execution shows how far it is: batches of 100 by GET."""
    web = SandboxSite(pages=101, per_sitemap=None)
    bench = make_bench(max_concurrent_requests=1, request_interval=timedelta(0))
    stage = await open_stage(web, bench=bench, submit_method=SubmitMethod.GET)
    saved: list[tuple[int, int, str]] = []

    async def look(_: Recorded) -> None:
        if len(stage.engines[0].requests) in (1, 101):
            [running] = await stage.list_executions()
            saved.append((running.items_processed, running.progress.get("submitted", 0), running.status.value))

    stage.engines[0].on_request = look
    await stage.announce()
    assert saved == [(0, 0, "running"), (100, 100, "running")]
    batches = pick_events(events, "batch.sent")
    assert [(event["batch"], event["urls"]) for event in batches] == [(1, 100), (2, 1)]


@pytest.mark.one_database
async def test_progress_is_saved_after_each_post(make_bench: BenchMaker, open_stage: StageMaker) -> None:
    """A16, A19: at most 10,000 URLs in a request, and each one's result is in the database before the next goes."""
    stage = await open_stage(SandboxSite(pages=20_002, per_sitemap=5_000), bench=make_bench(max_concurrent_requests=1))
    saved: list[int] = []

    async def look(_: Recorded) -> None:
        [running] = await stage.list_executions()
        saved.append(running.items_processed)

    stage.engines[0].on_request = look
    await stage.announce()
    assert [len(request.urls) for request in stage.engines[0].requests] == [10_000, 10_000, 2]
    assert saved == [0, 10_000, 20_000]


@pytest.mark.thorough
async def test_two_sites_share_one_engine_at_the_pace_that_was_set(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A17: at least the interval between requests, over both. Each one's way to the record takes a moment more or less,
    which a single gap shows and a row of them does not."""
    bench = make_bench(request_interval=INTERVAL)
    first = await open_stage(
        SandboxSite(pages=25, per_sitemap=None), bench=bench, submit_method=SubmitMethod.GET, site_id="first"
    )
    second = await open_stage(
        SandboxSite(pages=25, per_sitemap=None),
        bench=bench,
        engines=first.engines,
        submit_method=SubmitMethod.GET,
        site_id="second",
    )
    reports = await asyncio.gather(first.announce(), second.announce())
    assert [report.status for report in reports] == [ExecutionStatus.SUCCEEDED] * 2
    [engine] = first.engines
    times = [request.at for request in engine.requests]
    assert len(times) == 50
    assert times[-1] - times[0] >= 49 * INTERVAL.total_seconds()
    rows = [later - earlier for earlier, later in zip(times, times[10:], strict=False)]
    assert min(rows) >= 8 * INTERVAL.total_seconds()
    assert {url.partition("/pages/")[0] for url in engine.accepted} == {first.web.origin, second.web.origin}


@pytest.mark.thorough
@pytest.mark.one_database
async def test_no_more_requests_are_in_flight_than_was_set(make_bench: BenchMaker, open_stage: StageMaker) -> None:
    """A17: three at an engine, for two sites together, and each engine by itself."""
    bench = make_bench(max_concurrent_requests=3)
    form: dict[str, Any] = {"bench": bench, "submit_method": SubmitMethod.GET}
    first = await open_stage(SandboxSite(pages=15, per_sitemap=None), engines=2, site_id="first", **form)
    second = await open_stage(SandboxSite(pages=15, per_sitemap=None), engines=first.engines, site_id="second", **form)
    for engine in first.engines:
        engine.on_request = AllTogether(3).wait
        # A fourth would have the time to come.
        engine.misbehave(Fault(FaultKind.SLOW, latency=timedelta(milliseconds=50)))
    async with asyncio.timeout(SOON):
        await asyncio.gather(first.announce(), second.announce())
    assert [engine.max_in_flight for engine in first.engines] == [3, 3]
    assert [len(engine.accepted) for engine in first.engines] == [30, 30]


@pytest.mark.thorough
@pytest.mark.one_database
async def test_after_a_rate_limit_the_engine_is_asked_half_as_often(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A21: the interval doubles until a hundred requests in a row were accepted, and is as set again after that."""
    bench = make_bench(request_interval=timedelta(milliseconds=10), max_concurrent_requests=1)
    web = SandboxSite(pages=105, per_sitemap=None)
    stage = await open_stage(web, bench=bench, submit_method=SubmitMethod.GET)
    engine = stage.engines[0]
    engine.misbehave(Fault(status=429, times=1))
    await stage.announce()
    times = [request.at for request in engine.requests]
    assert len(times) == 106
    assert times[100] - times[1] >= 99 * 0.020
    async with bench.database.read() as connection:
        assert (await connection.execute(select(pace.c.slowed_to))).scalar_one() == 0
