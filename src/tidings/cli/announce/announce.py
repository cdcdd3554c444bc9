"""The commands that announce: `announce`, `run`, `check`."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tidings.announce.channels.bing import BingApi
from tidings.announce.channels.bing_status import check_bing, make_quota
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.execution.preview import preview
from tidings.announce.execution.report import Report
from tidings.announce.site.check import check_site
from tidings.announce.site.site import Site, SubmitMethod, make_site
from tidings.cli.announce.report import make_console, print_report, show_progress
from tidings.cli.session import Exit, fail, is_terminal, load_settings, open_session, run, stop_on_signals
from tidings.core.executions import ExecutionStatus
from tidings.core.net.addresses import is_allowed_address, parse_url
from tidings.core.stop import Stop
from tidings.settings import Settings
from tidings.wiring import Installation

ALERT_PATIENCE = timedelta(seconds=20)

KeyOption = Annotated[str | None, typer.Option("--key", help="Your IndexNow key. [INDEXNOW_API_KEY]")]
KeyLocationOption = Annotated[
    str | None, typer.Option("--key-location", help="Where the key file is, if not at the root of the host.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show the log on standard error.")]


def announce(
    sitemap_url: Annotated[str, typer.Argument(help="The sitemap, an index of sitemaps, a feed, or robots.txt.")],
    key: KeyOption = None,
    engine: Annotated[
        list[str] | None, typer.Option("--engine", help="An IndexNow engine; may be repeated. [api.indexnow.org]")
    ] = None,
    method: Annotated[SubmitMethod, typer.Option("--method", help="How URLs are sent.")] = SubmitMethod.AUTO,
    host: Annotated[str | None, typer.Option("--host", help="The site's host, if not the sitemap's.")] = None,
    key_location: KeyLocationOption = None,
    announce_removed: Annotated[
        bool, typer.Option("--announce-removed", help="Announce pages that left the sitemap, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be sent; send and save nothing.")] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Announce one site once: what is new or changed in its sitemap goes to the IndexNow engines.

    Exit code 0: all sent. 1: some failed or the time ran out; the rest is sent next time. 2: bad input.
    """
    settings = load_settings()

    async def work() -> Exit:
        site = make_site(
            sitemap_urls=[sitemap_url],
            key=require_key(key, settings),
            host=host,
            engines=engine or settings.engines,
            key_location=key_location,
            submit_method=method,
            announce_removed=announce_removed,
        )
        async with open_session(settings, verbose=verbose) as installation:
            _require_allowed(installation, site)
            installation.know(site)
            if dry_run:
                number = await installation.sites.find_number(site.id)
                return await _show_due(installation, replace(site, number=number), as_json=as_json)
            site = await installation.sites.adopt(site)
            return await announce_site(installation, site, as_json=as_json, quiet=as_json or verbose)

    raise typer.Exit(run(work))


