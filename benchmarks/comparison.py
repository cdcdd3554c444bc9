"""Tidings beside two other readers of sitemaps, on the same files, and Tidings on twice as many. All numbers of one
comparison come from one run, in turns, so that a busy minute of the machine meets all of them alike."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.files import PER_FILE, Variant, count_files
from benchmarks.installation import Installation
from benchmarks.measurement import Cost, SubjectError, measure
from benchmarks.postgresql import start_server
from benchmarks.stage import Stage

ROUNDS = 3


@dataclass(slots=True)
class Row:
    """One thing that was measured, some times over: the least CPU counts, and the highest peak."""

    name: str
    urls: int
    costs: list[Cost] = field(default_factory=list)

    @property
    def best(self) -> Cost:
        return min(self.costs, key=lambda cost: cost.cpu)

    @property
    def peak(self) -> int:
        return max(cost.peak for cost in self.costs)


@dataclass(slots=True)
class Comparison:
    """All rows; those that were not asked for have no costs."""

    usp: Row
    scrapy: Row
    first: Row
    rescan: Row
    unchanged: Row
    more: Row
    double: Row
    first_postgresql: Row
    rescan_postgresql: Row

    @classmethod
    def of(cls, urls: int) -> "Comparison":
        return cls(
            usp=Row("ultimate-sitemap-parser, reading", urls),
            scrapy=Row("Scrapy's Sitemap class, reading", urls),
            first=Row("tidings announce, first run", urls),
            rescan=Row("tidings announce, re-scan: all read and looked up", urls),
            unchanged=Row("tidings announce, re-scan: every file 304", urls),
            more=Row("tidings announce, as many pages added", 2 * urls),
            double=Row("tidings announce, re-scan of twice as many", 2 * urls),
            first_postgresql=Row("PostgreSQL, with the server's CPU: first run", urls),
            rescan_postgresql=Row("PostgreSQL, with the server's CPU: re-scan", urls),
        )

    @property
    def rows(self) -> list[Row]:
        every = [self.usp, self.scrapy, self.first, self.rescan, self.unchanged, self.more, self.double]
        return [row for row in (*every, self.first_postgresql, self.rescan_postgresql) if row.costs]


def compare(
    urls: int, *, variant: Variant, readers: bool, double: bool, postgresql: bool, say: Callable[[str], None]
) -> Comparison:
    """Measure. `readers` includes the others, `double` the site of twice the size. Raises SubjectError."""
    table = Comparison.of(urls)
    sizes = [urls, 2 * urls] if double else [urls]
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
        files, data = Path(folder, "files"), Path(folder, "data")
        files.mkdir()
        say(f"writing {max(sizes):,} pages in files of {PER_FILE:,}")
        with Stage("large", str(files), variant.value, *map(str, sizes)) as stage:
            tidings = Installation(data, stage=stage)
            _run_single(table, tidings, sitemap=stage.sitemaps[0], readers=readers, say=say)
            if double:
                _run_double(table, tidings, sitemap=stage.sitemaps[1], say=say)
            _check_engine(stage, accepted=max(sizes))
        if postgresql:
            with Stage("large", str(files), variant.value, str(urls)) as stage, start_server(Path(folder)) as server:
                tidings = Installation(Path(folder, "beside-postgresql"), stage=stage, server=server)
                _run_postgresql(table, tidings, sitemap=stage.sitemaps[0], say=say)
    return table


def _run_single(
    table: Comparison, tidings: Installation, *, sitemap: str, readers: bool, say: Callable[[str], None]
) -> None:
    urls = table.first.urls
    _note(table.first, tidings.announce(sitemap, pages=urls, new=urls), say=say)
    # Before the validators are removed, and cheap enough for as many rounds.
    for _ in range(ROUNDS):
        unchanged = tidings.announce(sitemap, pages=urls, new=0, unchanged=count_files(urls))
        _note(table.unchanged, unchanged, say=say)
    for _ in range(ROUNDS):
        if readers:
            _note(table.usp, _read("usp", sitemap, urls=urls), say=say)
            _note(table.scrapy, _read("scrapy", sitemap, urls=urls), say=say)
        _rescan(table.rescan, tidings, sitemap=sitemap, say=say)


def _run_postgresql(table: Comparison, tidings: Installation, *, sitemap: str, say: Callable[[str], None]) -> None:
    urls = table.first.urls
    _note(table.first_postgresql, tidings.announce(sitemap, pages=urls, new=urls), say=say)
    for _ in range(ROUNDS):
        _rescan(table.rescan_postgresql, tidings, sitemap=sitemap, say=say)


def _run_double(table: Comparison, tidings: Installation, *, sitemap: str, say: Callable[[str], None]) -> None:
    """The second half is added to what is there, which costs less than to begin anew."""
    half = table.first.urls
    added = tidings.announce(sitemap, pages=2 * half, new=half, unchanged=count_files(half))
    _note(table.more, added, say=say)
    for _ in range(ROUNDS):
        _rescan(table.double, tidings, sitemap=sitemap, say=say)


def _rescan(row: Row, tidings: Installation, *, sitemap: str, say: Callable[[str], None]) -> None:
    tidings.forget_validators()
    _note(row, tidings.announce(sitemap, pages=row.urls, new=0), say=say)


def _read(name: str, sitemap: str, *, urls: int) -> Cost:
    cost = measure(name, sitemap)
    if cost.found["total"] != urls:
        raise SubjectError(f"{name} was to find {urls:,} pages, and found {cost.found['total']:,}")
    return cost


def _note(row: Row, cost: Cost, *, say: Callable[[str], None]) -> None:
    row.costs.append(cost)
    say(f"{row.name}: {cost.cpu:.1f} s of CPU, peak {cost.peak / 1e6:.0f} MB")


def _check_engine(stage: Stage, *, accepted: int) -> None:
    shown = stage.ask_engine()
    if (shown["accepted"], shown["twice"]) != (accepted, 0):
        raise SubjectError(f"the engine has {shown['accepted']:,} pages, {shown['twice']:,} of them more than once")
