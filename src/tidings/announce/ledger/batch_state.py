"""What is known of a batch's pages over all engines: entered in the ledger, tried and taken on a day."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidings.announce.ledger.packing import make_bits


@dataclass(frozen=True, slots=True)
class DayCount:
    """Different pages of a channel on one UTC day."""

    # Pages that were tried.
    total: int = 0
    # Those of them that at least one engine took.
    successful: int = 0

    def __add__(self, other: "DayCount") -> "DayCount":
        return DayCount(self.total + other.total, self.successful + other.successful)


@dataclass(frozen=True, slots=True)
class BatchState:
    """What is known of a batch's pages over all engines, as bitmaps."""

    # Id of the batch.
    batch: int
    # Pages that at least one engine took.
    entered: int
    # UTC day that `tried` and `taken` are about.
    day: str
    tried: int
    taken: int
    # Id of the execution that planned the batch, and when, in milliseconds.
    created_in: int
    created_at: int

    def count_tried(self, positions: Sequence[int], *, day: str) -> tuple["BatchState", DayCount]:
        """The state after these pages were tried on `day`, and those not counted on it before."""
        state = self if self.day == day else self.begin_day(day)
        pages = make_bits(positions)
        counts = DayCount((pages & ~state.tried).bit_count())
        return replace(state, tried=state.tried | pages), counts

    def count_taken(self, positions: Sequence[int], *, day: str) -> tuple["BatchState", DayCount]:
        """The same for pages that an engine took, which are entered now."""
        state, counts = self.count_tried(positions, day=day)
        pages = make_bits(positions)
        counts = replace(counts, successful=(pages & ~state.taken).bit_count())
        return replace(state, taken=state.taken | pages, entered=state.entered | pages), counts

    def begin_day(self, day: str) -> "BatchState":
        """The state on a new day."""
        return replace(self, day=day, tried=0, taken=0)

    def add_counted(self, *, tried: int, taken: int) -> "BatchState":
        """The state with pages that were tried and taken on its day from other batches."""
        return replace(self, tried=self.tried | tried, taken=self.taken | taken)


def name_day(at: datetime) -> str:
    """The UTC day of a timestamp, as the tables hold it."""
    return at.strftime("%Y-%m-%d")
