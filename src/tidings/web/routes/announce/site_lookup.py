"""Finds the site or the execution that a request names, and checks that the token may use it."""

from collections.abc import Callable
from typing import Annotated, NoReturn

from fastapi import Path, Query

from tidings.announce.schedule.table import Schedules
from tidings.announce.site.site import Site
from tidings.announce.site.table import SiteRecords
from tidings.core.executions import ExecutionRecord, Executions
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.errors import problem

SiteId = Annotated[
    str, Path(description="The site's id, by default its host.", max_length=253, examples=["example.com"])
]
SiteQuery = Annotated[
    str | None,
    Query(max_length=253, description="The site's id; not needed if there is only one.", examples=["example.com"]),
]


class SiteLookup:
    """Each method ends the request with a 404 problem if there is no such site.

    `know` adds the keys of a site to the redactor, so that no later log line shows them.
    """

    def __init__(self, sites: SiteRecords, *, schedules: Schedules, know: Callable[[Site], Site]) -> None:
        self._sites = sites
        self._schedules = schedules
        self._know = know

    async def require(self, site_id: str) -> Site:
        """The site of this id."""
        site = await self._sites.find(site_id)
        if site is None:
            refuse_unknown_site()
        return self._know(site)

    async def require_id(self, site_id: str | None) -> str:
        """This id, or the id of the only site."""
        named = site_id if site_id is not None else await self._sites.find_only_id()
        if named is None:
            problem(404, "unknown_site", "name a site: ?site=ID; GET /api/sites lists them")
        return named

    async def require_readable(self, site_id: str | None, grant: Grant) -> str:
        """This id, or the id of the only site, if this token may read it.

        A site's own token is for that site alone, and a viewer's may be for one group.
        """
        named = await self.require_id(site_id)
        if grant.group is not None and not grant.allows_group(await self._sites.find_group(named)):
            problem(403, "other_group", "this token is for another group of sites")
        if grant.scope is Scope.SITE and not grant.allows_site(await self._sites.find_number(named)):
            problem(403, "other_site", "this token is for another site")
        return named

    async def require_shown(self, site_id: str, grant: Grant) -> Site:
        """The site of this id, if this token may read it."""
        return await self.require(await self.require_readable(site_id, grant))

    async def require_granted(self, site_id: str | None, grant: Grant) -> Site:
        """The site of this id, or the only one, if this token may run it.

        A site's own token is for that site alone, and not while it is paused: a deploy hook must not undo a pause.
        """
        site = await self.require(await self.require_id(site_id))
        if not grant.allows_site(site.number):
            problem(403, "other_site", "this token is for another site")
        if grant.scope is Scope.SITE and await self._schedules.is_paused(site.number):
            problem(409, "paused", "this site is paused; only an admin token can run it now")
        return site


async def require_execution(executions: Executions, site: Site, execution_id: str) -> ExecutionRecord:
    """The site's execution of this id. Raises a 404 problem."""
    record = await executions.find(execution_id)
    if record is None or record.workflow_name != site.workflow_name:
        problem(404, "unknown_execution", "this site has no execution of this id")
    return record


def refuse_unknown_site() -> NoReturn:
    problem(404, "unknown_site", "there is no site of this id; GET /api/sites lists them")
