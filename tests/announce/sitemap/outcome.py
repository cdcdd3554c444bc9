"""What came of reading a body: everything that a caller can see, as one value that can be compared."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tidings.announce.sitemap.reader import Pair, RefusedSitemapError, SitemapKind, SitemapReader


@dataclass(frozen=True, slots=True)
class Outcome:
    """A refusal stands alone: of what was read before it nothing counts."""

    pairs: list[Pair] = field(default_factory=list)
    kind: SitemapKind | None = None
    fault: str | None = None
    too_long: int = 0
    refusal: str | None = None
    skimmed: int = field(default=0, compare=False)

    @property
    def locs(self) -> list[str]:
        return [loc.decode() for loc, _ in self.pairs]


def cut_body(body: bytes, *, size: int = 65_536) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def cut_at(body: bytes, *, places: Iterable[int]) -> list[bytes]:
    return [body[start:end] for start, end in pairwise([0, *sorted(places), len(body)])]


def read_chunks(chunks: Iterable[bytes], **options: Any) -> Outcome:
    """Read a body as it would come from the wire."""
    pairs: list[Pair] = []
    try:
        reader = SitemapReader(**options)
        for chunk in chunks:
            pairs += reader.feed(chunk)
        pairs += reader.close()
    except RefusedSitemapError as error:
        return Outcome(refusal=str(error))
    return Outcome(pairs, reader.kind, reader.fault, reader.too_long, skimmed=reader.skimmed)


def read_body(body: bytes, *, size: int = 65_536, **options: Any) -> Outcome:
    return read_chunks(cut_body(body, size=size), **options)
