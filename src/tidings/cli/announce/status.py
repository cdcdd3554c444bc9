"""`tidings status`: the last executions, and pages that wait for an engine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.language import label, say, say_word, translate
from tidings.cli.options import GroupOption
from tidings.cli.output import escape, format_time, make_console, make_execution_table, make_table, print_json
from tidings.cli.session import Session, answering, fail, require_group, require_site
from tidings.core.clock import to_text

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from tidings.announce.channels.google.submissions import SitemapSubmission
    from tidings.announce.ledger.failed_pages import FailedPage
    from tidings.announce.overview import SiteSummary
    from tidings.announce.status import SiteOverview
    from tidings.core.executions import ExecutionRecord
    from tidings.wiring.installation import Installation

# Failed pages that are shown for each channel.
MOST_FAILED = 20
# Sites that one query reads.
_SITES_AT_ONCE = 500


@answering
async def status(
    session: Session,
    site: Annotated[str | None, typer.Argument(help="A site's id. [all sites]")] = None,
    group: GroupOption = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Only sites that are broken, overdue or partial, and why.")
    ] = False,
) -> None:
    """Show the last execution of every site, or the details of one.

    The details are its last executions, its quotas, and the URLs that failed.
    """
    if site is not None and (attention or group is not None):
        fail("name a site, or choose sites with --group or --attention, not both")
    installation = await session.open()
    if site is None:
        await _show_sites(session, installation, group=group, attention=attention)
    else:
        await _show_site(session, installation, site)


async def _show_sites(session: Session, installation: "Installation", *, group: str | None, attention: bool) -> None:
    """The last execution of each site, or of a group; or the sites that need attention."""
    from tidings.announce.schedule.pauses import read_pauses

    await require_group(installation, group)
    sites = await installation.sites.list_all()
    chosen = [site for site in sites if group in (None, site.group)]
    urgent = await _list_urgent(installation, group=group) if attention else None
    if urgent is not None:
        numbers = {each.number for each in urgent}
        chosen = [site for site in chosen if site.number in numbers]
    recent = [await installation.executions.list_recent(site.workflow_name, limit=1) for site in chosen]
    executions = [record for records in recent for record in records]
    if session.as_json:
        shown = [{"site": each.id, "condition": each.condition.value, "reason": each.reason} for each in urgent or ()]
        print_json(_describe(executions, []) | ({} if urgent is None else {"attention": shown}))
        return
    console = make_console()
    if urgent is None:
        _print_executions(executions, console=console)
    else:
        _print_urgent(urgent, console=console)
    if (await read_pauses(installation.database)).everything:
        console.print(f"\n[yellow]{say('Everything is paused; `tidings resume` lets it run again.')}[/]")
    if left := len(sites) - len(chosen):
        console.print(say("{left} of {total} {total:site|sites} left out.", left=left, total=len(sites)))


async def _list_urgent(installation: "Installation", *, group: str | None) -> "list[SiteSummary]":
    from tidings.announce.overview import NEEDS_ATTENTION, list_sites

    found: list[SiteSummary] = []
    while True:
        page = await list_sites(
            installation.database,
            clock=installation.clock,
            group=group,
            conditions=NEEDS_ATTENTION,
            offset=len(found),
            limit=_SITES_AT_ONCE,
        )
        found += page.sites
        if len(page.sites) < _SITES_AT_ONCE:
            return found


async def _show_site(session: Session, installation: "Installation", name: str) -> None:
    """A site's last executions, its schedule and quotas, and the pages that are not accepted yet."""
    from tidings.announce.ledger.failed_pages import FailedPages
    from tidings.announce.ledger.ledger import Channel
    from tidings.announce.status import read_overview

    site = await require_site(installation, name)
    database, clock, live = installation.database, installation.clock, installation.service.live
    seen_at, is_served = await installation.find_service_seen_at(), await installation.is_served()
    failed = [
        page
        for channel in Channel
        for page in await FailedPages(database, site=site.number, channel=channel).list(limit=MOST_FAILED)
    ]
    executions = await installation.executions.list_recent(site.workflow_name)
    overview = await read_overview(site.id, database=database, records=installation.sites, clock=clock, live=live)
    if session.as_json:
        document = _describe(executions, failed)
        if overview is not None:
            told_above = ("siteId", "lastExecution", "execution")
            document |= {name: value for name, value in overview.to_json().items() if name not in told_above}
            document.setdefault("reason", None)
            document |= {"serviceRuns": is_served, "serviceSeenAt": None if seen_at is None else to_text(seen_at)}
        print_json(document)
        return
    console = make_console()
    _print_executions(executions, console=console)
    if overview is not None:
        console.print(f"\n{_describe_state(overview, seen_at=seen_at, is_served=is_served)}")
        _print_channels(overview, console=console)
    _print_failed(failed, console=console)


