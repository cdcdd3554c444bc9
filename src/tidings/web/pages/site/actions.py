"""Forms that act on one site: run, pause, resume, forget, remove. A page asks before anything that cannot be undone."""

from collections.abc import Mapping
from datetime import datetime

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.corrections import count_since, forget_since
from tidings.announce.service import BusyError
from tidings.announce.site.site import Site
from tidings.core.clock import parse_timestamp, to_text
from tidings.core.executions import AlreadyRunningError
from tidings.core.secrets.scopes import Scope
from tidings.web.errors import problem
from tidings.web.pages.view.forms import read_form
from tidings.web.pages.view.questions import Question, ask
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope


def make_site_actions_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    _add_actions(router, dashboard)
    _add_corrections(router, dashboard)
    return router


def _add_actions(router: APIRouter, dashboard: Dashboard) -> None:
    installation, renderer = dashboard.installation, dashboard.renderer

    @router.post("/sites/{site_id}/run")
    async def run_site(request: Request, site_id: str) -> Response:
        require_scope(request, Scope.SITE)
        form, site = await read_form(request), await dashboard.require_site(site_id)
        try:
            await installation.service.trigger(site, channel=_read_choice(form.get("channel")))
        except AlreadyRunningError:
            return renderer.redirect(locate_site(site.id), PageMessage("already_running", "warn"))
        except BusyError:
            return renderer.redirect(locate_site(site.id), PageMessage("busy", "bad"))
        return renderer.redirect(locate_site(site.id), PageMessage("started"))

    @router.post("/sites/{site_id}/executions/{execution_id}/stop")
    async def stop_execution(request: Request, site_id: str, execution_id: str) -> Response:
        """Ask the execution to end in good order, on any machine."""
        require_scope(request)
        await read_form(request)
        site = await dashboard.require_site(site_id)
        record = await installation.executions.find(execution_id)
        if record is None or record.workflow_name != site.workflow_name:
            problem(404, "unknown_execution", "this site has no execution of this id")
        stopped = await installation.service.stop(execution_id)
        message = PageMessage("stopping") if stopped else PageMessage("ended_already", "warn")
        return renderer.redirect(locate_site(site.id), message)

    @router.post("/sites/{site_id}/pause")
    async def pause_site(request: Request, site_id: str) -> Response:
        require_scope(request)
        await read_form(request)
        site = await dashboard.require_site(site_id)
        await installation.schedules.pause(site.number)
        return renderer.redirect(locate_site(site.id), PageMessage("paused", values={"site": site.id}))

    @router.post("/sites/{site_id}/resume")
    async def resume_site(request: Request, site_id: str) -> Response:
        require_scope(request)
        await read_form(request)
        site = await dashboard.require_site(site_id)
        await installation.schedules.resume(site.number)
        await installation.service.free(site)
        installation.wake()
        return renderer.redirect(locate_site(site.id), PageMessage("resumed", values={"site": site.id}))


def _add_corrections(router: APIRouter, dashboard: Dashboard) -> None:
    """The actions that cannot be undone, with a confirmation page."""
    installation, renderer = dashboard.installation, dashboard.renderer

    async def ask_about(
        request: Request, site: Site, key: str, *, hidden: Mapping[str, str], typed_name: str = "", **values: str
    ) -> Response:
        href = locate_site(site.id)
        question = Question(
            key=key,
            values={"site": site.id, **values},
            action=f"{href}/{key}",
            list_href="/sites",
            list_key="nav.sites",
            back=href,
            name=site.id,
            hidden=hidden,
            typed_name=typed_name,
        )
        return await ask(dashboard, request, question)

    @router.get("/sites/{site_id}/forget/confirm")
    async def ask_forget(request: Request, site_id: str, since: str, channel: str = "") -> Response:
        require_scope(request)
        site, at, chosen = await dashboard.require_site(site_id), _require_timestamp(since), _read_choice(channel)
        formats = renderer.formats(request)
        count = await count_since(site, at, channel=chosen, database=installation.database)
        return await ask_about(
            request,
            site,
            "forget",
            hidden={"since": to_text(at), "channel": chosen.value},
            # As in the form: a time in UTC, with its year.
            since=formats.utc_time(at),
            channel=formats.texts("confirm.all_channels" if chosen is ChannelChoice.ALL else f"channel.{chosen.value}"),
            n=formats.number(count),
        )

    @router.post("/sites/{site_id}/forget")
    async def forget(request: Request, site_id: str) -> Response:
        require_scope(request)
        form, site = await read_form(request), await dashboard.require_site(site_id)
        try:
            count = await forget_since(
                site,
                _require_timestamp(form.get("since")),
                channel=_read_choice(form.get("channel")),
                database=installation.database,
                executions=installation.executions,
            )
        except AlreadyRunningError:
            return renderer.redirect(locate_site(site.id), PageMessage("already_running", "warn"))
        return renderer.redirect(locate_site(site.id), PageMessage("forgotten", values={"n": f"{count:,}"}))

    @router.get("/sites/{site_id}/remove/confirm")
    async def ask_remove(request: Request, site_id: str) -> Response:
        require_scope(request)
        site = await dashboard.require_site(site_id)
        return await ask_about(request, site, "remove", hidden={}, typed_name=site.id)

    @router.post("/sites/{site_id}/remove")
    async def remove_site(request: Request, site_id: str) -> Response:
        require_scope(request)
        form, site = await read_form(request), await dashboard.require_site(site_id)
        if form.get("name") != site.id:
            return renderer.redirect(f"{locate_site(site.id)}/remove/confirm", PageMessage("name_wrong", "bad"))
        if installation.is_from_environment(site.id):
            problem(409, "from_environment", "this site is set up by SITEMAP_URL and related variables; change those")
        await installation.service.remove(site)
        await installation.tokens.revoke(Scope.SITE, site=site.number)
        return renderer.redirect("/sites", PageMessage("removed", values={"site": site.id}))


def _read_choice(text: str) -> ChannelChoice:
    return ChannelChoice(text) if text in set(ChannelChoice) else ChannelChoice.ALL


def _require_timestamp(text: str) -> datetime:
    at = parse_timestamp(text)
    if at is None:
        problem(400, "since_unreadable", "it must be a time such as 2026-11-15T10:00:00Z")
    return at
