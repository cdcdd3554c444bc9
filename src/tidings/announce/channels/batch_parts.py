"""Claimed pages that are being sent: a batch, the parts of it that each go out in one request, and their answers."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from tidings.announce.channels.answer import Outcome
from tidings.announce.ledger.outbox import ClaimedPages


@dataclass(slots=True)
class SentBatch:
    """Claimed pages that are being sent."""

    number: int
    claimed: ClaimedPages
    # Pages without a result so far.
    remaining: int
    began: float
    accepted: int = 0
    # Answers by HTTP status.
    statuses: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The pages of a batch that go out in one request: from `start` to `stop`."""

    batch: SentBatch
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def urls(self) -> list[str]:
        return [url.decode() for url in self.batch.claimed.list_urls(self.start, self.stop)]

    @property
    def first_url(self) -> str:
        return self.batch.claimed.list_urls(self.start, self.start + 1)[0].decode()

    def split_by(self, rejected: Mapping[str, str]) -> "Iterator[tuple[BatchPart, str | None]]":
        """The ranges of pages that were taken (None), or rejected for one reason."""
        if not rejected:
            yield self, None
            return
        start = self.start
        for reason, group in groupby(map(rejected.get, self.urls)):
            stop = start + sum(1 for _ in group)
            yield replace(self, start=start, stop=stop), reason
            start = stop

    def halve(self) -> "list[BatchPart]":
        middle = (self.start + self.stop) // 2
        return [replace(self, stop=middle), replace(self, start=middle)]


@dataclass(frozen=True, slots=True)
class SentPart:
    """The last answer to a part, and the number of attempts. `part` may be shorter than requested, because of the
    quota."""

    part: BatchPart
    outcome: Outcome
    attempts: int
