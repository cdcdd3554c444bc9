"""The counts of an execution, and the names under which people and scripts read them."""

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from tidings.announce.channels.broken_engines import BrokenEngine
from tidings.announce.channels.channel import PagesFailed, PagesTaken
from tidings.announce.due.pages import Dropped
from tidings.announce.execution.report import ALERT_SHARE, EngineReport, Report
from tidings.announce.execution.results import EngineFound, OutboxCounted, Remark, fold
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Engine
from tidings.core.executions import ExecutionStatus

ALPHA = Engine("https://alpha.example/indexnow", "alpha.example")
BETA = Engine("https://beta.example/indexnow", "beta.example")


@pytest.mark.parametrize(
    ("succeeded", "failed", "share", "alerts"),
    [(0, 0, 0.0, False), (10, 0, 0.0, False), (90, 10, 0.1, False), (89, 11, 0.11, True), (0, 3, 1.0, True)],
)
def test_the_failed_share_is_of_what_was_attempted(succeeded: int, failed: int, share: float, alerts: bool) -> None:
    """A23, A24: pages that are left for a later execution were not attempted; exactly 10 % is not too much."""
    report = EngineReport(ALPHA, succeeded=succeeded, failed=failed, left=1_000)
    assert (report.attempted, report.failed_share) == (succeeded + failed, share)
    assert (report.failed_share > ALERT_SHARE) is alerts


@pytest.mark.parametrize(
    ("requests", "taken", "mean"),
    [
        (0, timedelta(0), None),
        (0, timedelta(seconds=5), None),
        (4, timedelta(milliseconds=1_000), 250.0),
        (3, timedelta(milliseconds=100), 33.3),
        (1, timedelta(microseconds=84_260), 84.3),
        (2, timedelta(0), 0.0),
    ],
)
def test_the_mean_response_time_is_of_the_requests(requests: int, taken: timedelta, mean: float | None) -> None:
    """A23: in milliseconds, over requests, not URLs; none without a request."""
    report = EngineReport(ALPHA, succeeded=10_000, requests=requests, time_taken=taken)
    assert report.mean_ms == mean
    assert report.to_json()["meanResponseMs"] == mean


def test_an_engine_is_reported_by_its_host() -> None:
    """A23, A37: total, succeeded, failed, mean response time, and why."""
    report = EngineReport(
        ALPHA,
        succeeded=7,
        failed=3,
        left=2,
        requests=4,
        time_taken=timedelta(seconds=2),
        reason="HTTP 403",
        advice="Check the key.",
        broken=True,
    )
    assert report.to_json() == {
        "engine": "alpha.example",
        "total": 10,
        "succeeded": 7,
        "failed": 3,
        "left": 2,
        "requests": 4,
        "meanResponseMs": 500.0,
        "reason": "HTTP 403",
        "advice": "Check the key.",
        "broken": True,
    }
    quiet = EngineReport(ALPHA).to_json()
    assert (quiet["reason"], quiet["advice"], quiet["broken"]) == (None, None, False)


def test_engines_keep_their_order_and_their_results_add_up() -> None:
    """A37: the order is that of the site, whichever answers first; results of one engine are summed."""
    report = Report(site="example.com")
    for engine in (BETA, ALPHA):
        report = fold(report, EngineFound(engine))
    for result in (PagesTaken(ALPHA, pages=3, fresh=3), PagesTaken(BETA, pages=3, fresh=0), PagesTaken(ALPHA, 2, 1)):
        report = fold(report, result)
    report = fold(report, PagesFailed(BETA, pages=2, untaken=1, reason="HTTP 422", advice="Look."))
    shown = [(each["engine"], each["succeeded"], each["failed"]) for each in report.to_json()["engines"]]
    assert shown == [("beta.example", 3, 2), ("alpha.example", 5, 0)]
    assert (report.submitted, report.failed) == (4, 1)
    report = fold(report, OutboxCounted({BETA.endpoint: 2}, failed=1))
    assert report.left == 2


def test_an_engine_that_refuses_the_key_leaves_nothing_that_more_time_would_send() -> None:
    """A20, A22: its pages wait for another key."""
    report = fold(
        Report(site="example.com"),
        EngineFound(ALPHA, BrokenEngine(ALPHA.endpoint, "HTTP 403", datetime(2026, 11, 1, tzinfo=UTC))),
    )
    report = fold(report, OutboxCounted({ALPHA.endpoint: 9}, failed=0))
    assert (report.engines[ALPHA.endpoint].left, report.left) == (9, 0)
    assert report.warnings == ["alpha.example refuses this key since 2026-11-01"]


