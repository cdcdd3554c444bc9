"""Routes that pause and resume the schedule, of one site or of all."""

from collections.abc import Callable

from tidings.announce.schedule.table import Schedules
from tidings.announce.service import AnnounceService
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.middleware.auth import AdminGrant
from tidings.web.models.announce_answers import PausedAnswer
from tidings.web.routes.announce.site_lookup import SiteId, SiteLookup


def make_pause_router(
    lookup: SiteLookup, *, schedules: Schedules, service: AnnounceService, wake: Callable[[], None]
) -> ApiRouter:
    """`wake` tells the ticker that a site may be due."""
    router = ApiRouter(prefix="/api", tags=["operations"])

    @router.post("/pause", summary="Pause everything")
    async def pause_everything(_grant: AdminGrant) -> PausedAnswer:
        await schedules.pause(None)
        return PausedAnswer(paused=True)

    @router.post("/resume", summary="Resume everything")
    async def resume_everything(_grant: AdminGrant) -> PausedAnswer:
        await schedules.resume(None)
        wake()
        return PausedAnswer(paused=False)

    @router.post("/sites/{site_id}/pause", summary="Pause a site", responses=problem_answers(404))
    async def pause_site(site_id: SiteId, _grant: AdminGrant) -> PausedAnswer:
        await schedules.pause((await lookup.require(site_id)).number)
        return PausedAnswer(paused=True)

    @router.post("/sites/{site_id}/resume", summary="Resume a site", responses=problem_answers(404))
    async def resume_site(site_id: SiteId, _grant: AdminGrant) -> PausedAnswer:
        """Engines that had refused the site's key are tried again."""
        site = await lookup.require(site_id)
        await schedules.resume(site.number)
        freed = await service.free(site)
        wake()
        return PausedAnswer(paused=False, freed=freed)

    return router
