"""What becomes of URLs by Bing's answer: A31's table, row by row and in both families of answers, and around it what
the next execution makes of it. IndexNow's half is the same in all of them as without Bing."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

import pytest

from tests.announce.bing_stage import MORNING, BingStage, check_indexnow, open_bing_stage
from tests.announce.stage import Events, pick_events, read_json
from tests.conftest import BenchMaker
from tests.stage import LOOPBACK
from tidings.announce.channels.answer import Verdict
from tidings.announce.execution.report import Report
from tidings.core.executions import ExecutionStatus
from tidings.core.net.addresses import MAX_URL_LENGTH
from tidings.core.net.client import Admit, GuardedClient, Stream
from tidings.sandbox.engines import bing as faults
from tidings.sandbox.engines.bing import SUBMIT_PATH, refuse, refuse_quota
from tidings.sandbox.wire.faults import Fault, FaultKind

pytestmark = pytest.mark.one_database

PARTIAL, SUCCEEDED = ExecutionStatus.PARTIAL, ExecutionStatus.SUCCEEDED
LOST = "no answer: the server closed the connection without an answer"
EXHAUSTED = "Bing quota exhausted, skipping"


class HastyClient(GuardedClient):
    """Waits for Bing, when it asks for that, a hundredth of the time that is asked for: half a minute is long."""

    hasty = False

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: timedelta,
        follow_redirects: bool = False,
        admit: Admit | None = None,
        url_limit: int = MAX_URL_LENGTH,
        before_sending: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Stream]:
        allowed = timeout / 100 if self.hasty and SUBMIT_PATH in url else timeout
        asked = super().stream(
            method,
            url,
            headers=headers,
            body=body,
            timeout=allowed,
            follow_redirects=follow_redirects,
            admit=admit,
            url_limit=url_limit,
            before_sending=before_sending,
        )
        async with asked as opened:
            yield opened


@pytest.fixture
async def client() -> AsyncIterator[HastyClient]:
    async with HastyClient(user_agent="tests", allow_networks=LOOPBACK) as opened:
        yield opened


class Next(Enum):
    """What the next execution of the same day does, with Bing well again."""

    SENDS = auto()
    STAYS_OFF = auto()
    LETS_THE_KEY_REST = auto()
    FINDS_NO_QUOTA = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One form of one row of the table, met by a batch of twenty with a quota of a hundred.

    `attempts` are those that the failed pages are kept with; 0 where none is kept as failed.
    """

    fault: Fault
    verdict: Verdict
    requests: int = 1
    waits: tuple[int, ...] = ()
    used: int = 0
    attempts: int = 1
    silent: str | None = None
    level: str = "warning"
    then: Next = Next.SENDS

    @property
    def code(self) -> str | None:
        return None if self.silent or not self.fault.body.startswith("{") else str(self._document["ErrorCode"])

    @property
    def message(self) -> str | None:
        return None if self.silent else str(self._document["Message"]) if self.code else self.fault.body or None

    @property
    def reason(self) -> str:
        reported = (f"HTTP {self.fault.status}", self.code and f"ErrorCode {self.code}", self.message)
        return self.silent or ": ".join(filter(None, reported))

    @property
    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.fault.body)
        return document


def bad_key(fault: Fault) -> Row:
    return Row(fault=fault, verdict=Verdict.FORBIDDEN, level="error", then=Next.STAYS_OFF)


def full(fault: Fault) -> Row:
    return Row(fault=fault, verdict=Verdict.QUOTA_FULL, attempts=0, then=Next.FINDS_NO_QUOTA)


def throttled(fault: Fault) -> Row:
    return Row(fault=fault, verdict=Verdict.THROTTLED, attempts=0, then=Next.LETS_THE_KEY_REST)


def limited(fault: Fault, wait: int) -> Row:
    return Row(fault=fault, verdict=Verdict.RATE_LIMITED, requests=4, waits=(wait,) * 3, attempts=4)


def unavailable(fault: Fault) -> Row:
    return Row(fault=fault, verdict=Verdict.UNAVAILABLE, requests=4, waits=(1, 2, 4), attempts=4)


def uncertain(fault: Fault, silent: str = LOST) -> Row:
    """Every attempt stays charged."""
    waits = (1, 2, 4)
    return Row(fault=fault, verdict=Verdict.UNCERTAIN, requests=4, waits=waits, used=80, attempts=4, silent=silent)


def refused(fault: Fault) -> Row:
    return Row(fault=fault, verdict=Verdict.REFUSED, level="error")