def run_site(
    site: Annotated[str | None, typer.Argument(help="The site's id; not needed where there is only one.")] = None,
    channel: Annotated[ChannelChoice, typer.Option("--channel", help="What to submit to.")] = ChannelChoice.ALL,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run a site that is set up (by the environment or stored) now."""
    settings = load_settings()

    async def work() -> Exit:
        async with open_session(settings, verbose=verbose) as installation:
            found = await require_site(installation, site)
            return await announce_site(installation, found, channel=channel, as_json=as_json, quiet=as_json or verbose)

    raise typer.Exit(run(work))


def check(
    site: Annotated[str | None, typer.Argument(help="A site's id, or a sitemap's URL together with --key.")] = None,
    key: KeyOption = None,
    key_location: KeyLocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch the key file as an engine would, ask Bing for its quota, and say what is wrong before anything is sent."""
    settings = load_settings()

    async def work() -> Exit:
        given = None
        if site is not None and "://" in site:
            given = make_site(sitemap_urls=[site], key=require_key(key, settings), key_location=key_location)
        async with open_session(settings) as installation:
            found = installation.know(given) if given else await require_site(installation, site)
            return await _check(installation, found, as_json=as_json)

    raise typer.Exit(run(work))


async def announce_site(
    installation: Installation,
    site: Site,
    *,
    channel: ChannelChoice = ChannelChoice.ALL,
    as_json: bool = False,
    quiet: bool = False,
    console: Console | None = None,
) -> Exit:
    """One execution, with a progress bar and a summary."""
    stop = Stop(clock=installation.clock, budget=installation.settings.run_budget)
    with stop_on_signals(stop), show_progress(enabled=is_terminal() and not quiet) as view:
        report = await installation.announcer.announce(
            site, stop=stop, channel=channel, on_progress=view.show if view else lambda _: None
        )
    _print(report, as_json=as_json, console=console or make_console())
    await deliver_alerts(installation)
    return Exit.DONE if report.status is ExecutionStatus.SUCCEEDED else Exit.FAILED


async def deliver_alerts(installation: Installation) -> None:
    """Without a service there is nobody else to do it; what does not get out now goes out next time."""
    if installation.destinations:
        with suppress(TimeoutError):
            async with asyncio.timeout(ALERT_PATIENCE.total_seconds()):
                await installation.alerts.deliver()


def _print(report: Report, *, as_json: bool, console: Console) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        print_report(report, console=console)


async def _show_due(installation: Installation, site: Site, *, as_json: bool) -> Exit:
    stop = Stop(clock=installation.clock, budget=installation.settings.run_budget)
    urls: list[str] = []
    with stop_on_signals(stop):
        report = await preview(
            site,
            announcer=installation.announcer,
            stop=stop,
            on_page=lambda page: urls.append(page.url) if as_json else typer.echo(page.url),
        )
    if as_json:
        typer.echo(json.dumps({**report.to_json(), "urls": urls}, ensure_ascii=False))
    else:
        typer.echo(f"{report.new:,} of {report.total:,} pages are due. Nothing was sent.", err=True)
        for line in (*report.warnings, *report.errors):
            typer.echo(line, err=True)
    return Exit.DONE if report.status is ExecutionStatus.SUCCEEDED else Exit.FAILED


async def _check(installation: Installation, site: Site, *, as_json: bool) -> Exit:
    findings = await check_site(site, client=installation.client, clock=installation.clock)
    if site.bing.enabled:
        api = BingApi(installation.client, installation.clock, installation.settings.bing_base)
        quota = await make_quota(site, database=installation.database, clock=installation.clock).read()
        findings.append(await check_bing(site, api=api, quota=quota))
    if as_json:
        rows = [
            {"subject": each.subject, "good": each.good, "message": each.message, "advice": each.advice or None}
            for each in findings
        ]
        typer.echo(json.dumps({"site": site.id, "findings": rows}, ensure_ascii=False))
    else:
        console = make_console()
        for each in findings:
            mark = "[green]good[/]" if each.good else "[red]wrong[/]"
            console.print(
                f"{mark} {each.subject}: {escape(each.message)}"
                + (f"\n     {escape(each.advice)}" if each.advice else "")
            )
    return Exit.DONE if all(each.good for each in findings) else Exit.FAILED


def require_key(key: str | None, settings: Settings) -> str:
    if key:
        return key
    if settings.indexnow_key is None:
        fail("a key is needed: give --key or set INDEXNOW_API_KEY (`tidings keys new --indexnow` makes one)")
    return settings.indexnow_key.reveal()


def _require_allowed(installation: Installation, site: Site) -> None:
    """An address that can never be fetched is bad input; a name's addresses are checked when it is connected to."""
    networks = installation.settings.allow_networks
    for url in map(parse_url, (*site.sitemap_urls, *(engine.endpoint for engine in site.engines))):
        if url.address is not None and not is_allowed_address(url.address, allow_networks=networks):
            fail(f"{url}: {url.address} is not a public address; TIDINGS_ALLOW_NETWORKS={url.address} would allow it")


async def require_site(installation: Installation, name: str | None) -> Site:
    site = await installation.find_site(name)
    if site is None:
        problem = (
            "name a site, or set SITEMAP_URL and INDEXNOW_API_KEY" if name is None else f"there is no site {name!r}"
        )
        fail(f"{problem}; `tidings sites list` shows what is there")
    return site
