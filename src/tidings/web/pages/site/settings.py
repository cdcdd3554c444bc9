"""The settings of one site, as a form. Its fields are in `fields`."""

from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.site.document import change_site, describe_site
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site
from tidings.web.errors import problem
from tidings.web.pages.site.fields import GROUPS, SECRETS, find_field, read_changes, show_document
from tidings.web.pages.site.view import SiteView
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import FormState, FormValues, read_form
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """A part of the form that opens and closes."""

    name: str
    # Whether the channel or the check is on; None for a group without such a state.
    is_on: bool | None
    # Whether it is open at first: it has fields of every site, or a problem.
    is_open: bool


def make_site_settings_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    installation = dashboard.installation

    async def show(view: SiteView, form: FormState, *, status: int = 200) -> Response:
        document = describe_site(view.site)
        kept = {name for name in SECRETS if document[name]}
        groups = _list_groups(view.site, form)
        return await view.render(
            "site_settings.html", tab="settings", status=status, form=form, groups=groups, fields=GROUPS, kept=kept
        )

    @router.get("/sites/{site_id}/settings")
    async def show_settings(request: Request, site_id: str) -> Response:
        require_scope(request)
        view = await SiteView.open(dashboard, request, site_id)
        return await show(view, FormState(values=show_document(describe_site(view.site))))

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
            return await show(view, show_problem(form, error, view.formats), status=400)
        installation.wake()
        return dashboard.renderer.redirect(f"{locate_site(site.id)}/settings", PageMessage("saved"))

    return router


def show_problem(form: FormValues, error: SiteError, formats: Formats) -> FormState:
    """The form with the entered values, except secrets, and the problem at its field."""
    values = {name: form.get(name) for name in form.fields if name not in SECRETS | {"form_key"}}
    name = find_field(error)
    return FormState(
        values,
        {name: formats.explain(error.rule)},
        {name: formats.texts(f"setting.{name}.label")},
        lost_secret=any(form.get(each) for each in SECRETS),
    )


def _list_groups(site: Site, form: FormState) -> list[SettingGroup]:
    is_on = {
        "bing": site.bing.enabled,
        "baidu": site.baidu.enabled,
        "google": site.google.key is not None,
        "page_check": site.page_check.mode.value != "off",
    }
    groups = []
    for name, fields in GROUPS.items():
        has_problem = any(field.name in form.problems for field in fields)
        groups.append(SettingGroup(name, is_on.get(name), is_open=name in ("pages", "indexnow") or has_problem))
    return groups
