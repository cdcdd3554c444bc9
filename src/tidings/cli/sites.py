"""`tidings sites`: what is set up."""

import json
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidings.announce.site_records import Origin
from tidings.announce.sites import Site, SubmitMethod, make_site
from tidings.cli.announce import JsonOption, KeyOption, require_key, require_site
from tidings.cli.screen import make_console
from tidings.cli.session import load_settings, open_session, run

app = typer.Typer(help="Set sites up.", no_args_is_help=True, rich_markup_mode=None)


@app.command("add")
def add(
    sitemap_url: Annotated[list[str], typer.Argument(help="One or several sitemaps.")],
    key: KeyOption = None,
    site_id: Annotated[str | None, typer.Option("--id", help="A name for it. [the host]")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The site's host, if not the sitemap's.")] = None,
    engine: Annotated[list[str] | None, typer.Option("--engine", help="An engine; may be repeated.")] = None,
    backup: Annotated[list[str] | None, typer.Option("--backup", help="A sitemap for when one cannot be read.")] = None,
    method: Annotated[SubmitMethod, typer.Option("--method", help="How URLs are sent.")] = SubmitMethod.AUTO,
    key_location: Annotated[str | None, typer.Option("--key-location", help="Where the key file is.")] = None,
    schedule: Annotated[str | None, typer.Option("--schedule", help="When it runs: a cron expression, UTC.")] = None,
    announce_removed: Annotated[bool, typer.Option("--announce-removed", help="Announce pages that are gone.")] = False,
) -> None:
    """Store a site, so that `tidings run ID` needs nothing else. One of the same id is replaced."""
    settings = load_settings()

    async def work() -> Site:
        site = make_site(
            sitemap_urls=sitemap_url,
            key=require_key(key, settings),
            host=host,
            site_id=site_id,
            engines=engine or settings.engines,
            key_location=key_location,
            backup_sitemap_urls=backup or (),
            submit_method=method,
            schedule=schedule or settings.schedule,
            announce_removed=announce_removed,
        )
        async with open_session(settings) as installation:
            return await installation.sites.save(installation.know(site), origin=Origin.API)

    typer.echo(f"Stored {run(work).id}.")


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
    for name in ("id", "sitemap", "engines", "schedule"):
        table.add_column(name, overflow="fold")
    for site in found:
        engines = ", ".join(map(str, site.engines))
        table.add_row(escape(site.id), escape(site.sitemap_urls[0]), escape(engines), site.schedule)
    make_console().print(table)


@app.command("show")
def show(site_id: str) -> None:
    """Show one site as JSON; its key is masked."""
    settings = load_settings()

    async def work() -> Site:
        async with open_session(settings) as installation:
            return await require_site(installation, site_id)

    typer.echo(json.dumps({"site": describe_site(run(work))}, ensure_ascii=False, indent=2))


@app.command("remove")
def remove(site_id: str) -> None:
    """Delete a site. Its history and what was announced for it stay, should it come back."""
    settings = load_settings()

    async def work() -> None:
        async with open_session(settings) as installation:
            await require_site(installation, site_id)
            await installation.sites.remove(site_id)

    run(work)
    typer.echo(f"Removed {site_id}.")


def describe_site(site: Site) -> dict[str, Any]:
    """A site for people: the key is masked, also where it is part of the key file's name."""
    return {
        "id": site.id,
        "host": site.host,
        "sitemapUrls": list(site.sitemap_urls),
        "backupSitemapUrls": list(site.backup_sitemap_urls),
        "indexnowKey": site.key.masked,
        "keyLocation": site.key_location.replace(site.key.reveal(), site.key.masked),
        "searchEngines": [engine.endpoint for engine in site.engines],
        "submitMethod": site.submit_method.value,
        "schedule": site.schedule,
        "announceRemoved": site.announce_removed,
        "enabled": site.enabled,
    }
