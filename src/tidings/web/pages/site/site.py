"""One site: status, executions, failed URLs, check, settings, and the forms that act on it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.corrections import requeue
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import read_days
from tidings.announce.overview import DAYS, SiteSummary, list_sites
from tidings.announce.site.check import check_site
from tidings.announce.site.site import Site
from tidings.announce.status import describe_execution
from tidings.core.clock import to_text
from tidings.core.executions import AlreadyRunningError, ExecutionRecord, ExecutionStatus
from tidings.web.errors import problem
from tidings.web.pages.site.progress import describe_progress, write_event
from tidings.web.pages.view.charts import draw_large_bars
from tidings.web.pages.view.formats import UNKNOWN, Formats
from tidings.web.pages.view.forms import read_form
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope

_LOOK_EVERY = timedelta(seconds=1)
_SHOWN = 5
_PAGE = 25
_MOST_FAILED = 200


@dataclass(frozen=True, slots=True)
class SiteHead:
    """The head of every page of a site."""

    id: str
    href: str
    condition: Any
    reason: str | None
    paused: bool
    failed: int
    choices: Sequence[str]
    from_environment: bool


def make_site_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router(dashboard)
    _add_status(router, dashboard)
    _add_executions(router, dashboard)
    _add_failed(router, dashboard)
    return router


class SiteViews:
    """Gathers the values of a site's pages."""

    def __init__(self, dashboard: Dashboard, request: Request) -> None:
        require_scope(request)
        self._dashboard = dashboard
        self._installation = dashboard.installation
        self._request = request
        self.formats = dashboard.renderer.formats(request)

    async def render(self, site: Site, template: str, *, tab: str, status: int = 200, **values: Any) -> Response:
        return await self._dashboard.render(
            self._request, template, status=status, site=await self._make_head(site), tab=tab, **values
        )

    async def _make_head(self, site: Site) -> SiteHead:
        summary = await self.summarise(site)
        choices = [ChannelChoice.ALL.value, ChannelChoice.INDEXNOW.value]
        return SiteHead(
            id=site.id,
            href=locate_site(site.id),
            condition=summary.condition,
            reason=summary.reason,
            paused=await self._installation.schedules.is_paused(site.number),
            failed=await self._installation.service.count_failed(site),
            choices=[*choices, ChannelChoice.BING.value] if site.bing.enabled else choices,
            from_environment=self._installation.is_from_environment(site.id),
        )

    async def summarise(self, site: Site) -> SiteSummary:
        page = await list_sites(self._installation.database, clock=self._installation.clock, site=site.number, limit=1)
        if not page.sites:
            problem(404, "unknown_site", "there is no site of this id")
        return page.sites[0]

    async def list_executions(self, site: Site, *, limit: int, before: str | None = None) -> list[ExecutionRecord]:
        return await self._installation.executions.list_recent(site.workflow_name, limit=limit, before=before)

    def describe_row(self, site: Site, record: ExecutionRecord) -> dict[str, Any]:
        result = describe_execution(record, live=self._find_live(record))["result"] or {}
        ended = record.completed_at
        return {
            "status": record.status,
            "href": f"{locate_site(site.id)}/executions/{record.public_id}",
            "started": self.formats.time(record.started_at),
            "took": self.formats.duration(None if ended is None else ended - record.started_at),
            "due": result.get("new"),
            "accepted": result.get("submitted"),
            "failed": result.get("failed"),
        }

    def find_progress(self, records: Sequence[ExecutionRecord]) -> dict[str, Any] | None:
        running = next((each for each in records if each.status is ExecutionStatus.RUNNING), None)
        return None if running is None else self.describe_progress(running)

    def describe_progress(self, record: ExecutionRecord) -> dict[str, Any]:
        result = describe_execution(record, live=self._find_live(record))["result"] or {}
        return describe_progress(record, result, self.formats)

    def _find_live(self, record: ExecutionRecord) -> Mapping[str, Any] | None:
        return self._installation.service.live.describe(record.public_id)

    async def list_failed(self, site: Site, *, limit: int) -> list[dict[str, Any]]:
        return [
            {
                "url": page.url,
                "shown": _split_url(page.url),
                "engine": page.engine,
                "reason": page.reason,
                "advice": self.formats.texts("failed.nothing"),
                "attempts": page.attempts,
                "at": page.failed_at,
            }
            for page in await self._installation.service.list_failed(site, limit=limit)
        ]


