"""The outcome of an execution for its row and its page: due, accepted, failed, and why it did not succeed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidings.announce.channels.quota.kinds import RANKED_KINDS
from tidings.announce.ledger.ledger import Channel
from tidings.core.executions import ExecutionStatus
from tidings.web.pages.view.formats import Formats


@dataclass(frozen=True, slots=True)
class SiteOutcome:
    """The figures of one execution. None if it did not get that far, or still runs."""

    # Pages that were new or changed, or had left the sitemap.
    due: int | None
    # Different pages that any engine or channel took.
    accepted: int | None
    # If more were accepted than due: where the others came from.
    accepted_text: str
    # URLs that were not taken, each once for each engine or channel, as in the list of failed URLs.
    failed: int | None
    # Those that no engine has taken at all; None if that number adds nothing.
    failed_text: str
    # Why it did not succeed; empty where it did.
    reason: str


def list_channel_stats(result: Mapping[str, Any]) -> dict[Channel, Mapping[str, Any]]:
    """The statistics of each channel with a quota that took part."""
    return {kind.channel: stats for kind in RANKED_KINDS if (stats := result.get(f"{kind.channel}Stats"))}


def describe_outcome(status: ExecutionStatus, result: Mapping[str, Any], formats: Formats) -> SiteOutcome:
    if status is ExecutionStatus.RUNNING:
        # Its progress is shown live, and a static figure beside it would contradict it.
        return SiteOutcome(None, None, "", None, "", "")
    accepted = result.get("submitted")
    due = result["new"] + result.get("removed", 0) if "new" in result else None
    failed = _count_refusals(result) if "engines" in result else result.get("failed")
    untaken = result.get("failed")
    is_partly = failed is not None and untaken is not None and untaken < failed
    return SiteOutcome(
        due=due,
        accepted=accepted,
        accepted_text=_explain_accepted(result, formats) if (accepted or 0) > (due or 0) else "",
        failed=failed,
        failed_text=formats.texts("execution.untaken", n=formats.number(untaken)) if is_partly else "",
        reason="" if status is ExecutionStatus.SUCCEEDED else _find_reason(result, formats),
    )


def _count_refusals(result: Mapping[str, Any]) -> int:
    return sum(int(each["failed"]) for each in (*result["engines"], *list_channel_stats(result).values()))


def _explain_accepted(result: Mapping[str, Any], formats: Formats) -> str:
    texts, again, by_quota = formats.texts, result.get("submittedAgain"), result.get("submittedByQuota")
    taking = [channel for channel, stats in list_channel_stats(result).items() if stats.get("urlCount")]
    between = "、" if formats.is_chinese else ", "
    names = between.join(texts(f"channel.{channel}") for channel in taking)
    parts = [
        texts("execution.sent_again", n=formats.number(again)) if again else "",
        texts("execution.by_quota", n=formats.number(by_quota), channels=names) if by_quota else "",
    ]
    said = ("，" if formats.is_chinese else ", ").join(part for part in parts if part)
    return texts("execution.including", parts=said) if said else ""


def _find_reason(result: Mapping[str, Any], formats: Formats) -> str:
    """The first reason in the page's language, and how many more there are."""
    reasons = [*result.get("errors", ()), *result.get("warnings", ())]
    if not reasons:
        return ""
    first = formats.explain(reasons[0])
    return first if len(reasons) == 1 else formats.texts("execution.more", reason=first, n=len(reasons) - 1)
