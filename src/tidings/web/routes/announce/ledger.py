"""Routes of a site's ledger: URLs that failed, and corrections."""

from typing import Annotated

from fastapi import Query

from tidings.announce.channels.enabled_channels import list_page_channels
from tidings.announce.due.rules import DueRules
from tidings.announce.ledger.corrections import forget_since, requeue
from tidings.announce.ledger.failed_pages import FailedPages
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.lookup import LookupRefusal, find_page
from tidings.core.clock import Clock, parse_timestamp
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import refuse_field
from tidings.web.middleware.auth import AdminGrant, ViewerGrant
from tidings.web.models.announce import ForgetBody, UrlsBody
from tidings.web.models.announce_answers import FailedAnswer, ForgottenAnswer, LookupAnswer
from tidings.web.routes.announce.site_lookup import SiteId, SiteLookup


def make_ledger_router(
    lookup: SiteLookup, *, database: Database, executions: Executions, rules: DueRules, clock: Clock
) -> ApiRouter:
    router = ApiRouter(prefix="/api/sites/{site_id}", tags=["sites"])

    @router.get("/ledger", summary="Was this page announced?", responses=problem_answers(404))
    async def find_url(
        site_id: SiteId,
        grant: ViewerGrant,
        url: Annotated[str, Query(max_length=2_048, description="The page.", examples=["https://example.com/page"])],
    ) -> LookupAnswer:
        """Per channel: when it was last accepted, by which rule it is due or not, and what is open or failed."""
        site = await lookup.require_shown(site_id, grant)
        found = await find_page(
            site, url, database=database, clock=clock, rules=rules, channels=list_page_channels(site)
        )
        if found.refusal is LookupRefusal.INVALID:
            refuse_field("url", "it is not an http or https URL")
        return LookupAnswer.model_validate(found)

    @router.get("/failed", summary="List URLs that failed", responses=problem_answers(404))
    async def list_failed(
        site_id: SiteId,
        grant: ViewerGrant,
        limit: Annotated[int, Query(ge=1, le=1_000, description="How many at most, of each channel.")] = 100,
    ) -> FailedAnswer:
        site = await lookup.require_shown(site_id, grant)
        failed = [
            page
            for channel in Channel
            for page in await FailedPages(database, site=site.number, channel=channel).list(limit=limit)
        ]
        return FailedAnswer.describe(failed=failed)

    @router.post("/requeue", summary="Send some URLs again", responses=problem_answers(404, 409))
    async def requeue_urls(site_id: SiteId, body: UrlsBody, _grant: AdminGrant) -> ForgottenAnswer:
        site = await lookup.require(site_id)
        count = await requeue(site, body.urls, channel=body.channel, database=database, executions=executions)
        return ForgottenAnswer(forgotten=count)

    @router.post("/forget", summary="Forget what was announced since a time", responses=problem_answers(404, 409))
    async def forget_entries(site_id: SiteId, body: ForgetBody, _grant: AdminGrant) -> ForgottenAnswer:
        site = await lookup.require(site_id)
        since = parse_timestamp(body.since)
        if since is None:
            refuse_field("since", "it must be a timestamp such as 2026-11-15T10:00:00Z, or a day")
        count = await forget_since(site, since, channel=body.channel, database=database, executions=executions)
        return ForgottenAnswer(forgotten=count)

    return router