def _add_status(router: APIRouter, dashboard: Dashboard) -> None:
    installation = dashboard.installation

    @router.get("/sites/{site_id}")
    async def show_site(request: Request, site_id: str) -> Response:
        pages = SiteViews(dashboard, request)
        site, formats = await dashboard.require_site(site_id), pages.formats
        today = formats.now.astimezone(UTC).date()
        days = await read_days(installation.database, today=today, days=DAYS, site=site.number)
        records = await pages.list_executions(site, limit=_SHOWN)
        summary = await pages.summarise(site)
        return await pages.render(
            site,
            "site.html",
            tab="status",
            progress=pages.find_progress(records),
            days=list(days),
            charts=_draw_channels(site, days, formats),
            failed=await pages.list_failed(site, limit=_SHOWN),
            can_choose=False,
            quotas=_describe_quotas(summary, formats),
            facts=_describe_facts(site, summary, formats),
            executions=[pages.describe_row(site, each) for each in records],
        )

    @router.get("/sites/{site_id}/check")
    async def show_check(request: Request, site_id: str) -> Response:
        pages = SiteViews(dashboard, request)
        site = await dashboard.require_site(site_id)
        findings = await check_site(site, client=installation.client, clock=installation.clock)
        shown = [
            {"ok": each.good, "title": each.subject.capitalize(), "text": f"{each.message}. {each.advice}".strip()}
            for each in findings
        ]
        return await pages.render(site, "check.html", tab="check", findings=shown)


def _add_executions(router: APIRouter, dashboard: Dashboard) -> None:
    executions = dashboard.installation.executions

    async def require_execution(site: Site, execution_id: str) -> ExecutionRecord:
        record = await executions.find(execution_id)
        if record is None or record.workflow_name != site.workflow_name:
            problem(404, "unknown_execution", "this site has no execution of this id")
        return record

    @router.get("/sites/{site_id}/executions")
    async def show_executions(request: Request, site_id: str, before: str | None = None) -> Response:
        pages = SiteViews(dashboard, request)
        site = await dashboard.require_site(site_id)
        found = await pages.list_executions(site, limit=_PAGE + 1, before=before)
        older = f"{locate_site(site.id)}/executions?before={found[_PAGE - 1].public_id}" if len(found) > _PAGE else None
        rows = [pages.describe_row(site, each) for each in found[:_PAGE]]
        return await pages.render(site, "site_executions.html", tab="executions", executions=rows, older=older)

    @router.get("/sites/{site_id}/executions/{execution_id}")
    async def show_execution(request: Request, site_id: str, execution_id: str) -> Response:
        pages = SiteViews(dashboard, request)
        site = await dashboard.require_site(site_id)
        record = await require_execution(site, execution_id)
        return await pages.render(
            site,
            "execution.html",
            tab="executions",
            progress=pages.find_progress([record]),
            execution=_describe_whole(record, pages.formats),
        )

    @router.get("/sites/{site_id}/executions/{execution_id}/progress")
    async def watch_progress(request: Request, site_id: str, execution_id: str) -> Response:
        pages = SiteViews(dashboard, request)
        site = await dashboard.require_site(site_id)
        first = await require_execution(site, execution_id)

        async def stream() -> AsyncIterator[bytes]:
            record: ExecutionRecord | None = first
            while record is not None:
                yield write_event(pages.describe_progress(record), record, pages.formats)
                if record.status is not ExecutionStatus.RUNNING:
                    return
                await dashboard.installation.clock.sleep(_LOOK_EVERY)
                record = await executions.find(execution_id)

        return StreamingResponse(stream(), media_type="text/event-stream")


def _add_failed(router: APIRouter, dashboard: Dashboard) -> None:
    @router.get("/sites/{site_id}/failed")
    async def show_failed(request: Request, site_id: str) -> Response:
        pages = SiteViews(dashboard, request)
        site = await dashboard.require_site(site_id)
        failed = await pages.list_failed(site, limit=_MOST_FAILED)
        return await pages.render(site, "failed.html", tab="failed", failed=failed)

    @router.post("/sites/{site_id}/requeue")
    async def requeue_pages(request: Request, site_id: str) -> Response:
        require_scope(request)
        form, site = await read_form(request), await dashboard.require_site(site_id)
        back = f"{locate_site(site.id)}/failed"
        urls = form.list("url")
        if not urls:
            return dashboard.renderer.redirect(back, PageMessage("nothing_chosen", "warn"))
        installation = dashboard.installation
        try:
            await requeue(
                site,
                urls,
                channel=ChannelChoice.ALL,
                database=installation.database,
                executions=installation.executions,
            )
        except AlreadyRunningError:
            return dashboard.renderer.redirect(back, PageMessage("already_running", "warn"))
        return dashboard.renderer.redirect(back, PageMessage("requeued", values={"n": f"{len(urls):,}"}))


def _split_url(url: str) -> tuple[str, str]:
    """Host and rest, so that a long URL wraps after its host."""
    parts = urlsplit(url)
    head = f"{parts.scheme}://{parts.netloc}"
    return head, url.removeprefix(head)


