"""Forms that act on one site: run, pause, resume, forget, remove. A page asks before anything that cannot be undone."""

from datetime import datetime

from fastapi import Request
from fastapi.responses import Response

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.corrections import count_since, forget_since
from tidings.announce.service import BusyError
from tidings.core.clock import parse_timestamp, to_text
from tidings.core.executions import AlreadyRunningError
from tidings.core.secrets.scopes import Scope
from tidings.web.errors import problem
from tidings.web.pages.site.view import open_form
from tidings.web.pages.view.rendering import PageMessage, locate_site
from tidings.web.pages.view.routing import PageView, make_page_router
from tidings.web.routes.announce.site_lookup import require_execution

router = make_page_router()


@router.post("/sites/{site_id}/run")
async def run_site(request: Request, site_id: str) -> Response:
    view, form, site = await open_form(request, site_id)
    message = PageMessage("started")
    try:
        await view.installation.service.trigger(site, channel=_read_choice(form.get("channel")))
    except AlreadyRunningError:
        message = PageMessage("already_running", "warn")
    except BusyError:
        message = PageMessage("busy", "bad")
    return view.redirect(locate_site(site.id), message)


@router.post("/sites/{site_id}/executions/{execution_id}/stop")
async def stop_execution(request: Request, site_id: str, execution_id: str) -> Response:
    """Ask the execution to end in good order, on any machine."""
    view, _, site = await open_form(request, site_id)
    await require_execution(view.installation.executions, site, execution_id)
    stopped = await view.installation.service.stop(execution_id)
    message = PageMessage("stopping") if stopped else PageMessage("ended_already", "warn")
    return view.redirect(locate_site(site.id), message)


@router.post("/sites/{site_id}/pause")
async def pause_site(request: Request, site_id: str) -> Response:
    view, _, site = await open_form(request, site_id)
    await view.installation.schedules.pause(site.number)
    return view.redirect(locate_site(site.id), PageMessage("paused", values={"site": site.id}))


@router.post("/sites/{site_id}/resume")
async def resume_site(request: Request, site_id: str) -> Response:
    view, _, site = await open_form(request, site_id)
    await view.installation.schedules.resume(site.number)
    await view.installation.service.free(site)
    view.installation.wake()
    return view.redirect(locate_site(site.id), PageMessage("resumed", values={"site": site.id}))


@router.get("/sites/{site_id}/forget/confirm")
async def ask_forget(request: Request, site_id: str, since: str, channel: str = "") -> Response:
    view = PageView(request)
    site, at, chosen = await view.require_site(site_id), _require_timestamp(since), _read_choice(channel)
    count = await count_since(site, at, channel=chosen, database=view.installation.database)
    name = "confirm.all_channels" if chosen is ChannelChoice.ALL else f"channel.{chosen.value}"
    return await view.ask(
        "forget",
        {
            "site": site.id,
            # As in the form: a time in UTC, with its year.
            "since": view.formats.utc_time(at),
            "channel": view.texts(name),
            "n": view.formats.number(count),
        },
        list_name="sites",
        action=f"{locate_site(site.id)}/forget",
        hidden={"since": to_text(at), "channel": chosen.value},
        back=locate_site(site.id),
        name=site.id,
    )


@router.post("/sites/{site_id}/forget")
async def forget(request: Request, site_id: str) -> Response:
    view, form, site = await open_form(request, site_id)
    try:
        count = await forget_since(
            site,
            _require_timestamp(form.get("since")),
            channel=_read_choice(form.get("channel")),
            database=view.installation.database,
            executions=view.installation.executions,
        )
    except AlreadyRunningError:
        return view.redirect(locate_site(site.id), PageMessage("already_running", "warn"))
    return view.redirect(locate_site(site.id), PageMessage("forgotten", values={"n": f"{count:,}"}))


@router.get("/sites/{site_id}/remove/confirm")
async def ask_remove(request: Request, site_id: str) -> Response:
    view = PageView(request)
    site = await view.require_site(site_id)
    href = locate_site(site.id)
    return await view.ask(
        "remove",
        {"site": site.id},
        list_name="sites",
        action=f"{href}/remove",
        hidden={},
        back=href,
        name=site.id,
        is_typed=True,
    )


@router.post("/sites/{site_id}/remove")
async def remove_site(request: Request, site_id: str) -> Response:
    view, form, site = await open_form(request, site_id)
    if form.get("name") != site.id:
        return view.redirect(f"{locate_site(site.id)}/remove/confirm", PageMessage("name_wrong", "bad"))
    if view.installation.is_from_environment(site.id):
        problem(409, "from_environment", "this site is set up by SITEMAP_URL and related variables; change those")
    await view.installation.service.remove(site)
    await view.installation.tokens.revoke(Scope.SITE, site=site.number)
    return view.redirect("/sites", PageMessage("removed", values={"site": site.id}))


def _read_choice(text: str) -> ChannelChoice:
    return ChannelChoice(text) if text in set(ChannelChoice) else ChannelChoice.ALL


def _require_timestamp(text: str) -> datetime:
    at = parse_timestamp(text)
    if at is None:
        problem(400, "since_unreadable", "it must be a time such as 2026-11-15T10:00:00Z")
    return at
