"""`tidings status`: how it went last, and what an engine has yet to take."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidings.announce.ledger import Channel
from tidings.announce.undelivered import FailedPage, Undelivered
from tidings.cli.announce import JsonOption, require_site
from tidings.cli.screen import make_console
from tidings.cli.session import load_settings, open_session, run
from tidings.core.clock import to_text
from tidings.core.executions import ExecutionRecord
from tidings.wiring import Installation

MOST_FAILED = 20


def show_status(
    site: Annotated[str | None, typer.Argument(help="A site's id; without it, all sites.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last executions of a site and the URLs that failed, or the last execution of every site."""
    settings = load_settings()

    async def work() -> tuple[list[ExecutionRecord], list[FailedPage]]:
        async with open_session(settings) as installation:
            if site is not None:
                return await _read_site(installation, site)
            sites = await installation.sites.list_all()
            recent = [await installation.executions.list_recent(each.workflow_name, limit=1) for each in sites]
            return [record for records in recent for record in records], []

    records, failed = run(work)
    if as_json:
        document = {
            "executions": [describe_record(record) for record in records],
            "failed": [describe_failed(page) for page in failed],
        }
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    console = make_console()
    _print_records(records, console=console)
    if failed:
        console.print("\nNot accepted yet; sent first next time:")
        for page in failed:
            console.print(
                f"  {escape(page.url)} at {escape(page.engine)}: {escape(page.reason)} "
                f"({page.attempts} attempts, last {page.failed_at:%Y-%m-%d %H:%M})"
            )


async def _read_site(installation: Installation, name: str) -> tuple[list[ExecutionRecord], list[FailedPage]]:
    site = await require_site(installation, name)
    undelivered = Undelivered(installation.database, site=site.number, channel=Channel.INDEXNOW, execution=0)
    records = await installation.executions.list_recent(site.workflow_name)
    return records, await undelivered.list_failed(limit=MOST_FAILED)


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


def describe_record(record: ExecutionRecord) -> dict[str, Any]:
    return {
        "executionId": record.public_id,
        "site": record.workflow_name.partition(":")[2],
        "status": record.status.value,
        "startedAt": to_text(record.started_at),
        "completedAt": None if record.completed_at is None else to_text(record.completed_at),
        "result": record.result or record.progress,
    }


def describe_failed(page: FailedPage) -> dict[str, Any]:
    return {
        "url": page.url,
        "engine": page.engine,
        "reason": page.reason,
        "attempts": page.attempts,
        "failedAt": to_text(page.failed_at),
    }