def _draw_channels(site: Site, days: Mapping[date, Mapping[Channel, Any]], formats: Formats) -> list[dict[str, Any]]:
    charts = []
    for channel in Channel:
        if channel is Channel.BING and not site.bing.enabled:
            continue
        accepted = [of[channel].successful for of in days.values()]
        failed = [of[channel].total - of[channel].successful for of in days.values()]
        charts.append(
            {
                "name": formats.texts(f"channel.{channel}"),
                "summary": formats.texts(
                    "chart.summary", accepted=formats.number(sum(accepted)), failed=formats.number(sum(failed))
                ),
                "accepted": accepted,
                "failed": failed,
                "chart": draw_large_bars(accepted, failed, width=768),
            }
        )
    return charts


def _describe_quotas(summary: SiteSummary, formats: Formats) -> list[dict[str, Any]]:
    quota = summary.bing_quota
    if quota is None:
        return []
    resets = datetime.combine(formats.now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
    text = formats.texts(
        "site.quota_resets", span=formats.span(resets - formats.now), time=f"{resets.astimezone(formats.zone):%H:%M}"
    )
    return [{"name": formats.texts("channel.bing"), "used": quota.used, "limit": quota.limit, "text": text}]


def _describe_facts(site: Site, summary: SiteSummary, formats: Formats) -> list[tuple[str, Any, bool]]:
    texts = formats.texts
    return [
        *((texts("site.fact.sitemap"), url, True) for url in site.sitemap_urls),
        (texts("site.fact.schedule"), f"{site.schedule} UTC", False),
        (texts("site.fact.next"), formats.time(summary.next_at), False),
        (texts("site.fact.key"), site.key.masked, False),
        (texts("site.fact.engines"), ", ".join(engine.host for engine in site.engines), True),
        (texts("site.fact.bing"), texts("word.on" if site.bing.enabled else "word.off"), False),
        (texts("site.fact.removed"), texts("site.removed.yes" if site.announce_removed else "site.removed.no"), False),
    ]


def _describe_whole(record: ExecutionRecord, formats: Formats) -> dict[str, Any]:
    """One execution with everything that is known of it."""
    result: Mapping[str, Any] = record.result or record.progress or {}
    texts, dropped = formats.texts, result.get("dropped", {})
    ended = record.completed_at
    numbers = {
        "files": result.get("files"),
        "unchanged": result.get("filesUnchanged"),
        "changed": result.get("changed"),
        "removed": result.get("removed"),
        "repeated": result.get("repeated"),
        "too_soon": result.get("tooSoon"),
        "invalid": dropped.get("invalid"),
        "foreign": dropped.get("foreignHost"),
        "outside": dropped.get("outsideKeyLocation"),
    }
    figures = [
        (texts("execution.figure.total"), formats.number(result.get("total")), ""),
        (texts("execution.figure.due"), formats.number(result.get("new")), ""),
        (texts("execution.figure.accepted"), formats.number(result.get("submitted")), ""),
        (texts("execution.figure.failed"), formats.number(result.get("failed")), ""),
    ]
    return {
        "id": record.public_id,
        "status": record.status,
        "started_at": record.started_at,
        "since": to_text(record.started_at),
        "figures": figures,
        "errors": result.get("errors", ()),
        "warnings": result.get("warnings", ()),
        "engines": list_engines(result),
        "facts": [
            (texts("execution.fact.duration"), formats.duration(None if ended is None else ended - record.started_at)),
            *((texts(f"execution.fact.{name}"), formats.number(n)) for name, n in numbers.items() if n is not None),
        ],
        "can_forget": bool(result.get("submitted")) and record.status is not ExecutionStatus.RUNNING,
    }


def list_engines(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Engines, and Bing as one of them, with their figures."""
    engines = [
        {
            "engine": each["engine"],
            "accepted": each["succeeded"],
            "failed": each["failed"],
            "left": each["left"],
            "requests": each["requests"],
            "mean": UNKNOWN if each["meanResponseMs"] is None else f"{each['meanResponseMs']:,.0f}",
            "reason": each["reason"],
            "advice": each["advice"],
        }
        for each in result.get("engines", ())
    ]
    bing = result.get("bingStats")
    if bing:
        mean = bing.get("meanResponseMs")
        engines.append(
            {
                "engine": "Bing Webmaster",
                "accepted": bing.get("urlCount"),
                "failed": bing.get("failed"),
                "left": bing.get("left"),
                "requests": bing.get("requests"),
                "mean": UNKNOWN if mean is None else f"{mean:,.0f}",
                "reason": bing.get("errorMessage"),
                "advice": bing.get("advice"),
            }
        )
    return engines
