"""What the mirror has in hand, as plain values: a row that is to be delivered, a page of them, a create that is under
way, and where a table is mirrored to. How they come out of the database is in `ledger`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from tidings.collect.feishu.fields import Cell, Key, Shown

MOST_KEYS: Final = 500


@dataclass(frozen=True, slots=True)
class State:
    """Where a table is mirrored to, and when something was last delivered there."""

    target: str = ""
    delivered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A row that is to be delivered: what it says now (None: it is gone), and the markers that this takes care of.

    `record_id` is where it stands in Feishu, as far as is known, and `known` the digest of what stands there. Of a row
    `in_doubt` neither is sure; a doubt that is so new that a search may not show yet what it is about is kept.
    """

    key: Key
    markers: tuple[int, ...] = ()
    shown: Shown | None = None
    record_id: str | None = None
    known: str = ""
    in_doubt: bool = False
    kept: tuple[int, ...] = ()

    @property
    def digest(self) -> str:
        return "" if self.shown is None else self.shown.digest


@dataclass(frozen=True, slots=True)
class Page:
    """Some of what waits, and the number of the marker up to which that is everything."""

    changes: list[Change]
    last: int


@dataclass(frozen=True, slots=True)
class Intent:
    """A create that was about to be sent: its client_token, and each row with what was to be written."""

    client_token: str
    rows: Mapping[Key, Mapping[str, Cell]]
    created_at: datetime


def gather_changes(markers: Iterable[Any], *, doubts_until: int) -> tuple[dict[Key, Change], int]:
    """The rows of these markers, up to the first that would be one too many, and the last marker that is in it.

    Doubts that are newer than `doubts_until` are kept.
    """
    changes: dict[Key, Change] = {}
    last = 0
    for marker in markers:
        key = Key(marker.platform, marker.note_id)
        if key not in changes and len(changes) == MOST_KEYS:
            break
        change = changes.get(key, Change(key))
        kept = (marker.id,) if marker.in_doubt and marker.created_at > doubts_until else ()
        changes[key] = replace(
            change,
            markers=(*change.markers, marker.id),
            in_doubt=change.in_doubt or bool(marker.in_doubt),
            kept=(*change.kept, *kept),
        )
        last = marker.id
    return changes, last
