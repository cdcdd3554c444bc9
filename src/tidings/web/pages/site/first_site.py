"""The first site: four steps on one page, from a sitemap's address to the first accepted page.

The state of the wizard is in the address (sitemap and key), so every step can be reloaded and nothing is stored before
the third step saves the site.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.due.pages import Page
from tidings.announce.execution.preview import preview
from tidings.announce.site.check import check_key_file, check_sitemap
from tidings.announce.site.document import read_site
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site, check_key, make_indexnow_key, make_site
from tidings.core.stop import Stop
from tidings.web.errors import problem
from tidings.web.pages.site.settings import show_problem
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import FormState, read_form
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope

_SHOWN_PAGES = 20


@dataclass(frozen=True, slots=True)
class Wizard:
    """How far the person is. `step` is 1 to 4."""

    step: int
    sitemap: str = ""
    key: str = ""
    host: str = ""
    # What the sitemap's check said.
    sitemap_text: str = ""
    sitemap_ok: bool = True
    # What the key file's check said; None before the first check.
    finding: Any = None
    # It said that the file is in place.
    has_key_file: bool = False

    @property
    def query(self) -> str:
        return urlencode({"sitemap": self.sitemap, "key": self.key})


def make_first_site_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    _add_steps(router, dashboard)
    _add_saving(router, dashboard)
    _add_dry_run(router, dashboard)
    return router


async def _show(
    dashboard: Dashboard, request: Request, wizard: Wizard, *, form: FormState | None = None, status: int = 200
) -> Response:
    shown = form or FormState({"sitemap": wizard.sitemap})
    return await dashboard.render(request, "first_site.html", status=status, wizard=wizard, form=shown)


def _add_steps(router: APIRouter, dashboard: Dashboard) -> None:
    @router.get("/sites/new")
    async def show_wizard(
        request: Request, sitemap: str = "", key: str = "", check: bool = False, skip: bool = False
    ) -> Response:
        """Step 1 without a sitemap, step 2 with one, step 3 once the key file is in place or skipped."""
        require_scope(request)
        if not sitemap.strip():
            return await _show(dashboard, request, Wizard(1))
        formats = dashboard.renderer.formats(request)
        try:
            site = make_site(sitemap_urls=[sitemap.strip()], key=key or make_indexnow_key())
        except SiteError as error:
            label = formats.texts("field.sitemap")
            form = FormState({"sitemap": sitemap}, {"sitemap": formats.explain(error.rule)}, {"sitemap": label})
            return await _show(dashboard, request, Wizard(1, sitemap=sitemap), form=form, status=400)
        return await _show(dashboard, request, await _look(dashboard, formats, site, check=check, skip=skip))

    @router.get("/sites/new/key-file")
    async def download_key_file(request: Request, key: str) -> Response:
        require_scope(request)
        try:
            content = check_key(key).reveal()
        except SiteError as error:
            problem(400, "invalid_input", str(error))
        headers = {"Content-Disposition": f'attachment; filename="{content}.txt"'}
        return Response(content, media_type="text/plain", headers=headers)


def _add_saving(router: APIRouter, dashboard: Dashboard) -> None:
    installation = dashboard.installation

    @router.post("/sites/new")
    async def add_site(request: Request) -> Response:
        require_scope(request)
        form = await read_form(request)
        document = {"sitemapUrl": form.get("sitemap"), "indexnowKey": form.get("key")}
        for name in ("schedule", "bingApiKey"):
            if form.get(name):
                document[name] = form.get(name)
        settings = installation.settings
        try:
            fields = document | {"bingEnabled": bool(form.get("bingApiKey"))}
            site = installation.know(read_site(fields, engines=settings.engines, schedule=settings.schedule))
        except SiteError as error:
            wizard = Wizard(3, sitemap=form.get("sitemap"), key=form.get("key"), has_key_file=form.has("has_key_file"))
            shown = show_problem(form, error, dashboard.renderer.formats(request))
            return await _show(dashboard, request, wizard, form=shown, status=400)
        stored = await installation.sites.add(site)
        installation.wake()
        if stored is None:
            return dashboard.renderer.redirect(locate_site(site.id), PageMessage("exists", "warn", {"site": site.id}))
        added = PageMessage("added", values={"site": site.id})
        return dashboard.renderer.redirect(f"{locate_site(site.id)}/dry-run", added)


def _add_dry_run(router: APIRouter, dashboard: Dashboard) -> None:
    installation = dashboard.installation

    @router.get("/sites/{site_id}/dry-run")
    async def show_dry_run(request: Request, site_id: str) -> Response:
        """What an execution would send now. Nothing leaves this machine."""
        require_scope(request)
        site = await dashboard.require_site(site_id)
        count = 0
        first: list[str] = []

        def list_page(page: Page) -> None:
            nonlocal count
            count += 1
            if count <= _SHOWN_PAGES:
                first.append(page.url)

        report = await preview(
            site,
            announcer=installation.announcer,
            stop=Stop(clock=installation.clock, budget=installation.settings.run_budget),
            on_page=list_page,
        )
        return await dashboard.render(
            request,
            "dry_run.html",
            site_id=site.id,
            href=locate_site(site.id),
            errors=report.errors,
            due=count,
            urls=first,
        )


async def _look(dashboard: Dashboard, formats: Formats, site: Site, *, check: bool, skip: bool) -> Wizard:
    installation = dashboard.installation
    sitemap = await check_sitemap(site, client=installation.client, clock=installation.clock)
    if not sitemap.good:
        text = formats.explain(sitemap.message, sitemap.advice)
        return Wizard(1, sitemap=site.sitemap_urls[0], sitemap_text=text, sitemap_ok=False)
    finding = await check_key_file(site, client=installation.client) if check else None
    passed = skip or (finding is not None and finding.good)
    return Wizard(
        3 if passed else 2,
        sitemap=site.sitemap_urls[0],
        key=site.key.reveal(),
        host=site.host,
        finding=finding,
        has_key_file=finding is not None and finding.good,
    )