def invalid(fault: Fault) -> Row:
    """Every page is a bad one here: a tree of halves with twenty leaves."""
    return Row(fault=fault, verdict=Verdict.BAD_URLS, requests=39, level="error")


ROWS = {
    "invalid URL": invalid(faults.INVALID_URL),
    "invalid URL, documented": invalid(faults.INVALID_URL_DOCUMENTED),
    "bad key": bad_key(faults.INVALID_API_KEY),
    "bad key, documented": bad_key(faults.INVALID_API_KEY_DOCUMENTED),
    "bad key, in the message": bad_key(faults.INVALID_API_KEY_IN_MESSAGE),
    "bad key, bare 401": bad_key(faults.UNAUTHORIZED),
    "site not in the account": bad_key(faults.NOT_AUTHORIZED),
    "quota exceeded": full(faults.QUOTA_EXCEEDED),
    "quota exceeded, as 8": full(faults.QUOTA_EXCEEDED_AS_8),
    "quota exceeded, documented": full(faults.QUOTA_EXCEEDED_DOCUMENTED),
    "quota exceeded, bare 403": full(faults.FORBIDDEN),
    "quota remaining 0": full(refuse_quota(remaining=0, submitted=20)),
    "quota remaining, but enough": refused(refuse_quota(remaining=20, submitted=20)),
    "429": limited(faults.TOO_MANY_REQUESTS, 60),
    "429, Retry-After": limited(faults.TOO_MANY_REQUESTS_RETRY_AFTER, 7),
    "throttled user": throttled(faults.THROTTLE_USER),
    "throttled host": throttled(faults.THROTTLE_HOST),
    "throttled IP": throttled(faults.THROTTLE_IP),
    "500": unavailable(faults.SERVER_ERROR),
    "503, a page": unavailable(faults.UNAVAILABLE),
    "500, live": unavailable(refuse(1, "ERROR!!! InternalError", status=500)),
    "reset": uncertain(faults.RESET),
    "reset after accepting": uncertain(faults.RESET_AFTER_ACCEPTING),
    "hang": uncertain(faults.HANG, "no answer: no complete answer in 0.3 s"),
    "broken off": uncertain(Fault(FaultKind.TRUNCATE), "no answer: the answer broke off"),
    "2, otherwise": refused(faults.UNKNOWN_ERROR),
    "3, otherwise": refused(refuse(3, "ERROR!!! Something")),
    "7, otherwise": refused(refuse(7, "ERROR!!! Something")),
    "8, otherwise": refused(faults.INVALID_PARAMETER),
    "17, otherwise": refused(refuse(17, "ERROR!!! Something")),
    "400, a page": refused(faults.UNREADABLE),
    "400, empty": refused(Fault(status=400)),
    "404": refused(Fault(status=404)),
    "200 with an error": refused(refuse(2, "ERROR!!! UnknownError", status=200)),
}
ANSWERS = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


@pytest.mark.thorough
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_each_answer_that_is_no_success(
    make_bench: BenchMaker, client: HastyClient, events: Events, row: Row
) -> None:
    """A13, A27, A28, A31, A37: requests, waits, quota, ledger, failed URLs, status, record, log, alerts; and then."""
    client.hasty = row.fault is faults.HANG
    async with open_bing_stage(make_bench, pages=20) as stage:
        stage.misbehave(row.fault)
        report = await stage.announce()
        assert report.status is PARTIAL
        assert len(stage.batches()[0]) == 20
        assert len(stage.batches()) == row.requests
        assert stage.list_waits() == list(row.waits)
        quota = await stage.read_quota()
        assert (quota.used, quota.full) == (row.used, row.then is Next.FINDS_NO_QUOTA)
        # The stand-in counts whatever is answered with 200.
        assert quota.used >= stage.used_at_bing() or row.fault.status == 200
        assert await stage.find_entered() == set()
        await check_failed(stage, row)
        await check_record(stage, report, row)
        check_log(stage, events, row)
        await check_indexnow(stage, report)
        stage.bing.recover()
        stage.clock.advance(timedelta(minutes=5))
        if row.then is Next.SENDS:
            await check_sent(stage, row)
        else:
            await check_skipped(stage, events, row, since=report)


async def check_sent(stage: BingStage, row: Row) -> None:
    """The next execution: with Bing well, everything goes through, in one batch."""
    asked, before = len(stage.batches()), stage.bing.accepted.copy()
    report = await stage.announce()
    stats = read_json(report)["bingStats"]
    assert (report.status, stats["success"], stats["urlCount"], stats["statusCode"]) == (SUCCEEDED, True, 20, 200)
    assert [len(urls) for urls in stage.batches()[asked:]] == [20]
    assert stage.bing.accepted - before == dict.fromkeys(stage.web.urls(), 1)
    assert await stage.find_entered() == set(stage.web.urls())
    assert await stage.list_failed() == []
    assert (await stage.read_quota()).used == row.used + 20


