"""`make bench`: everything that is promised about cost, measured in one run and judged. `README.md` has the details.

    python -m benchmarks.sitemap [--only PART]… [--urls N] [--variant NAME] [--record]

Exit code 0: all promises are kept. 1: one is not. 2: something could not be measured.
"""

import argparse
import compileall
import sys
import time
from enum import StrEnum
from pathlib import Path

from benchmarks.comparison import Comparison, compare
from benchmarks.files import Variant
from benchmarks.measurement import ROOT, SubjectError
from benchmarks.report import describe_machine, format_results, save_results, write_readme
from benchmarks.spacing import measure_spacing
from benchmarks.verdicts import Mark, judge_comparison, judge_spacings

README = Path(__file__).parent / "README.md"
RESULTS = Path(__file__).parent / "results"


class Part(StrEnum):
    READERS = "readers"  # Tidings beside the others
    LINEARITY = "linearity"  # twice as many pages
    POSTGRESQL = "postgresql"  # first run and re-scan on PostgreSQL, beside those on SQLite
    SPACING = "spacing"  # the time between two requests


def main() -> int:
    options = _read_options()
    parts = set(options.only or Part)
    machine = describe_machine()
    # Not a part of any run: the first command after an installation would pay for it.
    compileall.compile_dir(ROOT / "src", quiet=2)
    try:
        spacings = measure_spacing(_say) if Part.SPACING in parts else []
        table = _compare(parts, urls=options.urls, variant=options.variant)
    except SubjectError as error:
        _say(str(error))
        return 2
    verdicts = [*(judge_comparison(table, options.variant) if table else []), *judge_spacings(spacings)]
    path = save_results(RESULTS, machine=machine, table=table, spacings=spacings, variant=options.variant)
    text = format_results(machine, table=table, verdicts=verdicts)
    print(f"\n{text}\n")
    if options.record:
        write_readme(README, text, name=name_results(options.variant))
    _say(f"each run is in {path}")
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def name_results(variant: Variant) -> str:
    """Each variant has a place of its own in the page."""
    return "results" if variant is Variant.DIFFERENT else f"results of {variant}"


def _compare(parts: set[Part], *, urls: int, variant: Variant) -> Comparison | None:
    if not parts - {Part.SPACING}:
        return None
    return compare(
        urls,
        variant=variant,
        readers=Part.READERS in parts,
        double=Part.LINEARITY in parts,
        postgresql=Part.POSTGRESQL in parts,
        say=_say,
    )


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sitemap", description="Measure Tidings.")
    parser.add_argument("--only", type=Part, choices=list(Part), action="append", help="may be given more than once")
    parser.add_argument("--urls", type=int, default=1_000_000, help="pages of the site [1000000]")
    parser.add_argument("--variant", type=Variant, choices=list(Variant), default=Variant.DIFFERENT)
    parser.add_argument("--record", action="store_true", help="put the results into README.md")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
