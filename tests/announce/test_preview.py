"""A dry run: it lists what an execution would send, sends nothing and saves nothing."""

import pytest
from sqlalchemy import func, select

from tests.announce.stage import Stage, StageMaker, list_sent
from tidings.announce.execution.preview import preview
from tidings.announce.execution.report import Report
from tidings.core.db.database import metadata
from tidings.core.executions import ExecutionStatus
from tidings.core.stop import Stop
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database


async def list_due(stage: Stage, *, stop: Stop | None = None) -> tuple[Report, list[str]]:
    urls: list[str] = []
    report = await preview(
        stage.site,
        announcer=stage.bench.announcer,
        stop=stop or stage.bench.make_stop(),
        on_page=lambda page: urls.append(page.url),
    )
    return report, urls


async def count_rows(stage: Stage) -> dict[str, int]:
    async with stage.bench.database.read() as connection:
        return {
            table.name: (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            for table in metadata.sorted_tables
        }


async def test_a_preview_lists_exactly_what_the_next_execution_sends(open_stage: StageMaker) -> None:
    """A8, A12: new, changed and never taken pages, each once; asking twice changes nothing."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10))
    web, engine = stage.web, stage.engines[0]
    rows = await count_rows(stage)
    report, urls = await list_due(stage)
    assert (report.status, report.total, report.new, report.submitted) == (ExecutionStatus.SUCCEEDED, 30, 30, 0)
    assert sorted(urls) == sorted(web.urls())
    assert (engine.requests, await count_rows(stage)) == ([], rows)
    engine.misbehave(Fault(status=422, matching="/0000004/"))
    await stage.announce()
    engine.recover()
    web.change(12)
    web.add(2)
    rows, sent = await count_rows(stage), len(engine.requests)
    report, urls = await list_due(stage)
    assert sorted(urls) == sorted(web.url(number) for number in (4, 12, 31, 32))
    assert (await list_due(stage))[1] == urls
    assert (len(engine.requests), await count_rows(stage)) == (sent, rows)
    await stage.announce()
    assert sorted(list_sent(engine, since=sent)) == sorted(urls)
    assert (await list_due(stage))[1] == []


async def test_a_preview_of_a_damaged_sitemap_says_what_is_missing(open_stage: StageMaker) -> None:
    """A6: the pages that can be read are listed; the report is partial and names the child."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10))
    stage.web.misbehave(Fault(status=404, path="/sitemaps/2.xml"))
    report, urls = await list_due(stage)
    assert (report.status, len(urls)) == (ExecutionStatus.PARTIAL, 20)
    assert f"{stage.web.origin}/sitemaps/2.xml" in report.errors[0]


async def test_a_preview_that_is_stopped_says_that_it_is_not_complete(open_stage: StageMaker) -> None:
    """A20: it ends as asked, and does not pass for the whole list."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10))
    stop = stage.bench.make_stop()
    stage.web.on_request = lambda recorded: stop.request("enough") if "/2.xml" in recorded.path else None
    report, urls = await list_due(stage, stop=stop)
    assert report.status is ExecutionStatus.PARTIAL
    assert "not complete" in report.warnings[0]
    assert len(urls) < 30
