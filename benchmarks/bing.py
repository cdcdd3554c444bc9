"""What choosing pages for Bing costs on top of a crawl: 100 of a million that are all due, measured and judged.

    python -m benchmarks.bing [--only SHAPE]… [--urls N] [--rounds N] [--record]

The same re-scan (nothing is due on IndexNow) runs without Bing and with it, in turns, each in a process of its own, for
sitemaps whose lastmods differ in shape. Exit code 0: all promises are kept. 1: one is not. 2: something could not be
measured. `bing.md` has the details.
"""

import argparse
import asyncio
import compileall
import json
import re
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from itertools import count
from pathlib import Path

from benchmarks.comparison import Row
from benchmarks.files import PER_FILE, Variant, count_files
from benchmarks.installation import Installation
from benchmarks.measurement import ROOT, Cost, SubjectError, measure
from benchmarks.report import describe_machine, format_results, write_readme
from benchmarks.stage import Stage
from benchmarks.verdicts import Mark, Verdict
from tidings.sandbox.engines.bing import DEMO_BING_KEY, SandboxBing

PAGE = Path(__file__).parent / "bing.md"
RESULTS = Path(__file__).parent / "results"
QUOTA = 100
# As many as the largest quota comes to in the 30 days for which an entry counts.
KNOWN = 15_000
ROUNDS = 5
MOST_SHARE = 0.1
MOST_BYTES = 10_000_000

# A page of an earlier shape may have none.
_LASTMOD = re.compile(r"(?:<lastmod>[^<]*</lastmod>)?<changefreq>")
_FIRST = datetime(2019, 1, 1, tzinfo=UTC)
_PRIME = 7_919
_ZONES = [timezone(timedelta(hours=hours)) for hours in (8, 0, -5)]


class Shape(StrEnum):
    """How the lastmods of a site look."""

    OWN = "own"
    ASCENDING = "ascending"
    ZONES = "zones"
    DAY = "day"
    DATES = "dates"
    WRONG = "wrong"
    NONE = "none"
    KNOWN = "known"
    RANDOM = "random"


TITLES = {
    Shape.OWN: "each its own lastmod, in no order",
    Shape.ASCENDING: "each its own, the last is the latest",
    Shape.ZONES: "the same in three time zones",
    Shape.DAY: "all on one day",
    Shape.DATES: "dates without a time",
    Shape.WRONG: "each its own, in a form that counts as none",
    Shape.NONE: "no lastmod",
    Shape.KNOWN: f"as the first, {KNOWN:,} submitted before",
    Shape.RANDOM: "as the first, priority random",
}


def _write_lastmod(shape: Shape, number: int) -> str:
    """The lastmod of a page; all are in the past, so that none makes a known page due."""
    minutes = _FIRST + timedelta(minutes=3 * number)
    match shape:
        case Shape.ASCENDING:
            text = minutes.isoformat()
        case Shape.ZONES:
            text = minutes.astimezone(_ZONES[number % 3]).isoformat()
        case Shape.DAY:
            text = (_FIRST + timedelta(seconds=number * _PRIME % 86_400)).isoformat()
        case Shape.DATES:
            text = f"{_FIRST + timedelta(days=number * _PRIME % 2_500):%Y-%m-%d}"
        case Shape.WRONG:
            text = f"{minutes:%Y-%m-%d %H:%M:%S}"
        case Shape.NONE:
            return ""
        case Shape.OWN | Shape.KNOWN | Shape.RANDOM:
            # No stamp comes twice, since a prime and ten million have no common factor.
            text = (_FIRST + number * _PRIME % 10_000_000 * timedelta(seconds=21)).isoformat()
    return f"<lastmod>{text}</lastmod>"


def stamp_files(folder: Path, shape: Shape, *, files: int) -> None:
    """Give every page of the site a lastmod of this shape."""
    for file in range(files):
        path = folder / f"{file + 1}.xml"
        path.write_text(_write_timestamp(path.read_text(), shape, numbers=count(file * PER_FILE + 1)))


