"""`tidings status`: the last executions, and pages that wait for an engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.language import label, say, translate
from tidings.cli.options import GroupOption, JsonOption
from tidings.cli.output import escape, format_time, make_console, make_execution_table, make_table, print_json
from tidings.cli.session import Session, command, fail, require_group, require_site
from tidings.core.clock import to_text

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class AnnounceStatus:
    """What the command shows. Without a site there are only executions."""

    # The last executions, newest first.
    executions: "Sequence[ExecutionRecord]"
    # Pages that are not accepted yet.
    failed: "Sequence[FailedPage]" = field(default_factory=list)
    # The site's schedule and its channels with a quota.
    overview: "SiteOverview | None" = None
    # The sites that need attention, the most urgent first; None if they were not asked for.
    urgent: "Sequence[SiteSummary] | None" = None
    # All sites, and those that the options leave out.
    total: int = 0
    left_out: int = 0
    # Whether `tidings pause` without a site stopped every schedule.
    all_paused: bool = False
    # When a service was last seen, to the minute, and whether one runs now.
    service_seen_at: datetime | None = None
    service_runs: bool = False


@command
async def status(
    session: Session,
    site: Annotated[str | None, typer.Argument(help="A site's id. [all sites]")] = None,
    group: GroupOption = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Only sites that are broken, overdue or partial, and why.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the last execution of every site, or the details of one.

    The details are its last executions, its quotas, and the URLs that failed.
    """
    if site is not None and (attention or group is not None):
        fail(say("name a site, or choose sites with --group or --attention, not both"))
    installation = await session.open()
    if site is None:
        shown = await _read_sites(installation, group=group, attention=attention)
    else:
        shown = await _read_site(installation, site)
    if as_json:
        print_json(_describe(shown))
    else:
        _print(shown, console=make_console())


async def _read_sites(installation: "Installation", *, group: str | None, attention: bool) -> AnnounceStatus:
    """The last execution of each site, or only of these."""
    from tidings.announce.schedule.pauses import read_pauses

    await require_group(installation, group)
    sites = await installation.sites.list_all()
    chosen, urgent = [site for site in sites if group in (None, site.group)], None
    if attention:
        urgent = await _list_urgent(installation, group=group)
        numbers = {each.number for each in urgent}
        chosen = [site for site in chosen if site.number in numbers]
    recent = [await installation.executions.list_recent(site.workflow_name, limit=1) for site in chosen]
    paused = await read_pauses(installation.database)
    return AnnounceStatus(
        [record for records in recent for record in records],
        urgent=urgent,
        total=len(sites),
        left_out=len(sites) - len(chosen),
        all_paused=paused.everything,
    )


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


async def _read_site(installation: "Installation", name: str) -> AnnounceStatus:
    from tidings.announce.ledger.failed_pages import FailedPages
    from tidings.announce.ledger.ledger import Channel
    from tidings.announce.status import read_overview

    site = await require_site(installation, name)
    seen_at = await installation.find_service_seen_at()
    database, clock = installation.database, installation.clock
    failed = [
        page
        for channel in Channel
        for page in await FailedPages(database, site=site.number, channel=channel).list(limit=MOST_FAILED)
    ]
    return AnnounceStatus(
        executions=await installation.executions.list_recent(site.workflow_name),
        failed=failed,
        service_seen_at=seen_at,
        service_runs=await installation.is_served(),
        overview=await read_overview(
            site.id, database=database, records=installation.sites, clock=clock, live=installation.service.live
        ),
    )


def _describe(shown: AnnounceStatus) -> dict[str, Any]:
    from tidings.announce.status import describe_execution

    document: dict[str, Any] = {
        "executions": [describe_execution(record) for record in shown.executions],
        "failed": [
            {
                "url": page.url,
                "engine": page.engine,
                "reason": page.reason,
                "attempts": page.attempts,
                "failedAt": to_text(page.failed_at),
            }
            for page in shown.failed
        ],
    }
    if shown.urgent is not None:
        document["attention"] = [
            {"site": each.id, "condition": each.condition.value, "reason": each.reason} for each in shown.urgent
        ]
    if shown.overview is not None:
        told_above = ("siteId", "lastExecution", "execution")
        document |= {name: value for name, value in shown.overview.to_json().items() if name not in told_above}
        document.setdefault("reason", None)
        seen_at = shown.service_seen_at
        document |= {"serviceRuns": shown.service_runs, "serviceSeenAt": None if seen_at is None else to_text(seen_at)}
    return document


