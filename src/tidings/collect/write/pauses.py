"""Pauses of platforms. A platform that is down, or that blocks this machine, is paused for 1, 5, 15, then 60 minutes.
After each pause one candidate probes it; an answer about a note or a search ends the pause.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.cookies.states import CookieStatus, settle_state
from tidings.collect.crawl.cookies.table import read_cookies
from tidings.collect.crawl.envelope import ErrorInfo, make_error
from tidings.collect.errors import LONGEST_RETRY_AFTER, ErrorCode
from tidings.collect.status.queries import PauseCause, PlatformPause, list_pauses, read_pause
from tidings.collect.tables import platform_pauses
from tidings.collect.write.batches import BatchProgress, find_cause, is_answer
from tidings.collect.write.leases import Settling
from tidings.collect.write.recovery import update_free
from tidings.collect.write.values import LONGEST_ERROR, Collected, CookieUse, Failed, make_storable
from tidings.core.backoff import Backoff
from tidings.core.clock import CLOCK_TOLERANCE, Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger

PAUSES: Final = Backoff([timedelta(minutes=minutes) for minutes in (1, 5, 15, 60)])
LONGEST_PAUSE: Final = max(*PAUSES.waits, LONGEST_RETRY_AFTER)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlatformVerdict:
    """What the results of a batch mean for their platform."""

    # The notes whose failure is an outage: they are released uncounted.
    outages: frozenset[str]
    # The batch, updated by these results.
    batch: BatchProgress
    # Whether the platform answered although it is paused.
    ends_pause: bool
    # Why the platform is paused now, and the error that shows it.
    pause: tuple[PauseCause, ErrorInfo] | None


def judge_batch(
    step: Settling, collected: Sequence[Collected], failures: Sequence[Failed], *, progress: Mapping[str, Any]
) -> PlatformVerdict:
    """What these results say about their platform."""
    held = step.held
    batch = BatchProgress.read(progress, step.platform, held=len(held))
    mine = [each for each in failures if each.note_id in held]
    is_paused = any(row.is_paused for row in held.values())
    is_answered = any(each.note_id in held for each in collected) or any(is_answer(each) for each in mine)
    if is_answered:
        batch = replace(batch, is_answered=True)
    stays = is_paused and not is_answered
    outages = [each for each in mine if batch.is_outage(each, before=held[each.note_id], is_paused=stays)]
    notes = frozenset(each.note_id for each in outages)
    return PlatformVerdict(notes, batch, ends_pause=is_paused and is_answered, pause=find_cause(outages))


@dataclass(frozen=True, slots=True)
class PlatformPauses:
    """The pauses of all platforms. A method with a connection is one step of the caller's transaction."""

    database: Database
    _: KW_ONLY
    clock: Clock

    async def list_all(self) -> list[PlatformPause]:
        """Every paused platform, also one that waits for its probe."""
        async with self.database.read() as connection:
            return await list_pauses(connection)

    async def list_names(self) -> set[str]:
        """The platforms that may get no request now."""
        now = self.clock.now()
        return {each.platform for each in await self.list_all() if each.is_closed(at=now)}

    async def resume(self, platform: str) -> bool:
        """End the pause of a platform at a person's request. Returns False if it is not paused."""
        async with self.database.write() as connection:
            return await self.end(connection, platform)

    async def lock(self, connection: AsyncConnection, platform: str) -> PlatformPause | None:
        """The pause of a platform, locked until the transaction ends."""
        statement = select(platform_pauses).where(platform_pauses.c.platform == platform).with_for_update()
        row = (await connection.execute(statement)).first()
        return None if row is None else read_pause(row)

    async def is_over(self, connection: AsyncConnection, platform: str, *, at: datetime) -> bool:
        """Whether the pause of a platform has lasted long enough, so that a probe may end it."""
        pause = await self.lock(connection, platform)
        return pause is not None and not pause.is_closed(at=at)

    async def claim_probe(self, connection: AsyncConnection, platform: str, *, at: datetime) -> None:
        """Prevent other probes of the platform until this one reports."""
        statement = update(platform_pauses).where(platform_pauses.c.platform == platform)
        await connection.execute(statement.values(probed_at=to_milliseconds(at)))

    async def end(self, connection: AsyncConnection, platform: str) -> bool:
        """End the pause of a platform. Returns False if it is not paused."""
        statement = delete(platform_pauses).where(platform_pauses.c.platform == platform)
        ended = (await connection.execute(statement)).rowcount > 0
        if ended:
            _log.info("platform.resumed", platform=platform)
        return ended

    async def record_verdict(
        self,
        connection: AsyncConnection,
        platform: str,
        verdict: PlatformVerdict,
        *,
        uses: Sequence[CookieUse],
        at: datetime,
    ) -> None:
        """Pause the platform that `judge_batch` judged, or end its pause.

        The uses must be recorded already: every transaction locks cookies before pauses, so two cannot deadlock.
        """
        if verdict.ends_pause:
            await self.end(connection, platform)
        if verdict.pause is not None:
            await self._record(connection, platform, *verdict.pause, at=at)
        await self.judge_captchas(connection, uses, at=at)

    async def judge_answer(
        self, connection: AsyncConnection, platform: str, error: ErrorInfo | None, *, at: datetime
    ) -> None:
        """Pause a platform that blocked a request or was not reached; end the pause if the request succeeded."""
        if error is None:
            await self.end(connection, platform)
        elif error.asked and (error.blocked or error.code is ErrorCode.NETWORK_ERROR):
            cause = PauseCause.BLOCKED if error.blocked else PauseCause.NETWORK
            await self._record(connection, platform, cause, error, at=at)

    async def judge_captchas(self, connection: AsyncConnection, uses: Iterable[CookieUse], *, at: datetime) -> None:
        """Pause a platform that asked its last active cookie for a captcha, at least until a cookie has cooled. The
        uses must be recorded already."""
        asked = {use.cookie_name for use in uses if use.captcha}
        cookies = await read_cookies(connection) if asked else []
        for platform in {cookie.platform for cookie in cookies if cookie.name in asked}:
            states = [settle_state(cookie.state, at=at) for cookie in cookies if cookie.platform == platform]
            if any(state.status is CookieStatus.ACTIVE for state in states):
                continue
            cooled = min((each.cooling_until - at for each in states if each.cooling_until), default=None)
            message = f"{platform} asks every cookie for a captcha"
            error = make_error(ErrorCode.COOKIE_INVALID, message, captcha=True, retry_after=cooled)
            await self._record(connection, platform, PauseCause.CAPTCHA, error, at=at)

    async def clamp_future(self, connection: AsyncConnection, *, at: datetime) -> int:
        """End waits until times in the future that a wrong clock wrote. Returns how many."""
        latest = to_milliseconds(at + CLOCK_TOLERANCE + LONGEST_PAUSE)
        is_ahead = or_(platform_pauses.c.paused_until > latest, platform_pauses.c.probed_at > latest)
        statement = update_free(platform_pauses, is_ahead).values(paused_until=to_milliseconds(at), probed_at=None)
        return (await connection.execute(statement)).rowcount

    async def _record(
        self, connection: AsyncConnection, platform: str, cause: PauseCause, error: ErrorInfo, *, at: datetime
    ) -> None:
        """Pause a platform, or pause it longer after a probe that failed. A platform that is paused now stays so."""
        before = await self.lock(connection, platform)
        if before is not None and before.until > at:
            return
        failures = 1 if before is None else before.failures + 1
        wait = PAUSES.next_delay(failures, at_least=error.wait)
        assert wait is not None  # noqa: S101 - it never gives up
        wait = min(wait, LONGEST_PAUSE)
        values = {
            "cause": cause.value,
            "message": make_storable(error.message or error.code.value)[:LONGEST_ERROR],
            "failures": failures,
            "paused_until": to_milliseconds(at + wait),
            "probed_at": None,
        }
        new = {"platform": platform, "paused_at": to_milliseconds(at), **values}
        statement = self.database.insert(platform_pauses).values(new)
        await connection.execute(statement.on_conflict_do_update(index_elements=["platform"], set_=values))
        _log.warning("platform.paused", platform=platform, cause=cause.value, minutes=wait / timedelta(minutes=1))
