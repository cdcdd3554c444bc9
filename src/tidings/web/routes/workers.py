"""The route of workers: who takes jobs, and how much waits."""

from tidings.core.queue.dispatcher import Dispatcher
from tidings.web.description import ApiRouter
from tidings.web.middleware.auth import AdminGrant
from tidings.web.models.workers import WorkersAnswer


def make_workers_router(dispatcher: Dispatcher) -> ApiRouter:
    router = ApiRouter(tags=["operations"])

    @router.get("/api/workers", summary="List the workers")
    async def list_workers(_grant: AdminGrant) -> WorkersAnswer:
        return WorkersAnswer.describe(workers=await dispatcher.list_workers(), queues=await dispatcher.list_queues())

    return router
