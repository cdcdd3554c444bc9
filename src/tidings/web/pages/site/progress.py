"""Live progress of one execution: what the page shows at first, and the events that bring it up to date."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from tidings.core.clock import to_text
from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.web.pages.site.outcome import list_channel_stats
from tidings.web.pages.view.formats import UNKNOWN, Formats


class StepState(StrEnum):
    """A step's state is also its class in the style."""

    DONE = "done"
    NOW = "now"
    WAITS = "waits"


# The icon of each state of a step; the class and icon of each state of an engine's badge.
_ICONS = {StepState.DONE: "ok", StepState.NOW: "running", StepState.WAITS: "new"}
_BADGES = {
    "sending": ("accent", "running"),
    "retrying": ("warn", "partial"),
    "refused": ("bad", "broken"),
    "done": ("ok", "ok"),
    "waits": ("", "new"),
    "skipped": ("", "paused"),
}


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """One of the steps that every execution takes."""

    name: str
    title: str
    state: StepState
    text: str

    @property
    def icon(self) -> str:
        return _ICONS[self.state]


def describe_progress(record: ExecutionRecord, result: Mapping[str, Any], formats: Formats) -> dict[str, Any]:
    """Percent, one sentence, the steps, and the numbers of each engine."""
    due, engines = _find_due(result), list_engines(result, formats)
    shares = _list_shares(engines, due=due)
    # Every engine gets every page. What channels with a quota still get is named after it, and part of the percentage.
    sent, wanted = sum(shares) if shares else _count_sent(result, engines), due * max(len(shares), 1)
    for engine in engines:
        engine["state"] = _find_state(engine, due=due, is_read=bool(result.get("files")))
    then = [engine["engine"] for engine in engines if engine["to_send"]]
    names = ("、" if formats.is_chinese else ", ").join(then)
    if record.is_queued:
        summary = formats.texts("progress.queued")
    elif result.get("files") and then and not shares:
        summary = formats.texts("progress.only_quota_channels", channels=names)
    elif result.get("files") and sent >= wanted and then:
        summary = formats.texts("progress.quota_channels", channels=names)
    elif due:
        numbers = {"sent": formats.number(sent), "due": formats.number(due), "wanted": formats.number(wanted)}
        summary = formats.texts.count("progress.summary", max(len(shares), 1), **numbers)
        if then:
            more = sum(engine["to_send"] for engine in engines)
            summary = formats.texts("progress.then", summary=summary, more=formats.number(more), channels=names)
    else:
        summary = formats.texts("progress.reading", n=formats.number(result.get("total") or 0))
    for engine in engines:
        if engine["state"] in ("sending", "retrying") and not engine["has_quota"]:
            engine["left"] = max(0, due - (engine["accepted"] or 0) - (engine["failed"] or 0))
        engine["badge"], engine["icon"] = _BADGES[engine["state"]]
    return {
        "id": record.public_id,
        "percent": _find_percent(engines, sent=sum(shares), wanted=due * len(shares)),
        "summary": summary,
        "took": formats.duration((record.completed_at or formats.now) - record.started_at),
        "steps": _list_steps(result, engines, formats, is_queued=record.is_queued),
        "engines": engines,
        "is_stopping": record.is_stopping,
    }


def _find_due(result: Mapping[str, Any]) -> int:
    """The due pages. Without IndexNow, the report takes over those of the other channels only at its end."""
    ranked = () if result.get("engines") else list_channel_stats(result).values()
    return max(result.get("new") or 0, *(stats.get("due") or 0 for stats in ranked), 0)


def _count_sent(result: Mapping[str, Any], engines: Sequence[Mapping[str, Any]]) -> int:
    """The pages that were sent without IndexNow; like the due ones, the report takes them over only at its end."""
    attempted = ((each["accepted"] or 0) + (each["failed"] or 0) for each in engines if each["has_quota"])
    return result.get("submitted") or max(attempted, default=0)


