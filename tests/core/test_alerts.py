"""Alerts: a condition fires once and is resolved once, and each event is kept until it was delivered, on both
databases. How an event goes over the wire is in `test_alerts_destinations`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select, text
from structlog.testing import capture_logs

from tests.fakes import FakeClock
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.core.alerts.conditions import OpenCondition
from tidings.core.alerts.events import Alert, AlertEvent, DeliveryError, DestinationError, EventType
from tidings.core.alerts.kinds import AlertLevel, Language
from tidings.core.alerts.outbox import LEASE, alert_outbox
from tidings.core.alerts.service import Alerts
from tidings.core.db.database import Database, open_database
from tidings.core.secrets.redaction import Redactor
from tidings.core.stop import Stop

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
SOON = 20.0
ALERT = Alert(
    AnnounceAlert.MANY_FAILURES, "blog at one.example", reason="3 of 20 URLs failed", action="Check the key.", count=3
)
DOWN = DeliveryError(retry=True, reason="it is down")

Events = list[MutableMapping[str, Any]]


class Recorder:
    """A destination that keeps what it is sent: `tried` all of it, `taken` what it did not fail on."""

    def __init__(self, name: str = "first", *, failure: BaseException | None = None) -> None:
        self.name = name
        self.failure = failure
        self.fails_once = False
        self.tried: list[AlertEvent] = []
        self.taken: list[AlertEvent] = []
        self.on_taken: Callable[[], None] = lambda: None

    async def send(self, event: AlertEvent) -> None:
        self.tried.append(event)
        failure = self.failure
        if self.fails_once:
            self.failure = None
        if failure is not None:
            raise failure
        self.taken.append(event)
        self.on_taken()

    @property
    def story(self) -> list[str]:
        return [event.type.value for event in self.taken]


class SleeplessClock(FakeClock):
    """Whoever sleeps by it is not woken by time."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    async def sleep(self, duration: timedelta) -> None:
        self.slept.append(duration)
        self.asleep.set()
        await asyncio.Event().wait()


@pytest.fixture
def first() -> Recorder:
    return Recorder("first")


@pytest.fixture
def second() -> Recorder:
    return Recorder("second")


@pytest.fixture
def alerts(database: Database, clock: FakeClock, first: Recorder, second: Recorder) -> Alerts:
    return Alerts(database, clock=clock, destinations=[first, second])


@pytest.fixture
def events() -> Iterator[Events]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
async def databases(database_url: str) -> AsyncIterator[list[Database]]:
    """The same database four times, as four processes have it."""
    opened = [open_database(database_url) for _ in range(4)]
    yield opened
    for database in opened:
        await database.close()


async def hold(alerts: Alerts, database: Database, alert: Alert = ALERT, *, after: timedelta = timedelta(0)) -> None:
    async with database.write() as connection:
        await alerts.raise_alert(connection, alert, after=after)


async def end(alerts: Alerts, database: Database, alert: Alert = ALERT) -> None:
    async with database.write() as connection:
        await alerts.resolve_alert(connection, alert.kind, alert.subject)


async def list_rows(database: Database) -> list[tuple[str, str, str]]:
    """What is in the outbox: destination, type and state, in order."""
    columns = alert_outbox.c
    async with database.read() as connection:
        statement = select(columns.destination, columns.type, columns.state).order_by(columns.id)
        return [(row[0], row[1], row[2]) for row in await connection.execute(statement)]


async def deliver_when_due(alerts: Alerts, clock: FakeClock) -> None:
    """Let time go on to the next thing that is due, and do it."""
    due = await alerts.next_due()
    assert due is not None
    clock.set(max(due, clock.now()))
    await alerts.deliver()


