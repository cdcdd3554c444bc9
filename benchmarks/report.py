"""The results for people, as text that is also Markdown, and for programs, as JSON."""

import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.comparison import Comparison
from benchmarks.spacing import Spacing
from benchmarks.verdicts import Verdict

_PACKAGES = ("tidings", "ultimate-sitemap-parser", "scrapy", "lxml", "aiohttp", "xxhash")


def describe_machine() -> dict[str, str]:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores ({_read_processor()}), {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": f"{os.getloadavg()[0]:.1f}",
        "packages": ", ".join(f"{name} {_find_version(name)}" for name in _PACKAGES),
    }


def format_results(machine: dict[str, str], *, table: Comparison | None, verdicts: Sequence[Verdict]) -> str:
    """All of it, for people."""
    parts = [_format_machine(machine), *([_format_comparison(table)] if table else []), _format_verdicts(verdicts)]
    return "\n\n".join(parts)


def _format_machine(machine: dict[str, str]) -> str:
    return (
        f"{machine['date']}, {machine['machine']}, Python {machine['python']}, SQLite {machine['sqlite']}, "
        f"load {machine['load']} before the start; {machine['packages']}."
    )


def _format_comparison(table: Comparison) -> str:
    """CPU in seconds; `×` compares with the re-scan of the same run."""
    base = table.rescan.best
    rows = [
        (
            row.name,
            f"{row.urls:,}",
            f"{row.best.cpu:.1f}",
            f"{row.best.work:.1f}",
            f"{row.best.cpu / base.cpu:.2f}",
            f"{row.best.work / base.work:.2f}",
            f"{row.peak / 1e6:.0f}",
            str(len(row.costs)),
        )
        for row in table.rows
    ]
    heads = ("", "URLs", "CPU s", "without imports", "×", "× without imports", "peak MB", "runs")
    return format_table(heads, rows)


def _format_verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = [(each.promise, each.measured, each.mark) for each in verdicts]
    return format_table(("required", "measured", ""), rows, numbers=False)


def write_readme(path: Path, text: str, *, name: str = "results") -> None:
    """Put these results where the old ones of this name stand."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = path.read_text().partition(begin)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def save_results(
    folder: Path, *, machine: dict[str, str], table: Comparison | None, spacings: Sequence[Spacing], variant: str
) -> Path:
    """Write everything that was measured, each run of it, to a file of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    results = {
        "machine": machine,
        "variant": variant,
        "rows": [asdict(row) for row in table.rows] if table else [],
        "spacings": [asdict(spacing) for spacing in spacings],
    }
    path.write_text(json.dumps(results, indent=1))
    return path


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """Rows under their heads, as text that is also Markdown. Of `numbers`, all but the first are set to the right."""
    widths = [max(3, *map(len, column)) for column in zip(heads, *rows, strict=True)]
    rules = ["-" * width if at == 0 or not numbers else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    lines = []
    for row in (heads, rules, *rows):
        cells = [
            cell.ljust(width) if at == 0 or not numbers else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _read_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
