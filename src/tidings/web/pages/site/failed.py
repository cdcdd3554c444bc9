"""Failed URLs of one site with what to do about them, requeue, and the look-up of one URL."""

from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.corrections import requeue, requeue_failed
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.lookup import ChannelLookup, PageLookup, find_page
from tidings.core.executions import AlreadyRunningError
from tidings.core.net.addresses import MAX_URL_LENGTH
from tidings.web.pages.site.view import SiteView
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import read_form
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope
from tidings.web.pages.view.texts import Texts

_MOST_FAILED: Final = 100


def make_site_failed_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    _add_failed(router, dashboard)
    _add_lookup(router, dashboard)
    return router


async def list_failed(dashboard: Dashboard, view: SiteView, *, limit: int) -> list[dict[str, Any]]:
    """The newest failures, as the table shows them."""
    return [
        {
            "url": page.url,
            "shown": split_url(page.url),
            "engine": urlsplit(page.engine).netloc or page.engine,
            "reason": view.formats.say(page.reason),
            "advice": find_advice(page.verdict, page.channel, view.formats.texts),
            "attempts": page.attempts,
            "at": page.failed_at,
        }
        for page in await dashboard.installation.service.list_failed(view.site, limit=limit)
    ]


def find_advice(verdict: str | None, channel: Channel, texts: Texts) -> str:
    """What a person should do about a page that failed like this at this channel."""
    keys = (f"advice.{verdict}_{channel}", f"advice.{verdict}", "advice.unknown")
    return texts(next(key for key in keys if texts.has(key)))


def split_url(url: str) -> tuple[str, str]:
    """Host and rest, so that a long URL wraps after its host."""
    parts = urlsplit(url)
    head = f"{parts.scheme}://{parts.netloc}"
    return head, url.removeprefix(head)


def _add_failed(router: APIRouter, dashboard: Dashboard) -> None:
    installation = dashboard.installation

    @router.get("/sites/{site_id}/failed")
    async def show_failed(request: Request, site_id: str) -> Response:
        view = await SiteView.open(dashboard, request, site_id)
        failed = await list_failed(dashboard, view, limit=_MOST_FAILED)
        return await view.render("failed.html", tab="failed", failed=failed)

    @router.post("/sites/{site_id}/requeue")
    async def requeue_pages(request: Request, site_id: str) -> Response:
        """The chosen pages, or all that failed."""
        require_scope(request)
        form, site = await read_form(request), await dashboard.require_site(site_id)
        back, urls = f"{locate_site(site.id)}/failed", form.list("url")
        if not urls and not form.has("all"):
            return dashboard.renderer.redirect(back, PageMessage("nothing_chosen", "warn"))
        database, executions, count = installation.database, installation.executions, len(urls)
        try:
            if form.has("all"):
                count = await requeue_failed(site, database=database, executions=executions)
            else:
                await requeue(site, urls, channel=ChannelChoice.ALL, database=database, executions=executions)
        except AlreadyRunningError:
            return dashboard.renderer.redirect(back, PageMessage("already_running", "warn"))
        return dashboard.renderer.redirect(back, PageMessage("requeued", values={"n": f"{count:,}"}))


def _add_lookup(router: APIRouter, dashboard: Dashboard) -> None:
    installation = dashboard.installation

    @router.get("/sites/{site_id}/lookup")
    async def show_lookup(
        request: Request, site_id: str, url: str = Query("", max_length=2 * MAX_URL_LENGTH)
    ) -> Response:
        """Was this page announced?"""
        view = await SiteView.open(dashboard, request, site_id)
        found = None
        if url.strip():
            page = await find_page(
                view.site,
                url,
                database=installation.database,
                clock=installation.clock,
                rules=installation.announcer.rules,
                channels=view.summary.channels,
            )
            found = _describe_page(page, view.formats)
        return await view.render("lookup.html", tab="lookup", url=url.strip(), found=found)


def _describe_page(page: PageLookup, formats: Formats) -> dict[str, Any]:
    texts = formats.texts
    return {
        "url": page.url,
        "refusal": "" if page.refusal is None else texts(f"lookup.refusal.{page.refusal.value}"),
        "channels": [_describe_channel(each, formats) for each in page.channels],
    }


def _describe_channel(found: ChannelLookup, formats: Formats) -> dict[str, Any]:
    texts = formats.texts
    until = "" if found.until is None else formats.clock_time(found.until)
    return {
        "name": texts(f"channel.{found.channel}"),
        "due": found.is_due,
        "rule": texts(f"lookup.rule.{found.rule.value}.title"),
        "text": texts(f"lookup.rule.{found.rule.value}.text", until=until),
        "is_known": found.accepted_at is not None or found.lastmod is not None,
        "accepted": formats.time(found.accepted_at),
        "lastmod": formats.time(found.lastmod),
        "deliveries": [
            {
                "engine": urlsplit(each.engine).netloc or each.engine,
                "removed": each.removed,
                "planned": formats.time(each.planned_at),
                "attempts": each.attempts,
                "reason": formats.say(each.reason),
                "failed": formats.time(each.failed_at),
            }
            for each in found.deliveries
        ],
    }
