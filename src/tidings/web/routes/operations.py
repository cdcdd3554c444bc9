"""Routes for the daily work: how a site stands, run it now, pause and resume, figures by day, and open alerts."""

from datetime import UTC
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import MOST_DAYS, read_days
from tidings.announce.service import Started
from tidings.announce.site.site import Site
from tidings.announce.status import read_overview
from tidings.core.clock import to_text
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import problem_answers
from tidings.web.errors import problem
from tidings.web.middleware.auth import require
from tidings.web.routes.sites import SiteId, StartedAnswer, require_grant, require_site
from tidings.wiring import Installation

SiteQuery = Annotated[
    str | None,
    Query(max_length=253, description="The site's id; not needed where there is only one.", examples=["example.com"]),
]
ChannelQuery = Annotated[ChannelChoice, Query(description="What to submit to.")]
WaitQuery = Annotated[bool, Query(description="Answer when it is done, with its result.")]


class DailyAnswer(BaseModel):
    """Figures by day, the oldest first."""

    daily: list[dict[str, Any]]


class PausedAnswer(BaseModel):
    """Whether it is paused now. `freed`: engines that had refused the key and are tried again."""

    paused: bool
    freed: int = 0


class AlertsAnswer(BaseModel):
    """What holds now, the newest first."""

    alerts: list[dict[str, Any]]


def make_operations_router(installation: Installation) -> APIRouter:
    router = APIRouter(tags=["operations"])
    _add_status_route(router, installation)
    _add_trigger_routes(router, installation)
    _add_pause_routes(router, installation)
    _add_figure_routes(router, installation)
    return router


async def find_site(installation: Installation, site_id: str | None) -> Site:
    """The site that is named, or the only one there is."""
    return await require_site(installation, await name_site(installation, site_id))


async def name_site(installation: Installation, site_id: str | None) -> str:
    """This id, or that of the only site there is."""
    named = site_id if site_id is not None else await installation.sites.find_only_id()
    if named is None:
        problem(404, "unknown_site", "name a site: ?site=ID; GET /api/sites lists them")
    return named


def _add_status_route(router: APIRouter, installation: Installation) -> None:
    @router.get("/status", summary="How a site stands", responses=problem_answers(404))
    async def read_status(_grant: Annotated[Grant, require()], site: SiteQuery = None) -> dict[str, Any]:
        overview = await read_overview(
            await name_site(installation, site),
            database=installation.database,
            records=installation.sites,
            clock=installation.clock,
            live=installation.service.live,
        )
        if overview is None:
            problem(404, "unknown_site", "there is no site of this id; GET /api/sites lists them")
        return overview.to_json()


def _add_trigger_routes(router: APIRouter, installation: Installation) -> None:
    service = installation.service

    async def start(site_id: str | None, channel: ChannelChoice, grant: Grant) -> tuple[Site, Started]:
        site = await require_grant(grant, await find_site(installation, site_id), installation=installation)
        return site, await service.trigger(site, channel=channel)

    async def answer(site: Site, started: Started, response: Response, *, wait: bool) -> StartedAnswer:
        if not wait:
            return StartedAnswer(executionId=started.execution.public_id, siteId=site.id, status="running")
        report = await started.wait()
        response.status_code = 200
        return StartedAnswer(
            executionId=report.execution_id, siteId=site.id, status=report.status.value, result=dict(report.to_json())
        )

    answers = {200: {"model": StartedAnswer, "description": "It is done."}, **problem_answers(404, 409, 503)}

    @router.get("/trigger", summary="Run a site now", status_code=202, responses=answers)
    async def trigger_by_get(
        response: Response,
        grant: Annotated[Grant, require(Scope.SITE, changes_state=True)],
        site: SiteQuery = None,
        channel: ChannelQuery = ChannelChoice.ALL,
        wait: WaitQuery = False,
    ) -> StartedAnswer:
        return await answer(*await start(site, channel, grant), response, wait=wait)

    @router.post("/trigger", summary="Run a site now", status_code=202, responses=answers)
    async def trigger_by_post(
        response: Response,
        grant: Annotated[Grant, require(Scope.SITE)],
        site: SiteQuery = None,
        channel: ChannelQuery = ChannelChoice.ALL,
        wait: WaitQuery = False,
    ) -> StartedAnswer:
        return await answer(*await start(site, channel, grant), response, wait=wait)


def _add_pause_routes(router: APIRouter, installation: Installation) -> None:
    schedules, service = installation.schedules, installation.service

    @router.post("/api/pause", summary="Pause everything")
    async def pause_everything(_grant: Annotated[Grant, require()]) -> PausedAnswer:
        await schedules.pause(None)
        return PausedAnswer(paused=True)

    @router.post("/api/resume", summary="Resume everything")
    async def resume_everything(_grant: Annotated[Grant, require()]) -> PausedAnswer:
        await schedules.resume(None)
        installation.wake()
        return PausedAnswer(paused=False)

    @router.post("/api/sites/{site_id}/pause", summary="Pause a site", responses=problem_answers(404))
    async def pause_site(site_id: SiteId, _grant: Annotated[Grant, require()]) -> PausedAnswer:
        await schedules.pause((await require_site(installation, site_id)).number)
        return PausedAnswer(paused=True)

    @router.post("/api/sites/{site_id}/resume", summary="Resume a site", responses=problem_answers(404))
    async def resume_site(site_id: SiteId, _grant: Annotated[Grant, require()]) -> PausedAnswer:
        site = await require_site(installation, site_id)
        await schedules.resume(site.number)
        freed = await service.free(site)
        installation.wake()
        return PausedAnswer(paused=False, freed=freed)


def _add_figure_routes(router: APIRouter, installation: Installation) -> None:
    @router.get("/api/stats/daily", summary="Figures by day", responses=problem_answers(404))
    async def read_daily(
        _grant: Annotated[Grant, require()],
        days: Annotated[int, Query(ge=1, le=MOST_DAYS, description="How many days, today's included.")] = 7,
        site: Annotated[str | None, Query(max_length=253, description="One site alone.")] = None,
    ) -> DailyAnswer:
        number = None if site is None else (await require_site(installation, site)).number
        today = installation.clock.now().astimezone(UTC).date()
        counts = await read_days(installation.database, today=today, days=days, site=number)
        return DailyAnswer(
            daily=[
                {
                    "date": day.isoformat(),
                    **{
                        str(channel): {"total": of[channel].total, "successful": of[channel].successful}
                        for channel in Channel
                    },
                }
                for day, of in counts.items()
            ]
        )

    @router.get("/api/alerts", summary="What needs a person")
    async def list_alerts(
        _grant: Annotated[Grant, require()],
        limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 100,
    ) -> AlertsAnswer:
        found = await installation.alerts.list_open(limit=limit)
        return AlertsAnswer(
            alerts=[
                {
                    "kind": each.kind,
                    "subject": each.subject,
                    "reason": each.reason,
                    "action": each.action,
                    "count": each.count,
                    "since": to_text(each.since),
                    "firedAt": None if each.fired_at is None else to_text(each.fired_at),
                }
                for each in found
            ]
        )
