"""`tidings sites`: the sites that are stored."""

from typing import Annotated, Any

import typer

from tidings.announce.site.document import change_site, describe_site, read_site
from tidings.announce.site.site import BingPriority, Site, SubmitMethod
from tidings.cli.announce.announce import require_key
from tidings.cli.options import JsonOption, KeyLocationOption, KeyOption, SiteArgument, make_group
from tidings.cli.output import escape, print_answer, print_json, print_table
from tidings.cli.session import Session, command, fail, require_site
from tidings.core.secrets.scopes import Scope

app = make_group("Store, change and remove sites.")

EngineOption = Annotated[list[str] | None, typer.Option("--engine", help="An engine; repeat it for more.")]
BackupOption = Annotated[
    list[str] | None, typer.Option("--backup", help="A sitemap to use if a sitemap cannot be read.")
]
MethodOption = Annotated[SubmitMethod | None, typer.Option("--method", help="How to send URLs. [auto]")]
ScheduleOption = Annotated[
    str | None, typer.Option("--schedule", help="When it runs: a cron expression, UTC. [CRON_SCHEDULE]")
]
RemovedOption = Annotated[
    bool | None, typer.Option("--announce-removed/--no-announce-removed", help="Announce pages that are gone too.")
]
BingKeyOption = Annotated[
    str | None, typer.Option("--bing-key", help="A key for Bing's Webmaster API; switches Bing on. -: ask for it.")
]
BingQuotaOption = Annotated[
    int | None, typer.Option("--bing-quota", help="The most URLs a day for Bing, 1 to 500. [100]")
]
BingPriorityOption = Annotated[
    BingPriority | None, typer.Option("--bing-priority", help="The pages that go first. [newest]")
]


@app.command("add")
@command
async def add(
    session: Session,
    sitemap_url: Annotated[list[str], typer.Argument(help="The sitemap; several are possible.")],
    key: KeyOption = None,
    site_id: Annotated[str | None, typer.Option("--id", help="The site's id. [the host]")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The site's host. [the sitemap's]")] = None,
    engine: EngineOption = None,
    backup: BackupOption = None,
    method: MethodOption = None,
    key_location: KeyLocationOption = None,
    schedule: ScheduleOption = None,
    announce_removed: RemovedOption = None,
    bing_key: BingKeyOption = None,
    bing_quota: BingQuotaOption = None,
    bing_priority: BingPriorityOption = None,
    as_json: JsonOption = False,
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
        "backupSitemapUrls": backup,
        "indexnowKey": require_key(key, settings),
        "keyLocation": key_location,
        "searchEngines": engine,
        "submitMethod": method,
        "schedule": schedule,
        "announceRemoved": announce_removed,
        **_read_bing(bing_key, bing_quota, bing_priority),
    }

    site = read_site(document, engines=settings.engines, schedule=settings.schedule)
    installation = await session.open()
    stored = await installation.sites.save(installation.know(site), origin=Origin.API)
    print_answer({"site": describe_site(stored)}, f"Stored {stored.id}.", as_json=as_json)


@app.command("set")
@command
async def set_site(
    session: Session,
    site_id: SiteArgument,
    sitemap: Annotated[list[str] | None, typer.Option("--sitemap", help="A sitemap; repeat it for more.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The IndexNow key.")] = None,
    engine: EngineOption = None,
    backup: BackupOption = None,
    method: MethodOption = None,
    key_location: KeyLocationOption = None,
    schedule: ScheduleOption = None,
    announce_removed: RemovedOption = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether the schedule runs it.")] = None,
    bing: Annotated[bool | None, typer.Option("--bing/--no-bing", help="Whether to submit to Bing.")] = None,
    bing_key: BingKeyOption = None,
    bing_quota: BingQuotaOption = None,
    bing_priority: BingPriorityOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change some settings of a stored site. The others stay."""
    settings = session.settings
    changes = {
        "sitemapUrls": sitemap,
        "backupSitemapUrls": backup,
        "indexnowKey": key,
        "keyLocation": key_location,
        "searchEngines": engine,
        "submitMethod": method,
        "schedule": schedule,
        "announceRemoved": announce_removed,
        "enabled": enabled,
        **_read_bing(bing_key, bing_quota, bing_priority),
        **({} if bing is None else {"bingEnabled": bing}),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        fail("nothing to change: give at least one option; `tidings sites set --help` lists them")

    installation = await session.open()
    if installation.is_from_environment(site_id):
        fail(f"SITEMAP_URL and the variables beside it set {site_id} up; change them instead")
    await require_site(installation, site_id)
    changed = await installation.sites.change(
        site_id,
        lambda site: installation.know(change_site(site, given, engines=settings.engines, schedule=settings.schedule)),
    )
    if changed is None:
        fail(f"{site_id} was removed meanwhile")
    print_answer({"site": describe_site(changed)}, f"Changed {changed.id}: {', '.join(given)}.", as_json=as_json)


def _read_bing(key: str | None, quota: int | None, priority: BingPriority | None) -> dict[str, Any]:
    """Bing's fields. A key switches Bing on."""
    if key == "-":
        key = typer.prompt("Bing API key", hide_input=True, err=True)
    return {
        "bingApiKey": key,
        "bingEnabled": True if key else None,
        "bingDailyQuota": quota,
        "bingPriority": priority,
    }


@app.command("list")
@command
async def list_sites(session: Session, as_json: JsonOption = False) -> None:
    """List all sites."""
    installation = await session.open()
    found = await installation.sites.list_all()
    if as_json:
        print_json({"sites": [describe_site(site) for site in found]})
    else:
        print_table([_make_row(site) for site in found], "id", "sitemap", "engines", "bing", "schedule")


def _make_row(site: Site) -> tuple[str, ...]:
    return (
        escape(site.id),
        escape(site.sitemap_urls[0]),
        escape(", ".join(map(str, site.engines))),
        f"{site.bing.daily_quota} a day" if site.bing.enabled else "-",
        site.schedule,
    )


@app.command("show")
@command
async def show(session: Session, site_id: SiteArgument, as_json: JsonOption = True) -> None:
    """Show one site as JSON. Its keys are masked."""
    installation = await session.open()
    print_json({"site": describe_site(await require_site(installation, site_id))}, indent=2)


@app.command("remove")
@command
async def remove(session: Session, site_id: SiteArgument, as_json: JsonOption = False) -> None:
    """Delete a site. Its history and its ledger stay, in case it comes back."""
    installation = await session.open()
    site = await require_site(installation, site_id)
    await installation.service.remove(site)
    await installation.tokens.revoke(Scope.SITE, site=site.number)
    print_answer({"removed": site_id}, f"Removed {site_id}.", as_json=as_json)
