"""Routes of executions: the history, and live progress of one that runs."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from fastapi.sse import EventSourceResponse

from tidings.announce.service import AnnounceService
from tidings.announce.site.site import WORKFLOW_PREFIX
from tidings.announce.status import ExecutionJson, describe_execution
from tidings.core.clock import Clock
from tidings.core.executions import ExecutionRecord, Executions, ExecutionStatus
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import problem
from tidings.web.middleware.auth import AdminGrant, require
from tidings.web.models.announce_answers import ExecutionAnswer, ExecutionDocument, ExecutionsAnswer, StartedAnswer
from tidings.web.routes.announce.site_lookup import SiteId, SiteLookup, require_execution

POLL_INTERVAL = timedelta(seconds=1)

ExecutionId = Annotated[
    str, Path(description="The execution's id.", max_length=64, examples=["exec-1763200800000-0a1b2c3d"])
]


ReadGrant = Annotated[Grant, require(Scope.SITE, Scope.VIEWER)]


def make_executions_router(
    lookup: SiteLookup, *, executions: Executions, service: AnnounceService, clock: Clock
) -> ApiRouter:
    router = ApiRouter(prefix="/api/sites/{site_id}/executions", tags=["executions"])

    async def find_execution(site_id: SiteId, execution_id: ExecutionId, grant: ReadGrant) -> ExecutionRecord:
        return await require_execution(executions, await lookup.require_shown(site_id, grant), execution_id)

    # A dependency, because it ends before a stream starts: inside the stream it is too late for a 404.
    Found = Annotated[ExecutionRecord, Depends(find_execution)]  # noqa: N806 - a type

    def describe(record: ExecutionRecord) -> ExecutionJson:
        return describe_execution(record, live=service.live.describe(record.public_id))

    @router.get("", summary="List a site's executions", responses=problem_answers(404))
    async def list_executions(
        site_id: SiteId,
        grant: ReadGrant,
        limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 20,
        before: Annotated[str | None, Query(max_length=64, description="The id of the last one seen.")] = None,
    ) -> ExecutionsAnswer:
        site = await lookup.require_shown(site_id, grant)
        found = await executions.list_recent(site.workflow_name, limit=limit + 1, before=before)
        return ExecutionsAnswer(
            executions=[describe(record) for record in found[:limit]],
            next=found[limit - 1].public_id if len(found) > limit else None,
        )

    @router.get("/{execution_id}", summary="Read an execution", responses=problem_answers(404))
    async def read_execution(_grant: ReadGrant, found: Found) -> ExecutionAnswer:
        return ExecutionAnswer(execution=describe(found))

    _add_stop(router, service, Found)

    @router.get(
        "/{execution_id}/events",
        summary="Watch an execution (server-sent events)",
        response_class=EventSourceResponse,
        responses=problem_answers(404),
    )
    async def watch_execution(_grant: ReadGrant, found: Found) -> AsyncIterator[ExecutionDocument]:
        record: ExecutionRecord | None = found
        sent: ExecutionJson | None = None
        while record is not None:
            state = describe(record)
            if state != sent:
                yield state
                sent = state
            if record.status is not ExecutionStatus.RUNNING:
                return
            await clock.sleep(POLL_INTERVAL)
            record = await executions.find(record.public_id)

    return router


def _add_stop(router: ApiRouter, service: AnnounceService, found_type: Any) -> None:
    @router.post(
        "/{execution_id}/stop",
        summary="Stop an execution, wherever it runs",
        status_code=202,
        responses=problem_answers(404, 409),
    )
    async def stop_execution(_grant: AdminGrant, found: found_type) -> StartedAnswer:
        if not await service.stop(found.public_id):
            problem(409, "not_running", "this execution has ended")
        site_id = found.workflow_name.removeprefix(WORKFLOW_PREFIX)
        return StartedAnswer(executionId=found.public_id, siteId=site_id, status="stopping")