@pytest.mark.parametrize("held_again", [True, False])
async def test_a_condition_fires_once_after_its_duration_and_is_resolved_once(
    *, database: Database, alerts: Alerts, clock: FakeClock, first: Recorder, events: Events, held_again: bool
) -> None:
    """A40: not before, not again; also when nobody holds it a second time."""
    since = clock.now()
    await hold(alerts, database, after=HOUR)
    clock.advance(HOUR - SECOND)
    await hold(alerts, database, after=HOUR)
    assert (await alerts.deliver(), first.tried) == (0, [])
    assert await alerts.next_due() == since + HOUR
    clock.advance(SECOND)
    for _ in range(3):
        if held_again:
            await hold(alerts, database, after=HOUR)
        await alerts.deliver()
        clock.advance(HOUR)
    for _ in range(2):
        await end(alerts, database)
        await alerts.deliver()
    fired, resolved = first.taken
    assert (fired.type, fired.since, fired.occurred_at) == (EventType.FIRED, since, since + HOUR)
    assert (resolved.type, resolved.since, resolved.occurred_at) == (EventType.RESOLVED, since, since + 4 * HOUR)
    assert {(each.kind, each.subject, each.reason, each.action, each.count) for each in first.taken} == {
        (ALERT.kind, ALERT.subject, ALERT.reason, ALERT.action, ALERT.count)
    }
    reported = [event for event in events if event["event"] == "alert"]
    assert [(event["log_level"], event["kind"], event["count"]) for event in reported] == [("error", ALERT.kind, 3)]
    assert await alerts.next_due() is None


async def test_a_clock_that_was_ahead_holds_no_alert_back(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder
) -> None:
    """A40: a condition of the future begins when it is raised again, and a retry of the future is due now."""
    now, later = clock.now(), Alert(AnnounceAlert.MANY_FAILURES, "two.example", reason="late", action="", count=1)
    clock.advance(400 * DAY)
    await hold(alerts, database, later, after=HOUR)
    first.failure = DOWN
    await hold(alerts, database)
    await alerts.deliver()
    first.failure = None
    clock.set(now)
    await hold(alerts, database, later, after=HOUR)
    await alerts.deliver()
    assert [event.subject for event in first.taken] == [ALERT.subject]
    clock.advance(HOUR)
    await hold(alerts, database, later, after=HOUR)
    await alerts.deliver()
    assert [(event.subject, event.since) for event in first.taken[1:]] == [("two.example", now)]


async def test_a_condition_that_ends_before_it_fires_is_forgotten(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder
) -> None:
    """A40: nobody hears of it, and its time starts again when it comes back."""
    await hold(alerts, database, after=HOUR)
    clock.advance(50 * MINUTE)
    await end(alerts, database)
    assert await alerts.list_open() == []
    await hold(alerts, database, after=HOUR)
    clock.advance(50 * MINUTE)
    assert await alerts.deliver() == 0
    clock.advance(10 * MINUTE)
    await alerts.deliver()
    assert first.story == ["fired"]


async def test_what_is_open_is_listed_as_it_was_last_held(database: Database, alerts: Alerts, clock: FakeClock) -> None:
    """A24: holding again refreshes reason and count, and nothing else; the newest comes first."""
    start = clock.now()
    other = Alert(AnnounceAlert.NOT_RUN, "shop", reason="silent", action="Look.")
    await hold(alerts, database)
    clock.advance(MINUTE)
    await hold(alerts, database, other, after=HOUR)
    await hold(alerts, database, Alert(ALERT.kind, ALERT.subject, reason="4 failed", action="Wait.", count=4))
    waiting = OpenCondition(
        kind="not_run", subject="shop", reason="silent", action="Look.", count=None, since=start + MINUTE, fired_at=None
    )
    fired = OpenCondition(
        kind=ALERT.kind,
        subject=ALERT.subject,
        reason="4 failed",
        action="Wait.",
        count=4,
        since=start,
        fired_at=start,
    )
    assert await alerts.list_open() == [waiting, fired]
    assert await alerts.list_open(limit=1) == [waiting]
    assert await list_rows(database) == [("first", "fired", "pending"), ("second", "fired", "pending")]


