"""The route of workers: who takes jobs, and how much waits."""

from typing import Annotated, Any

from fastapi import APIRouter

from tidings.core.queue.dispatcher import Dispatcher, describe_workers
from tidings.core.secrets.scopes import Grant
from tidings.web.middleware.auth import require


def make_workers_router(dispatcher: Dispatcher) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/api/workers", summary="List the workers")
    async def list_workers(_grant: Annotated[Grant, require()]) -> dict[str, Any]:
        return describe_workers(await dispatcher.list_workers(), await dispatcher.list_queues())

    return router
