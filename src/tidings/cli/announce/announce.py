"""`tidings announce` and `tidings run`: one execution of a site."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.site.site import Site, SubmitMethod, make_site
from tidings.cli.announce.sources import Source, find_source
from tidings.cli.language import say, translate
from tidings.cli.options import KeyLocationOption, KeyOption, OnlySiteArgument, VerboseOption
from tidings.cli.output import make_console, print_json, show
from tidings.cli.session import Exit, Session, answering, deliver_alerts, fail, require_site, stop_on_signals
from tidings.core.net.addresses import is_allowed_address, parse_url
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.announce.due.pages import Page
    from tidings.settings.settings import Settings
    from tidings.wiring.installation import Installation


@answering
async def announce(
    session: Session,
    sitemap: Annotated[
        str | None,
        typer.Argument(help="A sitemap, a sitemap index, a feed, or robots.txt: its URL, or a file of this machine."),
    ] = None,
    key: KeyOption = None,
    url: Annotated[list[str] | None, typer.Option("--url", help="A page instead of a sitemap; repeat it.")] = None,
    urls_from: Annotated[
        str | None, typer.Option("--urls-from", help="A file with one page a line instead of a sitemap; - for stdin.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only pages whose lastmod is this recent, such as 1d or 12h; creates no data."),
    ] = None,
    channel: Annotated[
        ChannelChoice, typer.Option("--channel", help="Where to submit; others than IndexNow by their settings.")
    ] = ChannelChoice.INDEXNOW,
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", help="An IndexNow engine; repeat it for more. [INDEXNOW_SEARCH_ENGINES]"),
    ] = None,
    method: Annotated[
        SubmitMethod | None, typer.Option("--method", help="How to send URLs. [INDEXNOW_SUBMIT_METHOD, auto]")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="The site's host. [the sitemap's, or the page's]")] = None,
    key_location: KeyLocationOption = None,
    announce_removed: Annotated[
        bool, typer.Option("--announce-removed", help="Announce pages that left the sitemap too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the due pages; send and save nothing.")] = False,
    verbose: VerboseOption = False,
) -> Exit:
    """Announce one site once, without a server.

    Sends the new and changed pages of a sitemap to the IndexNow engines, or the pages that --url and --urls-from name.

    Exit code 0: all sent. 1: some failed, or the time ran out; they are sent first next time. 2: bad input.
    """
    if dry_run and channel not in (ChannelChoice.INDEXNOW, ChannelChoice.ALL):
        fail("--dry-run lists the pages that are due for IndexNow; leave --channel out")
    if announce_removed and (since or url or urls_from):
        fail("--announce-removed needs the whole sitemap; leave out --since, --url and --urls-from")
    source = find_source(session, sitemap, urls=url or (), urls_from=urls_from, since=since, host=host)
    # Engines of the command line count as the operator's own, like those of the settings.
    settings = replace(session.settings, engines=tuple(engine or session.settings.engines))
    keeps_data = settings.database_url is not None or settings.data_dir.exists()
    if since and channel is not ChannelChoice.INDEXNOW and not keeps_data:
        fail("--since keeps no data, so each run would spend the daily quota again; leave --channel out")
    site = make_site(
        sitemap_urls=[source.sitemap_url],
        key=require_key(key, settings),
        host=host,
        engines=settings.engines,
        key_location=key_location,
        submit_method=method or settings.submit_method,
        announce_removed=announce_removed,
        # The environment's keys of channels are for one site, so they are used only on request.
        bing=None if channel is ChannelChoice.INDEXNOW else settings.bing,
        baidu=None if channel is ChannelChoice.INDEXNOW else settings.baidu,
        google=None if channel is ChannelChoice.INDEXNOW else settings.google,
    )
    if source.is_remote:
        _require_allowed(site, settings=settings)
    installation = await session.open(settings, verbose=verbose, leaves_nothing=dry_run or since is not None)
    installation.know(site)
    if dry_run:
        number = await installation.sites.find_number(site.id)
        return await _show_due(session, installation, replace(site, number=number), source=source)
    site = await installation.sites.adopt(site)
    return await announce_site(session, installation, site, channel=channel, source=source)


@answering
async def run(
    session: Session,
    site: OnlySiteArgument = None,
    channel: Annotated[ChannelChoice, typer.Option("--channel", help="Where to submit.")] = ChannelChoice.ALL,
    verbose: VerboseOption = False,
) -> Exit:
    """Run a stored site, or the environment's site, now.

    Exit codes as for `tidings announce`.
    """
    installation = await session.open(verbose=verbose)
    found = await require_site(installation, site)
    return await announce_site(session, installation, found, channel=channel)


@answering
async def stop(session: Session, site: OnlySiteArgument = None) -> Exit:
    """Stop the running execution of a site, wherever it runs.

    It ends in good order: what it did is saved, and the next execution continues from there.
    """
    installation = await session.open()
    found = await require_site(installation, site)
    running = await installation.executions.find_running(found.workflow_name)
    if running is None or not await installation.service.stop(running.public_id):
        session.answer({"stopped": None}, "{site} does not run.", site=found.id)
        return Exit.FAILED
    session.answer(
        {"stopped": running.public_id},
        "{site}: {execution} was asked to stop.",
        site=found.id,
        execution=running.public_id,
    )
    return Exit.DONE


async def announce_site(
    session: Session,
    installation: "Installation",
    site: Site,
    *,
    channel: ChannelChoice = ChannelChoice.ALL,
    source: Source | None = None,
) -> Exit:
    """One execution, with a progress bar and a summary. Without a `source`, the site's sitemaps are read."""
    with stop_on_signals(Stop(clock=installation.clock, budget=installation.settings.run_budget)) as stop:
        from tidings.cli.announce.report import print_report, show_progress

        with show_progress(enabled=session.is_watched) as view:
            report = await installation.announcer.announce(
                site,
                stop=stop,
                channel=channel,
                pages=None if source is None else source.open(installation, site, stop=stop, channel=channel),
                on_progress=view.show if view else lambda _: None,
            )
    if session.as_json:
        print_json(report.to_json())
    else:
        print_report(report, console=make_console())
        if installation.is_new and 0 < report.new == report.total and (source is None or source.since is None):
            place = installation.settings.data_dir.absolute()
            show("This was the first execution in {place}: without history, every page counted as new.", place=place)
    await deliver_alerts(installation)
    return Exit.DONE if report.status == "succeeded" else Exit.FAILED