async def test_a_condition_that_comes_back_is_a_new_incident(
    database: Database, alerts: Alerts, first: Recorder
) -> None:
    """Alerts: fired, resolved, fired again, each under an id of its own."""
    await hold(alerts, database)
    await end(alerts, database)
    await hold(alerts, database)
    await alerts.deliver()
    assert first.story == ["fired", "resolved", "fired"]
    assert len({event.id for event in first.taken}) == 3
    assert all(event.id.startswith("evt-") for event in first.taken)


async def test_what_is_rolled_back_leaves_nothing(database: Database, alerts: Alerts, first: Recorder) -> None:
    """Alerts: a condition holds, or ends, only if the caller's transaction does."""
    with suppress(RuntimeError):
        async with database.write() as connection:
            await alerts.raise_alert(connection, ALERT)
            raise RuntimeError
    assert (await alerts.list_open(), await list_rows(database)) == ([], [])
    await hold(alerts, database)
    with suppress(RuntimeError):
        async with database.write() as connection:
            await alerts.resolve_alert(connection, ALERT.kind, ALERT.subject)
            raise RuntimeError
    assert len(await alerts.list_open()) == 1
    await alerts.deliver()
    assert first.story == ["fired"]


@pytest.mark.thorough
async def test_processes_that_hold_fire_and_end_at_once_tell_it_once(
    databases: list[Database], clock: FakeClock
) -> None:
    """Alerts: the database decides who fires and who resolves; each condition is notified once."""
    everyone = [Alerts(each, clock=clock, destinations=[Recorder()]) for each in databases]
    conditions = [
        (Alert(AnnounceAlert.NOT_RUN, f"site {number}", reason="", action=""), number % 2) for number in range(8)
    ]
    async with asyncio.timeout(SOON):
        for alert, later in conditions:
            after = HOUR if later else timedelta(0)
            pairs = zip(everyone, databases, strict=True)
            await asyncio.gather(*(hold(alerts, database, alert, after=after) for alerts, database in pairs))
        assert await list_rows(databases[0]) == [("first", "fired", "pending")] * 4
        clock.advance(HOUR)
        await asyncio.gather(*(alerts.deliver() for alerts in everyone))
        assert await list_rows(databases[0]) == [("first", "fired", "delivered")] * 8
        for alert, _ in conditions:
            pairs = zip(everyone, databases, strict=True)
            await asyncio.gather(*(end(alerts, database, alert) for alerts, database in pairs))
    assert (await list_rows(databases[0]))[8:] == [("first", "resolved", "pending")] * 8


async def test_processes_that_deliver_at_once_send_each_event_once(databases: list[Database], clock: FakeClock) -> None:
    """Alerts: a claim belongs to one process, and the order of a condition holds over all of them."""
    sink = Recorder()
    everyone = [Alerts(each, clock=clock, destinations=[sink]) for each in databases]
    for number in range(10):
        alert = Alert(AnnounceAlert.NOT_RUN, f"site {number}", reason="", action="")
        await hold(everyone[0], databases[0], alert)
        await end(everyone[0], databases[0], alert)
    async with asyncio.timeout(SOON):
        delivered = sum(await asyncio.gather(*(alerts.deliver() for alerts in everyone)))
    assert delivered == len(sink.tried) == len({event.id for event in sink.taken}) == 20
    for number in range(10):
        assert [event.type for event in sink.taken if event.subject == f"site {number}"] == ["fired", "resolved"]


async def test_a_crash_between_sending_and_marking_sends_again_under_the_same_id(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder, second: Recorder
) -> None:
    """Alerts: nothing is lost; what was in flight is due again once its lease is over, and not before."""
    await hold(alerts, database)
    first.failure = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await alerts.deliver()
    assert second.story == ["fired"]
    successor = Alerts(database, clock=clock, destinations=[after := Recorder("first"), second])
    clock.advance(LEASE - SECOND)
    assert await successor.deliver() == 0
    clock.advance(SECOND)
    assert await successor.deliver() == 1
    assert [event.id for event in after.taken] == [event.id for event in first.tried]
    assert len(second.tried) == 1


