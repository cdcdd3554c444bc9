"""`tidings collect status`: how collecting stands, all in one look."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tidings.cli.collect.report import escape
from tidings.collect.alert_kinds import CollectAlert
from tidings.collect.alerts import find_obstacle
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.feishu.mirror import MirrorStatus
from tidings.collect.status import count_candidates, list_executions
from tidings.collect.tables import CandidateStatus
from tidings.collect.write import Keyword
from tidings.core.alerts import OpenCondition
from tidings.core.clock import to_text
from tidings.core.executions import ExecutionRecord
from tidings.wiring import Installation

_MOST_EXECUTIONS: Final = 10
_KINDS: Final = frozenset(CollectAlert)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is shown. `usable` are the cookies that can be used now, of all there are."""

    candidates: dict[str, dict[CandidateStatus, int]]
    executions: Sequence[ExecutionRecord]
    alerts: Sequence[OpenCondition]
    keywords: Sequence[Keyword]
    cookies: Sequence[Cookie]
    usable: frozenset[str]
    mirror: MirrorStatus | None

    def count_cookies(self) -> dict[str, tuple[int, int]]:
        """For each platform, how many cookies can be used, and how many there are."""
        counts: dict[str, tuple[int, int]] = {}
        for cookie in self.cookies:
            usable, total = counts.get(cookie.platform, (0, 0))
            counts[cookie.platform] = usable + (cookie.name in self.usable), total + 1
        return counts

    def to_json(self) -> dict[str, Any]:
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
            "mirror": None if self.mirror is None else _describe_mirror(self.mirror),
        }


async def read_standing(installation: Installation) -> Standing:
    """How collecting stands now."""
    now = installation.clock.now()
    cookies = await installation.cookies.list_all()
    async with installation.database.read() as connection:
        candidates = await count_candidates(connection)
        executions = await list_executions(connection, limit=_MOST_EXECUTIONS)
    return Standing(
        candidates=candidates,
        executions=executions,
        alerts=[each for each in await installation.alerts.list_open() if each.kind in _KINDS and each.fired_at],
        keywords=await installation.keywords.list_all(),
        cookies=cookies,
        usable=frozenset(
            cookie.name for cookie in cookies if find_obstacle(cookie, at=now, keys=installation.keys) is None
        ),
        mirror=None if installation.mirror is None else await installation.mirror.describe(),
    )


def print_standing(standing: Standing, *, console: Console) -> None:
    _print_candidates(standing, console=console)
    _print_executions(standing.executions, console=console)
    enabled = sum(each.enabled for each in standing.keywords)
    console.print(f"\nKeywords: {enabled:,} watched, {len(standing.keywords) - enabled:,} paused.")
    told = ", ".join(
        f"{escape(platform)} {usable:,} of {total:,}" for platform, (usable, total) in standing.count_cookies().items()
    )
    console.print(f"Cookies that can be used: {told or 'there are none'}.")
    if standing.mirror is not None:
        console.print(f"Feishu: {_write_mirror(standing.mirror)}.")
    if standing.alerts:
        console.print("\nNeeds a person:")
    for each in standing.alerts:
        console.print(f"  [red]{each.kind}[/] {escape(each.subject)}: {escape(each.reason)}")
        console.print(f"    {escape(each.action)}")


def _print_candidates(standing: Standing, *, console: Console) -> None:
    if not standing.candidates:
        console.print("There are no candidates yet.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("platform")
    for status in CandidateStatus:
        table.add_column(status.value, justify="right")
    for platform, counts in standing.candidates.items():
        table.add_row(escape(platform), *(f"{counts.get(status, 0):,}" for status in CandidateStatus))
    console.print(table)


def _print_executions(records: Sequence[ExecutionRecord], *, console: Console) -> None:
    if not records:
        return
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("workflow", "started", "status", "done", "failed", "execution"):
        table.add_column(name)
    for record in records:
        table.add_row(
            escape(record.workflow_name),
            f"{record.started_at:%Y-%m-%d %H:%M:%S}",
            record.status.value,
            f"{record.items_processed:,}",
            f"{record.items_failed:,}",
            record.public_id,
        )
    console.print(table)


def _write_mirror(mirror: MirrorStatus) -> str:
    waiting = "nothing waits" if not mirror.waiting else f"{mirror.waiting:,} changes wait"
    since = "" if mirror.oldest is None else f", the oldest since {mirror.oldest:%Y-%m-%d %H:%M} UTC"
    refused = f"; {mirror.refused:,} rows were refused" if mirror.refused else ""
    return f"{waiting}{since}{refused}" + (f"; last trouble: {escape(mirror.last_error)}" if mirror.last_error else "")


def _describe_execution(record: ExecutionRecord) -> dict[str, Any]:
    return {
        "workflow": record.workflow_name,
        "executionId": record.public_id,
        "status": record.status.value,
        "startedAt": to_text(record.started_at),
        "completedAt": None if record.completed_at is None else to_text(record.completed_at),
        "itemsProcessed": record.items_processed,
        "itemsFailed": record.items_failed,
    }


def _describe_alert(condition: OpenCondition) -> dict[str, Any]:
    return {
        "kind": condition.kind,
        "subject": condition.subject,
        "reason": condition.reason,
        "action": condition.action,
        "count": condition.count,
        "since": to_text(condition.since),
    }


def _describe_mirror(mirror: MirrorStatus) -> dict[str, Any]:
    return {
        "waiting": mirror.waiting,
        "oldest": None if mirror.oldest is None else to_text(mirror.oldest),
        "refused": mirror.refused,
        "lastError": mirror.last_error,
        "deliveredAt": None if mirror.delivered_at is None else to_text(mirror.delivered_at),
    }
