"""The route that lists sites with their condition, last execution and quotas: a fleet in one request."""

from typing import Annotated

from fastapi import Query

from tidings.announce.overview import SiteCondition, SiteOrder, list_sites
from tidings.announce.site.table import SiteRecords
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import problem
from tidings.web.middleware.auth import ViewerGrant
from tidings.web.models.announce_answers import OverviewAnswer


def make_site_overview_router(*, sites: SiteRecords, database: Database, clock: Clock) -> ApiRouter:
    router = ApiRouter(tags=["operations"])

    @router.get("/api/overview", summary="List sites with their condition", responses=problem_answers(404))
    async def read_overview(
        grant: ViewerGrant,
        search: Annotated[str, Query(max_length=100, description="A part of the id.")] = "",
        group: Annotated[str | None, Query(max_length=64, description="One group alone.")] = None,
        condition: Annotated[list[SiteCondition] | None, Query(max_length=10, description="Only these.")] = None,
        order: Annotated[SiteOrder, Query(description="What comes first.")] = SiteOrder.URGENT,
        offset: Annotated[int, Query(ge=0, le=1_000_000, description="How many to leave out.")] = 0,
        limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
    ) -> OverviewAnswer:
        """A page costs three queries, however many sites are on it."""
        if group is not None and not grant.allows_group(group):
            problem(403, "other_group", "this token is for another group of sites")
        if group is not None and grant.group is None and not await sites.has_group(group):
            names = ", ".join(await sites.list_groups())
            problem(404, "unknown_group", f"there is no such group; the groups are: {names or 'none'}")
        page = await list_sites(
            database,
            clock=clock,
            search=search.strip(),
            group=group or grant.group,
            conditions=condition or (),
            order=order,
            offset=offset,
            limit=limit,
        )
        return OverviewAnswer.model_validate(page)

    return router