async def test_whoever_was_asleep_beyond_the_lease_changes_nothing_of_what_came_after(
    database: Database, clock: FakeClock
) -> None:
    """Alerts: the row belongs to the one who claimed it last; the one before can only say that it was taken."""
    successor = Alerts(
        database,
        clock=clock,
        destinations=[Recorder(failure=DeliveryError(retry=True, reason="later", retry_after=HOUR))],
    )

    class Sleeper(Recorder):
        async def send(self, event: AlertEvent) -> None:
            clock.advance(LEASE)
            await successor.deliver()
            await super().send(event)

    sleeper = Sleeper(failure=DOWN)
    alerts = Alerts(database, clock=clock, destinations=[sleeper])
    await hold(alerts, database)
    await alerts.deliver()
    assert await alerts.next_due() == clock.now() + HOUR
    clock.advance(HOUR)
    sleeper.failure = None
    assert await alerts.deliver() == 1
    assert await list_rows(database) == [("first", "fired", "delivered")]


@pytest.mark.thorough
async def test_a_destination_that_is_down_for_hours_gets_everything_when_it_is_back(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder, second: Recorder
) -> None:
    """Alerts: in the order in which it happened; another destination gets it at once, and once."""
    start, other = clock.now(), Alert(AnnounceAlert.NO_URLS, "shop", reason="none", action="Look.")
    first.failure = DOWN
    await hold(alerts, database)
    await end(alerts, database)
    await hold(alerts, database)
    await hold(alerts, database, other)
    for _ in range(30):
        await deliver_when_due(alerts, clock)
        if clock.now() - start > 5 * HOUR:
            break
    assert clock.now() - start > 5 * HOUR
    assert {event.id for event in first.tried} == {second.taken[0].id, second.taken[3].id}
    assert (first.taken, second.story) == ([], ["fired", "resolved", "fired", "fired"])
    first.failure = None
    clock.advance(HOUR)
    await alerts.deliver()
    await alerts.deliver()
    assert [event.id for event in first.taken if event.kind == ALERT.kind] == [each.id for each in second.taken[:3]]
    assert len(first.taken) == 4 == len(second.tried)
    assert await alerts.next_due() is None


async def test_an_event_waits_for_the_one_before_it(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder, second: Recorder
) -> None:
    """Alerts: a resolved event does not overtake its fired one; nothing else has to wait for it."""
    start, other = clock.now(), Alert(ALERT.kind, "another subject", reason="", action="")
    first.failure = DOWN
    await hold(alerts, database)
    await alerts.deliver()
    first.failure = None
    await end(alerts, database)
    await hold(alerts, database, other)
    await alerts.deliver()
    assert [(event.subject, event.type) for event in first.taken] == [("another subject", "fired")]
    assert second.story == ["fired", "resolved", "fired"]
    assert await alerts.next_due() == start + MINUTE
    clock.advance(MINUTE)
    await alerts.deliver()
    assert first.story == ["fired", "fired", "resolved"]


@pytest.mark.thorough
async def test_an_event_is_tried_for_three_days_and_then_kept_as_given_up(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder, second: Recorder, events: Events
) -> None:
    """Alerts: after 1, 2, 5, 15, 30 minutes, then hourly; an ERROR says so at the end. What comes later still goes."""
    start, timestamps = clock.now(), []
    first.failure = DOWN
    await hold(alerts, database)
    for _ in range(100):
        timestamps.append(clock.now() - start)
        await alerts.deliver()
        due = await alerts.next_due()
        if due is None:
            break
        clock.set(due)
    minutes = [timestamp / MINUTE for timestamp in timestamps]
    assert minutes[:8] == [0, 1, 3, 8, 23, 53, 113, 173]
    assert {later - earlier for earlier, later in pairwise(minutes[5:-1])} == {60}
    assert minutes[-1] == 3 * DAY / MINUTE
    assert await list_rows(database) == [("first", "fired", "given_up"), ("second", "fired", "delivered")]
    [given_up] = [event for event in events if event["event"] == "alert.given_up"]
    assert (given_up["log_level"], given_up["destination"], given_up["reason"]) == ("error", "first", "it is down")
    first.failure = None
    await end(alerts, database)
    await alerts.deliver()
    assert first.story == ["resolved"]


