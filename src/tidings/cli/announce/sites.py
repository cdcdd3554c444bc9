"""`tidings sites`: what is set up."""

import json
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidings.announce.site.document import change_site, describe_site, read_site
from tidings.announce.site.site import BingPriority, Site, SubmitMethod
from tidings.announce.site.table import Origin
from tidings.cli.announce.announce import JsonOption, KeyOption, require_key, require_site
from tidings.cli.announce.report import make_console
from tidings.cli.session import fail, load_settings, open_session, run
from tidings.core.secrets.scopes import Scope

app = typer.Typer(help="Set sites up.", no_args_is_help=True, rich_markup_mode=None)

SiteArgument = Annotated[str, typer.Argument(help="The site's id.")]
EngineOption = Annotated[list[str] | None, typer.Option("--engine", help="An engine; may be repeated.")]
BackupOption = Annotated[list[str] | None, typer.Option("--backup", help="A sitemap for when one cannot be read.")]
MethodOption = Annotated[SubmitMethod | None, typer.Option("--method", help="How URLs are sent. [auto]")]
KeyLocationOption = Annotated[str | None, typer.Option("--key-location", help="Where the key file is.")]
ScheduleOption = Annotated[
    str | None, typer.Option("--schedule", help="When it runs: a cron expression, UTC. [0 0 * * *]")
]
RemovedOption = Annotated[
    bool | None, typer.Option("--announce-removed/--no-announce-removed", help="Announce pages that are gone.")
]
BingKeyOption = Annotated[
    str | None, typer.Option("--bing-key", help="A key of Bing's Webmaster API; switches Bing on. -: ask for it.")
]
BingQuotaOption = Annotated[
    int | None, typer.Option("--bing-quota", help="How many URLs a day go to Bing, 1 to 500. [100]")
]
BingPriorityOption = Annotated[
    BingPriority | None, typer.Option("--bing-priority", help="Which pages go first. [newest]")
]


@app.command("add")
def add(
    sitemap_url: Annotated[list[str], typer.Argument(help="One or several sitemaps.")],
    key: KeyOption = None,
    site_id: Annotated[str | None, typer.Option("--id", help="A name for it. [the host]")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The site's host, if not the sitemap's.")] = None,
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
    """Store a site, so that `tidings run ID` needs nothing else. One of the same id is replaced."""
    settings = load_settings()
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

    async def work() -> Site:
        site = read_site(document, engines=settings.engines, schedule=settings.schedule)
        async with open_session(settings) as installation:
            return await installation.sites.save(installation.know(site), origin=Origin.API)

    stored = run(work)
    typer.echo(_write(stored) if as_json else f"Stored {stored.id}.")


@app.command("set")
def set_site(
    site_id: SiteArgument,
    sitemap: Annotated[list[str] | None, typer.Option("--sitemap", help="A sitemap; may be repeated.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Another IndexNow key.")] = None,
    engine: EngineOption = None,
    backup: BackupOption = None,
    method: MethodOption = None,
    key_location: KeyLocationOption = None,
    schedule: ScheduleOption = None,
    announce_removed: RemovedOption = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether it runs by itself.")] = None,
    bing: Annotated[bool | None, typer.Option("--bing/--no-bing", help="Whether it is submitted to Bing.")] = None,
    bing_key: BingKeyOption = None,
    bing_quota: BingQuotaOption = None,
    bing_priority: BingPriorityOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change some settings of a stored site; the others stay."""
    settings = load_settings()
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

    async def work() -> Site:
        async with open_session(settings) as installation:
            if installation.is_from_environment(site_id):
                fail(f"{site_id} is set up by SITEMAP_URL and its fellow variables; change those")
            await require_site(installation, site_id)
            changed = await installation.sites.change(
                site_id,
                lambda site: installation.know(
                    change_site(site, given, engines=settings.engines, schedule=settings.schedule)
                ),
            )
            if changed is None:
                fail(f"{site_id} was removed meanwhile")
            return changed

    changed = run(work)
    typer.echo(_write(changed) if as_json else f"Changed {changed.id}: {', '.join(given)}.")


def _write(site: Site) -> str:
    return json.dumps({"site": describe_site(site)}, ensure_ascii=False)


def _read_bing(key: str | None, quota: int | None, priority: BingPriority | None) -> dict[str, Any]:
    """Bing's fields; a key that is given switches it on."""
    if key == "-":
        key = typer.prompt("Bing API key", hide_input=True, err=True)
    return {
        "bingApiKey": key,
        "bingEnabled": True if key else None,
        "bingDailyQuota": quota,
        "bingPriority": priority,
    }


@app.command("list")
def list_sites(as_json: JsonOption = False) -> None:
    """Show all sites."""
    settings = load_settings()

    async def work() -> list[Site]:
        async with open_session(settings) as installation:
            return await installation.sites.list_all()

    found = run(work)
    if as_json:
        typer.echo(json.dumps({"sites": [describe_site(site) for site in found]}, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "sitemap", "engines", "bing", "schedule"):
        table.add_column(name, overflow="fold")
    for site in found:
        engines = ", ".join(map(str, site.engines))
        bing = f"{site.bing.daily_quota} a day" if site.bing.enabled else "-"
        table.add_row(escape(site.id), escape(site.sitemap_urls[0]), escape(engines), bing, site.schedule)
    make_console().print(table)


@app.command("show")
def show(site_id: SiteArgument, as_json: JsonOption = True) -> None:
    """Show one site as JSON; its keys are masked."""
    settings = load_settings()

    async def work() -> Site:
        async with open_session(settings) as installation:
            return await require_site(installation, site_id)

    typer.echo(json.dumps({"site": describe_site(run(work))}, ensure_ascii=False, indent=2))


@app.command("remove")
def remove(site_id: SiteArgument, as_json: JsonOption = False) -> None:
    """Delete a site. Its history and what was announced for it stay, should it come back."""
    settings = load_settings()

    async def work() -> None:
        async with open_session(settings) as installation:
            site = await require_site(installation, site_id)
            await installation.service.remove(site)
            await installation.tokens.revoke(Scope.SITE, site=site.number)

    run(work)
    typer.echo(json.dumps({"removed": site_id}) if as_json else f"Removed {site_id}.")
