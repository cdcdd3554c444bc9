"""`tidings demo`: the whole job on this machine against the sandbox, in a few steps that explain themselves."""

import shutil
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tidings.announce.site.site import make_bing_settings, make_site
from tidings.cli.announce.announce import announce_site
from tidings.cli.announce.report import make_console
from tidings.cli.demo_collect import Platforms, open_platforms, tell_collecting
from tidings.cli.session import Exit, fail, load_settings, open_session, run
from tidings.settings import Settings

if TYPE_CHECKING:
    from tidings.sandbox import Sandbox

BAD_PAGES = (411, 1789, 3003)
CHANGED_PAGE = 2718
QUOTA = 250


def demo(
    pages: Annotated[int, typer.Option(help="How many pages the demo's site has.", min=3_100)] = 4_000,
) -> None:
    """Announce a made-up site to two engines and to Bing, and collect notes from two made-up platforms.

    One engine and one platform have a bad day. Nothing leaves this machine.
    """
    # Loaded here, not above: every other command would pay for it in memory and time.
    from tidings.sandbox import DEMO_BING_KEY, Sandbox, SandboxBing, SandboxEngine, SandboxSite

    settings = _make_settings(load_settings())
    _clear(settings.data_dir)

    async def work() -> Exit:
        engines = [SandboxEngine("alpha"), SandboxEngine("beta")]
        bing = SandboxBing(keys={DEMO_BING_KEY: []}, daily_quota=QUOTA)
        async with Sandbox(site=SandboxSite(pages=pages), engines=engines, bing=bing) as sandbox:
            bing.add_site(sandbox.site.origin, key=DEMO_BING_KEY)
            async with open_platforms(replace(settings, bing_base=bing.base_url)) as (complete, platforms):
                return await _tell(sandbox, complete, platforms=platforms)

    raise typer.Exit(run(work))


def _make_settings(settings: Settings) -> Settings:
    """One's own settings, but: a folder apart, this machine only, short waits, and changes are sent at once."""
    return replace(
        settings,
        data_dir=settings.data_dir / "demo",
        database_url=None,
        allow_networks=(ip_network("127.0.0.0/8"),),
        retry_scale=0.2,
        resubmit_gap=timedelta(0),
    )


def _clear(data_dir: Path) -> None:
    """The demo begins with an empty folder; it only ever removes one that it has made itself."""
    mark = data_dir / "made-by-tidings-demo"
    if data_dir.exists():
        if not mark.exists():
            fail(f"{data_dir} is not the demo's own folder; set TIDINGS_DATA_DIR to another place")
        shutil.rmtree(data_dir)
    data_dir.mkdir(parents=True, mode=0o700)
    mark.touch()


async def _tell(sandbox: "Sandbox", settings: Settings, *, platforms: Platforms) -> Exit:
    console = make_console()
    alpha, beta = sandbox.engine("alpha"), sandbox.engine("beta")
    site = make_site(
        sitemap_urls=[sandbox.site.sitemap_url],
        key=sandbox.site.key,
        engines=[alpha.endpoint, beta.endpoint],
        bing=make_bing_settings(enabled=True, key=sandbox.addresses.bing_key, daily_quota=QUOTA),
    )
    _give_bad_day(sandbox)

    console.print(f"A site with {len(sandbox.site.pages):,} pages is at [bold]{sandbox.site.sitemap_url}[/]")
    console.print(f"Two IndexNow engines: {alpha.endpoint} (alpha), {beta.endpoint} (beta, which has a bad day)")
    console.print(f"And Bing, which takes {QUOTA} URLs a day: {settings.bing_base}\n")
    async with open_session(settings) as installation:
        site = await installation.sites.adopt(installation.know(site))

        _begin_step(console, 1, "Announce the site. Beta asks to slow down, fails once, and refuses three URLs.")
        console.print(f"   Bing gets the {QUOTA} pages that changed last; the others follow when its quota is new.")
        await announce_site(installation, site, console=console)

        beta.recover()
        _begin_step(console, 2, "Announce it again. Nothing goes out twice; beta, well again, gets what it refused.")
        await announce_site(installation, site, console=console)

        sandbox.site.change(CHANGED_PAGE)
        _begin_step(console, 3, f"Page {CHANGED_PAGE} changes. Only that page is sent.")
        await announce_site(installation, site, console=console)
        announced = _went_well(sandbox)
        _conclude_announcing(console, sandbox, went_well=announced)

        collected = await tell_collecting(installation, platforms, console=console)
        console.print(
            "Every candidate has its note, once: as it should be."
            if collected
            else "[red]Not every candidate has its note. The log says more.[/]"
        )
    _end(console, settings)
    return Exit.DONE if announced and collected else Exit.FAILED


def _give_bad_day(sandbox: "Sandbox") -> None:
    """Beta asks to slow down, fails once, and refuses some URLs."""
    from tidings.sandbox import Fault

    beta = sandbox.engine("beta")
    beta.misbehave(Fault(status=429, headers={"Retry-After": "5"}, times=1))
    beta.misbehave(Fault(status=503, times=1, after=1))
    for number in BAD_PAGES:
        beta.misbehave(Fault(status=422, body="one of the URLs is not welcome", matching=sandbox.site.url(number)))


def _begin_step(console: Console, number: int, text: str) -> None:
    console.print(f"\n[bold]{number}. {escape(text)}[/]")


def _went_well(sandbox: "Sandbox") -> bool:
    """Every page once at each engine, and the changed one twice; Bing's quota used to the last, nothing twice."""
    expected = dict.fromkeys(sandbox.site.urls(), 1) | {sandbox.site.url(CHANGED_PAGE): 2}
    bing = sandbox.bing
    # More than the quota where midnight has passed meanwhile.
    if bing is None or set(bing.accepted.values()) != {1} or bing.accepted.total() < QUOTA:
        return False
    return all(dict(engine.accepted) == expected for engine in sandbox.engines)


def _conclude_announcing(console: Console, sandbox: "Sandbox", *, went_well: bool) -> None:
    totals = {engine.name: engine.accepted.total() for engine in sandbox.engines}
    if sandbox.bing is not None:
        totals["Bing"] = sandbox.bing.accepted.total()
    accepted = ", ".join(f"{total:,} by {name}" for name, total in totals.items())
    verdict = (
        f"each page once by the engines, page {CHANGED_PAGE} twice, and Bing's quota used up: as it should be."
        if went_well
        else "[red]which is not each page once, as it should be. The log says more.[/]"
    )
    console.print(f"\nAccepted in all: {accepted}; {verdict}")


def _end(console: Console, settings: Settings) -> None:
    console.print(f"\nData and log are in [bold]{settings.data_dir.absolute()}[/].\n")
    console.print("For your own site:")
    console.print(
        "  [bold]tidings keys new --indexnow[/]   makes a key; put it into a file KEY.txt at the root of the site"
    )
    console.print("  [bold]tidings check https://example.com/sitemap.xml --key KEY[/]")
    console.print("  [bold]tidings announce https://example.com/sitemap.xml --key KEY[/]")
    console.print("For your own keywords:")
    console.print("  [bold]tidings cookies add mine --platform bilibili[/]   asks for your account's cookie, unseen")
    console.print("  [bold]tidings collect keywords add bilibili KEYWORD[/]")
    console.print("  [bold]tidings serve[/]   does all of this by itself, every day")
    console.print("(Where `make` made the environment, the command is .venv/bin/tidings.)")