async def _show_due(session: Session, installation: "Installation", site: Site, *, source: Source) -> Exit:
    """List the pages that an execution would send now."""
    from tidings.announce.execution.preview import preview

    urls: list[str] = []
    listed = 0

    def show_page(page: "Page") -> None:
        nonlocal listed
        listed += 1
        if session.as_json:
            urls.append(page.url)
        else:
            typer.echo(page.url)

    with stop_on_signals(Stop(clock=installation.clock, budget=installation.settings.run_budget)) as stop:
        pages = source.open(installation, site, stop=stop)
        report = await preview(site, announcer=installation.announcer, stop=stop, pages=pages, on_page=show_page)
    if session.as_json:
        print_json({**report.to_json(), "urls": urls})
    else:
        line = say(
            "{due} of {total} {total:page|pages} {due:is|are} due. Nothing was sent.",
            due=report.new,
            total=report.total,
        )
        if (left := listed - report.new) > 0:
            line = say("{line} {count} {count:page waits|pages wait} from before.", line=line, count=left)
        typer.echo(line, err=True)
        for line in (*report.warnings, *report.errors, *report.list_emptiness(), *report.list_unsent()):
            typer.echo(translate(line), err=True)
    return Exit.DONE if report.status == "succeeded" else Exit.FAILED


def require_key(key: str | None, settings: "Settings") -> str:
    """The key that was given, or the environment's. Ends the command if there is none."""
    if key:
        return key
    if settings.indexnow_key is None:
        fail("a key is needed: give --key or set INDEXNOW_API_KEY (`tidings keys new --indexnow` makes one)")
    return settings.indexnow_key.reveal()


def _require_allowed(site: Site, *, settings: "Settings") -> None:
    """End the command for a sitemap that may not be fetched. Names are resolved and checked on connecting."""
    for url in map(parse_url, site.sitemap_urls):
        if url.address is not None and not is_allowed_address(url.address, allow_networks=settings.allow_networks):
            fail(
                "{url}: {address} is not a public address; TIDINGS_ALLOW_NETWORKS={address} would allow it",
                url=url,
                address=url.address,
            )
