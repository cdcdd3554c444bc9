"""A minimum interval between two requests to one host, over all workers together.

The table holds, for each host, when the next request may go. One atomic statement reserves the next slot, so every
process and machine on this database shares one queue. A request reserves a slot only right before it waits for it,
never after a stop signal, and gives it back if a stop comes first. If a slot were used late, two requests would be too
close together, so slots are a little wider than the interval. A slot that was missed by more than that is replaced.
`Turn` checks that twice: when the wait ends, and right before the bytes go out, because in between a connection may
have to be opened, or the machine may be busy. `rest` and `slow_down` apply a host's request for a pause or for fewer
requests.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import BigInteger, Column, Integer, Table, Text, text

from tidings.core.clock import Clock
from tidings.core.db.database import Database, metadata
from tidings.core.stop import Stop, StopRequestedError

SLOWEST = timedelta(seconds=2)
# A slot further in the future was reserved while the clock was ahead, and is ignored.
FURTHEST = timedelta(hours=2)
ACCEPTED_UNTIL_NORMAL = 100

_TOLERANCE_SHARE = 0.035
_LEAST_TOLERANCE = 0.0035
# The rest of the tolerance is for the time between the last check of the clock and the wire.
_LEEWAY_SHARE = 0.5
_FIRST_LEAD = 0.005
_LONGEST_LEAD = 1.0
_LONGEST_DELAY = 1.0
_FINE_WAIT = 0.002
# The share of an observed delay that is expected for the next slot.
_FADES = 0.9
# The maximum drift of two clocks, as a fraction.
_DRIFT = 0.0005
# Seconds after which a reading of the database's clock is discarded.
_FORGET_AFTER = 10.0

# All timestamps and durations in this table are microseconds: a millisecond is too coarse for them.
pace = Table(
    "pace",
    metadata,
    Column("host", Text, primary_key=True),
    Column("next_at", BigInteger, nullable=False),
    Column("slowed_to", BigInteger, nullable=False, server_default="0"),
    Column("accepted_in_row", Integer, nullable=False, server_default="0"),
)

# PostgreSQL's own clock decides there, because the workers' clocks may differ; SQLite's workers share one.
_NOW = {
    "sqlite": ":now",
    "postgresql": "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
}
_WIDTH = "(CASE WHEN pace.slowed_to > :interval THEN pace.slowed_to ELSE :interval END + :tolerance)"
_SLOT = f"next_at - {_WIDTH} - {{now}}, next_at - {_WIDTH}, next_at, slowed_to"


@dataclass(frozen=True, slots=True)
class _Slot:
    """A reserved slot."""

    # When this process may send, in monotonic seconds, and how much later at most.
    at: float
    leeway: float
    # The slot in the table: its begin, and `next_at` as long as no later slot is reserved.
    begins_at: int
    next_at: int
    # The least time to the next request.
    interval: timedelta


class _DatabaseClock:
    """Estimates PostgreSQL's clock: bounds of its offset from the monotonic clock, in seconds. The database reads its
    clock at some time between a query and its answer, so each answer narrows the bounds.
    """

    def __init__(self) -> None:
        self._low = self._high = 0.0
        self._set_at = float("-inf")

    def _knows(self, now: float) -> bool:
        return now - self._set_at < _FORGET_AFTER

    def _find_drift(self, now: float) -> float:
        return _DRIFT * (now - self._set_at)

    def find_doubt(self, now: float) -> float:
        """The distance of the bounds at this monotonic time. 0 if nothing is known."""
        return self._high - self._low + 2 * self._find_drift(now) if self._knows(now) else 0.0

    def learn(self, reading: float, *, asked_at: float, answered_at: float) -> None:
        """The database's clock showed `reading` between these monotonic times."""
        low, high = reading - answered_at, reading - asked_at
        if self._knows(asked_at):
            drift = self._find_drift(answered_at)
            kept_low, kept_high = max(low, self._low - drift), min(high, self._high + drift)
            # Bounds that contradict each other: a clock was set.
            if kept_low <= kept_high:
                low, high = kept_low, kept_high
        self._low, self._high, self._set_at = low, high, answered_at

    def find_latest(self, reading: float) -> float:
        """The monotonic time at which the database's clock has certainly reached `reading`."""
        return reading - self._low