def _print_failed(failed: "Sequence[FailedPage]", *, console: "Console") -> None:
    if failed:
        console.print()
        console.print(say("Not accepted yet; sent first next time:"))
    for page in failed:
        line = say(
            "  {url} at {engine}: {reason} ({attempts} attempts, last {time})",
            url=escape(page.url),
            engine=escape(page.engine),
            reason=escape(translate(page.reason.removeprefix(f"{page.engine} failed: "))),
            attempts=page.attempts,
            time=format_time(page.failed_at),
        )
        console.print(line)


def _describe(executions: "Sequence[ExecutionRecord]", failed: "Sequence[FailedPage]") -> dict[str, Any]:
    from tidings.announce.status import describe_execution

    pages = [
        {
            "url": page.url,
            "engine": page.engine,
            "reason": page.reason,
            "attempts": page.attempts,
            "failedAt": to_text(page.failed_at),
        }
        for page in failed
    ]
    return {"executions": [describe_execution(record) for record in executions], "failed": pages}


def _print_executions(executions: "Sequence[ExecutionRecord]", *, console: "Console") -> None:
    if executions:
        console.print(make_execution_table(executions, say("site"), say("submitted"), say("failed")))
    else:
        console.print(say("Nothing has run yet."))


def _print_urgent(sites: "Sequence[SiteSummary]", *, console: "Console") -> None:
    """Each site, its condition, and why."""
    if not sites:
        console.print(say("No site needs attention."))
        return
    table = make_table(say("site"), say("condition"), say("started"), say("reason"))
    for each in sites:
        reason = escape(translate(each.reason or "-"))
        table.add_row(escape(each.id), say_word(each.condition.value), format_time(each.last_at), reason)
    console.print(table)


def _print_channels(overview: "SiteOverview", *, console: "Console") -> None:
    """The channels with a quota, and the sitemaps at Google."""
    from tidings.announce.channels.quota.kinds import find_kind
    from tidings.cli.announce.report import describe_quota_line

    for channel, status in overview.channels.items():
        title = translate(find_kind(channel).title)
        if status.quota is not None:
            console.print(f"\n{describe_quota_line(title, status.quota)}")
        if status.reason:
            console.print(f"[red]{label(title, escape(translate(status.reason)))}[/]")
    for sitemap in overview.sitemaps:
        console.print(f"\n{_describe_sitemap(sitemap)}")


def _describe_sitemap(sitemap: "SitemapSubmission") -> str:
    google = sitemap.google
    line = say(
        "Google: {sitemap} submitted {submitted}, downloaded {downloaded}, {warnings} warnings, {errors} errors",
        sitemap=escape(sitemap.sitemap),
        submitted=format_time(sitemap.submitted_at, missing=say("never")),
        downloaded=format_time(google.downloaded_at, missing=say("never")),
        warnings=google.warnings,
        errors=google.errors,
    )
    return f"{line}\n[red]{escape(translate(sitemap.failure))}[/]" if sitemap.failure else line


def _describe_state(overview: "SiteOverview", *, seen_at: "datetime | None", is_served: bool) -> str:
    """Whether the site is paused or broken, and when it runs next if a service runs."""
    reason = f" ({escape(translate(overview.reason))})" if overview.reason else ""
    if overview.state == "paused":
        return f"[yellow]{say('paused')}[/]{reason}"
    broken = f"[red]{say('broken')}[/]{reason}" if overview.state == "broken" else None
    if overview.next_run is None:
        unscheduled = say("not scheduled; `tidings sites set {site} --enable` schedules it", site=escape(overview.site))
        return unscheduled if broken is None else f"{broken}\n{unscheduled}"
    state = broken or say("scheduled")
    due = format_time(overview.next_run)
    if is_served:
        return state + say("; runs next at {time}", time=due)
    seen = format_time(seen_at, missing=say("never"))
    return state + say("; due at {time}, but no service runs (last seen: {seen})", time=due, seen=seen)
