"""`tidings sites`: the sites that are stored."""

from collections.abc import Iterator
from typing import Annotated

import typer

from tidings.announce.site.channel_settings import BaiduSettings, BingSettings
from tidings.announce.site.document import change_site, describe_site, read_site
from tidings.announce.site.site import Site
from tidings.cli.announce.announce import require_key
from tidings.cli.announce.site_options import ReadOptions, takes_site_options
from tidings.cli.language import say
from tidings.cli.options import GroupOption, KeyOption, SiteArgument, make_group
from tidings.cli.output import print_json
from tidings.cli.session import Session, answering, fail, require_group, require_site
from tidings.core.secrets.scopes import Scope

app = make_group("Store, change and remove sites.")


@app.command("add")
@answering
@takes_site_options
async def add(
    session: Session,
    sitemap_url: Annotated[list[str], typer.Argument(help="The sitemap; several are possible.")],
    key: KeyOption = None,
    site_id: Annotated[str | None, typer.Option("--id", help="The site's id. [the host]")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The site's host. [the sitemap's]")] = None,
    *,
    read_options: ReadOptions,
) -> None:
    """Store a site, so that `tidings run ID` needs nothing else.

    A site of the same id is replaced.
    """
    from tidings.announce.site.table import Origin

    settings = session.settings
    document = {
        "id": site_id,
        "host": host,
        "sitemapUrls": sitemap_url,
        "indexnowKey": require_key(key, settings),
        **read_options(),
    }
    site = read_site(document, engines=settings.engines, schedule=settings.schedule)
    installation = await session.open()
    stored = await installation.sites.save(installation.know(site), origin=Origin.API)
    session.answer({"site": describe_site(stored)}, "Stored {site}.", site=stored.id)


@app.command("set")
@answering
@takes_site_options
async def set_site(
    session: Session,
    site_id: SiteArgument,
    sitemap: Annotated[list[str] | None, typer.Option("--sitemap", help="A sitemap; repeat it for more.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The IndexNow key.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether the schedule runs it.")] = None,
    bing: Annotated[bool | None, typer.Option("--bing/--no-bing", help="Whether to submit to Bing.")] = None,
    baidu: Annotated[bool | None, typer.Option("--baidu/--no-baidu", help="Whether to push to Baidu.")] = None,
    no_google: Annotated[bool, typer.Option("--no-google", help="Forget Google's credentials.")] = False,
    no_google_indexing: Annotated[bool, typer.Option("--no-google-indexing", help="Indexing API off.")] = False,
    *,
    read_options: ReadOptions,
) -> None:
    """Change some settings of a stored site. The others stay."""
    settings = session.settings
    changes = {"sitemapUrls": sitemap, "indexnowKey": key, "enabled": enabled, **read_options()}
    switches = {BingSettings.fields.enabled: bing, BaiduSettings.fields.enabled: baidu}
    changes |= {name: value for name, value in switches.items() if value is not None}
    given = {name: value for name, value in changes.items() if value is not None}
    if no_google or no_google_indexing:
        given["googleIndexing"] = None
    if no_google:
        given["googleCredentials"] = None
    if not given:
        fail("nothing to change: give at least one option; `tidings sites set --help` lists them")

    installation = await session.open()
    if installation.is_from_environment(site_id):
        fail("SITEMAP_URL and the variables beside it set {site} up; change them instead", site=site_id)
    await require_site(installation, site_id)
    changed = await installation.sites.change(
        site_id,
        lambda site: installation.know(change_site(site, given, engines=settings.engines, schedule=settings.schedule)),
    )
    if changed is None:
        fail("{site} was removed meanwhile", site=site_id)
    fields = say(", ").join(given)
    session.answer({"site": describe_site(changed)}, "Changed {site}: {fields}.", site=changed.id, fields=fields)


@app.command("list")
@answering
async def list_sites(session: Session, group: GroupOption = None) -> None:
    """List all sites."""
    installation = await session.open()
    await require_group(installation, group)
    found = [site for site in await installation.sites.list_all() if group in (None, site.group)]
    unscheduled = await installation.sites.list_unscheduled()
    session.answer_table(
        {"sites": [describe_site(site) for site in found]},
        ("id", say("group"), say("sitemap"), say("channels"), say("schedule")),
        [_make_row(site, is_scheduled=site.number not in unscheduled) for site in found],
    )


def _make_row(site: Site, *, is_scheduled: bool) -> tuple[str, ...]:
    return (
        site.id,
        site.group or "-",
        ", ".join(site.sitemap_urls),
        ", ".join(_list_channels(site)),
        site.schedule if is_scheduled else say("off"),
    )


def _list_channels(site: Site) -> Iterator[str]:
    """Each channel; those with a quota with their pages a day."""
    yield "indexnow"
    for settings in site.ranked:
        if settings.enabled:
            yield f"{settings.fields.prefix} {say('{count} a day', count=settings.shown_quota)}"
    if site.google.key and not site.google.enabled:
        yield "google"


@app.command("show")
@answering
async def show(session: Session, site_id: SiteArgument) -> None:
    """Show one site as JSON. Its keys are masked."""
    installation = await session.open()
    print_json({"site": describe_site(await require_site(installation, site_id))}, indent=2)


@app.command("remove")
@answering
async def remove(session: Session, site_id: SiteArgument) -> None:
    """Delete a site. Its history and its ledger stay, in case it comes back."""
    installation = await session.open()
    site = await require_site(installation, site_id)
    await installation.service.remove(site)
    await installation.tokens.revoke(Scope.SITE, site=site.number)
    session.answer({"removed": site_id}, "Removed {site}.", site=site_id)
