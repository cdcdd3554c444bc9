"""Pages about the installation: executions of both pipelines, settings with their sources, and the API's operations."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.site.site import ANNOUNCE, CORRECTION, WORKFLOW_PREFIX
from tidings.collect.tables import COLLECT, MIRROR
from tidings.core.alerts.translation import Translator
from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.core.queue.dispatcher import WorkerState
from tidings.core.secrets.scopes import Scope
from tidings.settings.variables import SettingSource
from tidings.web.description import list_inputs, list_operations, list_scopes
from tidings.web.pages.collect import name_platform
from tidings.web.pages.overview import make_link
from tidings.web.pages.site.outcome import describe_outcome
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope
from tidings.web.pages.view.texts import OPERATIONS

_PAGE: Final = 25
# A heartbeat comes every minute.
_SILENT: Final = timedelta(minutes=3)
# Filters of the list of executions, with the kinds of each pipeline.
_KINDS: Final[Mapping[str, Sequence[str]]] = {"announce": (ANNOUNCE, CORRECTION), "collect": (COLLECT, MIRROR)}
_TROUBLE: Final = "trouble"
_SEGMENTS: Final = ("", *_KINDS, _TROUBLE)
# A setting belongs to the first group with a prefix of its name; all others belong to the service.
_SETTING_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "sending": (
        *("MAX_CONCURRENT_REQUESTS", "REQUEST_INTERVAL_MS", "MAX_RETRIES", "CACHE_TTL_DAYS", "TIDINGS_RESUBMIT"),
        *("TIDINGS_RUN_BUDGET", "TIDINGS_MAX_EXECUTIONS", "TIDINGS_DATABASE_CONNECTIONS", "TIDINGS_EXECUTION_DAYS"),
        *("TIDINGS_SCHEDULE_SPREAD", "TIDINGS_RETRY_SCALE", "BING_API_BASE", "BAIDU_API_BASE", "GOOGLE_API_BASE"),
    ),
    "site": ("SITE", "INDEXNOW_", "BACKUP_SITEMAP", "CRON_", "BING_", "BAIDU_", "GOOGLE_"),
    "alerts": ("TIDINGS_ALERT", "TIDINGS_WEBHOOK", "TIDINGS_PING"),
    "feishu": ("FEISHU_",),
    "collect": (
        *("COLLECT_", "TIDINGS_COLLECT", "DISCOVER_", "RECOVERY_", "LOCK_TIMEOUT", "BATCH_SIZE", "BACKOFF_SECONDS"),
        "ERROR_RETRIES",
    ),
    "crawl": (
        *("TIDINGS_FEEDS", "TIDINGS_USER_AGENT", "PLATFORM_INTERVAL", "REQUEST_TIMEOUT", "SEARCH_TIMEOUT", "DETAIL_"),
        *("BATCH_TIMEOUT", "COOKIE_INTERVAL", "COOLING_"),
        *("MAX_CONSECUTIVE_ERRORS", "PAUSE_", "MAX_TOTAL_ERRORS", "BILIBILI_", "XIAOHONGSHU_", "WEIBO_"),
    ),
}
_operations: Final = Translator([OPERATIONS])
_SETTING_ORDER: Final = ("service", "alerts", "site", "sending", "crawl", "collect", "feishu")


def make_system_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    installation = dashboard.installation

    @router.get("/executions")
    async def show_executions(request: Request, before: str | None = None, of: str = "") -> Response:
        require_scope(request)
        formats, narrowed = dashboard.renderer.formats(request), {"of": of if of in _SEGMENTS else ""}
        found = await installation.executions.list_latest(
            kinds=_KINDS.get(of, ()), with_trouble=of == _TROUBLE, limit=_PAGE + 1, before=before
        )
        newest = make_link("/executions", narrowed)
        last = found[_PAGE - 1].public_id if len(found) > _PAGE else ""
        segments = [
            {
                "href": make_link("/executions", {"of": name}),
                "title": formats.texts(f"execution.segment.{name or 'all'}"),
                "current": name == narrowed["of"],
            }
            for name in _SEGMENTS
        ]
        return await dashboard.render(
            request,
            "executions.html",
            rows=[_describe_execution(each, formats) for each in found[:_PAGE]],
            segments=segments,
            is_filtered=bool(narrowed["of"]),
            older=make_link("/executions", {**narrowed, "before": last}) if last else None,
            newest=newest if before else None,
        )

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
        sources = installation.settings.sources
        groups: dict[str, list[SettingSource]] = {name: [] for name in _SETTING_ORDER}
        for each in sources:
            if each.source == "default":
                groups[find_setting_group(each.name)].append(each)
        changed = [each for each in sources if each.source != "default"]
        return await dashboard.render(request, "settings.html", changed=changed, groups=groups)

    @router.get("/docs")
    async def show_operations(request: Request) -> Response:
        require_scope(request, *Scope)
        document, formats = request.app.openapi(), dashboard.renderer.formats(request)
        translate = _operations.translate if formats.is_chinese else str
        groups: dict[str, list[dict[str, str]]] = {}
        for path, method, operation in list_operations(document):
            [group] = operation["tags"]
            scopes = [Scope.ADMIN, *list_scopes(operation)] if operation.get("security") else []
            row = {
                "method": method.upper(),
                "path": path,
                "summary": translate(operation["summary"]),
                "inputs": ", ".join(list_inputs(document, operation)),
                "scopes": ", ".join(dict.fromkeys(scopes)),
            }
            groups.setdefault(group, []).append(row)
        return await dashboard.render(request, "api.html", groups=groups, version=document["info"]["version"])

    return router


def find_setting_group(name: str) -> str:
    """The group that a setting is shown in."""
    return next((group for group, names in _SETTING_GROUPS.items() if name.startswith(names)), "service")


def _describe_worker(worker: WorkerState, formats: Formats) -> dict[str, Any]:
    return {
        "name": worker.name,
        "machine": worker.machine,
        "release": worker.release,
        "queues": ", ".join(worker.queues),
        "places": worker.places,
        "jobs": worker.jobs,
        "started": formats.ago(worker.started_at),
        "seen": formats.ago(worker.seen_at),
        "dead": worker.dead,
    }


def _name_workflow(workflow: str, formats: Formats) -> str:
    """The name of a workflow of collect for people: `collect:bilibili` shows its platform. An external one keeps its
    name."""
    task, _, platform = workflow.partition(":")
    key = f"execution.task.{task}" if platform or task != COLLECT else "execution.task.all"
    if not formats.texts.has(key):
        return workflow
    return formats.texts(key, platform=name_platform(platform, formats))


def _describe_execution(record: ExecutionRecord, formats: Formats) -> dict[str, Any]:
    site = record.workflow_name.removeprefix(WORKFLOW_PREFIX)
    is_site = site != record.workflow_name
    running = record.status is ExecutionStatus.RUNNING
    outcome = describe_outcome(record.status, record.result or record.progress, formats)
    return {
        "status": record.status,
        "name": site if is_site else _name_workflow(record.workflow_name, formats),
        "kind": formats.texts("nav.group.announce" if is_site else "nav.group.collect"),
        "href": f"{locate_site(site)}/executions/{record.public_id}" if is_site else "",
        "started": formats.time(record.started_at),
        "took": formats.duration(None if record.completed_at is None else record.completed_at - record.started_at),
        "heartbeat": formats.ago(record.heartbeat_at) if running else "",
        "silent": running and formats.now - record.heartbeat_at > _SILENT,
        "reason": outcome.reason,
        "processed": record.items_processed,
        "failed": record.items_failed if outcome.failed is None else outcome.failed,
    }
