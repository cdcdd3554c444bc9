"""`tidings status`: how it went last, and what an engine has yet to take."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidings.announce.channels.bing_status import BingStatus, read_bing_status
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.undelivered import FailedPage, Undelivered
from tidings.announce.status import SiteOverview, SiteState, describe_execution, read_overview
from tidings.cli.announce.announce import JsonOption, require_site
from tidings.cli.announce.report import describe_quota_line, make_console
from tidings.cli.session import load_settings, open_session, run
from tidings.core.clock import to_text
from tidings.core.executions import ExecutionRecord
from tidings.wiring import Installation

MOST_FAILED = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """What is shown: executions, what failed, and how one site stands with Bing."""

    records: list[ExecutionRecord]
    failed: list[FailedPage] = field(default_factory=list)
    bing: BingStatus | None = None
    overview: SiteOverview | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "executions": [describe_execution(record) for record in self.records],
            "failed": [describe_failed(page) for page in self.failed],
            **({} if self.overview is None else _describe_overview(self.overview)),
            **({} if self.bing is None else {"bing": self.bing.to_json(), "bingQuota": self.bing.describe_quota()}),
        }


def show_status(
    site: Annotated[str | None, typer.Argument(help="A site's id; without it, all sites.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a site's last executions, its quota at Bing and the URLs that failed; or every site's last execution."""
    settings = load_settings()

    async def work() -> Standing:
        async with open_session(settings) as installation:
            if site is not None:
                return await _read_site(installation, site)
            sites = await installation.sites.list_all()
            recent = [await installation.executions.list_recent(each.workflow_name, limit=1) for each in sites]
            return Standing([record for records in recent for record in records])

    standing = run(work)
    if as_json:
        typer.echo(json.dumps(standing.to_json(), ensure_ascii=False))
    else:
        _print(standing, console=make_console())


async def _read_site(installation: Installation, name: str) -> Standing:
    site = await require_site(installation, name)
    failed = [
        page
        for channel in Channel
        for page in await Undelivered(
            installation.database, site=site.number, channel=channel, execution=0
        ).list_failed(limit=MOST_FAILED)
    ]
    records = await installation.executions.list_recent(site.workflow_name)
    bing = await read_bing_status(site, database=installation.database, clock=installation.clock)
    overview = await read_overview(
        site.id,
        database=installation.database,
        records=installation.sites,
        clock=installation.clock,
        live=installation.service.live,
    )
    return Standing(records, failed, bing, overview)


def _print(standing: Standing, *, console: Console) -> None:
    _print_records(standing.records, console=console)
    if standing.overview is not None:
        console.print(f"\n{_describe_state(standing.overview)}")
    if standing.bing is not None and standing.bing.quota is not None:
        console.print(f"\n{describe_quota_line(standing.bing.quota)}")
        if standing.bing.reason:
            console.print(f"[red]Bing: {escape(standing.bing.reason)}[/]")
    if standing.failed:
        console.print("\nNot accepted yet; sent first next time:")
    for page in standing.failed:
        console.print(
            f"  {escape(page.url)} at {escape(page.engine)}: {escape(page.reason)} "
            f"({page.attempts} attempts, last {page.failed_at:%Y-%m-%d %H:%M})"
        )


def _describe_overview(overview: SiteOverview) -> dict[str, Any]:
    whole = overview.to_json()
    return {name: whole.get(name) for name in ("status", "reason", "executing", "nextRun")}


def _describe_state(overview: SiteOverview) -> str:
    reason = f" ({escape(overview.reason)})" if overview.reason else ""
    if overview.state is SiteState.PAUSED:
        return f"[yellow]paused[/]{reason}"
    when = "" if overview.next_run is None else f"; runs next at {overview.next_run:%Y-%m-%d %H:%M} UTC"
    return f"[red]broken[/]{reason}{when}" if overview.state is SiteState.BROKEN else f"running{when}"


def _print_records(records: list[ExecutionRecord], *, console: Console) -> None:
    if not records:
        console.print("Nothing has run yet.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("site", "started", "status", "submitted", "failed", "execution"):
        table.add_column(name)
    for record in records:
        table.add_row(
            escape(record.workflow_name.partition(":")[2]),
            f"{record.started_at:%Y-%m-%d %H:%M:%S}",
            record.status.value,
            f"{record.items_processed:,}",
            f"{record.items_failed:,}",
            record.public_id,
        )
    console.print(table)


def describe_failed(page: FailedPage) -> dict[str, Any]:
    return {
        "url": page.url,
        "engine": page.engine,
        "reason": page.reason,
        "attempts": page.attempts,
        "failedAt": to_text(page.failed_at),
    }
