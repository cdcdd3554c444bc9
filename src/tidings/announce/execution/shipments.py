"""Pages on their way to the engines: a batch, who has yet to answer for it, and the files it came from."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from tidings.announce.due.pages import Pages
from tidings.announce.ledger.ledger import Channel
from tidings.announce.sitemap.crawl import SitemapFile


@dataclass(slots=True, eq=False)
class FileProgress:
    """How far one sitemap file's pages are: its validators may be kept once all of them are accepted.

    `oldest` is the oldest submission among them; the file is good until that one expires. `channels` (a sum) are those
    on which nothing else of it is due.
    """

    file: SitemapFile
    pages: int = 0
    outstanding: int = 0
    oldest: int | None = None
    clean: bool = True
    channels: int = Channel.INDEXNOW

    def note_oldest(self, submitted_at: int | None) -> None:
        if submitted_at is not None and (self.oldest is None or submitted_at < self.oldest):
            self.oldest = submitted_at

    @property
    def accepted(self) -> bool:
        """Every page of it is in the ledger."""
        return self.clean and self.outstanding == 0 and self.file.fault is None


@dataclass(slots=True, eq=False)
class Shipment:
    """A batch of pages for some engines.

    `waiting` are the engines that have not dealt with it; `entered` the pages that stand in the ledger, `failed` those
    that some engine did not take. Two engines
    may answer at the same moment, so what is recorded for it is recorded under its lock.
    """

    number: int
    pages: Pages
    waiting: set[str]
    files: Counter[FileProgress] = field(default_factory=Counter)
    entered: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    from_earlier: bool = False
    accepted_everywhere: bool = True
    unfinished: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.unfinished = len(self.waiting)
