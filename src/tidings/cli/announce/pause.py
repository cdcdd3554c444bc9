"""`tidings pause` and `tidings resume`: stop and restart the schedule of a site, or of everything."""

from typing import Annotated

import typer

from tidings.cli.options import JsonOption
from tidings.cli.output import print_answer
from tidings.cli.session import Session, command, require_site

SiteOrAllArgument = Annotated[str | None, typer.Argument(help="The site's id. [everything]")]


@command
async def pause(session: Session, site: SiteOrAllArgument = None, as_json: JsonOption = False) -> None:
    """Stop the schedule of a site, or of everything.

    `tidings resume` restarts it. Executions that run now go on to their end.
    """
    installation = await session.open()
    number = None if site is None else (await require_site(installation, site)).number
    changed = await installation.schedules.pause(number)
    print_answer(
        {"site": site, "paused": True, "changed": changed},
        f"{site or 'Everything'} {'is paused' if changed else 'was paused already'}.",
        as_json=as_json,
    )


@command
async def resume(session: Session, site: SiteOrAllArgument = None, as_json: JsonOption = False) -> None:
    """Restart the schedule of a site, or of everything.

    A site that missed executions runs once to make up for them. Engines that refused the site's key are tried again.
    """
    installation = await session.open()
    number, freed = None, 0
    if site is not None:
        found = await require_site(installation, site)
        number, freed = found.number, await installation.service.free(found)
    resumed = await installation.schedules.resume(number)
    text = f"{site or 'Everything'} {'runs again' if resumed else 'was not paused'}."
    if freed:
        text += f"\n{freed} engines that refused its key are tried again."
    print_answer({"site": site, "paused": False, "changed": resumed, "freed": freed}, text, as_json=as_json)
