"""`tidings pause` and `tidings resume`: stop and restart the schedule of a site, or of everything."""

from typing import Annotated

import typer

from tidings.cli.language import say
from tidings.cli.session import Session, answering, require_site

SiteOrAllArgument = Annotated[str | None, typer.Argument(help="The site's id. [everything]")]


@answering
async def pause(session: Session, site: SiteOrAllArgument = None) -> None:
    """Stop the schedule of a site, or of everything.

    `tidings resume` restarts it. Executions that run now go on to their end.
    """
    installation = await session.open()
    number = None if site is None else (await require_site(installation, site)).number
    changed = await installation.schedules.pause(number)
    if site is None:
        text = say("Everything is paused.") if changed else say("Everything was paused already.")
    else:
        text = say("{site} is paused.", site=site) if changed else say("{site} was paused already.", site=site)
    session.answer({"site": site, "paused": True, "changed": changed}, text)


@answering
async def resume(session: Session, site: SiteOrAllArgument = None) -> None:
    """Restart the schedule of a site, or of everything.

    A site that missed executions runs once to make up for them. Engines that refused the site's key are tried again.
    """
    installation = await session.open()
    number, freed = None, 0
    if site is not None:
        found = await require_site(installation, site)
        number, freed = found.number, await installation.service.free(found)
    resumed = await installation.schedules.resume(number)
    if site is None:
        text = say("Everything runs again.") if resumed else say("Everything was not paused.")
    else:
        text = say("{site} runs again.", site=site) if resumed else say("{site} was not paused.", site=site)
    if freed:
        text += "\n" + say(
            "{count} {count:engine that refused its key is|engines that refused its key are} tried again.", count=freed
        )
    session.answer({"site": site, "paused": False, "changed": resumed, "freed": freed}, text)
