"""Delivers events from the outbox to one destination: claim, send, record the result, schedule the retry."""

import asyncio
from datetime import timedelta
from typing import Final

from tidings.core.alerts.events import AlertEvent, DeliveryError, Destination
from tidings.core.alerts.outbox import AlertClaim, AlertOutbox
from tidings.core.backoff import Backoff
from tidings.core.clock import Clock, to_text
from tidings.core.logs.logger import get_logger
from tidings.core.secrets.redaction import Redactor

GIVE_UP_AFTER: Final = timedelta(days=3)

_MINUTE: Final = timedelta(minutes=1)
_BACKOFF: Final = Backoff([minutes * _MINUTE for minutes in (1, 2, 5, 15, 30, 60)])
_LONGEST_RETRY_AFTER: Final = timedelta(days=1)
# Well below the lease, so that two processes never send a row at once.
_SEND_LIMIT: Final = _MINUTE

_log = get_logger(__name__)


def next_delay(*, attempt: int, waited: timedelta, asked_for: timedelta | None = None) -> timedelta | None:
    """The unscaled wait after this attempt (from 1); None once the waits add up to three days.

    A longer `asked_for` (Retry-After) replaces the rule's wait, up to a day.
    """
    left = GIVE_UP_AFTER - waited
    if left <= timedelta(0):
        return None
    asked_for = None if asked_for is None else min(asked_for, _LONGEST_RETRY_AFTER)
    wait = _BACKOFF.next_delay(attempt, at_least=asked_for)
    return None if wait is None else min(wait, left)


class AlertDelivery:
    """Sends the events of the outbox and records each result in it. `scale` multiplies every wait, for a rehearsal."""

    def __init__(self, outbox: AlertOutbox, *, clock: Clock, scale: float, redactor: Redactor) -> None:
        self._outbox = outbox
        self._clock = clock
        self._scale = scale
        self._redactor = redactor

    async def drain(self, destination: Destination, *, limit: int) -> int:
        """Send due events, the oldest first. Returns how many were delivered.

        The first failure ends it: the destination is probably down.
        """
        for delivered in range(limit):
            claim = await self._outbox.claim(destination.name, at=self._clock.now())
            if claim is None or not await self._deliver(destination, claim):
                return delivered
        return limit

    async def _deliver(self, destination: Destination, claim: AlertClaim) -> bool:
        failure = await try_sending(destination, claim.event, within=_SEND_LIMIT)
        if failure is not None:
            await self._record_failure(destination, claim, failure)
            return False
        await self._outbox.mark_delivered(claim, at=self._clock.now())
        _log.info("alert.delivered", **_describe(destination, claim))
        return True

    async def _record_failure(self, destination: Destination, claim: AlertClaim, failure: DeliveryError) -> None:
        now, reason = self._clock.now(), self._redactor.redact(failure.reason)
        wait = next_delay(attempt=claim.attempts, waited=claim.waited, asked_for=failure.retry_after)
        if wait is None or not failure.retry:
            await self._outbox.give_up(claim, at=now, failure=reason)
            _log.error("alert.given_up", **_describe(destination, claim), reason=reason)
            return
        until = now + wait * self._scale
        await self._outbox.postpone(claim, until=until, wait=wait, failure=reason)
        _log.warning("alert.not_delivered", **_describe(destination, claim), reason=reason, next_try=to_text(until))


async def try_sending(destination: Destination, event: AlertEvent, *, within: timedelta) -> DeliveryError | None:
    """Send the event. Returns the error instead of raising it, also an unexpected one."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            await destination.send(event)
    except DeliveryError as error:
        return error
    except TimeoutError:
        return DeliveryError(retry=True, reason=f"no answer in {within.total_seconds():g} s")
    except Exception as error:  # noqa: BLE001 - its text may hold the address, so only its name is shown
        return DeliveryError(retry=True, reason=f"unexpected {type(error).__name__}")
    return None


def _describe(destination: Destination, claim: AlertClaim) -> dict[str, str | int]:
    event = claim.event
    return {
        "destination": destination.name,
        "id": event.id,
        "type": event.type.value,
        "kind": event.kind,
        "subject": event.subject,
        "attempts": claim.attempts,
    }
