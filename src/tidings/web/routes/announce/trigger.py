"""Routes that start an execution: run a site now, or announce the URLs that the request names."""

from typing import Annotated

from fastapi import Query, Response

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.service import AnnounceService
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.middleware.auth import require
from tidings.web.models.announce import UrlsBody
from tidings.web.models.announce_answers import StartedAnswer
from tidings.web.routes.announce.site_lookup import SiteId, SiteLookup, SiteQuery

ChannelQuery = Annotated[ChannelChoice, Query(description="The channels to submit to.")]
WaitQuery = Annotated[bool, Query(description="Answer at the end of the execution, with its result.")]


def make_trigger_router(lookup: SiteLookup, *, service: AnnounceService) -> ApiRouter:
    router = ApiRouter(tags=["operations"])
    ended = {"model": StartedAnswer, "description": "The execution has ended."}
    answers = {200: ended, **problem_answers(404, 409, 503)}

    @router.get("/trigger", name="trigger_by_get", summary="Run a site now", status_code=202, responses=answers)
    @router.post("/trigger", name="trigger_by_post", summary="Run a site now", status_code=202, responses=answers)
    async def trigger(
        response: Response,
        grant: Annotated[Grant, require(Scope.SITE, changes_state=True)],
        site: SiteQuery = None,
        channel: ChannelQuery = ChannelChoice.ALL,
        wait: WaitQuery = False,
    ) -> StartedAnswer:
        found = await lookup.require_granted(site, grant)
        started = await service.trigger(found, channel=channel)
        if not wait:
            return StartedAnswer(executionId=started.execution.public_id, siteId=found.id, status="running")
        record = await started.wait()
        response.status_code = 200
        return StartedAnswer(
            executionId=record.public_id, siteId=found.id, status=record.status.value, result=dict(record.result)
        )

    @router.post(
        "/api/sites/{site_id}/urls",
        summary="Announce these URLs now",
        status_code=202,
        responses=problem_answers(404, 409, 503),
    )
    async def announce_urls(
        site_id: SiteId, body: UrlsBody, grant: Annotated[Grant, require(Scope.SITE)]
    ) -> StartedAnswer:
        site = await lookup.require_granted(site_id, grant)
        started = await service.announce_urls(site, body.urls, channel=body.channel)
        return StartedAnswer(executionId=started.execution.public_id, siteId=site.id, status="running")

    return router