class Pace:
    """The shared queue of each host, and this process's limit on requests under way."""

    def __init__(self, database: Database, *, clock: Clock, interval: timedelta, concurrency: int) -> None:
        self._database = database
        self._clock = clock
        self._interval = interval
        self._tolerance = max(_LEAST_TOLERANCE, interval.total_seconds() * _TOLERANCE_SHARE)
        self._under_way: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(concurrency))
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slowed: set[str] = set()
        self._database_clock = _DatabaseClock()
        # Seconds, by host: how late this process uses its slots. Doubled after a missed slot.
        self._delays: defaultdict[str, float] = defaultdict(float)

    @asynccontextmanager
    async def turn(self, host: str, *, stop: Stop, least: timedelta = timedelta()) -> AsyncIterator["Turn"]:
        """Send one request inside this block, which begins when the slot does. Raises StopRequestedError. `least`: a
        minimum interval for this host; it applies if it is longer than the general one.
        """
        async with self._under_way[host]:
            async with self._turns[host]:
                # Requests that queue here after a stop must not reserve anything.
                stop.check()
                slot = await self._reserve(host, lead=_FIRST_LEAD, interval=max(self._interval, least))
                turn = Turn(self, host, slot, stop=stop)
                await turn.wait()
                self._delays[host] *= _FADES
            yield turn

    async def rest(self, host: str, duration: timedelta) -> None:
        """No process sends to this host for this long; slots that were reserved before stay valid."""
        until = f"{self._now_sql} + :duration"
        await self._write(
            f"INSERT INTO pace (host, next_at) VALUES (:host, {until}) ON CONFLICT (host) DO UPDATE SET "
            f"next_at = CASE WHEN pace.next_at > {until} THEN pace.next_at ELSE {until} END",
            host=host,
            duration=_microseconds(duration),
        )

    async def slow_down(self, host: str) -> None:
        """The host reported too many requests: double the interval, to at most two seconds."""
        self._slowed.add(host)
        await self._write(
            "UPDATE pace SET accepted_in_row = 0, slowed_to = CASE "
            "WHEN 2 * slowed_to > :slowest OR 2 * :interval > :slowest THEN :slowest "
            "WHEN slowed_to > :interval THEN 2 * slowed_to ELSE 2 * :interval END WHERE host = :host",
            host=host,
            interval=_microseconds(self._interval),
            slowest=_microseconds(max(SLOWEST, self._interval)),
        )

    async def record_accepted(self, host: str) -> None:
        """Count an accepted request; after a hundred in a row the normal interval applies again."""
        if host not in self._slowed:
            return
        await self._write(
            "UPDATE pace SET slowed_to = CASE WHEN accepted_in_row + 1 >= :enough THEN 0 ELSE slowed_to END, "
            "accepted_in_row = CASE WHEN accepted_in_row + 1 >= :enough THEN 0 ELSE accepted_in_row + 1 END "
            "WHERE host = :host AND slowed_to > 0",
            host=host,
            enough=ACCEPTED_UNTIL_NORMAL,
        )

    def is_late(self, host: str, slot: _Slot) -> bool:
        """Whether this slot was missed: the owner of the next one relies on requests being on time."""
        if self._clock.monotonic() - slot.at <= slot.leeway:
            return False
        self._delays[host] = min(max(2 * self._delays[host], self._tolerance), _LONGEST_DELAY)
        return True

    async def wait_for(self, host: str, slot: _Slot, *, stop: Stop) -> None:
        """Wait for the slot, or give it back and raise StopRequestedError."""
        try:
            await self._sleep_until(slot.at, stop=stop)
        except StopRequestedError:
            await self._give_back(host, slot)
            raise

    async def replace_slot(self, host: str, slot: _Slot, *, lead: float) -> _Slot:
        """Another slot for a missed one, no sooner than `lead` from now."""
        return await self._move(host, slot, lead=lead) or await self._reserve(host, lead=lead, interval=slot.interval)

    async def _give_back(self, host: str, slot: _Slot) -> None:
        """Free a slot that will not be used, unless a later one is reserved."""
        await self._write(
            "UPDATE pace SET next_at = :begins_at WHERE host = :host AND next_at = :mine",
            host=host,
            begins_at=slot.begins_at,
            mine=slot.next_at,
        )

    async def _sleep_until(self, monotonic: float, *, stop: Stop) -> None:
        """Wait with a precision of a tenth of a millisecond: the event loop's own timers are one or two late."""
        if (coarse := monotonic - self._clock.monotonic() - _FINE_WAIT) > 0:
            await stop.sleep(timedelta(seconds=coarse))
        stop.check()
        while self._clock.monotonic() < monotonic:
            await self._clock.sleep(timedelta(0))

    async def _reserve(self, host: str, *, lead: float, interval: timedelta) -> _Slot:
        """The next free slot, no sooner than `lead` from now, so that it is not missed before it is committed."""
        soonest = f"({self._now_sql} + :lead)"
        counts = f"pace.next_at > {soonest} AND pace.next_at < {self._now_sql} + :furthest"
        start = f"(CASE WHEN {counts} THEN pace.next_at ELSE {soonest} END)"
        slot = await self._ask(
            f"INSERT INTO pace (host, next_at) VALUES (:host, {soonest} + :interval + :tolerance) "
            f"ON CONFLICT (host) DO UPDATE SET next_at = {start} + {_WIDTH} "
            f"RETURNING {_SLOT.format(now=self._now_sql)}",
            host=host,
            interval=interval,
            lead=int(lead * 1_000_000),
            furthest=_microseconds(FURTHEST),
        )
        assert slot is not None  # noqa: S101 - an upsert always returns its row
        return slot

    async def _move(self, host: str, slot: _Slot, *, lead: float) -> _Slot | None:
        """Move `slot` to begin shortly after now, unless a later slot has been reserved."""
        return await self._ask(
            f"UPDATE pace SET next_at = {self._now_sql} + :lead + {_WIDTH} "
            "WHERE host = :host AND next_at = :mine "
            f"RETURNING {_SLOT.format(now=self._now_sql)}",
            host=host,
            interval=slot.interval,
            mine=slot.next_at,
            lead=int(lead * 1_000_000),
        )

    async def _ask(self, statement: str, *, host: str, interval: timedelta, **values: int) -> _Slot | None:
        expected = self._database_clock.find_doubt(self._clock.monotonic()) + self._delays[host]
        leeway = self._tolerance * _LEEWAY_SHARE + expected
        async with self._database.write() as connection:
            asked_at = self._clock.monotonic()
            result = await connection.execute(
                text(statement),
                {
                    "host": host,
                    "now": self._now(),
                    "interval": _microseconds(interval),
                    "tolerance": int((self._tolerance + expected) * 1_000_000),
                    **values,
                },
            )
            row = result.first()
            answered_at = self._clock.monotonic()
        if row is None:
            return None
        wait, begins_at, next_at, slowed_to = row
        if slowed_to:
            self._slowed.add(host)
        else:
            self._slowed.discard(host)
        if self._database.dialect == "sqlite":
            return _Slot(asked_at + wait / 1_000_000, leeway, begins_at, next_at, interval)
        # Never early, perhaps late by the uncertainty of the clock; leeway and width of the slot include its estimate.
        clock = self._database_clock
        clock.learn((begins_at - wait) / 1_000_000, asked_at=asked_at, answered_at=answered_at)
        leeway -= clock.find_doubt(answered_at)
        return _Slot(clock.find_latest(begins_at / 1_000_000), leeway, begins_at, next_at, interval)

    async def _write(self, statement: str, **values: int | str) -> None:
        await self._database.change(text(statement), {"now": self._now(), **values})

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)

    @property
    def _now_sql(self) -> str:
        return _NOW[self._database.dialect]


class Turn:
    """The turn of one request."""

    def __init__(self, pace: Pace, host: str, slot: _Slot, *, stop: Stop) -> None:
        self._pace = pace
        self._host = host
        self._slot = slot
        self._stop = stop

    async def wait(self) -> None:
        """Wait until the slot begins."""
        await self._pace.wait_for(self._host, self._slot, stop=self._stop)
        await self.confirm()

    async def confirm(self) -> None:
        """Call it right before the bytes go out: if the slot is over, wait for another. Raises StopRequestedError."""
        lead = _FIRST_LEAD
        while self._pace.is_late(self._host, self._slot):
            lead = min(2 * lead, _LONGEST_LEAD)
            self._slot = await self._pace.replace_slot(self._host, self._slot, lead=lead)
            await self._pace.wait_for(self._host, self._slot, stop=self._stop)


def _microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
