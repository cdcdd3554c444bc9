"""Live progress of one execution: what the page shows at first, and the events that bring it up to date."""

import json
from collections.abc import Mapping
from typing import Any

from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.web.pages.view.formats import Formats


def describe_progress(record: ExecutionRecord, result: Mapping[str, Any], formats: Formats) -> dict[str, Any]:
    """Percent, one sentence, and the numbers of each engine."""
    engines = [
        {
            "engine": each["engine"],
            "accepted": each["succeeded"],
            "failed": each["failed"],
            "left": each["left"],
            "requests": each["requests"],
            "reason": each["reason"],
        }
        for each in result.get("engines", ())
    ]
    due, sent = result.get("new") or 0, result.get("submitted") or 0
    if record.is_queued:
        summary = formats.texts("progress.queued")
    elif due:
        summary = formats.texts("progress.summary", sent=formats.number(sent), due=formats.number(due))
    else:
        summary = formats.texts("progress.reading", total=formats.number(result.get("total") or 0))
    return {
        "id": record.public_id,
        "percent": min(100, sent * 100 // due) if due else 0,
        "summary": summary,
        "took": formats.duration((record.completed_at or formats.now) - record.started_at),
        "engines": engines,
        "is_stopping": record.is_stopping,
    }


def write_event(progress: Mapping[str, Any], record: ExecutionRecord, formats: Formats) -> bytes:
    """One server-sent event: the new text of each named part of the page."""
    texts = {"percent": f"{progress['percent']}%", "summary": progress["summary"], "took": progress["took"]}
    for engine in progress["engines"]:
        for name in ("accepted", "failed", "left", "requests"):
            texts[f"{engine['engine']}:{name}"] = formats.number(engine[name])
        texts[f"{engine['engine']}:reason"] = engine["reason"] or ""
    event = {
        "percent": progress["percent"],
        "summary": progress["summary"],
        "texts": texts,
        "ended": record.status is not ExecutionStatus.RUNNING,
    }
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
