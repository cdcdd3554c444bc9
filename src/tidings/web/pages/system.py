"""Pages about the installation: executions of both pipelines, settings with their sources, and the API's operations."""

from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.site.site import WORKFLOW_PREFIX
from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.core.queue.dispatcher import WorkerState
from tidings.core.secrets.scopes import Scope
from tidings.web.description import list_inputs, list_operations, list_scopes
from tidings.web.pages.collect import name_platform
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope

_PAGE: Final = 50
# A heartbeat comes every minute.
_SILENT: Final = timedelta(minutes=3)


def make_system_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router(dashboard)
    installation = dashboard.installation

    @router.get("/executions")
    async def show_executions(request: Request, before: str | None = None) -> Response:
        require_scope(request)
        formats = dashboard.renderer.formats(request)
        found = await installation.executions.list_latest(limit=_PAGE + 1, before=before)
        older = f"/executions?before={found[_PAGE - 1].public_id}" if len(found) > _PAGE else None
        rows = [_describe_execution(each, formats) for each in found[:_PAGE]]
        return await dashboard.render(request, "executions.html", rows=rows, older=older)

    @router.get("/workers")
    async def show_workers(request: Request) -> Response:
        require_scope(request)
        formats = dashboard.renderer.formats(request)
        workers = [_describe_worker(each, formats) for each in await installation.dispatcher.list_workers()]
        queues = [
            {"name": each.queue, "waiting": each.waiting, "oldest": formats.span(each.oldest) if each.waiting else "–"}
            for each in await installation.dispatcher.list_queues()
        ]
        return await dashboard.render(request, "workers.html", workers=workers, queues=queues)

    @router.get("/settings")
    async def show_settings(request: Request) -> Response:
        require_scope(request)
        # Those that somebody set come first.
        rows = sorted(installation.settings.sources, key=lambda each: each.source == "default")
        return await dashboard.render(request, "settings.html", rows=rows)

    @router.get("/docs")
    async def show_operations(request: Request) -> Response:
        require_scope(request, *Scope)
        document = request.app.openapi()
        rows = [
            {
                "method": method.upper(),
                "path": path,
                "summary": operation["summary"],
                "inputs": ", ".join(list_inputs(document, operation)),
                "scopes": ", ".join(dict.fromkeys([Scope.ADMIN, *list_scopes(operation)]))
                if operation.get("security")
                else "",
            }
            for path, method, operation in list_operations(document)
        ]
        return await dashboard.render(request, "api.html", rows=rows, version=document["info"]["version"])

    return router


def _describe_worker(worker: WorkerState, formats: Formats) -> dict[str, Any]:
    return {
        "name": worker.name,
        "machine": worker.machine,
        "release": worker.release,
        "queues": ", ".join(worker.queues),
        "places": worker.places,
        "jobs": worker.jobs,
        "started": formats.relative(worker.started_at),
        "seen": formats.relative(worker.seen_at),
        "dead": worker.dead,
    }


def _name_workflow(workflow: str, formats: Formats) -> str:
    """A workflow of collect as people know it: `collect:bilibili` by its platform. An external one keeps its name."""
    task, _, platform = workflow.partition(":")
    key = f"execution.task.{task}"
    if not formats.texts.has(key):
        return workflow
    return formats.texts(key, platform=name_platform(platform, formats))


def _describe_execution(record: ExecutionRecord, formats: Formats) -> dict[str, Any]:
    site = record.workflow_name.removeprefix(WORKFLOW_PREFIX)
    is_site = site != record.workflow_name
    running = record.status is ExecutionStatus.RUNNING
    return {
        "status": record.status,
        "name": site if is_site else _name_workflow(record.workflow_name, formats),
        "kind": formats.texts("nav.group.announce" if is_site else "nav.group.collect"),
        "href": f"{locate_site(site)}/executions/{record.public_id}" if is_site else "",
        "started": formats.time(record.started_at),
        "took": formats.duration(None if record.completed_at is None else record.completed_at - record.started_at),
        "heartbeat": formats.relative(record.heartbeat_at) if running else "",
        "silent": running and formats.now - record.heartbeat_at > _SILENT,
        "processed": record.items_processed,
        "failed": record.items_failed,
    }
