"""Routes of sites: what is set up, and what can be done with one of them."""

from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from tidings.announce.ledger.corrections import forget_since, requeue
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.undelivered import Undelivered
from tidings.announce.site.document import change_site, describe_site, read_site
from tidings.announce.site.site import Site
from tidings.core.clock import parse_timestamp, to_text
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import problem_answers
from tidings.web.errors import FieldError, problem
from tidings.web.middleware.auth import require
from tidings.web.models.sites import ForgetBody, NewSiteBody, RequeueBody, SiteBody, UrlsBody
from tidings.wiring import Installation

SiteId = Annotated[
    str, Path(description="The site's id, by default its host.", max_length=253, examples=["example.com"])
]


class SiteAnswer(BaseModel):
    """One site; its keys are masked."""

    site: dict[str, Any]


class SitesAnswer(BaseModel):
    """A page of sites. `next` is what `after` has to be for the next page; null on the last."""

    sites: list[dict[str, Any]]
    next: str | None
    total: int


class TokenAnswer(BaseModel):
    """A token for this site's /trigger and /urls; it is shown this once."""

    token: str


class FailedAnswer(BaseModel):
    """URLs that were not accepted yet, the newest failure first. They are sent first next time."""

    failed: list[dict[str, Any]]


class StartedAnswer(BaseModel):
    """An execution that has begun; `result` is there once it has been waited for."""

    executionId: str  # noqa: N815 - the API's name
    siteId: str  # noqa: N815
    status: str
    result: dict[str, Any] | None = None


class CountAnswer(BaseModel):
    """How many entries of the ledger were taken out; their pages are due again."""

    forgotten: int


async def require_site(installation: Installation, site_id: str) -> Site:
    """The site of this id; without it the request ends with 404."""
    site = await installation.sites.find(site_id)
    if site is None:
        _refuse_unknown()
    return installation.know(site)


async def require_grant(grant: Grant, site: Site, *, installation: Installation) -> Site:
    """A site's own token is for that site alone, and not while it is paused: a deploy hook must not get in between."""
    if not grant.allows_site(site.number):
        problem(403, "other_site", "this token is for another site")
    if grant.scope is Scope.SITE and await installation.schedules.is_paused(site.number):
        problem(409, "paused", "this site is paused; the admin's token can run it all the same")
    return site


def make_sites_router(installation: Installation) -> APIRouter:
    router = APIRouter(prefix="/api/sites", tags=["sites"])
    _add_settings_routes(router, installation)
    _add_ledger_routes(router, installation)
    _add_token_routes(router, installation)
    return router


def _add_settings_routes(router: APIRouter, installation: Installation) -> None:
    settings, sites = installation.settings, installation.sites

    @router.post("", summary="Set a site up", status_code=201, responses=problem_answers(409))
    async def create_site(body: NewSiteBody, _grant: Annotated[Grant, require()]) -> SiteAnswer:
        site = installation.know(read_site(body.to_fields(), engines=settings.engines, schedule=settings.schedule))
        stored = await sites.add(site)
        if stored is None:
            problem(409, "site_exists", "there is a site of this id; PUT /api/sites/{id} changes it")
        installation.wake()
        return SiteAnswer(site=describe_site(stored))

    @router.get("", summary="List sites")
    async def list_sites(
        _grant: Annotated[Grant, require()],
        limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50,
        after: Annotated[str | None, Query(max_length=253, description="The id of the last one seen.")] = None,
    ) -> SitesAnswer:
        found = await sites.list_page(after=after, limit=limit + 1)
        return SitesAnswer(
            sites=[describe_site(site) for site in found[:limit]],
            next=found[limit - 1].id if len(found) > limit else None,
            total=await sites.count(),
        )

    @router.get("/{site_id}", summary="Read a site", responses=problem_answers(404))
    async def read_one_site(site_id: SiteId, _grant: Annotated[Grant, require()]) -> SiteAnswer:
        return SiteAnswer(site=describe_site(await require_site(installation, site_id)))

    @router.put("/{site_id}", summary="Change some fields of a site", responses=problem_answers(404, 409))
    async def update_site(site_id: SiteId, body: SiteBody, _grant: Annotated[Grant, require()]) -> SiteAnswer:
        _refuse_environment(installation, site_id)

        def change(site: Site) -> Site:
            changed = change_site(site, body.to_fields(), engines=settings.engines, schedule=settings.schedule)
            return installation.know(changed)

        stored = await sites.change(site_id, change)
        if stored is None:
            _refuse_unknown()
        installation.wake()
        return SiteAnswer(site=describe_site(stored))

    @router.delete("/{site_id}", summary="Remove a site", status_code=204, responses=problem_answers(404, 409))
    async def delete_site(site_id: SiteId, _grant: Annotated[Grant, require()]) -> Response:
        _refuse_environment(installation, site_id)
        site = await require_site(installation, site_id)
        await installation.service.remove(site)
        await installation.tokens.revoke(Scope.SITE, site=site.number)
        return Response(status_code=204)


