"""Deploy hooks of GitHub and Netlify: a signature instead of a token begins an execution."""

import hashlib
from collections import OrderedDict
from datetime import timedelta
from typing import Final

from fastapi import APIRouter, Request, Response

from tidings.announce.schedule.table import Schedules
from tidings.announce.service import AnnounceService
from tidings.announce.site.site import Site
from tidings.announce.site.table import SiteRecords
from tidings.core.clock import Clock
from tidings.core.secrets.hook_signatures import find_signature, is_signed
from tidings.core.secrets.secret import Secret
from tidings.web.description import problem_answers
from tidings.web.errors import problem
from tidings.web.models.announce_answers import StartedAnswer
from tidings.web.routes.announce.site_lookup import SiteId

HOOK_PATH: Final = "/hooks/{site_id}"

# A hook that comes again within this time begins nothing.
_REMEMBERED: Final = timedelta(hours=24)
_MOST_REMEMBERED: Final = 10_000
# Checked where there is no site or no secret, so that both take the same time. Nobody knows it.
_NO_SECRET: Final = Secret(hashlib.sha256(b"no secret").hexdigest())


class SeenHooks:
    """The last hooks that began an execution, by digest: a copy of an old request begins nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def find(self, digest: bytes) -> str | None:
        """The id of the execution that this hook began."""
        at, execution = self._seen.get(digest, (float("-inf"), ""))
        return execution if self._clock.monotonic() - at < _REMEMBERED.total_seconds() else None

    def add(self, digest: bytes, execution: str) -> None:
        self._seen[digest] = self._clock.monotonic(), execution
        self._seen.move_to_end(digest)
        while len(self._seen) > _MOST_REMEMBERED:
            self._seen.popitem(last=False)


def make_hooks_router(*, sites: SiteRecords, schedules: Schedules, service: AnnounceService, clock: Clock) -> APIRouter:
    router = APIRouter(tags=["operations"])
    seen = SeenHooks(clock)

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
        """Signed with the site's `hookSecret`: X-Hub-Signature-256, or X-Webhook-Signature as a JWS."""
        body = await request.body()
        site = await require_signed(site_id, request, body)
        digest = hashlib.sha256(f"{site.id}\n{find_signature(request.headers)}".encode()).digest()
        if request.headers.get("x-github-event") == "ping":
            response.status_code = 200
            return StartedAnswer(executionId="", siteId=site.id, status="pong")
        if (earlier := seen.find(digest)) is not None:
            response.status_code = 200
            return StartedAnswer(executionId=earlier, siteId=site.id, status="repeated")
        if await schedules.is_paused(site.number):
            problem(409, "paused", "this site is paused; a hook does not undo that")
        started = await service.trigger(site)
        seen.add(digest, started.execution.public_id)
        return StartedAnswer(executionId=started.execution.public_id, siteId=site.id, status="running")

    return router
