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
    """The pages of a batch that go out in one request."""

    batch: SentBatch
    pages: ClaimedPages

    def __len__(self) -> int:
        return len(self.pages)

    @property
    def urls(self) -> list[str]:
        return [url.decode() for url in self.pages.list_urls()]

    @property
    def first_url(self) -> str:
        return self.cut(0, 1).urls[0]

    def cut(self, start: int, stop: int) -> "BatchPart":
        """The part from `start` up to `stop`."""
        return replace(self, pages=self.pages.cut(start, stop))

    def split_by(self, rejected: Mapping[str, str]) -> "Iterator[tuple[BatchPart, str | None]]":
        """The ranges of pages that were taken (None), or rejected for one reason."""
        if not rejected:
            yield self, None
            return
        start = 0
        for reason, group in groupby(map(rejected.get, self.urls)):
            stop = start + sum(1 for _ in group)
            yield self.cut(start, stop), reason
            start = stop

    def halve(self) -> "list[BatchPart]":
        middle = len(self) // 2
        return [self.cut(0, middle), self.cut(middle, len(self))]


@dataclass(frozen=True, slots=True)
class SentPart:
    """The last answer to a part, and the number of attempts. `part` may be shorter than requested, because of the
    quota."""

    part: BatchPart
    outcome: Outcome
    attempts: int
