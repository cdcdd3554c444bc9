"""`tidings pause` and `tidings resume`: stop and restart the schedule of a site, or of everything."""

from typing import Annotated

import typer

from tidings.cli.language import say
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
        _say_paused(site, changed=changed),
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
    text = _say_resumed(site, changed=resumed)
    if freed:
        text += "\n" + say(
            "{count} {count:engine that refused its key is|engines that refused its key are} tried again.", count=freed
        )
    print_answer({"site": site, "paused": False, "changed": resumed, "freed": freed}, text, as_json=as_json)


def _say_paused(site: str | None, *, changed: bool) -> str:
    if site is None:
        return say("Everything is paused.") if changed else say("Everything was paused already.")
    return say("{site} is paused.", site=site) if changed else say("{site} was paused already.", site=site)


def _say_resumed(site: str | None, *, changed: bool) -> str:
    if site is None:
        return say("Everything runs again.") if changed else say("Everything was not paused.")
    return say("{site} runs again.", site=site) if changed else say("{site} was not paused.", site=site)
