"""`tidings collect status`: candidates, executions, cookies, the mirror, and what needs a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidings.cli.options import JsonOption
from tidings.cli.output import escape, format_time, make_console, make_execution_table, make_table, print_json
from tidings.cli.session import Session, command
from tidings.core.clock import to_text

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.collect.crawl.cookies.table import Cookie
    from tidings.collect.feishu.mirror import MirrorStatus
    from tidings.collect.status import PlatformPause
    from tidings.collect.tables import CandidateStatus
    from tidings.collect.write import Keyword
    from tidings.core.alerts import OpenCondition
    from tidings.core.executions import ExecutionRecord
    from tidings.wiring import Installation

_MOST_EXECUTIONS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectStatus:
    """What the command shows."""

    # The number of candidates, by platform and status.
    candidates: "dict[str, dict[CandidateStatus, int]]"
    # The last executions, newest first.
    executions: "Sequence[ExecutionRecord]"
    # Alerts that have fired and are not resolved.
    alerts: "Sequence[OpenCondition]"
    keywords: "Sequence[Keyword]"
    cookies: "Sequence[Cookie]"
    # The names of the cookies that can be used now.
    usable: frozenset[str]
    # Platforms that are left alone for now.
    pauses: "Sequence[PlatformPause]"
    # None: there is no mirror.
    mirror: "MirrorStatus | None"

    def count_cookies(self) -> dict[str, tuple[int, int]]:
        """For each platform, the cookies that can be used, and all cookies."""
        counts: dict[str, tuple[int, int]] = {}
        for cookie in self.cookies:
            usable, total = counts.get(cookie.platform, (0, 0))
            counts[cookie.platform] = usable + (cookie.name in self.usable), total + 1
        return counts

    def to_json(self) -> dict[str, Any]:
        from tidings.collect.tables import CandidateStatus

        return {
            "candidates": {
                platform: {status.value: counts.get(status, 0) for status in CandidateStatus}
                for platform, counts in self.candidates.items()
            },
            "executions": [_describe_execution(record) for record in self.executions],
            "alerts": [_describe_alert(each) for each in self.alerts],
            "keywords": {"enabled": sum(each.enabled for each in self.keywords), "total": len(self.keywords)},
            "cookies": {
                platform: {"usable": usable, "total": total}
                for platform, (usable, total) in self.count_cookies().items()
            },
            "pauses": [describe_pause(pause) for pause in self.pauses],
            "mirror": None if self.mirror is None else _describe_mirror(self.mirror),
        }


@command
async def status(session: Session, as_json: JsonOption = False) -> None:
    """Show candidates, executions, cookies, mirror and alerts."""
    installation = await session.open()
    shown = await _read(installation)
    if as_json:
        print_json(shown.to_json())
    else:
        _print(shown, console=make_console())


async def _read(installation: "Installation") -> CollectStatus:
    from tidings.collect.alert_kinds import CollectAlert
    from tidings.collect.alerts import find_obstacle
    from tidings.collect.status import count_candidates, list_executions, list_pauses

    now, kinds = installation.clock.now(), frozenset(CollectAlert)
    cookies = await installation.cookies.list_all()
    async with installation.database.read() as connection:
        candidates = await count_candidates(connection)
        executions = await list_executions(connection, limit=_MOST_EXECUTIONS)
        pauses = await list_pauses(connection)
    return CollectStatus(
        candidates=candidates,
        executions=executions,
        alerts=[each for each in await installation.alerts.list_open() if each.kind in kinds and each.fired_at],
        keywords=await installation.keywords.list_all(),
        cookies=cookies,
        usable=frozenset(
            cookie.name for cookie in cookies if find_obstacle(cookie, at=now, keys=installation.keys) is None
        ),
        pauses=pauses,
        mirror=None if installation.mirror is None else await installation.mirror.describe(),
    )


def _print(shown: CollectStatus, *, console: "Console") -> None:
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


def _print_candidates(shown: CollectStatus, *, console: "Console") -> None:
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


def _describe_execution(record: "ExecutionRecord") -> dict[str, Any]:
    return {
        "workflow": record.workflow_name,
        "executionId": record.public_id,
        "status": record.status.value,
        "startedAt": to_text(record.started_at),
        "completedAt": None if record.completed_at is None else to_text(record.completed_at),
        "itemsProcessed": record.items_processed,
        "itemsFailed": record.items_failed,
    }


def _describe_alert(condition: "OpenCondition") -> dict[str, Any]:
    return {
        "kind": condition.kind,
        "subject": condition.subject,
        "reason": condition.reason,
        "action": condition.action,
        "count": condition.count,
        "since": to_text(condition.since),
    }


def describe_pause(pause: "PlatformPause") -> dict[str, Any]:
    return {
        "platform": pause.platform,
        "cause": pause.cause.value,
        "message": pause.message,
        "failures": pause.failures,
        "since": to_text(pause.since),
        "until": to_text(pause.until),
    }


def _describe_mirror(mirror: "MirrorStatus") -> dict[str, Any]:
    return {
        "waiting": mirror.waiting,
        "oldest": None if mirror.oldest is None else to_text(mirror.oldest),
        "refused": mirror.refused,
        "lastError": mirror.last_error,
        "deliveredAt": None if mirror.delivered_at is None else to_text(mirror.delivered_at),
    }