def _write_timestamp(text: str, shape: Shape, *, numbers: Iterator[int]) -> str:
    return _LASTMOD.sub(lambda _: _write_lastmod(shape, next(numbers)) + "<changefreq>", text)


@dataclass(frozen=True, slots=True)
class Pair:
    """One shape, crawled without Bing and with it."""

    shape: Shape
    without: Row
    added: Row

    @classmethod
    def of(cls, shape: Shape, urls: int) -> "Pair":
        return cls(shape, Row(f"{TITLES[shape]}, without Bing", urls), Row(f"{TITLES[shape]}, with Bing", urls))

    @property
    def noise(self) -> float:
        """How far apart the two cheapest runs of one kind are, at worst: they did the very same."""
        return max(measure_noise(row) for row in (self.without, self.added))

    def judge(self) -> Sequence[Verdict]:
        before, after = (min(cost.work for cost in row.costs) for row in (self.without, self.added))
        share, more = after / before - 1, self.added.peak - self.without.peak
        cpu = f"{before:.2f} → {after:.2f} s, {share:+.1%} (± {self.noise:.1%})"
        peaks = f"{self.without.peak / 1e6:.1f} → {self.added.peak / 1e6:.1f} MB, {more / 1e6:+.1f}"
        title = TITLES[self.shape]
        return [
            Verdict(f"{title}: CPU", cpu, _mark_share(share, noise=self.noise)),
            Verdict(f"{title}: peak", peaks, Mark.PASS if more < MOST_BYTES else Mark.FAIL),
        ]


def measure_noise(row: Row) -> float:
    works = sorted(cost.work for cost in row.costs)
    return works[1] / works[0] - 1 if len(works) > 1 else 0.0


def _mark_share(share: float, *, noise: float) -> Mark:
    """Whether it is below the promise, where the noise lets that be said."""
    if abs(share - MOST_SHARE) <= noise:
        return Mark.NOISE
    return Mark.PASS if share < MOST_SHARE else Mark.FAIL


class Crawler:
    """Tidings on a data directory of its own, set up by its environment, with Bing or without."""

    def __init__(self, data_dir: Path, *, stage: Stage, bing: SandboxBing) -> None:
        self._installation = Installation(data_dir, stage=stage)
        self._database = data_dir / "tidings.db"
        self._environment = {
            "TIDINGS_DATA_DIR": str(data_dir),
            "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
            "TIDINGS_RUN_BUDGET_SECONDS": "900",
            "SITEMAP_URL": stage.sitemaps[0],
            "INDEXNOW_API_KEY": stage.key,
            "INDEXNOW_SEARCH_ENGINES": stage.endpoint,
            "BING_API_KEY": DEMO_BING_KEY,
            "BING_DAILY_QUOTA": str(QUOTA),
            "BING_API_BASE": bing.address,
        }

    def fill(self, *, pages: int) -> None:
        """Announce everything on IndexNow, so that nothing is due there any more."""
        check_cost(self._run("indexnow", priority="newest"), total=pages, submitted=pages)

    def crawl(self, *, pages: int) -> Cost:
        """A re-scan without Bing: everything is read and looked up."""
        self._installation.forget_validators()
        return check_cost(self._run("indexnow", priority="newest"), total=pages, submitted=0)

    def crawl_for_bing(self, shape: Shape, *, pages: int) -> Cost:
        """The same with everything due on Bing, or all but `KNOWN`."""
        known = KNOWN if shape is Shape.KNOWN else 0
        self._installation.forget_validators()
        self._set_known(known)
        cost = self._run("all", priority="random" if shape is Shape.RANDOM else "newest")
        check_cost(cost, total=pages, submitted=QUOTA)
        seen = {name: cost.found["bingStats"][name] for name in ("urlCount", "due", "left")}
        if seen != {"urlCount": QUOTA, "due": pages - known, "left": pages - known - QUOTA}:
            raise SubjectError(f"{QUOTA} of {pages - known:,} were to be chosen, and it came to {seen}")
        return cost

    def _run(self, channel: str, *, priority: str) -> Cost:
        environment = {**self._environment, "BING_PRIORITY": priority}
        return measure("tidings", "run", "--channel", channel, "--json", environment=environment)

    def _set_known(self, count: int) -> None:
        """As if so many pages, and no others, had been submitted to Bing, and nothing today."""
        with closing(sqlite3.connect(self._database)) as connection, connection:
            connection.execute("DELETE FROM channel_quota")
            connection.execute("DELETE FROM ledger WHERE channel = 2")
            connection.execute(
                "INSERT INTO ledger SELECT site, 2, url_hash, submitted_at, lastmod FROM ledger LIMIT ?", [count]
            )


