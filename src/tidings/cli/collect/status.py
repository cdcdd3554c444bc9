"""`tidings collect status`: candidates, executions, cookies, the mirror, and what needs a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidings.cli.options import JsonOption
from tidings.cli.output import escape, format_time, make_console, make_execution_table, make_table, print_json
from tidings.cli.session import Session, command

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.collect.feishu.mirror import MirrorStatus
    from tidings.collect.status import PlatformPause
    from tidings.collect.status_report import CollectStatus


@command
async def status(session: Session, as_json: JsonOption = False) -> None:
    """Show candidates, executions, cookies, mirror and alerts."""
    installation = await session.open()
    shown = await installation.collect_status.read()
    if as_json:
        print_json(shown.to_json())
    else:
        _print(shown, console=make_console())


def _print(shown: "CollectStatus", *, console: "Console") -> None:
    _print_candidates(shown, console=console)
    if shown.executions:
        console.print()
        console.print(make_execution_table(shown.executions, "workflow", "done", "failed"))
    enabled = sum(each.enabled for each in shown.keywords)
    console.print(f"\nKeywords: {enabled:,} watched, {len(shown.keywords) - enabled:,} paused.")
    usable = ", ".join(
        f"{escape(platform)} {usable:,} of {total:,}" for platform, (usable, total) in shown.count_cookies().items()
    )
    console.print(f"Cookies that can be used: {usable or 'none'}.")
    print_pauses(shown.pauses, console=console)
    if shown.mirror is not None:
        console.print(f"Feishu: {_write_mirror(shown.mirror)}.")
    if shown.alerts:
        console.print("\nNeeds a person:")
    for each in shown.alerts:
        console.print(f"  [red]{each.kind}[/] {escape(each.subject)}: {escape(each.reason)}")
        console.print(f"    {escape(each.action)}")


def print_pauses(pauses: "Sequence[PlatformPause]", *, console: "Console") -> None:
    """A line for each paused platform, and how to end its pause."""
    for pause in pauses:
        name = escape(pause.platform)
        console.print(f"[yellow]{name} is paused[/] until {format_time(pause.until)}: {escape(pause.message)}.")
        console.print(f"  Its candidates wait uncounted. `tidings collect resume {name}` ends the pause now.")


def _print_candidates(shown: "CollectStatus", *, console: "Console") -> None:
    from tidings.collect.tables import CandidateStatus

    if not shown.candidates:
        console.print("There are no candidates yet.")
        return
    statuses = [status.value for status in CandidateStatus]
    table = make_table("platform", *statuses, right=statuses)
    for platform, counts in shown.candidates.items():
        table.add_row(escape(platform), *(f"{counts.get(status, 0):,}" for status in CandidateStatus))
    console.print(table)


def _write_mirror(mirror: "MirrorStatus") -> str:
    waiting = f"{mirror.waiting:,} changes wait" if mirror.waiting else "no change waits"
    since = "" if mirror.oldest is None else f", the oldest since {format_time(mirror.oldest)}"
    refused = f"; {mirror.refused:,} rows were refused" if mirror.refused else ""
    return f"{waiting}{since}{refused}" + (f"; last error: {escape(mirror.last_error)}" if mirror.last_error else "")