async def test_time_in_which_nobody_tried_does_not_count(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder
) -> None:
    """Alerts: a machine that was off for a week, and starts before its network does, gives nothing up."""
    first.failure = DOWN
    await hold(alerts, database)
    await alerts.deliver()
    clock.advance(7 * DAY)
    await alerts.deliver()
    first.failure = None
    await deliver_when_due(alerts, clock)
    assert first.story == ["fired"]


@pytest.mark.parametrize(
    ("failure", "state", "wait"),
    [
        (DeliveryError(retry=False, reason="gone"), "given_up", None),
        (DeliveryError(retry=True, reason="busy", retry_after=10 * MINUTE), "pending", 10 * MINUTE),
        (DeliveryError(retry=True, reason="busy", retry_after=SECOND), "pending", MINUTE),
        (DeliveryError(retry=True, reason="busy", retry_after=365 * DAY), "pending", DAY),
        (ValueError("https://user:canary@host/"), "pending", MINUTE),
    ],
    ids=["gone", "asks for longer", "asks for less", "asks for a year", "unexpected"],
)
async def test_what_a_failure_says_decides_when_it_is_tried_again(
    *,
    database: Database,
    alerts: Alerts,
    clock: FakeClock,
    first: Recorder,
    events: Events,
    failure: Exception,
    state: str,
    wait: timedelta | None,
) -> None:
    """Alerts: at the destination's wish, within reason; any other error is retried, its text not shown."""
    first.failure = failure
    await hold(alerts, database)
    await alerts.deliver()
    assert await list_rows(database) == [("first", "fired", state), ("second", "fired", "delivered")]
    due = await alerts.next_due()
    assert (None if due is None else due - clock.now()) == wait
    async with database.read() as connection:
        rows = str((await connection.execute(select(alert_outbox))).all())
    assert "canary" not in f"{events} {rows}"


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [0.001, 0])
async def test_a_rehearsal_waits_less_and_tries_as_often(database: Database, clock: FakeClock, scale: float) -> None:
    """Alerts: the scale of the retry rules shortens the waits and the three days with them."""
    down, start = Recorder(failure=DOWN), clock.now()
    alerts = Alerts(database, clock=clock, destinations=[down], retry_scale=scale)
    await hold(alerts, database)
    for _ in range(100):
        await deliver_when_due(alerts, clock)
        if await alerts.next_due() is None:
            break
    assert await list_rows(database) == [("first", "fired", "given_up")]
    assert len(down.tried) == 78
    assert (clock.now() - start) / (3 * DAY) == pytest.approx(scale, abs=1e-6)


async def test_hostile_text_is_stored_and_sent_harmless(database: Database, clock: FakeClock, first: Recorder) -> None:
    """Alerts: what no database or messenger takes is escaped, what is secret is taken out, what is endless is cut."""
    alerts = Alerts(database, clock=clock, destinations=[first], redactor=Redactor(["indexnow-key-1"]))
    alert = Alert(
        AnnounceAlert.NO_URLS, "a\x00\ud800\nb", reason="indexnow-key-1 \x1b[31m\x00" + 5_000 * "x", action="\u202e"
    )
    await hold(alerts, database, alert)
    await hold(alerts, database, alert)
    await end(alerts, database, alert)
    await alerts.deliver()
    fired, resolved = first.taken
    assert fired.subject == resolved.subject == "a\\x00\\ud800\\nb"
    assert (fired.action, len(fired.reason)) == ("\\u202e", 2_000)
    assert fired.reason.startswith("***REDACTED*** \\x1b[31m\\x00xxx")