def test_folding_leaves_the_report_before_it_as_it_was() -> None:
    """A36, A37: a report that was handed out as progress does not change under its reader."""
    before = fold(Report(site="example.com"), EngineFound(ALPHA))
    shown = before.to_json()
    fold(fold(before, PagesTaken(ALPHA, pages=3, fresh=3)), Remark(error="broken", warning="beware"))
    assert before.to_json() == shown


@pytest.mark.parametrize(("total", "new", "cached"), [(0, 0, 0), (10, 3, 7), (10, 10, 0), (3, 5, 0)])
def test_cached_are_those_that_needed_nothing(total: int, new: int, cached: int) -> None:
    """A37: never below zero, though a count that an interruption cut short may be lower than what was due."""
    report = Report(site="example.com", total=total, new=new, looked_up=True)
    assert (report.cached, report.to_json()["cached"]) == (cached, cached)


def make_full() -> Report:
    """A report whose every number is another one."""
    report = Report(
        site="example.com",
        total=1_000,
        new=300,
        changed=20,
        removed=3,
        repeated=4,
        too_soon=5,
        waiting=7,
        not_believed=6,
        submitted=290,
        submitted_again=14,
        submitted_by_quota=15,
        failed=10,
        files=8,
        files_unchanged=2,
        dropped=Dropped(invalid=11, foreign_host=12, outside_key_location=13),
        errors=["news.xml: HTTP 500"],
        warnings=["shop.xml: 60,000 URLs"],
        execution_id="exec-1-abcd",
        status=ExecutionStatus.PARTIAL,
        duration=timedelta(milliseconds=1_499, microseconds=600),
        started_at=datetime(2025, 1, 15, 10, 30, tzinfo=UTC),
    )
    return fold(report, EngineFound(ALPHA))


def test_an_execution_is_reported_under_fixed_names() -> None:
    """A37: total, new, cached, submitted, failed, per engine counts and errors, as scripts rely on them."""
    shown = dict(make_full().to_json())
    assert shown.pop("engines") == [EngineReport(ALPHA).to_json()]
    assert shown == {
        "site": "example.com",
        "executionId": "exec-1-abcd",
        "status": "partial",
        "durationMs": 1_500,
        "total": 1_000,
        "new": 300,
        "changed": 20,
        "cached": 688,
        "removed": 3,
        "repeated": 4,
        "waiting": 7,
        "tooSoon": 5,
        "notBelieved": 6,
        "submitted": 290,
        "submittedAgain": 14,
        "submittedByQuota": 15,
        "failed": 10,
        "files": 8,
        "pageCheck": {"checked": 0, "held": 0, "pages": []},
        "filesUnchanged": 2,
        "dropped": {"invalid": 11, "foreignHost": 12, "outsideKeyLocation": 13},
        "bingStats": None,
        "baiduStats": None,
        "googleStats": None,
        "googleSitemaps": [],
        "cutShort": False,
        "errors": ["news.xml: HTTP 500"],
        "warnings": ["shop.xml: 60,000 URLs"],
        "timestamp": "2025-01-15T10:30:00.000Z",
        "total_urls": 1_000,
        "new_urls": 300,
        "cached_urls": 688,
        "submitted_urls": 290,
        "failed_urls": 10,
    }


def test_every_figure_of_a_report_is_shown_and_is_plain_json() -> None:
    """A37: a figure that is added later must not be forgotten here, and it must survive the database."""
    report = make_full()
    shown = report.to_json()
    assert json.loads(json.dumps(shown)) == shown
    # All fields but the host, `looked_up` and `given`; a line for each channel with a quota, `cached`, and the five
    # numbers of the seeds.
    of_channels = sum(channel.has_quota for channel in Channel)
    assert len(shown) == len(fields(report)) - 4 + of_channels + 1 + 5
    assert len(report.engines[ALPHA.endpoint].to_json()) == len(fields(EngineReport)) + 1


def test_an_execution_that_runs_is_shown_as_running() -> None:
    """A36, A37: the same counts are its live progress."""
    shown = Report(site="example.com").to_json()
    assert (shown["status"], shown["total"], shown["engines"], shown["errors"]) == ("running", 0, [], [])
