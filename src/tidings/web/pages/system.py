"""Pages about the installation: executions of both pipelines, settings with their sources, and the API's operations."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response

from tidings.announce.site.site import ANNOUNCE, CORRECTION, WORKFLOW_PREFIX
from tidings.collect.tables import COLLECT, MIRROR
from tidings.core.alerts.translation import Translator
from tidings.core.executions import ExecutionRecord
from tidings.core.secrets.scopes import Scope
from tidings.settings.variables import SettingSource
from tidings.web.description import list_inputs, list_operations, list_scopes
from tidings.web.pages.site.outcome import describe_outcome
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.rendering import locate_site
from tidings.web.pages.view.routing import PageView, make_link, make_page_router
from tidings.web.pages.view.texts import OPERATIONS

router = make_page_router()

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


@router.get("/executions")
async def show_executions(request: Request, before: str | None = None, of: str = "") -> Response:
    view = PageView(request)
    narrowed = {"of": of if of in _SEGMENTS else ""}
    found = await view.installation.executions.list_latest(
        kinds=_KINDS.get(of, ()), with_trouble=of == _TROUBLE, limit=_PAGE + 1, before=before
    )
    segments = [
        {
            "href": make_link("/executions", {"of": name}),
            "title": view.texts(f"execution.segment.{name or 'all'}"),
            "current": name == narrowed["of"],
        }
        for name in _SEGMENTS
    ]
    is_last = len(found) <= _PAGE
    return await view.render(
        "executions.html",
        rows=[_describe_execution(each, view.formats) for each in found[:_PAGE]],
        segments=segments,
        is_filtered=bool(narrowed["of"]),
        older=None if is_last else make_link("/executions", {**narrowed, "before": found[_PAGE - 1].public_id}),
        newest=make_link("/executions", narrowed) if before else None,
    )


@router.get("/workers")
async def show_workers(request: Request) -> Response:
    view = PageView(request)
    dispatcher = view.installation.dispatcher
    workers, queues = await dispatcher.list_workers(), await dispatcher.list_queues()
    return await view.render("workers.html", workers=workers, queues=queues)


@router.get("/settings")
async def show_settings(request: Request) -> Response:
    view = PageView(request)
    sources = view.installation.settings.sources
    groups: dict[str, list[SettingSource]] = {name: [] for name in _SETTING_ORDER}
    for each in sources:
        if each.source == "default":
            groups[find_setting_group(each.name)].append(each)
    changed = [each for each in sources if each.source != "default"]
    return await view.render("settings.html", changed=changed, groups=groups)


@router.get("/docs")
async def show_operations(request: Request) -> Response:
    view = PageView(request, *Scope)
    document = request.app.openapi()
    translate = _operations.translate if view.formats.is_chinese else str
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
    return await view.render("api.html", groups=groups, version=document["info"]["version"])


def find_setting_group(name: str) -> str:
    """The group that a setting is shown in."""
    return next((group for group, names in _SETTING_GROUPS.items() if name.startswith(names)), "service")


def _name_workflow(workflow: str, formats: Formats) -> str:
    """The name of a workflow of collect for people: `collect:bilibili` shows its platform. An external one keeps its
    name."""
    task, _, platform = workflow.partition(":")
    key = f"execution.task.{task}" if platform or task != COLLECT else "execution.task.all"
    return formats.texts.find(key, workflow, platform=formats.platform(platform))


def _describe_execution(record: ExecutionRecord, formats: Formats) -> dict[str, Any]:
    site = record.workflow_name.removeprefix(WORKFLOW_PREFIX)
    is_site = site != record.workflow_name
    return {
        "record": record,
        "outcome": describe_outcome(record.status, record.result or record.progress, formats),
        "name": site if is_site else _name_workflow(record.workflow_name, formats),
        "kind": formats.texts("nav.group.announce" if is_site else "nav.group.collect"),
        "href": f"{locate_site(site)}/executions/{record.public_id}" if is_site else "",
        "is_silent": formats.now - record.heartbeat_at > _SILENT,
    }
