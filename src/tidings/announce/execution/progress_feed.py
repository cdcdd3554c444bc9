"""Live progress between processes on PostgreSQL: a worker notifies once a second what changed, and a process whose
users watch an execution listens. Nothing is stored; after a lost notification the next change brings the new state.
"""

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from tidings.announce.execution.report_json import ReportJson
from tidings.announce.execution.running_executions import LiveExecutions
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger
from tidings.core.loop import Loop
from tidings.core.stop import Stop

CHANNEL: Final = "tidings_progress"
SEND_EVERY: Final = timedelta(seconds=1)
# PostgreSQL takes payloads of fewer than 8,000 bytes.
_LONGEST: Final = 7_900
_NOTIFY = text(
    "SELECT pg_notify(:channel, payload) FROM jsonb_array_elements_text(CAST(:payloads AS jsonb)) AS payload"
)

_log = get_logger(__name__)


class ProgressFeed:
    """Sends the progress of this process, and receives that of others while a user watches."""

    def __init__(self, database: Database, live: LiveExecutions, *, clock: Clock) -> None:
        self._database = database
        self._live = live
        self._clock = clock

    async def run(self, stop: Stop) -> None:
        """Send and receive until the stop signal. On SQLite there is nothing to do."""
        if self._database.dialect == "postgresql":
            sending, receiving = (Loop("progress", clock=self._clock, after_error=SEND_EVERY) for _ in range(2))
            await asyncio.gather(sending.run(self._send, stop), receiving.run(lambda: self._receive(stop), stop))

    async def _send(self) -> timedelta:
        payloads = [payload for report in self._live.take_changes() if (payload := _pack(report))]
        if payloads:
            try:
                await self._database.change(_NOTIFY, {"channel": CHANNEL, "payloads": json.dumps(payloads)})
            except SQLAlchemyError as error:
                _log.info("progress.not_sent", reason=type(error).__name__)
        return SEND_EVERY

    async def _receive(self, stop: Stop) -> timedelta:
        await stop.wait_for(self._live.wait_until_watched())
        await stop.wait_for(self._listen())
        return timedelta(0)

    async def _listen(self) -> None:
        """Listen as long as a user watches. After a lost connection, listen again at the next request."""
        import psycopg

        from tidings.core.db.terse_connection import open_listener

        with suppress(psycopg.Error, OSError):
            async with await open_listener(self._database.url) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                while self._live.is_watched:
                    async for notification in connection.notifies(timeout=SEND_EVERY.total_seconds()):
                        self._live.receive(json.loads(notification.payload))


def _pack(report: ReportJson) -> str | None:
    """A report as a payload; without its lines of text, or not at all, if it is too long."""
    for shown in (report, ReportJson(**{**report, "errors": [], "warnings": []})):
        payload = json.dumps(shown, separators=(",", ":"))
        if len(payload.encode()) < _LONGEST:
            return payload
    return None
