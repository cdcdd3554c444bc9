"""`tidings pause` and `tidings resume`: hold the schedule of a site, or of everything."""

import json
from typing import Annotated

import typer

from tidings.cli.announce.announce import JsonOption, require_site
from tidings.cli.session import load_settings, open_session, run

SiteArgument = Annotated[str | None, typer.Argument(help="The site's id; without it, everything.")]


def pause(site: SiteArgument = None, as_json: JsonOption = False) -> None:
    """Run a site, or everything, no more by itself until `tidings resume`. What runs now goes on to its end."""
    settings = load_settings()

    async def work() -> bool:
        async with open_session(settings) as installation:
            number = None if site is None else (await require_site(installation, site)).number
            return await installation.schedules.pause(number)

    changed = run(work)
    if as_json:
        typer.echo(json.dumps({"site": site, "paused": True, "changed": changed}))
    else:
        typer.echo(f"{site or 'Everything'} is paused." if changed else f"{site or 'Everything'} was paused already.")


def resume(site: SiteArgument = None, as_json: JsonOption = False) -> None:
    """Let a site, or everything, run by itself again. Runs that were missed are made up, one for each site.

    Engines that had refused the site's key are tried again, too.
    """
    settings = load_settings()

    async def work() -> tuple[bool, int]:
        async with open_session(settings) as installation:
            if site is None:
                return await installation.schedules.resume(None), 0
            found = await require_site(installation, site)
            freed = await installation.service.free(found)
            return await installation.schedules.resume(found.number), freed

    resumed, freed = run(work)
    if as_json:
        typer.echo(json.dumps({"site": site, "paused": False, "changed": resumed, "freed": freed}))
        return
    typer.echo(f"{site or 'Everything'} runs again." if resumed else f"{site or 'Everything'} was not paused.")
    if freed:
        typer.echo(f"{freed} engines that had refused its key are tried again.")
