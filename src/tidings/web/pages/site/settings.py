"""The settings of one site, as a form."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.site.channel_settings import AUTO, BingSettings
from tidings.announce.site.document import change_site, describe_site
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site
from tidings.web.errors import problem
from tidings.web.pages.site.view import SiteView
from tidings.web.pages.view.forms import FormState, FormValues, read_form
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope
from tidings.web.pages.view.texts import Texts

# Field of the site's document → key of its label.
LABELS = {
    "sitemapUrl": "field.sitemap",
    "schedule": "field.schedule",
    "searchEngines": "field.engines",
    "indexnowKey": "field.indexnow_key",
    "bingApiKey": "field.bing_key",
    "bingDailyQuota": "field.bing_quota",
    "baiduToken": "field.baidu_token",
    "baiduSite": "field.baidu_site",
    "baiduDailyQuota": "field.baidu_quota",
    "googleCredentials": "field.google_credentials",
    "googleProperty": "field.google_property",
    "googleIndexing": "field.google_indexing",
    "googleDailyQuota": "field.google_quota",
}
_SECRETS = frozenset({"indexnowKey", "bingApiKey", "baiduToken", "googleCredentials"})


def make_site_settings_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router(dashboard)
    installation = dashboard.installation

    @router.get("/sites/{site_id}/settings")
    async def show_settings(request: Request, site_id: str) -> Response:
        require_scope(request)
        view = await SiteView.open(dashboard, request, site_id)
        form = FormState(values=_show_values(describe_site(view.site)))
        return await view.render("site_settings.html", tab="settings", form=form)

    @router.post("/sites/{site_id}/settings")
    async def save_settings(request: Request, site_id: str) -> Response:
        require_scope(request)
        form, site = await read_form(request), await dashboard.require_site(site_id)
        if installation.is_from_environment(site.id):
            problem(409, "from_environment", "the environment sets up this site; change its variables instead")
        settings = installation.settings

        def change(stored: Site) -> Site:
            changes = read_changes(form)
            return installation.know(change_site(stored, changes, engines=settings.engines, schedule=settings.schedule))

        try:
            await installation.sites.change(site.id, change)
        except SiteError as error:
            view = await SiteView.open(dashboard, request, site_id)
            state = show_problem(form, error, view.formats.texts)
            return await view.render("site_settings.html", tab="settings", status=400, form=state)
        installation.wake()
        return dashboard.renderer.redirect(f"{locate_site(site.id)}/settings", PageMessage("saved"))

    return router


def read_changes(form: FormValues) -> dict[str, Any]:
    """The form's fields as changes of the site's document; an empty secret stays as it is. Raises SiteError."""
    changes: dict[str, Any] = {
        "sitemapUrl": form.get("sitemapUrl"),
        "schedule": form.get("schedule") or None,
        "searchEngines": [part.strip() for part in form.get("searchEngines").split(",") if part.strip()] or None,
        "announceRemoved": form.has("announceRemoved"),
        "bingEnabled": form.has("bingEnabled"),
        "baiduEnabled": form.has("baiduEnabled"),
        "baiduSite": form.get("baiduSite") or None,
        "googleProperty": form.get("googleProperty") or None,
        "googleIndexing": form.get("googleIndexing") or None,
    }
    for name in ("bingDailyQuota", "baiduDailyQuota", "googleDailyQuota"):
        quota = form.get(name)
        if quota == AUTO and name == BingSettings.fields.daily_quota:
            changes[name] = AUTO
            continue
        if quota and not (quota.isascii() and quota.isdigit() and len(quota) < 9):
            raise SiteError(name, "it must be a whole number")
        if quota:
            changes[name] = int(quota)
    return changes | {name: form.get(name) for name in _SECRETS if form.get(name)}


def show_problem(form: FormValues, error: SiteError, texts: Texts) -> FormState:
    """What was typed, but for secrets, with the problem at its field."""
    values = {name: form.get(name) for name in form.fields if name not in _SECRETS | {"form_key"}}
    labels = {name: texts(key) for name, key in LABELS.items()}
    return FormState(values=values, problems={error.field: error.rule}, labels=labels)


def _show_values(document: Mapping[str, Any]) -> dict[str, str]:
    return {
        "sitemapUrl": document["sitemapUrl"],
        "schedule": document["schedule"],
        "searchEngines": ", ".join(document["searchEngines"]),
        "announceRemoved": "on" if document["announceRemoved"] else "",
        "bingEnabled": "on" if document["bingEnabled"] else "",
        "bingDailyQuota": str(document["bingDailyQuota"]),
        "baiduEnabled": "on" if document["baiduEnabled"] else "",
        "baiduSite": document["baiduSite"] or "",
        "baiduDailyQuota": str(document["baiduDailyQuota"]),
        "googleProperty": document["googleProperty"] or "",
        "googleIndexing": document["googleIndexing"] or "",
        "googleDailyQuota": str(document["googleDailyQuota"]),
    }
