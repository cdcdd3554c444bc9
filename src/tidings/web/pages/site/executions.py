"""The executions of one site: the list, one with everything that is known of it, and its live progress."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from tidings.core.clock import to_text
from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.site.outcome import describe_outcome
from tidings.web.pages.site.progress import list_engines, write_event
from tidings.web.pages.site.view import SiteView
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.rendering import locate_site
from tidings.web.pages.view.routing import make_link, make_page_router
from tidings.web.routes.announce.site_lookup import require_execution

router = make_page_router()

_LOOK_EVERY: Final = timedelta(seconds=1)
_PAGE: Final = 25


@router.get("/sites/{site_id}/executions")
async def show_executions(request: Request, site_id: str, before: str | None = None) -> Response:
    view = await SiteView.open(request, site_id, Scope.VIEWER)
    found = await view.list_executions(limit=_PAGE + 1, before=before)
    href = f"{locate_site(view.site.id)}/executions"
    older = make_link(href, {"before": found[_PAGE - 1].public_id}) if len(found) > _PAGE else None
    rows = view.describe_rows(found[:_PAGE])
    return await view.render_tab(
        "site_executions.html", "executions", executions=rows, older=older, newest=href if before else None
    )


@router.get("/sites/{site_id}/executions/{execution_id}")
async def show_execution(request: Request, site_id: str, execution_id: str) -> Response:
    view = await SiteView.open(request, site_id, Scope.VIEWER)
    record = await require_execution(view.installation.executions, view.site, execution_id)
    described = _describe_whole(record, view.formats)
    return await view.render_tab(
        "execution.html", "executions", progress=view.find_progress([record]), record=record, execution=described
    )


@router.get("/sites/{site_id}/executions/{execution_id}/progress")
async def watch_progress(request: Request, site_id: str, execution_id: str) -> Response:
    view = await SiteView.open(request, site_id, Scope.VIEWER)
    executions, clock = view.installation.executions, view.installation.clock
    first = await require_execution(executions, view.site, execution_id)

    async def stream() -> AsyncIterator[bytes]:
        record: ExecutionRecord | None = first
        while record is not None:
            yield write_event(view.describe_progress(record), record, view.formats)
            if record.status is not ExecutionStatus.RUNNING:
                return
            await clock.sleep(_LOOK_EVERY)
            record = await executions.find(execution_id)

    return StreamingResponse(stream(), media_type="text/event-stream")


def _describe_whole(record: ExecutionRecord, formats: Formats) -> dict[str, Any]:
    """One execution with everything that is known of it."""
    result: Mapping[str, Any] = record.result or record.progress or {}
    texts, dropped, outcome = formats.texts, result.get("dropped", {}), describe_outcome(record.status, result, formats)
    engines = list_engines(result, formats)
    numbers = {
        "files": result.get("files"),
        "unchanged": result.get("filesUnchanged"),
        "changed": result.get("changed"),
        "removed": result.get("removed"),
        "repeated": result.get("repeated"),
        "too_soon": result.get("tooSoon"),
        "invalid": dropped.get("invalid"),
        "foreign": dropped.get("foreignHost"),
        "outside": dropped.get("outsideKeyLocation"),
        "forgotten": result.get("forgotten"),
    }
    figures = [
        (texts("execution.figure.total"), formats.number(result.get("total")), ""),
        (texts("execution.figure.due"), formats.number(outcome.due), ""),
        (texts("execution.figure.accepted"), formats.number(outcome.accepted), outcome.accepted_text),
        (texts("execution.figure.failed"), formats.number(outcome.failed), outcome.failed_text),
    ]
    return {
        "since": to_text(record.started_at),
        "figures": figures if "total" in result and record.completed_at is not None else [],
        "errors": result.get("errors", ()),
        "warnings": result.get("warnings", ()),
        "engines": engines,
        "has_trouble": any(each["reason"] for each in engines),
        "facts": [
            (texts("execution.fact.duration"), formats.took(record.started_at, record.completed_at)),
            # Most of these are zero on most days.
            *((texts(f"execution.fact.{name}"), formats.number(n)) for name, n in numbers.items() if n),
        ],
        "can_forget": bool(result.get("submitted")) and record.status is not ExecutionStatus.RUNNING,
    }
