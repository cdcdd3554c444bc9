"""Deploy hooks of GitHub and Netlify: a signature instead of a token begins an execution."""

import hashlib
from typing import Final

from fastapi import Request, Response

from tidings.announce.schedule.seen_hooks import SeenHooks
from tidings.announce.schedule.table import Schedules
from tidings.announce.service import AnnounceService
from tidings.announce.site.site import Site
from tidings.announce.site.table import SiteRecords
from tidings.core.secrets.hook_signatures import find_signature, is_signed
from tidings.core.secrets.secret import Secret
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import problem
from tidings.web.models.announce_answers import StartedAnswer
from tidings.web.routes.announce.site_lookup import SiteId

HOOK_PATH: Final = "/hooks/{site_id}"

# Checked if there is no site or no secret, so that every refusal takes the same time. Such a hook is always refused.
_NO_SECRET: Final = Secret(hashlib.sha256(b"no secret").hexdigest())


def make_hooks_router(
    *, sites: SiteRecords, schedules: Schedules, service: AnnounceService, seen: SeenHooks
) -> ApiRouter:
    router = ApiRouter(tags=["operations"])

    async def require_signed(site_id: str, request: Request, body: bytes) -> Site:
        site = await sites.find(site_id) if find_signature(request.headers) else None
        secret = None if site is None else site.hook_secret
        signed = is_signed(request.headers, body, secret=secret or _NO_SECRET)
        if site is None or secret is None or not signed:
            problem(401, "signature_wrong", "this site has no hook with this signature; check hookSecret on both sides")
        return site

    @router.post(
        HOOK_PATH,
        summary="Run a site after a deploy (GitHub, Netlify)",
        status_code=202,
        responses=problem_answers(401, 409, 413, 503),
    )
    async def receive_hook(site_id: SiteId, request: Request, response: Response) -> StartedAnswer:
        """Signed with the site's `hookSecret`: X-Hub-Signature-256, or X-Webhook-Signature as a JWS.

        `status`: `running`; `follows` if another execution runs, which this one follows; `repeated`; or `pong`.
        """
        body = await request.body()
        site = await require_signed(site_id, request, body)
        digest = hashlib.sha256(f"{site.id}\n{find_signature(request.headers)}".encode()).digest()
        if request.headers.get("x-github-event") == "ping":
            response.status_code = 200
            return StartedAnswer(executionId="", siteId=site.id, status="pong")
        if await schedules.is_paused(site.number):
            problem(409, "paused", "this site is paused; a hook does not undo that")
        if (earlier := await seen.claim(digest)) is not None:
            response.status_code = 200
            return StartedAnswer(executionId=earlier, siteId=site.id, status="repeated")
        try:
            started = await service.follow_up(site)
        except BaseException:
            await seen.forget(digest)
            raise
        if started is None:
            return StartedAnswer(executionId="", siteId=site.id, status="follows")
        await seen.record_execution(digest, started.execution.public_id)
        return StartedAnswer(executionId=started.execution.public_id, siteId=site.id, status="running")

    return router