def _find_percent(engines: Sequence[Mapping[str, Any]], *, sent: int, wanted: int) -> int:
    """The share of all that this execution sends, with what channels with a quota still may."""
    quota_sent: int = sum(
        (engine["accepted"] or 0) + (engine["failed"] or 0) for engine in engines if engine["has_quota"]
    )
    to_send: int = sum(engine["to_send"] for engine in engines)
    return min(100, (sent + quota_sent) * 100 // max(1, wanted + quota_sent + to_send))


def _list_shares(engines: Sequence[Mapping[str, Any]], *, due: int) -> list[int]:
    """How many of the due pages each engine has processed, without channels with a quota and engines that refuse the
    key."""
    return [
        min(due, (engine["accepted"] or 0) + (engine["failed"] or 0))
        for engine in engines
        if not engine["has_quota"] and not engine["broken"]
    ]


def _find_state(engine: Mapping[str, Any], *, due: int, is_read: bool) -> str:
    if engine["broken"]:
        return "refused"
    if engine["waits"]:
        return "skipped" if engine["has_no_quota"] else "waits"
    attempted = (engine["accepted"] or 0) + (engine["failed"] or 0)
    if is_read and (attempted >= due or (engine["has_quota"] and not engine["to_send"])):
        return "done"
    return "retrying" if engine["reason"] else "sending"


def _list_steps(
    result: Mapping[str, Any], engines: Sequence[Mapping[str, Any]], formats: Formats, *, is_queued: bool
) -> list[ProgressStep]:
    """Sitemap, due pages, IndexNow, channels with a quota. A step counts as done once its figures are final."""
    texts, number = formats.texts, formats.number
    total, due, files = result.get("total") or 0, _find_due(result), result.get("files") or 0
    ranked = list_channel_stats(result)
    read = StepState.DONE if files else StepState.WAITS if is_queued else StepState.NOW
    found = read if files or due else StepState.WAITS
    quota_began = any(stats.get("requests") for stats in ranked.values())
    senders = engines[: len(engines) - len(ranked)]
    all_sent = quota_began or all(engine["state"] in ("done", "refused") for engine in senders)
    sending = StepState.WAITS if not due and not files else StepState.DONE if files and all_sent else StepState.NOW
    sitemap = texts("progress.files", n=number(files), unchanged=number(result.get("filesUnchanged") or 0))
    steps = [
        (
            "sitemap",
            texts("progress.step.sitemap"),
            read,
            sitemap if files else texts("progress.pages", n=number(total)),
        ),
        ("due", texts("progress.step.due"), found, texts("progress.due", due=number(due), total=number(total))),
    ]
    if senders:
        taken = max(engine["accepted"] or 0 for engine in senders)
        steps.append(("indexnow", texts("channel.indexnow"), sending, texts("progress.taken", n=number(taken))))
    for channel, stats in ranked.items():
        began = bool(stats.get("requests"))
        left = (stats.get("quota") or {}).get("remaining")
        is_next = sending is StepState.DONE and left != 0
        state = StepState.NOW if began or is_next else StepState.WAITS
        text = texts("progress.taken", n=number(stats.get("urlCount"))) if began else ""
        text = text or _explain_quota(stats, formats)
        text = text or ("" if left is None else texts("progress.quota_left", n=number(left)))
        steps.append((str(channel), texts(f"channel.{channel}"), state, text))
    return [ProgressStep(*step) for step in steps]


def _show_mean(milliseconds: float | None, formats: Formats) -> str:
    return UNKNOWN if milliseconds is None else formats.texts("time.milliseconds", n=f"{milliseconds:,.0f}")


def _explain_quota(stats: Mapping[str, Any], formats: Formats) -> str:
    """That the day's quota is exhausted, if only this kept the channel from sending; else empty."""
    quota = stats.get("quota")
    if stats.get("requests") or stats.get("success") or not quota or quota["remaining"]:
        return ""
    if quota["resetsAt"] > to_text(formats.now):
        return formats.texts("progress.quota_used_today")
    return formats.texts("progress.quota_used", day=formats.date(date.fromisoformat(quota["day"])))


def list_engines(result: Mapping[str, Any], formats: Formats) -> list[dict[str, Any]]:
    """Engines and channels with a quota, with their figures."""
    return [
        *(_describe_engine(each, formats) for each in result.get("engines", ())),
        *(
            _describe_channel(formats.texts(f"channel.{channel}"), stats, formats)
            for channel, stats in list_channel_stats(result).items()
        ),
    ]


def _describe_engine(engine: Mapping[str, Any], formats: Formats) -> dict[str, Any]:
    return {
        "engine": engine["engine"],
        "accepted": engine["succeeded"],
        "failed": engine["failed"],
        "left": engine["left"],
        "requests": engine["requests"],
        "mean": _show_mean(engine["meanResponseMs"], formats),
        "reason": formats.say(engine["reason"]),
        "advice": engine["advice"],
        "broken": engine.get("broken", False),
        "waits": False,
        "has_quota": False,
        "has_no_quota": False,
        "to_send": 0,
    }


def _describe_channel(name: str, stats: Mapping[str, Any], formats: Formats) -> dict[str, Any]:
    full, quota = _explain_quota(stats, formats), stats.get("quota") or {}
    return {
        "engine": name,
        "accepted": stats.get("urlCount"),
        "failed": stats.get("failed"),
        "left": stats.get("left"),
        "requests": stats.get("requests"),
        "mean": _show_mean(stats.get("meanResponseMs"), formats),
        "reason": full or formats.say(stats.get("errorMessage")),
        "advice": stats.get("advice"),
        "broken": stats.get("switchedOff", False),
        "waits": not stats.get("requests"),
        "has_quota": True,
        "has_no_quota": bool(full),
        # Pages that wait and that the rest of the day's quota has room for.
        "to_send": min(stats.get("left") or 0, quota.get("remaining") or 0),
    }


def write_event(progress: Mapping[str, Any], record: ExecutionRecord, formats: Formats) -> bytes:
    """One server-sent event: the new text of each named part of the page, and class and icon of each mark."""
    texts = {"percent": f"{progress['percent']}%", "summary": progress["summary"], "took": progress["took"]}
    marks = {}
    for engine in progress["engines"]:
        name = engine["engine"]
        for part in ("accepted", "failed", "left", "requests"):
            texts[f"{name}:{part}"] = formats.number(engine[part])
        texts |= {f"{name}:mean": engine["mean"], f"{name}:reason": engine["reason"]}
        texts[f"{name}:state"] = formats.texts(f"progress.state.{engine['state']}")
        marks[name] = (f"badge {engine['badge']}", engine["icon"])
    for step in progress["steps"]:
        texts[f"step:{step.name}"] = step.text
        marks[f"step:{step.name}"] = (step.state.value, step.icon)
    event = {
        "percent": progress["percent"],
        "summary": progress["summary"],
        "texts": texts,
        "marks": marks,
        "ended": record.status is not ExecutionStatus.RUNNING,
    }
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
