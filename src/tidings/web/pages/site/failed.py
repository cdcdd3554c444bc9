"""Failed URLs of one site with what to do about them, requeue, and the look-up of one URL."""

from typing import Any, Final

from fastapi import Query, Request
from fastapi.responses import Response

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.corrections import requeue, requeue_failed
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.lookup import find_page
from tidings.core.executions import AlreadyRunningError
from tidings.core.net.addresses import MAX_URL_LENGTH
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.site.view import SiteView, open_form
from tidings.web.pages.view.rendering import PageMessage, locate_site
from tidings.web.pages.view.routing import make_page_router
from tidings.web.pages.view.texts import Texts

router = make_page_router()

_MOST_FAILED: Final = 100


async def list_failed(view: SiteView, *, limit: int) -> list[dict[str, Any]]:
    """The newest failures, each with what to do, as the table shows them."""
    return [
        {"page": page, "advice": find_advice(page.verdict, page.channel, view.texts)}
        for page in await view.installation.service.list_failed(view.site, limit=limit)
    ]


def find_advice(verdict: str | None, channel: Channel, texts: Texts) -> str:
    """What a person should do about a page that failed like this at this channel."""
    keys = (f"advice.{verdict}_{channel}", f"advice.{verdict}", "advice.unknown")
    return next(filter(None, map(texts.find, keys)))


@router.get("/sites/{site_id}/failed")
async def show_failed(request: Request, site_id: str) -> Response:
    view = await SiteView.open(request, site_id, Scope.VIEWER)
    return await view.render_tab("failed.html", "failed", failed=await list_failed(view, limit=_MOST_FAILED))


@router.post("/sites/{site_id}/requeue")
async def requeue_pages(request: Request, site_id: str) -> Response:
    """The chosen pages, or all that failed."""
    view, form, site = await open_form(request, site_id)
    back, urls = f"{locate_site(site.id)}/failed", form.list("url")
    if not urls and not form.has("all"):
        return view.redirect(back, PageMessage("nothing_chosen", "warn"))
    database, executions, count = view.installation.database, view.installation.executions, len(urls)
    try:
        if form.has("all"):
            count = await requeue_failed(site, database=database, executions=executions)
        else:
            await requeue(site, urls, channel=ChannelChoice.ALL, database=database, executions=executions)
    except AlreadyRunningError:
        return view.redirect(back, PageMessage("already_running", "warn"))
    return view.redirect(back, PageMessage("requeued", values={"n": f"{count:,}"}))


@router.get("/sites/{site_id}/lookup")
async def show_lookup(request: Request, site_id: str, url: str = Query("", max_length=2 * MAX_URL_LENGTH)) -> Response:
    """Was this page announced?"""
    view = await SiteView.open(request, site_id, Scope.VIEWER)
    installation, found = view.installation, None
    if url.strip():
        found = await find_page(
            view.site,
            url,
            database=installation.database,
            clock=installation.clock,
            rules=installation.announcer.rules,
            channels=view.summary.channels,
        )
    return await view.render_tab("lookup.html", "lookup", url=url.strip(), found=found)
