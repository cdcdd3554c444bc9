"""From the outbox to one destination: claim, send, record what came of it, and when to try again. How an event is sent
is the destination's own file; what else there is to do, and when, is in `service`.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidings.core.alerts.events import AlertEvent, DeliveryError, Destination
from tidings.core.alerts.outbox import Claim, Outbox
from tidings.core.backoff import Backoff
from tidings.core.clock import Clock, to_text
from tidings.core.logs.logger import get_logger
from tidings.core.secrets.redaction import Redactor

GIVE_UP_AFTER: Final = timedelta(days=3)

_MINUTE: Final = timedelta(minutes=1)
_BACKOFF: Final = Backoff([minutes * _MINUTE for minutes in (1, 2, 5, 15, 30, 60)])
_LONGEST_RETRY_AFTER: Final = timedelta(days=1)
# Well below the lease, so that a row is never sent by two at once.
_SEND_LIMIT: Final = _MINUTE

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """When an event that was not taken is sent again. `scale` multiplies every wait, for a rehearsal."""

    scale: float = 1

    def next_delay(self, *, attempt: int, waited: timedelta, asked_for: timedelta | None = None) -> timedelta | None:
        """The wait after this attempt (from 1), before scaling; None once three days have been waited in all.

        What the other side asks for (Retry-After) goes before a shorter wait of the rule, up to a day.
        """
        left = GIVE_UP_AFTER - waited
        if left <= timedelta(0):
            return None
        asked_for = None if asked_for is None else min(asked_for, _LONGEST_RETRY_AFTER)
        wait = _BACKOFF.next_delay(attempt, at_least=asked_for)
        return None if wait is None else min(wait, left)


class Delivery:
    """Sends what the outbox holds, and keeps the outbox true."""

    def __init__(self, outbox: Outbox, *, clock: Clock, policy: DeliveryPolicy, redactor: Redactor) -> None:
        self._outbox = outbox
        self._clock = clock
        self._policy = policy
        self._redactor = redactor

    async def drain(self, destination: Destination, *, limit: int) -> int:
        """Send what is due, the oldest first, and say how many were taken.

        The first that is not taken ends it: the rest would hardly fare better, and other destinations wait for us.
        """
        for delivered in range(limit):
            claim = await self._outbox.claim(destination.name, at=self._clock.now())
            if claim is None or not await self._deliver(destination, claim):
                return delivered
        return limit

    async def _deliver(self, destination: Destination, claim: Claim) -> bool:
        failure = await _try_sending(destination, claim.event)
        if failure is not None:
            await self._note_failure(destination, claim, failure)
            return False
        await self._outbox.mark_delivered(claim, at=self._clock.now())
        _log.info("alert.delivered", **_describe(destination, claim))
        return True

    async def _note_failure(self, destination: Destination, claim: Claim, failure: DeliveryError) -> None:
        now, reason = self._clock.now(), self._redactor.redact(failure.reason)
        wait = self._policy.next_delay(attempt=claim.attempts, waited=claim.waited, asked_for=failure.retry_after)
        if wait is None or not failure.retry:
            await self._outbox.give_up(claim, at=now, failure=reason)
            _log.error("alert.given_up", **_describe(destination, claim), reason=reason)
            return
        until = now + wait * self._policy.scale
        await self._outbox.postpone(claim, until=until, wait=wait, failure=reason)
        _log.warning("alert.not_delivered", **_describe(destination, claim), reason=reason, next_try=to_text(until))


async def _try_sending(destination: Destination, event: AlertEvent) -> DeliveryError | None:
    """What went wrong, whatever it is: one bad destination must not keep the others from their events."""
    try:
        async with asyncio.timeout(_SEND_LIMIT.total_seconds()):
            await destination.send(event)
    except DeliveryError as error:
        return error
    except TimeoutError:
        return DeliveryError(retry=True, reason=f"no answer in {_SEND_LIMIT.total_seconds():g} s")
    except Exception as error:  # noqa: BLE001 - its text may hold the address, so only its name is told
        return DeliveryError(retry=True, reason=f"unexpected {type(error).__name__}")
    return None


def _describe(destination: Destination, claim: Claim) -> dict[str, str | int]:
    event = claim.event
    return {
        "destination": destination.name,
        "id": event.id,
        "type": event.type.value,
        "kind": event.kind,
        "subject": event.subject,
        "attempts": claim.attempts,
    }
