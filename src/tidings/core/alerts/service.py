"""The service that raises and resolves alerts, and the loop that delivers their events.

`conditions` stores the open conditions and `outbox` the events; one transaction here writes both.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.alerts.conditions import Conditions, OpenCondition, PastAlert
from tidings.core.alerts.delivery import AlertDelivery
from tidings.core.alerts.events import Alert, Destination, DestinationError, EventType
from tidings.core.alerts.kinds import AlertKind, AlertKinds, AlertLevel, Language
from tidings.core.alerts.outbox import AlertOutbox
from tidings.core.alerts.translation import Translator
from tidings.core.clock import Clock, from_milliseconds
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger
from tidings.core.loop import Loop
from tidings.core.secrets.escapes import escape_controls
from tidings.core.secrets.redaction import Redactor
from tidings.core.stop import Stop

KEPT_FOR: Final = timedelta(days=30)
PAST_KEPT_FOR: Final = timedelta(days=90)

_PURGE_EVERY: Final = timedelta(days=1)
# Another process may have written an event, or a caller of `raise_alert` may not have called `wake`.
_LONGEST_SLEEP: Final = timedelta(seconds=15)
# Another process may have claimed a due event.
_SHORTEST_SLEEP: Final = timedelta(milliseconds=100)
_LONGEST_TEXT: Final = 2_000
_MOST_AT_ONCE: Final = 50

_log = get_logger(__name__)


class Alerts:
    """Raises, resolves and delivers alerts. Several processes may use one database at once."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        destinations: Collection[Destination],
        kinds: Iterable[AlertKind] = (),
        language: Language = Language.ENGLISH,
        retry_scale: float = 1,
        redactor: Redactor | None = None,
        levels: Mapping[str, AlertLevel] | None = None,
        translator: Translator | None = None,
    ) -> None:
        """`retry_scale` multiplies every wait before an event is sent again. `levels`: the minimum level of a
        destination, by its name. `translator`: puts reasons and actions of events into Chinese, if that is the
        language; tables and logs keep the English ones."""
        self._database = database
        self._clock = clock
        self._destinations = tuple(destinations)
        self._names = [destination.name for destination in destinations]
        if len(set(self._names)) < len(self._names):
            raise DestinationError("two destinations of alerts have the same name")
        self._levels = levels or {}
        self.translator = translator or Translator()
        self._redactor = redactor or Redactor()
        self._conditions = Conditions(database)
        self._kinds = AlertKinds(kinds)
        self._outbox = AlertOutbox(database, kinds=self._kinds, language=language, translator=self.translator)
        self._delivery = AlertDelivery(self._outbox, clock=clock, scale=retry_scale, redactor=self._redactor)
        self._loop = Loop("alerts", clock=clock, after_error=_LONGEST_SLEEP)
        self._purge_at = clock.now()

    async def raise_alert(self, connection: AsyncConnection, alert: Alert, *, after: timedelta = timedelta(0)) -> None:
        """In the caller's transaction: the condition of this kind and subject holds now.

        Once it has held for `after` it fires, even if this is not called again: one ERROR line `alert`, and one event
        for each destination. Raising it again refreshes its reason, action and count. Call `wake` after the commit;
        otherwise the event leaves up to 15 s later.
        """
        now, alert = self._clock.now(), self._clean(alert)
        await self._conditions.store(connection, alert, at=now, after=after)
        fired = await self._conditions.fire(connection, alert.kind, alert.subject, at=now)
        if fired is not None:
            await self._add_event(connection, fired, EventType.FIRED, at=now)
            self._log_fired(fired)

    async def resolve_alert(self, connection: AsyncConnection, kind: str, subject: str) -> None:
        """In the caller's transaction: the condition no longer holds. If it had fired, one event says so."""
        over = await self._conditions.remove(connection, kind, escape_controls(subject))
        if over is not None and over.fired_at is not None:
            now = self._clock.now()
            await self._conditions.store_end(connection, over, at=now)
            await self._add_event(connection, over, EventType.RESOLVED, at=now)
            _log.info("alert.resolved", kind=over.kind, subject=over.subject)

    async def resolve_matching(self, connection: AsyncConnection, fits: Callable[[str, str], bool]) -> None:
        """In the caller's transaction: resolve every condition whose kind and subject fit."""
        for kind, subject in await self._conditions.list_names(connection):
            if fits(kind, subject):
                await self.resolve_alert(connection, kind, subject)

    async def has_fired(self, connection: AsyncConnection, kind: str, subject: str) -> bool:
        """Whether this condition holds and people were notified of it."""
        found = await self._conditions.find(connection, kind, escape_controls(subject))
        return found is not None and found.fired_at is not None

    async def list_open(self, *, limit: int = 100) -> list[OpenCondition]:
        """The conditions that hold now: the most urgent first, then the newest."""
        return await self._conditions.list_open(limit=limit, ranks=self._kinds.ranks)

    async def list_past(self, *, limit: int = 100) -> list[PastAlert]:
        """Alerts that ended within the last 90 days, the latest end first."""
        return await self._conditions.list_past(limit=limit)

    async def count_open(self) -> int:
        """How many conditions hold now."""
        return await self._conditions.count_open()

    async def count_by_level(self) -> dict[AlertLevel, int]:
        """How many conditions hold now, by level; every level is there."""
        counts = dict.fromkeys(AlertLevel, 0)
        async with self._database.read() as connection:
            for kind, _ in await self._conditions.list_names(connection):
                counts[self.find_level(kind)] += 1
        return counts

    async def deliver(self) -> int:
        """Fire conditions that have lasted long enough, and send due events: at most 50 to each destination.

        Returns how many were delivered. A failed event is retried, and given up after three days.
        """
        await self._fire_due()
        await self._purge_now_and_then()
        # A failure at one destination does not keep the others from their events.
        drains = [self._delivery.drain(destination, limit=_MOST_AT_ONCE) for destination in self._destinations]
        outcomes = await asyncio.gather(*drains, return_exceptions=True)
        delivered = 0
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            delivered += outcome
        return delivered

    async def next_due(self) -> datetime | None:
        """When the next condition fires or the next event is due; None if there is none."""
        async with self._database.read() as connection:
            timestamps = (
                await self._conditions.find_next_due(connection),
                await self._outbox.find_next_due(connection, self._names),
            )
        known = [each for each in timestamps if each is not None]
        return from_milliseconds(min(known)) if known else None

    async def run(self, stop: Stop) -> None:
        """Deliver until the stop signal, and sleep while nothing is due.

        An event in flight at the stop is sent again, under the same id, once its lease is over.
        """
        await self._loop.run(lambda: stop.wait_for(self._work()), stop)

    def wake(self) -> None:
        """Deliver now: there is something new to send."""
        self._loop.wake()

    async def _work(self) -> timedelta:
        """Deliver due events. Returns how long to sleep."""
        if await self.deliver():
            return timedelta(0)
        due = await self.next_due()
        wait = _LONGEST_SLEEP if due is None else due - self._clock.now()
        return max(_SHORTEST_SLEEP, min(wait, _LONGEST_SLEEP))

    async def _fire_due(self) -> None:
        now = self._clock.now()
        async with self._database.write() as connection:
            fired = await self._conditions.fire_due(connection, at=now, limit=_MOST_AT_ONCE)
            for condition in fired:
                await self._add_event(connection, condition, EventType.FIRED, at=now)
        for condition in fired:
            self._log_fired(condition)

    async def _add_event(
        self, connection: AsyncConnection, condition: OpenCondition, event_type: EventType, *, at: datetime
    ) -> None:
        level = self.find_level(condition.kind)
        wanting = [name for name in self._names if level.reaches(self._levels.get(name, AlertLevel.INFO))]
        await self._outbox.add(connection, condition, event_type, at=at, destinations=wanting)

    async def _purge_now_and_then(self) -> None:
        now = self._clock.now()
        if now >= self._purge_at:
            await self._outbox.purge(before=now - KEPT_FOR)
            await self._conditions.purge_past(before=now - PAST_KEPT_FOR)
            self._purge_at = now + _PURGE_EVERY

    def _log_fired(self, condition: OpenCondition) -> None:
        _log.error(
            "alert",
            kind=condition.kind,
            # `level` is the severity of the log line, so the alert's level has another name.
            alert_level=self.find_level(condition.kind).value,
            subject=condition.subject,
            reason=condition.reason,
            action=condition.action,
            count=condition.count,
        )

    def find_level(self, kind: str) -> AlertLevel:
        """The level of a kind; `info` for one that another release knew."""
        found = self._kinds.find(kind)
        return AlertLevel.INFO if found is None else found.level

    def _clean(self, alert: Alert) -> Alert:
        """Redact secrets and escape characters that a database, a terminal or a messenger cannot take."""
        return replace(
            alert,
            subject=escape_controls(alert.subject),
            reason=self._clean_text(alert.reason),
            action=self._clean_text(alert.action),
        )

    def _clean_text(self, text: str) -> str:
        clean = escape_controls(self._redactor.redact(text))
        return clean if len(clean) <= _LONGEST_TEXT else f"{clean[: _LONGEST_TEXT - 1]}…"
