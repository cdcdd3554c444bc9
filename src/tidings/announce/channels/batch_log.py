"""The log lines of each batch: sent, answered, retried, failed (A21, A23)."""

from datetime import timedelta

from tidings.announce.channels.answer import Outcome, Verdict
from tidings.announce.channels.batch_parts import BatchPart, SentBatch, SentPart
from tidings.announce.channels.channel import SendingChannel
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger

# These need a person; the next execution recovers from all others.
_ERRORS = frozenset({Verdict.BAD_URLS, Verdict.FORBIDDEN, Verdict.REFUSED})

_log = get_logger(__name__)


class BatchLog:
    """The lines of one sender. `retries`: how many a batch may have."""

    def __init__(self, channel: SendingChannel, *, clock: Clock, retries: int) -> None:
        self._channel = channel
        self._clock = clock
        self._retries = retries

    def log_answer(self, part: BatchPart, outcome: Outcome, *, lasting: bool = False) -> None:
        (_log.error if lasting and outcome.verdict in _ERRORS else _log.warning)(
            "batch.answer",
            **self._describe(part.batch),
            urls=len(part),
            first_url=part.first_url,
            status=outcome.status,
            error_code=outcome.code,
            error_message=outcome.message,
            verdict=outcome.verdict.value,
            reason=outcome.reason,
            check=outcome.advice,
        )

    def log_retry(self, sent: SentPart, delay: timedelta) -> None:
        _log.warning(
            "batch.retry",
            **self._describe(sent.part.batch),
            retry=f"retry {sent.attempts}/{self._retries}",
            wait_s=delay.total_seconds(),
            reason=sent.outcome.reason,
        )

    def log_failed(self, sent: SentPart) -> None:
        (_log.error if sent.outcome.verdict in _ERRORS else _log.warning)(
            "batch.failed",
            **self._describe(sent.part.batch),
            urls=len(sent.part),
            first_url=sent.part.first_url,
            status=sent.outcome.status,
            reason=sent.outcome.reason,
            check=sent.outcome.advice,
        )

    def log_rejected(self, part: BatchPart, pages: int, reason: str, advice: str) -> None:
        _log.error("batch.rejected", **self._describe(part.batch), urls=pages, reason=reason, check=advice)

    def log_batch(self, batch: SentBatch) -> None:
        _log.info(
            "batch.sent",
            **self._describe(batch),
            urls=len(batch.claimed),
            accepted=batch.accepted,
            status=dict(batch.statuses),
            ms=round((self._clock.monotonic() - batch.began) * 1000),
        )

    def _describe(self, batch: SentBatch) -> dict[str, str | int]:
        channel = self._channel
        return {
            "site": channel.site.id,
            "channel": str(channel.channel),
            "engine": channel.engine.host,
            "batch": batch.number,
        }

    def log_closed(self, reason: str) -> None:
        channel = self._channel
        _log.warning("engine.closed", site=channel.site.id, engine=channel.engine.host, reason=reason)