async def check_skipped(stage: BingStage, events: Events, row: Row, *, since: Report) -> None:
    """The next execution: nothing is sent, however well Bing is, and the reason is shown."""
    asked, failed = len(stage.batches()), await stage.list_failed()
    events.clear()
    report = await stage.announce()
    stats = read_json(report)["bingStats"]
    assert len(stage.batches()) == asked
    assert (stats["success"], stats["urlCount"], stats["statusCode"]) == (False, 0, None)
    assert stats["errorMessage"] == tell_skipped(row, answered_at=read_timestamp(since))
    is_trouble = row.then is not Next.FINDS_NO_QUOTA
    assert report.warnings == ([f"Bing: {stats['errorMessage']}"] if is_trouble else [])
    assert report.status is (PARTIAL if is_trouble else SUCCEEDED)
    assert len(pick_events(events, EXHAUSTED, log_level="info")) == (not is_trouble)
    assert pick_events(events, "alert") == []
    assert await stage.list_failed() == failed


async def check_failed(stage: BingStage, row: Row) -> None:
    failed = await stage.list_failed()
    assert {page.url for page in failed} == (set(stage.web.urls()) if row.attempts else set())
    assert {(page.engine, page.reason, page.attempts) for page in failed} <= {("bing", row.reason, row.attempts)}


async def check_record(stage: BingStage, report: Report, row: Row) -> None:
    [saved] = await stage.list_executions()
    assert (saved.status, saved.result) == (PARTIAL, read_json(report))
    stats = saved.result["bingStats"]
    assert (stats["success"], stats["urlCount"], stats["due"]) == (False, 0, 20)
    assert stats["statusCode"] == (None if row.silent else row.fault.status)
    assert (stats["errorCode"], stats["errorMessage"]) == (row.code, row.message or row.reason)
    # The clock is also moved by the pace, a few milliseconds for each request.
    assert timedelta(0) <= read_timestamp(report) - MORNING - timedelta(seconds=sum(row.waits)) < timedelta(minutes=1)
    assert (stats["requests"], stats["failed"]) == (row.requests, 20 if row.attempts else 0)
    assert stats["left"] == 20 - stats["failed"]
    assert stats["switchedOff"] == (row.then is Next.STAYS_OFF)
    assert stats["quota"]["used"] == row.used


def check_log(stage: BingStage, events: Events, row: Row) -> None:
    reported = {
        "status": None if row.silent else row.fault.status,
        "error_code": row.code,
        "error_message": row.message,
        "verdict": row.verdict.value,
        "reason": row.reason,
    }
    answers = pick_events(events, "batch.answer")
    assert len(answers) == row.requests
    assert all(reported.items() <= event.items() and event["check"] for event in answers)
    # A batch that is halved is on its way to recovery.
    levels = ["warning"] * 19 + ["error"] * 20 if row.verdict is Verdict.BAD_URLS else [row.level] * row.requests
    assert sorted(event["log_level"] for event in answers) == sorted(levels)
    retries = pick_events(events, "batch.retry", log_level="warning")
    assert [event["retry"] for event in retries] == [f"retry {number}/3" for number in range(1, len(row.waits) + 1)]
    off = pick_events(events, "alert", kind="channel_off", log_level="error")
    assert [(event["subject"], event["reason"], bool(event["action"])) for event in off] == (
        [(f"{stage.site.id} at bing", row.reason, True)] if row.then is Next.STAYS_OFF else []
    )
    # A24: everything that was attempted failed; where no page is to blame, nobody is notified.
    many = pick_events(events, "alert", kind="many_failures", subject=f"{stage.site.id} at bing")
    assert [event["count"] for event in many] == ([20] if row.attempts else [])


def read_timestamp(report: Report) -> datetime:
    return datetime.fromisoformat(read_json(report)["bingStats"]["timestamp"])


def tell_skipped(row: Row, *, answered_at: datetime) -> str:
    """Why nothing is sent after this answer."""
    if row.then is Next.STAYS_OFF:
        return f"switched off since {answered_at:%Y-%m-%d %H:%M} UTC: {row.reason}"
    if row.then is Next.LETS_THE_KEY_REST:
        return f"the key rests until {answered_at + timedelta(hours=1):%Y-%m-%d %H:%M} UTC: {row.reason}"
    return "the quota of 2025-01-15 is used up"
