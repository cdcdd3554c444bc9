"""Alerts as the rest of the program knows them: a condition holds, a condition ends, and people are told of both once.
What holds is kept in `conditions`, what is on its way in `outbox`; here the two are joined in one transaction, and the
loop that fires and delivers is run.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.alerts.conditions import Conditions, OpenCondition
from tidings.core.alerts.delivery import Delivery, DeliveryPolicy
from tidings.core.alerts.events import Alert, Destination, DestinationError, EventType
from tidings.core.alerts.kinds import AlertKind, AlertKinds, AlertLevel, Language
from tidings.core.alerts.outbox import Outbox
from tidings.core.clock import Clock, from_milliseconds
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger
from tidings.core.loop import Loop
from tidings.core.secrets.escapes import escape_controls
from tidings.core.secrets.redaction import Redactor
from tidings.core.stop import Stop

KEPT_FOR: Final = timedelta(days=30)

_PURGE_EVERY: Final = timedelta(days=1)
# Another process may have written an event, or a caller of `raise_alert` may not have called `wake`.
_LONGEST_NAP: Final = timedelta(seconds=15)
# What is due may be in another process's hands for a moment.
_SHORTEST_NAP: Final = timedelta(milliseconds=100)
_LONGEST_TEXT: Final = 2_000

_log = get_logger(__name__)


class Alerts:
    """Conditions and their way to people. Several processes may use one database at once."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        destinations: Sequence[Destination],
        kinds: Iterable[AlertKind] = (),
        language: Language = Language.ENGLISH,
        policy: DeliveryPolicy | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._destinations = tuple(destinations)
        self._names = [destination.name for destination in destinations]
        if len(set(self._names)) < len(self._names):
            raise DestinationError("two destinations of alerts have the same name")
        self._redactor = redactor or Redactor()
        self._conditions = Conditions(database)
        self._kinds = AlertKinds(kinds)
        self._outbox = Outbox(database, kinds=self._kinds, language=language)
        self._delivery = Delivery(self._outbox, clock=clock, policy=policy or DeliveryPolicy(), redactor=self._redactor)
        self._loop = Loop(clock=clock)
        self._purge_at = clock.now()

    async def raise_alert(self, connection: AsyncConnection, alert: Alert, *, after: timedelta = timedelta(0)) -> None:
        """In the caller's transaction: this condition (kind and subject) holds now.

        The first time, its beginning is noted. Once it has held for `after` it fires, once: an ERROR line `alert` and
        an event for each destination; also if nobody calls this again. Holding it again only refreshes the rest.
        Call `wake` after the commit; without that, the event leaves some seconds later.
        """
        now, alert = self._clock.now(), self._clean(alert)
        await self._conditions.note(connection, alert, at=now, after=after)
        fired = await self._conditions.fire(connection, alert.kind, alert.subject, at=now)
        if fired is not None:
            await self._add_event(connection, fired, EventType.FIRED, at=now)
            self._log_fired(fired)

    async def resolve_alert(self, connection: AsyncConnection, kind: AlertKind, subject: str) -> None:
        """In the caller's transaction: the condition no longer holds. If it had fired, one event says so."""
        await self._resolve(connection, kind, subject)

    async def _resolve(self, connection: AsyncConnection, kind: str, subject: str) -> None:
        over = await self._conditions.remove(connection, kind, escape_controls(subject))
        if over is not None and over.fired_at is not None:
            await self._add_event(connection, over, EventType.RESOLVED, at=self._clock.now())
            _log.info("alert.resolved", kind=over.kind, subject=over.subject)

    async def resolve_matching(self, connection: AsyncConnection, fits: Callable[[str, str], bool]) -> None:
        """In the caller's transaction: end every condition whose kind and subject fit."""
        for kind, subject in await self._conditions.list_names(connection):
            if fits(kind, subject):
                await self._resolve(connection, kind, subject)

    async def has_fired(self, connection: AsyncConnection, kind: AlertKind, subject: str) -> bool:
        """Whether people were told of this condition, and not yet that it is over."""
        found = await self._conditions.find(connection, kind, escape_controls(subject))
        return found is not None and found.fired_at is not None

    async def list_open(self, *, limit: int = 100) -> list[OpenCondition]:
        """What holds now, the newest first."""
        return await self._conditions.list_open(limit=limit)

    async def count_open(self) -> int:
        """How many hold now."""
        return await self._conditions.count_open()

    async def deliver(self, *, limit: int = 50) -> int:
        """Fire what has lasted long enough, and send what is due: at most `limit` to each destination.

        Returns how many were delivered. What was not taken is tried again later, and given up after three days.
        """
        await self._fire_due(limit=limit)
        await self._purge_now_and_then()
        # Every destination gets its turn to the end, whatever happens at another.
        drains = [self._delivery.drain(destination, limit=limit) for destination in self._destinations]
        outcomes = await asyncio.gather(*drains, return_exceptions=True)
        delivered = 0
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            delivered += outcome
        return delivered

    async def next_due(self) -> datetime | None:
        """When there will be something to fire or to send; None where nothing waits."""
        async with self._database.read() as connection:
            moments = (
                await self._conditions.find_next_due(connection),
                await self._outbox.find_next_due(connection, self._names),
            )
        known = [moment for moment in moments if moment is not None]
        return from_milliseconds(min(known)) if known else None

    async def run(self, stop: Stop) -> None:
        """Deliver, sleep until more is due or `wake` is called, and so on until the stop.

        What is being sent at that moment is sent again, under the same id, once its lease is over.
        """
        await self._loop.run(lambda: stop.wait_for(self._work()), stop)

    def wake(self) -> None:
        """There is something new to send: look now."""
        self._loop.wake()

    async def _work(self) -> timedelta:
        """Deliver what is due; how long there is nothing more to do."""
        try:
            if await self.deliver():
                return timedelta(0)
            due = await self.next_due()
        except SQLAlchemyError as error:
            # A database that is busy or away for a moment: everything is still in it afterwards.
            _log.warning("alert.database_failed", reason=type(error).__name__)
            return _LONGEST_NAP
        except Exception:  # noqa: BLE001 - whatever is broken here, the service must go on
            _log.exception("alert.delivery_broken")
            return _LONGEST_NAP
        wait = _LONGEST_NAP if due is None else due - self._clock.now()
        return max(_SHORTEST_NAP, min(wait, _LONGEST_NAP))

    async def _fire_due(self, *, limit: int) -> None:
        now = self._clock.now()
        async with self._database.write() as connection:
            fired = await self._conditions.fire_due(connection, at=now, limit=limit)
            for condition in fired:
                await self._add_event(connection, condition, EventType.FIRED, at=now)
        for condition in fired:
            self._log_fired(condition)

    async def _add_event(
        self, connection: AsyncConnection, condition: OpenCondition, event_type: EventType, *, at: datetime
    ) -> None:
        await self._outbox.add(connection, condition, event_type, at=at, destinations=self._names)

    async def _purge_now_and_then(self) -> None:
        now = self._clock.now()
        if now >= self._purge_at:
            await self._outbox.purge(before=now - KEPT_FOR)
            self._purge_at = now + _PURGE_EVERY

    def _log_fired(self, condition: OpenCondition) -> None:
        kind = self._kinds.find(condition.kind)
        _log.error(
            "alert",
            kind=condition.kind,
            # The line's own `level` is its severity.
            alert_level=(AlertLevel.INFO if kind is None else kind.level).value,
            subject=condition.subject,
            reason=condition.reason,
            action=condition.action,
            count=condition.count,
        )

    def _clean(self, alert: Alert) -> Alert:
        """Without secrets, and without what a database, a terminal or a messenger cannot take."""
        return replace(
            alert,
            subject=escape_controls(alert.subject),
            reason=self._clean_text(alert.reason),
            action=self._clean_text(alert.action),
        )

    def _clean_text(self, text: str) -> str:
        clean = escape_controls(self._redactor.redact(text))
        return clean if len(clean) <= _LONGEST_TEXT else f"{clean[: _LONGEST_TEXT - 1]}…"
