"""Routes that set up, change and remove sites, and make a site's own token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Response

from tidings.announce.service import AnnounceService
from tidings.announce.site.document import change_site, describe_site, read_site
from tidings.announce.site.site import Site
from tidings.announce.site.table import SiteRecords
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.tokens import Tokens
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import problem
from tidings.web.middleware.auth import AdminGrant, ViewerGrant
from tidings.web.models.announce import NewSiteBody, SiteBody
from tidings.web.models.announce_answers import SiteAnswer, SitesAnswer, TokenAnswer
from tidings.web.routes.announce.site_lookup import SiteId, SiteLookup, refuse_unknown_site


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteServices:
    """Services that the routes of sites use."""

    sites: SiteRecords
    service: AnnounceService
    tokens: Tokens
    redactor: Redactor
    # Engines and cron schedule (UTC) of a site that names none.
    engines: Sequence[str]
    schedule: str
    # Adds the keys of a site to the redactor.
    know: Callable[[Site], Site]
    # Tells the ticker that a site may be due.
    wake: Callable[[], None]
    # Whether the environment sets up the site of this id; the API then cannot change it.
    is_from_environment: Callable[[str], bool]


def make_sites_router(lookup: SiteLookup, services: SiteServices) -> ApiRouter:
    router = ApiRouter(prefix="/api/sites", tags=["sites"])
    _add_read_routes(router, lookup, services)
    _add_change_routes(router, lookup, services)
    _add_token_routes(router, lookup, services)
    return router


def _add_read_routes(router: ApiRouter, lookup: SiteLookup, services: SiteServices) -> None:
    @router.get("", summary="List sites")
    async def list_sites(
        grant: ViewerGrant,
        limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50,
        after: Annotated[str | None, Query(max_length=253, description="The id of the last one seen.")] = None,
    ) -> SitesAnswer:
        found = await services.sites.list_page(after=after, limit=limit + 1, group=grant.group)
        return SitesAnswer(
            sites=[describe_site(site) for site in found[:limit]],
            next=found[limit - 1].id if len(found) > limit else None,
            total=await services.sites.count(group=grant.group),
        )

    @router.get("/{site_id}", summary="Read a site", responses=problem_answers(404))
    async def read_one_site(site_id: SiteId, grant: ViewerGrant) -> SiteAnswer:
        return SiteAnswer(site=describe_site(await lookup.require_shown(site_id, grant)))


def _add_change_routes(router: ApiRouter, lookup: SiteLookup, services: SiteServices) -> None:
    def refuse_environment(site_id: str) -> None:
        if services.is_from_environment(site_id):
            problem(409, "from_environment", "SITEMAP_URL and related variables set up this site; change those")

    @router.post("", summary="Set up a site", status_code=201, responses=problem_answers(409))
    async def create_site(body: NewSiteBody, _grant: AdminGrant) -> SiteAnswer:
        site = read_site(body.to_fields(), engines=services.engines, schedule=services.schedule)
        stored = await services.sites.add(services.know(site))
        if stored is None:
            problem(409, "site_exists", "there is a site of this id; PUT /api/sites/{id} changes it")
        services.wake()
        return SiteAnswer(site=describe_site(stored))

    @router.put("/{site_id}", summary="Change some fields of a site", responses=problem_answers(404, 409))
    async def update_site(site_id: SiteId, body: SiteBody, _grant: AdminGrant) -> SiteAnswer:
        refuse_environment(site_id)

        def change(site: Site) -> Site:
            changed = change_site(site, body.to_fields(), engines=services.engines, schedule=services.schedule)
            return services.know(changed)

        stored = await services.sites.change(site_id, change)
        if stored is None:
            refuse_unknown_site()
        services.wake()
        return SiteAnswer(site=describe_site(stored))

    @router.delete("/{site_id}", summary="Remove a site", status_code=204, responses=problem_answers(404, 409))
    async def delete_site(site_id: SiteId, _grant: AdminGrant) -> Response:
        refuse_environment(site_id)
        site = await lookup.require(site_id)
        await services.service.remove(site)
        await services.tokens.revoke(Scope.SITE, site=site.number)
        return Response(status_code=204)


def _add_token_routes(router: ApiRouter, lookup: SiteLookup, services: SiteServices) -> None:
    @router.post(
        "/{site_id}/token", summary="Make the site's own token", status_code=201, responses=problem_answers(404)
    )
    async def make_site_token(site_id: SiteId, _grant: AdminGrant) -> TokenAnswer:
        site = await lookup.require(site_id)
        token = await services.tokens.make(Scope.SITE, site=site.number, name=site.id)
        services.redactor.add(token)
        return TokenAnswer(token=token.reveal())

    @router.delete(
        "/{site_id}/token", summary="Revoke the site's own token", status_code=204, responses=problem_answers(404)
    )
    async def revoke_site_token(site_id: SiteId, _grant: AdminGrant) -> Response:
        site = await lookup.require(site_id)
        if not await services.tokens.revoke(Scope.SITE, site=site.number):
            problem(404, "no_token", "this site has no token; POST makes one")
        return Response(status_code=204)
