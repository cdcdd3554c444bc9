"""Routes for monitoring announce: the status of a site, statistics by day, open alerts."""

from dataclasses import asdict
from datetime import UTC
from typing import Annotated

from fastapi import Query

from tidings.announce.execution.running_executions import LiveExecutions
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import MOST_DAYS, read_days
from tidings.announce.site.table import SiteRecords
from tidings.announce.status import read_overview
from tidings.core.alerts.service import Alerts
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import problem
from tidings.web.middleware.auth import ViewerGrant, require
from tidings.web.models.announce_answers import (
    AlertsAnswer,
    DailyAnswer,
    DayCountDocument,
    DayDocument,
    LeveledAlertDocument,
    StatusAnswer,
)
from tidings.web.routes.announce.site_lookup import SiteLookup, SiteQuery, refuse_unknown_site


def _refuse_group(grant: Grant) -> None:
    """Refuse a viewer of one group, where the answer is about all sites."""
    if grant.group is not None:
        problem(403, "other_group", "this token is for one group of sites; ask for one site, or GET /api/overview")


def make_status_router(
    lookup: SiteLookup,
    *,
    database: Database,
    sites: SiteRecords,
    live: LiveExecutions,
    alerts: Alerts,
    clock: Clock,
) -> ApiRouter:
    router = ApiRouter(tags=["operations"])

    @router.get("/status", summary="Read the status of a site", responses=problem_answers(404))
    async def read_status(
        grant: Annotated[Grant, require(Scope.SITE, Scope.VIEWER)], site: SiteQuery = None
    ) -> StatusAnswer:
        site_id = await lookup.require_readable(site, grant)
        overview = await read_overview(site_id, database=database, records=sites, clock=clock, live=live)
        if overview is None:
            refuse_unknown_site()
        return overview.to_json()

    @router.get(
        "/api/stats/daily",
        summary="Read statistics by day",
        response_model_exclude_none=True,
        responses=problem_answers(404),
    )
    async def read_daily(
        grant: ViewerGrant,
        days: Annotated[int, Query(ge=1, le=MOST_DAYS, description="How many days, today included.")] = 7,
        site: Annotated[str | None, Query(max_length=253, description="One site alone.")] = None,
    ) -> DailyAnswer:
        if site is None:
            _refuse_group(grant)
        number = None if site is None else (await lookup.require_shown(site, grant)).number
        counts = await read_days(database, today=clock.now().astimezone(UTC).date(), days=days, site=number)
        worked = {channel for of in counts.values() for channel, count in of.items() if count.total}
        shown = {Channel.INDEXNOW, Channel.BING, *worked}
        return DailyAnswer(
            daily=[
                DayDocument(
                    date=day.isoformat(),
                    **{str(each): DayCountDocument.model_validate(of[each]) for each in Channel if each in shown},
                )
                for day, of in counts.items()
            ]
        )

    @router.get("/api/alerts", summary="List open alerts")
    async def list_alerts(
        grant: ViewerGrant,
        limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 100,
    ) -> AlertsAnswer:
        _refuse_group(grant)
        return AlertsAnswer(
            alerts=[
                LeveledAlertDocument(level=alerts.find_level(each.kind), **asdict(each))
                for each in await alerts.list_open(limit=limit)
            ]
        )

    return router