async def test_delivered_events_are_forgotten_after_thirty_days(
    database: Database, alerts: Alerts, clock: FakeClock, second: Recorder
) -> None:
    """Alerts: what was given up stays for people to find."""
    second.failure = DeliveryError(retry=False, reason="gone")
    await hold(alerts, database)
    await alerts.deliver()
    clock.advance(30 * DAY)
    await alerts.deliver()
    assert len(await list_rows(database)) == 2
    clock.advance(DAY)
    await alerts.deliver()
    assert await list_rows(database) == [("second", "fired", "given_up")]


async def test_running_fires_and_delivers_when_the_time_comes(
    database: Database, alerts: Alerts, clock: FakeClock, first: Recorder
) -> None:
    """A40: by itself, on time, through a destination's failure, until the stop."""
    stop, start = Stop(clock=clock), clock.now()
    first.on_taken = lambda: stop.request("enough")
    first.failure, first.fails_once = DOWN, True
    await hold(alerts, database, after=5 * MINUTE)
    async with asyncio.timeout(SOON):
        await alerts.run(stop)
    assert first.story == ["fired"]
    assert first.taken[0].occurred_at == start + 5 * MINUTE
    assert clock.now() - start == 6 * MINUTE


async def test_a_wake_ends_the_sleep_and_a_failing_database_does_not_end_the_loop(
    database: Database, first: Recorder, events: Events
) -> None:
    """Alerts: what was just committed leaves at once; what the database cannot do now is done later."""
    clock = SleeplessClock()
    alerts, stop = Alerts(database, clock=clock, destinations=[first]), Stop(clock=clock)
    taken = asyncio.Event()
    first.on_taken = taken.set
    await rename_table(database, "alert_outbox", "away")
    running = asyncio.create_task(alerts.run(stop))
    async with asyncio.timeout(SOON):
        await clock.asleep.wait()
        await rename_table(database, "away", "alert_outbox")
        await hold(alerts, database)
        alerts.wake()
        await taken.wait()
        stop.request("enough")
        await running
    assert [event["log_level"] for event in events if event["event"] == "alerts.failed"] == ["warning"]


async def rename_table(database: Database, old: str, new: str) -> None:
    async with database.write() as connection:
        await connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))


async def test_without_destinations_a_condition_still_fires_in_the_log(
    database: Database, clock: FakeClock, events: Events
) -> None:
    """A24: the ERROR line needs no destination."""
    alerts = Alerts(database, clock=clock, destinations=[])
    await hold(alerts, database)
    await hold(alerts, database, Alert(AnnounceAlert.NOT_RUN, "shop", reason="", action=""), after=HOUR)
    clock.advance(HOUR)
    assert await alerts.deliver() == 0
    assert [event["kind"] for event in events if event["event"] == "alert"] == [ALERT.kind, "not_run"]
    assert await list_rows(database) == []


def test_two_destinations_of_one_name_are_refused(clock: FakeClock, sqlite_url: str) -> None:
    """Alerts: what is still to be sent is kept under the name."""
    with pytest.raises(DestinationError, match="same name"):
        Alerts(open_database(sqlite_url), clock=clock, destinations=[Recorder("a"), Recorder("a")])


async def test_an_event_has_the_level_and_the_title_of_its_kind(
    database: Database, clock: FakeClock, first: Recorder, events: Events
) -> None:
    """C24: in the language that was set. A kind that only another release knows is shown by its name."""
    for kinds in (AnnounceAlert, ()):
        alerts = Alerts(database, clock=clock, destinations=[first], kinds=kinds, language=Language.CHINESE)
        await hold(alerts, database, ALERT)
        await end(alerts, database, ALERT)
        await alerts.deliver()
    shown = [(event.level, event.title) for event in first.taken]
    assert shown == [(AlertLevel.P1, "大量网址推送失败")] * 2 + [(AlertLevel.INFO, "Many failures")] * 2
    assert [event["alert_level"] for event in events if event["event"] == "alert"] == ["P1", "info"]
