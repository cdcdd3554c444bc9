"""A least interval between two requests to one host, over all workers together.

The table holds, for each host, when the next request may go. One atomic statement reserves the next slot, so every
process and machine on this database shares one queue. A slot is reserved only by the request that uses it next, never
after a stop signal, and given back if a stop comes before it. A slot that is used late would bring two requests too
close together, so slots are a little wider than the interval; one that was missed by more than that is moved or given
up. A host that asks for a rest, or answers that it is asked too often, gets that here as well.
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
ACCEPTED_UNTIL_NORMAL = 100

_TOLERANCE_SHARE = 0.035
_LEAST_TOLERANCE = 0.0035
_LEEWAY_SHARE = 0.3
_FIRST_LEAD = 0.005
_FINE_WAIT = 0.002
# The first request to a host takes longer to the wire: there is a connection to be made.
_FIRST_REQUEST = 0.015
_DOUBT_FADES = 0.9
# A question to the database that takes longer is taken for an accident, such as a frozen process, unless the one
# before it took as long.
_USUAL_TRIP = 0.25

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

    # When this process may send, in monotonic seconds, and how much later at the most.
    at: float
    leeway: float
    # The slot in the table: its begin, and `next_at` as long as nobody has reserved after it.
    begins_at: int
    next_at: int


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
        self._met: set[str] = set()
        # Seconds, by host: how late a slot may be because of the way to PostgreSQL, and the last such way.
        self._doubts: defaultdict[str, float] = defaultdict(float)
        self._trips: defaultdict[str, float] = defaultdict(float)

    @asynccontextmanager
    async def turn(self, host: str, *, stop: Stop, least: timedelta = timedelta()) -> AsyncIterator[None]:
        """Send one request inside this block: it begins when it is this process's turn. Raises StopRequestedError.

        `least`: an interval of this host that may be longer than that of all.
        """
        async with self._under_way[host]:
            async with self._turns[host]:
                # Requests that queue here after a stop must not reserve anything.
                stop.check()
                await self._wait_turn(host, stop=stop, interval=max(self._interval, least))
                self._met.add(host)
            yield

    async def rest(self, host: str, duration: timedelta) -> None:
        """Nobody asks this host for so long (slots that were reserved before stay)."""
        until = f"{self._now_sql} + :duration"
        await self._write(
            f"INSERT INTO pace (host, next_at) VALUES (:host, {until}) ON CONFLICT (host) DO UPDATE SET "
            f"next_at = CASE WHEN pace.next_at > {until} THEN pace.next_at ELSE {until} END",
            host=host,
            duration=_microseconds(duration),
        )

    async def slow_down(self, host: str) -> None:
        """The host said that it is asked too often: double the interval, to at most two seconds."""
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
        """A request was accepted; a hundred in a row end the slow time."""
        if host not in self._slowed:
            return
        await self._write(
            "UPDATE pace SET slowed_to = CASE WHEN accepted_in_row + 1 >= :enough THEN 0 ELSE slowed_to END, "
            "accepted_in_row = CASE WHEN accepted_in_row + 1 >= :enough THEN 0 ELSE accepted_in_row + 1 END "
            "WHERE host = :host AND slowed_to > 0",
            host=host,
            enough=ACCEPTED_UNTIL_NORMAL,
        )

    async def _wait_turn(self, host: str, *, stop: Stop, interval: timedelta) -> None:
        lead = _FIRST_LEAD
        slot = await self._reserve(host, lead=lead, interval=interval)
        while True:
            try:
                await self._sleep_until(slot.at, stop=stop)
            except StopRequestedError:
                await self._give_back(host, slot)
                raise
            if self._clock.monotonic() - slot.at <= slot.leeway:
                return
            # Too late: the next slot's owner counts on this one having been on time.
            lead = min(2 * lead, 1.0)
            moved = await self._move(host, slot, lead=lead, interval=interval)
            slot = moved or await self._reserve(host, lead=lead, interval=interval)

    async def _give_back(self, host: str, slot: _Slot) -> None:
        """Free a slot that will not be used, unless somebody has reserved after it."""
        await self._write(
            "UPDATE pace SET next_at = :begins_at WHERE host = :host AND next_at = :mine",
            host=host,
            begins_at=slot.begins_at,
            mine=slot.next_at,
        )

    async def _sleep_until(self, monotonic: float, *, stop: Stop) -> None:
        """Wait to a tenth of a millisecond: the event loop's own timers are late by one or two."""
        if (coarse := monotonic - self._clock.monotonic() - _FINE_WAIT) > 0:
            await stop.sleep(timedelta(seconds=coarse))
        stop.check()
        while self._clock.monotonic() < monotonic:
            await self._clock.sleep(timedelta(0))

    async def _reserve(self, host: str, *, lead: float, interval: timedelta) -> _Slot:
        """The next free slot, but no sooner than `lead` from now: it must not be over before it is committed."""
        soonest = f"({self._now_sql} + :lead)"
        start = f"(CASE WHEN pace.next_at > {soonest} THEN pace.next_at ELSE {soonest} END)"
        slot = await self._ask(
            f"INSERT INTO pace (host, next_at) VALUES (:host, {soonest} + :interval + :tolerance) "
            f"ON CONFLICT (host) DO UPDATE SET next_at = {start} + {_WIDTH} "
            f"RETURNING {_SLOT.format(now=self._now_sql)}",
            host=host,
            interval=interval,
            lead=int(lead * 1_000_000),
        )
        assert slot is not None  # noqa: S101 - an upsert always returns its row
        return slot

    async def _move(self, host: str, slot: _Slot, *, lead: float, interval: timedelta) -> _Slot | None:
        """Take a slot that begins in a moment instead of `slot`, where nobody has reserved after it."""
        return await self._ask(
            f"UPDATE pace SET next_at = {self._now_sql} + :lead + {_WIDTH} "
            "WHERE host = :host AND next_at = :mine "
            f"RETURNING {_SLOT.format(now=self._now_sql)}",
            host=host,
            interval=interval,
            mine=slot.next_at,
            lead=int(lead * 1_000_000),
        )

    async def _ask(self, statement: str, *, host: str, interval: timedelta, **values: int) -> _Slot | None:
        tolerance = self._tolerance + self._doubts[host]
        # A part of it is for being late; the rest is for the way from here to the wire, which differs each time.
        leeway = self._doubts[host] + self._tolerance * _LEEWAY_SHARE
        async with self._database.write() as connection:
            asked_at = self._clock.monotonic()
            result = await connection.execute(
                text(statement),
                {
                    "host": host,
                    "now": self._now(),
                    "interval": _microseconds(interval),
                    "tolerance": int((tolerance + (0 if host in self._met else _FIRST_REQUEST)) * 1_000_000),
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
            return _Slot(asked_at + wait / 1_000_000, leeway, begins_at, next_at)
        # PostgreSQL read its clock somewhere between the question and the answer. Counting from the answer, we are
        # never early, and perhaps late by the whole trip: so much wider are the next slots.
        trip = answered_at - asked_at
        expected = min(trip, max(self._trips[host], _USUAL_TRIP))
        self._trips[host] = trip
        self._doubts[host] = max(expected, self._doubts[host] * _DOUBT_FADES)
        return _Slot(answered_at + wait / 1_000_000, leeway - trip, begins_at, next_at)

    async def _write(self, statement: str, **values: int | str) -> None:
        async with self._database.write() as connection:
            await connection.execute(text(statement), {"now": self._now(), **values})

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)

    @property
    def _now_sql(self) -> str:
        return _NOW[self._database.dialect]


def _microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
