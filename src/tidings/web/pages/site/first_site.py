"""The first site: four steps on one page, from a sitemap's address to the first accepted page.

The state of the wizard is in the address (sitemap and key), so every step can be reloaded and nothing is stored before
the third step saves the site.
"""

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import Response

from tidings.announce.due.pages import Page
from tidings.announce.execution.preview import preview
from tidings.announce.site.check import SiteFinding, check_key_file, check_sitemap
from tidings.announce.site.document import read_site
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site, check_key, make_indexnow_key, make_site
from tidings.core.stop import Stop
from tidings.web.errors import problem
from tidings.web.pages.site.settings import show_problem
from tidings.web.pages.view.formats import describe_schedule
from tidings.web.pages.view.forms import FormState
from tidings.web.pages.view.rendering import PageMessage, locate_site
from tidings.web.pages.view.routing import PageView, make_page_router
from tidings.wiring.installation import Installation

router = make_page_router()

_SHOWN_PAGES = 20


@dataclass(frozen=True, slots=True)
class Wizard:
    """The state of the wizard. `step` is 1 to 4."""

    step: int
    sitemap: str = ""
    key: str = ""
    host: str = ""
    # Where the key file has to be.
    key_location: str = ""
    # The result of the key file's check; None before the first check.
    finding: SiteFinding | None = None
    # It said that the file is in place.
    has_key_file: bool = False

    @property
    def query(self) -> str:
        return urlencode({"sitemap": self.sitemap, "key": self.key})


@router.get("/sites/new")
async def show_wizard(
    request: Request, sitemap: str = "", key: str = "", check: bool = False, skip: bool = False
) -> Response:
    """Step 1 without a sitemap, step 2 with one, step 3 once the key file is in place or skipped."""
    view, given = PageView(request), sitemap.strip()
    if not given:
        return await _show(view, Wizard(1))
    try:
        site = make_site(sitemap_urls=[given], key=key or make_indexnow_key())
    except SiteError as error:
        rule = view.formats.explain(error.rule)
        if error.field != "indexnowKey":
            return await _refuse_sitemap(view, given, rule, status=400)
        # A key of the person's own. The proposal beside it is a new one.
        site = make_site(sitemap_urls=[given], key=make_indexnow_key())
        return await _show(view, _propose(site), form=FormState({"key": key}, {"key": rule}), status=400)
    wizard = await _look(view.installation, site, check=check, skip=skip)
    if isinstance(wizard, SiteFinding):
        return await _refuse_sitemap(view, given, view.formats.explain(wizard.message, wizard.advice))
    if not key:
        # From here on the key stays: also when the page is loaded again after its file was uploaded.
        return view.redirect(f"/sites/new?{wizard.query}")
    return await _show(view, wizard)


@router.get("/sites/new/key-file")
async def download_key_file(request: Request, key: str) -> Response:
    PageView(request)
    try:
        content = check_key(key).reveal()
    except SiteError as error:
        problem(400, "invalid_input", str(error))
    headers = {"Content-Disposition": f'attachment; filename="{content}.txt"'}
    return Response(content, media_type="text/plain", headers=headers)


@router.post("/sites/new")
async def add_site(request: Request) -> Response:
    view = PageView(request)
    form, installation = await view.read_form(), view.installation
    sitemap, key, bing_key = form.get("sitemap"), form.get("key"), form.get("bingApiKey")
    fields = {"sitemapUrl": sitemap, "indexnowKey": key, "bingEnabled": bool(bing_key)}
    fields |= {name: form.get(name) for name in ("schedule", "bingApiKey") if form.get(name)}
    settings = installation.settings
    try:
        site = installation.know(read_site(fields, engines=settings.engines, schedule=settings.schedule))
    except SiteError as error:
        wizard = Wizard(3, sitemap=sitemap, key=key, has_key_file=form.has("has_key_file"))
        return await _show(view, wizard, form=show_problem(form, error, view.formats), status=400)
    stored = await installation.sites.add(site)
    installation.wake()
    if stored is None:
        return view.redirect(locate_site(site.id), PageMessage("exists", "warn", {"site": site.id}))
    return view.redirect(f"{locate_site(site.id)}/dry-run", PageMessage("added", values={"site": site.id}))


@router.get("/sites/{site_id}/dry-run")
async def show_dry_run(request: Request, site_id: str) -> Response:
    """What an execution would send now. Nothing leaves this machine."""
    view = PageView(request)
    site, installation = await view.require_site(site_id), view.installation
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
    return await view.render("dry_run.html", site_id=site.id, errors=report.errors, due=count, urls=first)


async def _show(view: PageView, wizard: Wizard, *, form: FormState | None = None, status: int = 200) -> Response:
    shown, cron = form or FormState({"sitemap": wizard.sitemap}), view.installation.settings.schedule
    schedule = describe_schedule(cron, view.formats).striptags()
    return await view.render("first_site.html", status=status, wizard=wizard, form=shown, cron=cron, schedule=schedule)


async def _refuse_sitemap(view: PageView, typed: str, rule: str, *, status: int = 200) -> Response:
    """The first step with what was typed, and why it cannot be used."""
    form = FormState({"sitemap": typed}, {"sitemap": rule})
    return await _show(view, Wizard(1, sitemap=typed), form=form, status=status)


async def _look(installation: Installation, site: Site, *, check: bool, skip: bool) -> Wizard | SiteFinding:
    """How far the person is, or why the sitemap cannot be used."""
    sitemap = await check_sitemap(site, client=installation.client, clock=installation.clock)
    if not sitemap.good:
        return sitemap
    if not check:
        return replace(_propose(site), step=3 if skip else 2)
    finding = await check_key_file(site, client=installation.client)
    # The check masks the key for the log; here the person has to see and open the real URL.
    shown = replace(finding, message=finding.message.replace(site.key.hint, site.key.reveal()))
    passed = skip or finding.good
    return replace(_propose(site), step=3 if passed else 2, finding=shown, has_key_file=finding.good)


def _propose(site: Site) -> Wizard:
    """The second step: where the key file of this site has to be."""
    return Wizard(
        2,
        sitemap=site.sitemap_urls[0],
        key=site.key.reveal(),
        host=site.host,
        key_location=site.key_location,
    )
