"""What planning for every channel costs on top of IndexNow alone: Bing, Baidu and Google's Indexing API at once.

    python -m benchmarks.channels [--urls N] [--rounds N] [--record]

The same re-scan (nothing is due on IndexNow) runs for IndexNow alone and for all channels, in turns, each in a process
of its own. Everything is due on the others, and each answers its first request with "over quota", so that planning is
measured and not sending. Exit code 0: the promise is kept. 1: it is not. 2: something could not be measured.
"""

import argparse
import asyncio
import compileall
import json
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bing import RESULTS, Shape, check_cost, measure_noise, record_cost, say, stamp_files
from benchmarks.comparison import Row
from benchmarks.files import PER_FILE, Variant, count_files
from benchmarks.installation import Installation
from benchmarks.measurement import ROOT, Cost, SubjectError, measure
from benchmarks.report import describe_machine, format_results, write_readme
from benchmarks.stage import Stage
from benchmarks.verdicts import Mark, Verdict
from tidings.sandbox.engines import google as google_faults
from tidings.sandbox.engines.baidu import DEMO_BAIDU_TOKEN, SandboxBaidu
from tidings.sandbox.engines.bing import DEMO_BING_KEY, SandboxBing
from tidings.sandbox.engines.google import SandboxGoogle
from tidings.sandbox.wire.stand_in import StandIn

PAGE = Path(__file__).parent / "channels.md"
ROUNDS = 3
MOST_SHARE = 0.15
# Bing, Baidu and Google in the tables.
_OTHERS = "(2, 4, 8)"


class Channels:
    """The stand-ins of all channels with a quota, in a thread of their own."""

    def __init__(self) -> None:
        self.bing = SandboxBing(keys={DEMO_BING_KEY: []}, daily_quota=0)
        self.baidu = SandboxBaidu(sites={}, daily_quota=0)
        self.google = SandboxGoogle()
        self.google.misbehave(replace(google_faults.QUOTA_PER_DAY, path=google_faults.PUBLISH_PATH))

    @property
    def _all(self) -> tuple[StandIn, StandIn, StandIn]:  # type: ignore[type-arg]  # of three kinds of requests
        return self.bing, self.baidu, self.google

    async def start(self) -> None:
        for each in self._all:
            await each.start()

    async def close(self) -> None:
        for each in self._all:
            await each.close()

    def add_site(self, origin: str) -> None:
        self.bing.add_site(origin, key=DEMO_BING_KEY)
        self.baidu.add_site(origin, token=DEMO_BAIDU_TOKEN)
        self.google.add_property(f"{origin}/")


@contextmanager
def _serve_channels() -> Iterator[Channels]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    channels = Channels()
    asyncio.run_coroutine_threadsafe(channels.start(), loop).result()
    try:
        yield channels
    finally:
        asyncio.run_coroutine_threadsafe(channels.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Planner:
    """Tidings on a data directory of its own, set up by its environment, with every channel."""

    def __init__(self, data_dir: Path, *, stage: Stage, channels: Channels) -> None:
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
            "BING_API_BASE": channels.bing.address,
            "BAIDU_TOKEN": DEMO_BAIDU_TOKEN,
            "BAIDU_API_BASE": channels.baidu.address,
            "GOOGLE_CREDENTIALS": channels.google.credentials,
            "GOOGLE_INDEXING": "jobPosting",
            "GOOGLE_API_BASE": channels.google.address,
        }

    def plan(self, channel: str, *, pages: int, submitted: int = 0) -> Cost:
        """One run; raises SubjectError if it did not read and plan what it should."""
        self._forget()
        cost = measure("tidings", "run", "--channel", channel, "--json", environment=self._environment)
        # A channel that says that its quota is used up makes the execution a partial one.
        check_cost(cost, total=pages, submitted=submitted, status="partial" if channel == "all" else "succeeded")
        if channel == "all":
            due = {name: cost.found[f"{name}Stats"]["due"] for name in ("bing", "baidu", "google")}
            if set(due.values()) != {pages} or not cost.found["googleSitemaps"]:
                raise SubjectError(f"{pages:,} pages were to be due on each channel, and it came to {due}")
        return cost

    def _forget(self) -> None:
        """As if nothing had ever been planned for the other channels."""
        if not self._database.exists():
            return
        self._installation.forget_validators()
        with closing(sqlite3.connect(self._database)) as connection, connection:
            for table in ("ledger", "batches", "deliveries", "channel_quota"):
                connection.execute(f"DELETE FROM {table} WHERE channel IN {_OTHERS}")
            connection.execute("DELETE FROM google_sitemaps")


def measure_rows(*, urls: int, rounds: int, tell: Callable[[str], None]) -> tuple[Row, Row]:
    """Measure both, in turns. Raises SubjectError."""
    alone, everything = Row("IndexNow alone", urls), Row("all channels", urls)
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder, _serve_channels() as channels:
        files, data = Path(folder, "files"), Path(folder, "data")
        files.mkdir()
        tell(f"writing {urls:,} pages in files of {PER_FILE:,}")
        with Stage("large", str(files), Variant.DIFFERENT.value, str(urls)) as stage:
            channels.add_site(stage.sitemaps[0].rpartition("/")[0])
            stamp_files(files, Shape.OWN, files=count_files(urls))
            planner = Planner(data, stage=stage, channels=channels)
            tell("filling the ledger of IndexNow")
            planner.plan("indexnow", pages=urls, submitted=urls)
            for _ in range(rounds):
                record_cost(alone, planner.plan("indexnow", pages=urls), tell=tell)
                record_cost(everything, planner.plan("all", pages=urls), tell=tell)
    return alone, everything


def judge(alone: Row, everything: Row) -> Sequence[Verdict]:
    before, after = (min(cost.work for cost in row.costs) for row in (alone, everything))
    noise = max(measure_noise(row) for row in (alone, everything))
    cpu, memory = after / before - 1, everything.peak / alone.peak - 1
    return [
        Verdict(
            f"{alone.urls:,} pages, all channels: CPU grows by less than 15 %",
            f"{before:.2f} → {after:.2f} s, {cpu:+.1%} (± {noise:.1%})",
            _mark(cpu, noise=noise),
        ),
        Verdict(
            f"{alone.urls:,} pages, all channels: the peak grows by less than 15 %",
            f"{alone.peak / 1e6:.1f} → {everything.peak / 1e6:.1f} MB, {memory:+.1%}",
            _mark(memory, noise=0),
        ),
    ]


def _mark(share: float, *, noise: float) -> Mark:
    if noise and abs(share - MOST_SHARE) <= noise:
        return Mark.NOISE
    return Mark.PASS if share < MOST_SHARE else Mark.FAIL


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    # Not a part of any run: the first command after an installation would pay for it.
    compileall.compile_dir(ROOT / "src", quiet=2)
    try:
        rows = measure_rows(urls=options.urls, rounds=options.rounds, tell=say)
    except SubjectError as error:
        say(str(error))
        return 2
    verdicts = judge(*rows)
    text = format_results(machine, table=None, verdicts=verdicts)
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-channels.json"
    path.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1))
    say(f"each run is in {path}")
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.channels", description="Measure planning for channels.")
    parser.add_argument("--urls", type=int, default=1_000_000, help="pages of the site [1000000]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each kind [{ROUNDS}]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
