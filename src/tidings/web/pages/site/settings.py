"""The settings of one site, as a form. Its fields are in `fields`."""

from fastapi import Request
from fastapi.responses import Response

from tidings.announce.site.document import change_site, describe_site
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site
from tidings.web.errors import problem
from tidings.web.pages.site.fields import GROUPS, SECRETS, find_field, read_changes, show_document
from tidings.web.pages.site.view import SiteView, open_form
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import FormState, FormValues
from tidings.web.pages.view.rendering import PageMessage, locate_site
from tidings.web.pages.view.routing import make_page_router

router = make_page_router()


@router.get("/sites/{site_id}/settings")
async def show_settings(request: Request, site_id: str) -> Response:
    view = await SiteView.open(request, site_id)
    return await _show(view, FormState(values=show_document(describe_site(view.site))))


@router.post("/sites/{site_id}/settings")
async def save_settings(request: Request, site_id: str) -> Response:
    view, form, site = await open_form(request, site_id)
    installation, settings = view.installation, view.installation.settings
    if installation.is_from_environment(site.id):
        problem(409, "from_environment", "the environment sets up this site; change its variables instead")

    def change(stored: Site) -> Site:
        changes = read_changes(form)
        return installation.know(change_site(stored, changes, engines=settings.engines, schedule=settings.schedule))

    try:
        await installation.sites.change(site.id, change)
    except SiteError as error:
        shown = show_problem(form, error, view.formats)
        return await _show(await SiteView.open(request, site_id), shown, status=400)
    installation.wake()
    return view.redirect(f"{locate_site(site.id)}/settings", PageMessage("saved"))


async def _show(view: SiteView, form: FormState, *, status: int = 200) -> Response:
    document, site = describe_site(view.site), view.site
    # Whether the channel or the check is on; other groups have no such state.
    is_on = {
        "bing": site.bing.enabled,
        "baidu": site.baidu.enabled,
        "google": site.google.key is not None,
        "page_check": site.page_check.mode.value != "off",
    }
    # Groups that are open at first: they have fields of every site, or a problem.
    opened = {"pages", "indexnow"} | {
        name for name, fields in GROUPS.items() if any(field.name in form.problems for field in fields)
    }
    kept = {name for name in SECRETS if document[name]}
    return await view.render_tab(
        "site_settings.html", "settings", status=status, form=form, groups=GROUPS, is_on=is_on, opened=opened, kept=kept
    )


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
