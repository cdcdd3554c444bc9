"""The first half of the demo: a site is announced to two engines and to Bing, each page once."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import typer
from rich.console import Console

from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import Site, make_site
from tidings.cli.announce.announce import announce_site
from tidings.cli.language import say, translate
from tidings.cli.session import Session
from tidings.core.clock import Clock
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.bing import DEMO_BING_KEY, SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.settings.settings import Settings
from tidings.wiring.installation import Installation

BAD_PAGES = (411, 1789, 3003)
CHANGED_PAGE = 2718
QUOTA = 250
# The exit code of a program that Ctrl-C ended.
_ENDED_BY_PERSON = 130


@asynccontextmanager
async def open_sandbox(settings: Settings, *, pages: int, clock: Clock) -> AsyncIterator[tuple[Settings, Sandbox]]:
    """A site, two engines and Bing, and the settings that lead to them."""
    engines = [SandboxEngine("alpha"), SandboxEngine("beta")]
    bing = SandboxBing(keys={DEMO_BING_KEY: []}, daily_quota=QUOTA, now=clock.now)
    async with Sandbox(site=SandboxSite(pages=pages), engines=engines, bing=bing) as sandbox:
        bing.add_site(sandbox.site.origin, key=DEMO_BING_KEY)
        yield replace(settings, bases=replace(settings.bases, bing=bing.address)), sandbox


async def show_announcing(installation: Installation, sandbox: Sandbox, *, console: Console) -> bool:
    """Steps 1 to 3. Returns whether all results were right."""
    alpha, beta = sandbox.engine("alpha"), sandbox.engine("beta")
    _give_bad_day(sandbox)
    pages, url = f"{len(sandbox.site.pages):,}", sandbox.site.sitemap_url
    console.print(say("A site with {pages} pages is at [bold]{url}[/]", pages=pages, url=url))
    engines = {"alpha": alpha.endpoint, "beta": beta.endpoint}
    console.print(say("Two IndexNow engines: {alpha} (alpha), {beta} (beta, which has a bad day)", **engines))
    bing = installation.settings.bases.bing
    console.print(say("And Bing, which takes {quota} URLs a day: {url}", quota=QUOTA, url=bing), end="\n\n")
    site = make_site(
        sitemap_urls=[sandbox.site.sitemap_url],
        key=sandbox.site.key,
        engines=[alpha.endpoint, beta.endpoint],
        bing=BingSettings.make(enabled=True, key=DEMO_BING_KEY, daily_quota=QUOTA),
    )
    site = await installation.sites.adopt(installation.know(site))

    begin_step(console, say("1. Announce the site. Beta asks to slow down, fails once, and refuses three URLs."))
    follow = say(
        "   Bing gets the {quota} pages that changed last; the others follow when its quota is new.", quota=QUOTA
    )
    console.print(follow)
    await _announce(installation, site)

    beta.recover()
    begin_step(console, say("2. Announce it again. Nothing is sent twice; beta gets the URLs that it refused."))
    await _announce(installation, site)

    sandbox.site.change(CHANGED_PAGE)
    begin_step(console, say("3. Page {page} changes. Only that page is sent.", page=str(CHANGED_PAGE)))
    await _announce(installation, site)
    return _conclude(console, sandbox)


async def _announce(installation: Installation, site: Site) -> None:
    """One execution. Ctrl-C ends it in good order, and the demo with it."""
    await announce_site(Session(), installation, site)
    [last] = await installation.executions.list_recent(site.workflow_name, limit=1)
    if last.status is ExecutionStatus.INTERRUPTED:
        raise typer.Exit(_ENDED_BY_PERSON)


def begin_step(console: Console, title: str) -> None:
    """Show what comes next."""
    console.print(f"\n[bold]{title}[/]")


def _give_bad_day(sandbox: Sandbox) -> None:
    """Beta asks to slow down, fails once, and refuses some URLs."""
    beta = sandbox.engine("beta")
    beta.misbehave(Fault(status=429, headers={"Retry-After": "5"}, times=1))
    beta.misbehave(Fault(status=503, times=1, after=1))
    for number in BAD_PAGES:
        beta.misbehave(Fault(status=422, body="one of the URLs is not welcome", matching=sandbox.site.url(number)))


def _conclude(console: Console, sandbox: Sandbox) -> bool:
    went_well = _went_well(sandbox)
    totals = {engine.name: engine.accepted.total() for engine in sandbox.engines}
    totals[translate("Bing")] = _count_at_bing(sandbox).total()
    accepted = say(", ").join(say("{total} by {name}", total=each, name=name) for name, each in totals.items())
    verdict = (
        say(
            "each page once by the engines, page {page} twice, and Bing's quota used up: as it should be.",
            page=str(CHANGED_PAGE),
        )
        if went_well
        else say("[red]which is not each page once, as it should be. The log says more.[/]")
    )
    console.print()
    console.print(say("Accepted in all: {accepted}; {verdict}", accepted=accepted, verdict=verdict))
    return went_well


def _went_well(sandbox: Sandbox) -> bool:
    """Each page once at each engine, the changed one twice; Bing's quota used up, and nothing twice."""
    expected = dict.fromkeys(sandbox.site.urls(), 1) | {sandbox.site.url(CHANGED_PAGE): 2}
    at_bing = _count_at_bing(sandbox)
    # More than the quota if midnight has passed meanwhile.
    if set(at_bing.values()) != {1} or at_bing.total() < QUOTA:
        return False
    return all(dict(engine.accepted) == expected for engine in sandbox.engines)


def _count_at_bing(sandbox: Sandbox) -> Counter[str]:
    """How often Bing took each page of the site. Other sites of the demo use the same Bing."""
    accepted = Counter[str]() if sandbox.bing is None else sandbox.bing.accepted
    return Counter({url: count for url, count in accepted.items() if url.startswith(f"{sandbox.site.origin}/")})