def check_cost(cost: Cost, *, total: int, submitted: int, status: str = "succeeded") -> Cost:
    """The cost of a run that did what it should. Raises SubjectError."""
    wanted = {"status": status, "total": total, "submitted": submitted, "filesUnchanged": 0}
    if {name: cost.found[name] for name in wanted} != wanted:
        raise SubjectError(f"tidings was to come to {wanted}, and came to {cost.found}")
    return cost


@contextmanager
def _serve_bing() -> Iterator[SandboxBing]:
    """Bing's stand-in, in a thread of its own: it is asked for one thing in a run."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    bing = SandboxBing(keys={DEMO_BING_KEY: []}, daily_quota=1_000_000)
    asyncio.run_coroutine_threadsafe(bing.start(), loop).result()
    try:
        yield bing
    finally:
        asyncio.run_coroutine_threadsafe(bing.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def measure_pairs(shapes: Sequence[Shape], *, urls: int, rounds: int, tell: Callable[[str], None]) -> list[Pair]:
    """Measure each shape, the two runs in turns. Raises SubjectError."""
    pairs = [Pair.of(shape, urls) for shape in shapes]
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder, _serve_bing() as bing:
        files, data = Path(folder, "files"), Path(folder, "data")
        files.mkdir()
        tell(f"writing {urls:,} pages in files of {PER_FILE:,}")
        with Stage("large", str(files), Variant.DIFFERENT.value, str(urls)) as stage:
            bing.add_site(stage.sitemaps[0].rpartition("/")[0], key=DEMO_BING_KEY)
            crawler = Crawler(data, stage=stage, bing=bing)
            tell("filling the ledger of IndexNow")
            crawler.fill(pages=urls)
            for pair in pairs:
                stamp_files(files, pair.shape, files=count_files(urls))
                for _ in range(rounds):
                    record_cost(pair.without, crawler.crawl(pages=urls), tell=tell)
                    record_cost(pair.added, crawler.crawl_for_bing(pair.shape, pages=urls), tell=tell)
    return pairs


def record_cost(row: Row, cost: Cost, *, tell: Callable[[str], None]) -> None:
    row.costs.append(cost)
    tell(f"{row.name}: {cost.work:.2f} s of CPU without imports, peak {cost.peak / 1e6:.1f} MB")


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    # Not a part of any run: the first command after an installation would pay for it.
    compileall.compile_dir(ROOT / "src", quiet=2)
    try:
        pairs = measure_pairs(options.only or list(Shape), urls=options.urls, rounds=options.rounds, tell=say)
    except SubjectError as error:
        say(str(error))
        return 2
    verdicts = [verdict for pair in pairs for verdict in pair.judge()]
    text = format_results(machine, table=None, verdicts=verdicts)
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    say(f"each run is in {_save(machine, pairs)}")
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _save(machine: dict[str, str], pairs: Sequence[Pair]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-bing.json"
    path.write_text(json.dumps({"machine": machine, "pairs": [asdict(pair) for pair in pairs]}, indent=1))
    return path


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bing", description="Measure the choice for Bing.")
    parser.add_argument("--only", type=Shape, choices=list(Shape), action="append", help="may be given more than once")
    parser.add_argument("--urls", type=int, default=1_000_000, help="pages of the site [1000000]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each kind [{ROUNDS}]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
