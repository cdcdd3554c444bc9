"""What a second engine costs on a first run, and one that is down all the time; measured and judged.

    python -m benchmarks.engines [--urls N] [--rounds N] [--record]

The same first run goes to one engine, to two, and to two of which one answers every request with 503, in turns, each on
a new data directory. Exit code 0: all promises are kept. 1: one is not. 2: something could not be measured.
"""

import argparse
import compileall
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import Row
from benchmarks.files import Variant
from benchmarks.installation import Installation
from benchmarks.measurement import ROOT, Cost, SubjectError
from benchmarks.report import describe_machine, format_results, format_table, write_readme
from benchmarks.stage import Stage
from benchmarks.verdicts import MOST_BYTES, Mark, Verdict

PAGE = Path(__file__).parent / "engines.md"
MOST_FOR_TWO = 1.5
MOST_WITH_ONE_DOWN = 1.6


@dataclass(frozen=True, slots=True)
class Case:
    """One set of engines."""

    row: Row
    endpoints: Sequence[str]
    # How the execution ends.
    status: str
    # CPU compared with one engine, at most; None for one engine itself.
    most: float | None = None


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    # Not a part of any run: the first command after an installation would pay for it.
    compileall.compile_dir(ROOT / "src", quiet=2)
    try:
        cases = measure_cases(options.urls, rounds=options.rounds)
    except SubjectError as error:
        _say(str(error))
        return 2
    verdicts = judge_cases(cases)
    text = f"{format_results(machine, table=None, verdicts=verdicts)}\n\n{format_cases(cases)}"
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def measure_cases(urls: int, *, rounds: int) -> list[Case]:
    """Raises SubjectError."""
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
        files = Path(folder, "files")
        files.mkdir()
        with Stage("large", str(files), Variant.DIFFERENT.value, str(urls)) as stage:
            one, second, down = stage.endpoint, stage.second_endpoint, stage.down_endpoint
            cases = [
                Case(Row("one engine", urls), [one], "succeeded"),
                Case(Row("two engines", urls), [one, second], "succeeded", MOST_FOR_TWO),
                Case(Row("two engines, one of them down", urls), [one, down], "partial", MOST_WITH_ONE_DOWN),
            ]
            for number in range(rounds):
                for at, case in enumerate(cases):
                    data = Path(folder, f"data-{number}-{at}")
                    case.row.costs.append(_run(case, Installation(data, stage=stage), sitemap=stage.sitemaps[0]))
                    cost = case.row.costs[-1]
                    _say(f"{case.row.name}: {cost.cpu:.1f} s of CPU, peak {cost.peak / 1e6:.0f} MB, {cost.wall:.1f} s")
    return cases


def _run(case: Case, tidings: Installation, *, sitemap: str) -> Cost:
    cost = tidings.start(sitemap, engines=case.endpoints).wait()
    seen = {name: cost.found[name] for name in ("status", "total", "submitted")}
    wanted = {"status": case.status, "total": case.row.urls, "submitted": case.row.urls}
    if seen != wanted:
        raise SubjectError(f"tidings was to come to {wanted}, and came to {cost.found}")
    return cost


def judge_cases(cases: Sequence[Case]) -> list[Verdict]:
    base, verdicts = cases[0].row.best.cpu, []
    for case in cases:
        row = case.row
        if case.most is not None:
            share = row.best.cpu / base
            promise = f"first run, {row.name}: at most {case.most} times the CPU of one"
            verdicts.append(Verdict(promise, f"{share:.2f} times", Mark.PASS if share <= case.most else Mark.FAIL))
        small = Mark.PASS if row.peak < MOST_BYTES else Mark.FAIL
        verdicts.append(Verdict(f"first run, {row.name}: peak below 128 MB", f"{row.peak / 1e6:.0f} MB", small))
    return verdicts


def format_cases(cases: Sequence[Case]) -> str:
    base = cases[0].row.best
    rows = [
        (
            case.row.name,
            f"{case.row.urls:,}",
            f"{case.row.best.cpu:.1f}",
            f"{case.row.best.cpu / base.cpu:.2f}",
            f"{case.row.best.work / base.work:.2f}",
            f"{case.row.peak / 1e6:.0f}",
        )
        for case in cases
    ]
    return format_table(("first run", "URLs", "CPU s", "×", "× without imports", "peak MB"), rows)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description="Measure a second engine.")
    parser.add_argument("--urls", type=int, default=200_000, help="pages of the site [200000]")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured [3]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