def _print(shown: AnnounceStatus, *, console: "Console") -> None:
    if shown.urgent is not None:
        _print_urgent(shown.urgent, console=console)
    elif shown.executions:
        console.print(make_execution_table(shown.executions, say("site"), say("submitted"), say("failed")))
    else:
        console.print(say("Nothing has run yet."))
    if shown.all_paused:
        console.print(f"\n[yellow]{say('Everything is paused; `tidings resume` lets it run again.')}[/]")
    if shown.overview is not None:
        _print_overview(shown.overview, shown, console=console)
    if shown.failed:
        console.print()
        console.print(say("Not accepted yet; sent first next time:"))
    for page in shown.failed:
        line = say(
            "  {url} at {engine}: {reason} ({attempts} attempts, last {time})",
            url=escape(page.url),
            engine=escape(page.engine),
            reason=escape(translate(page.reason.removeprefix(f"{page.engine} failed: "))),
            attempts=f"{page.attempts:,}",
            time=format_time(page.failed_at),
        )
        console.print(line)
    if shown.left_out:
        total = f"{shown.total:,}"
        console.print(say("{left} of {total} {total:site|sites} left out.", left=f"{shown.left_out:,}", total=total))


def _print_overview(overview: "SiteOverview", shown: AnnounceStatus, *, console: "Console") -> None:
    """The site's schedule, its channels with a quota, and its sitemaps at Google."""
    from tidings.announce.channels.quota.kinds import find_kind
    from tidings.cli.announce.report import describe_quota_line

    console.print(f"\n{_describe_state(overview, shown)}")
    for channel, status in overview.channels.items():
        title = translate(find_kind(channel).title)
        if status.quota is not None:
            console.print(f"\n{describe_quota_line(title, status.quota)}")
        if status.reason:
            console.print(f"[red]{label(title, escape(translate(status.reason)))}[/]")
    for sitemap in overview.sitemaps:
        console.print(f"\n{_describe_sitemap(sitemap)}")


def _print_urgent(sites: "Sequence[SiteSummary]", *, console: "Console") -> None:
    """Each site, its condition, and why."""
    if not sites:
        console.print(say("No site needs attention."))
        return
    conditions = {"broken": say("broken"), "overdue": say("overdue"), "partial": say("partial")}
    table = make_table(say("site"), say("condition"), say("started"), say("reason"))
    for each in sites:
        reason = escape(translate(each.reason or "-"))
        table.add_row(escape(each.id), conditions[each.condition.value], format_time(each.last_at), reason)
    console.print(table)


def _describe_sitemap(sitemap: "SitemapSubmission") -> str:
    google = sitemap.google
    line = say(
        "Google: {sitemap} submitted {submitted}, downloaded {downloaded}, {warnings} warnings, {errors} errors",
        sitemap=escape(sitemap.sitemap),
        submitted=format_time(sitemap.submitted_at, missing=say("never")),
        downloaded=format_time(google.downloaded_at, missing=say("never")),
        warnings=f"{google.warnings:,}",
        errors=f"{google.errors:,}",
    )
    return f"{line}\n[red]{escape(translate(sitemap.failure))}[/]" if sitemap.failure else line


def _describe_state(overview: "SiteOverview", shown: AnnounceStatus) -> str:
    reason = f" ({escape(translate(overview.reason))})" if overview.reason else ""
    if overview.state == "paused":
        return f"[yellow]{say('paused')}[/]{reason}"
    next_run = ""
    if overview.next_run is not None and shown.service_runs:
        next_run = say("; runs next at {time}", time=format_time(overview.next_run))
    elif overview.next_run is not None:
        next_run = say(
            "; due at {time}, but no service runs (last seen: {seen})",
            time=format_time(overview.next_run),
            seen=format_time(shown.service_seen_at, missing=say("never")),
        )
    state = f"[red]{say('broken')}[/]{reason}" if overview.state == "broken" else say("scheduled")
    return f"{state}{next_run}"
