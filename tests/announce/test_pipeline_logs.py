"""What an execution tells: a line for each batch, a summary for each engine, and an alert where a person is needed."""

from typing import Any

import pytest

from tests.announce.stage import Events, StageMaker, pick_events
from tidings.announce.site.site import SubmitMethod
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

LEVELS = ("debug", "info", "warning", "error", "critical")


def find_highest_level(events: Events) -> str:
    return LEVELS[max(LEVELS.index(event["log_level"]) for event in events)]


def keep(event: Any, *names: str) -> dict[str, Any]:
    return {name: event[name] for name in names}


@pytest.mark.thorough
async def test_each_batch_and_each_engine_is_reported_with_its_counts(open_stage: StageMaker, events: Events) -> None:
    """A23: batch number, URLs, engine, status and time; total, succeeded, failed and mean time; all of it INFO."""
    stage = await open_stage(SandboxSite(pages=102, per_sitemap=None), submit_method=SubmitMethod.GET)
    await stage.announce()
    for engine in stage.engines:
        batches = pick_events(events, "batch.sent", engine=engine.host)
        assert [keep(event, "batch", "urls", "accepted", "status") for event in batches] == [
            {"batch": 1, "urls": 100, "accepted": 100, "status": {"200": 100}},
            {"batch": 2, "urls": 2, "accepted": 2, "status": {"200": 2}},
        ]
        assert all(event["ms"] > 0 for event in batches)
        [summary] = pick_events(events, "engine.summary", engine=engine.host)
        assert keep(summary, "total", "succeeded", "failed") == {"total": 102, "succeeded": 102, "failed": 0}
        assert summary["mean_ms"] > 0
    [finished] = pick_events(events, "execution.finished")
    assert keep(finished, "site", "status", "total", "new", "cached", "submitted", "failed") == {
        "site": stage.site.id,
        "status": "succeeded",
        "total": 102,
        "new": 102,
        "cached": 0,
        "submitted": 102,
        "failed": 0,
    }
    assert find_highest_level(events) == "info"


async def test_what_was_recovered_from_is_a_warning(open_stage: StageMaker, events: Events) -> None:
    """A21, A23: retries that helped need nobody."""
    stage = await open_stage()
    stage.engines[0].misbehave(Fault(status=503, times=2))
    report = await stage.announce()
    assert report.status is ExecutionStatus.SUCCEEDED
    retries = pick_events(events, "batch.retry", log_level="warning")
    assert [event["retry"] for event in retries] == ["retry 1/3", "retry 2/3"]
    assert find_highest_level(events) == "warning"


@pytest.mark.parametrize(("bad", "alerts"), [(2, 0), (3, 1)])
async def test_more_than_a_tenth_failed_alerts_with_reason_count_and_action(
    open_stage: StageMaker, events: Events, bad: int, alerts: int
) -> None:
    """A24: two of twenty are a tenth and not more; three are. Only the engine that failed is named."""
    stage = await open_stage(SandboxSite(pages=20, per_sitemap=None), engines=2)
    alpha, _ = stage.engines
    for number in range(1, bad + 1):
        alpha.misbehave(Fault(status=422, body="not of this host", matching=f"/{number:07d}/"))
    await stage.announce()
    raised = pick_events(events, "alert")
    assert [keep(alert, "kind", "subject", "count", "log_level") for alert in raised] == alerts * [
        {"kind": "many_failures", "subject": f"{stage.site.id} at {alpha.host}", "count": bad, "log_level": "error"}
    ]
    for alert in raised:
        assert "3 of 20 URLs failed: HTTP 422: not of this host" in alert["reason"]
        assert alert["action"]


async def test_what_failed_for_good_is_reported_with_full_detail_and_what_to_check(
    open_stage: StageMaker, events: Events
) -> None:
    """A21, A23: an ERROR with the URL, the status, the engine's words and advice."""
    stage = await open_stage(SandboxSite(pages=20, per_sitemap=None))
    stage.engines[0].misbehave(Fault(status=422, body="urls are invalid", matching="/0000003/"))
    await stage.announce()
    [failed] = pick_events(events, "batch.failed")
    assert keep(failed, "log_level", "status", "urls", "first_url", "reason") == {
        "log_level": "error",
        "status": 422,
        "urls": 1,
        "first_url": stage.web.url(3),
        "reason": "HTTP 422: urls are invalid",
    }
    assert failed["check"]


async def test_no_log_line_and_no_report_holds_the_key(open_stage: StageMaker, events: Events) -> None:
    """A4: its first four characters are all that is shown, no matter what goes wrong."""
    stage = await open_stage(engines=2)
    alpha, beta = stage.engines
    alpha.misbehave(Fault(status=403, body="no"))
    beta.misbehave(Fault(status=503))
    report = await stage.announce()
    reported = f"{events} {report.to_json()} {await stage.list_executions()} {await stage.list_failed()}"
    assert stage.web.key not in reported
    assert f"{stage.web.key[:4]}****" in reported