def _add_ledger_routes(router: APIRouter, installation: Installation) -> None:
    database, executions = installation.database, installation.executions

    @router.get("/{site_id}/failed", summary="List URLs that failed", responses=problem_answers(404))
    async def list_failed(
        site_id: SiteId,
        _grant: Annotated[Grant, require()],
        limit: Annotated[int, Query(ge=1, le=1_000, description="How many at most, of each channel.")] = 100,
    ) -> FailedAnswer:
        site = await require_site(installation, site_id)
        failed: list[dict[str, Any]] = []
        for channel in Channel:
            rows = Undelivered(database, site=site.number, channel=channel, execution=0)
            failed += [
                {
                    "url": page.url,
                    "channel": str(channel),
                    "engine": page.engine,
                    "reason": page.reason,
                    "attempts": page.attempts,
                    "failedAt": to_text(page.failed_at),
                }
                for page in await rows.list_failed(limit=limit)
            ]
        return FailedAnswer(failed=failed)

    @router.post("/{site_id}/requeue", summary="Have some URLs sent again", responses=problem_answers(404, 409))
    async def requeue_urls(site_id: SiteId, body: RequeueBody, _grant: Annotated[Grant, require()]) -> CountAnswer:
        site = await require_site(installation, site_id)
        count = await requeue(site, body.urls, channel=body.channel, database=database, executions=executions)
        return CountAnswer(forgotten=count)

    @router.post("/{site_id}/forget", summary="Undo a bad run", responses=problem_answers(404, 409))
    async def forget_entries(site_id: SiteId, body: ForgetBody, _grant: Annotated[Grant, require()]) -> CountAnswer:
        site = await require_site(installation, site_id)
        moment = parse_timestamp(body.since)
        if moment is None:
            message = "it must be a moment such as 2026-11-15T10:00:00Z, or a day"
            problem(400, "invalid_input", f"since: {message}", errors=[FieldError("since", message)])
        count = await forget_since(site, moment, channel=body.channel, database=database, executions=executions)
        return CountAnswer(forgotten=count)


def _add_token_routes(router: APIRouter, installation: Installation) -> None:
    tokens, service = installation.tokens, installation.service

    @router.post(
        "/{site_id}/token", summary="Make the site's own token", status_code=201, responses=problem_answers(404)
    )
    async def make_site_token(site_id: SiteId, _grant: Annotated[Grant, require()]) -> TokenAnswer:
        site = await require_site(installation, site_id)
        token = await tokens.make(Scope.SITE, site=site.number, name=site.id)
        installation.redactor.add(token)
        return TokenAnswer(token=token.reveal())

    @router.delete(
        "/{site_id}/token", summary="Revoke the site's own token", status_code=204, responses=problem_answers(404)
    )
    async def revoke_site_token(site_id: SiteId, _grant: Annotated[Grant, require()]) -> Response:
        site = await require_site(installation, site_id)
        if not await tokens.revoke(Scope.SITE, site=site.number):
            problem(404, "no_token", "this site has no token; POST makes one")
        return Response(status_code=204)

    @router.post(
        "/{site_id}/urls",
        summary="Announce these URLs now",
        status_code=202,
        responses=problem_answers(404, 409, 503),
    )
    async def announce_urls(
        site_id: SiteId, body: UrlsBody, grant: Annotated[Grant, require(Scope.SITE)]
    ) -> StartedAnswer:
        site = await require_grant(grant, await require_site(installation, site_id), installation=installation)
        started = await service.announce_urls(site, body.urls, channel=body.channel)
        return StartedAnswer(executionId=started.execution.public_id, siteId=site.id, status="running")


def _refuse_unknown() -> NoReturn:
    problem(404, "unknown_site", "there is no site of this id; GET /api/sites lists them")


def _refuse_environment(installation: Installation, site_id: str) -> None:
    if installation.is_from_environment(site_id):
        problem(409, "from_environment", "this site is set up by SITEMAP_URL and its fellow variables; change those")
