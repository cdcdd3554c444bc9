"""What it costs to list, search and export many notes, and to read the status of many candidates, on both databases.

    python -m benchmarks.archive [--notes N] [--candidates N] [--rounds N] [--record]

A time is that of one call from Python to Python, the median of all rounds: on SQLite the CPU of this process, SQLite's
included, on PostgreSQL the clock. The memory of an export is the peak of a process of its own. Exit code 0: all is
as promised. 1: something is not. `archive.md` has the details.
"""

import argparse
import asyncio
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.candidates import make_table
from benchmarks.measurement import ROOT
from benchmarks.notes import fill_notes
from benchmarks.postgresql import start_server, tidy_tables
from benchmarks.report import describe_machine, format_results, write_readme
from benchmarks.verdicts import Mark, Verdict
from tidings.collect.archive.archive import NoteArchive, NoteFilter
from tidings.collect.archive.export import ExportFormat
from tidings.collect.notes import NoteKind
from tidings.core.secrets.master_key import new_master_key
from tidings.settings.settings import read_settings
from tidings.wiring.installation import Installation
from tidings.wiring.opening import open_installation

PAGE = Path(__file__).parent / "archive.md"
MOST_LIST_MS = 50.0
MOST_SEARCH_MS = 100.0
MOST_STATUS_MS = 200.0
MOST_EXPORT_BYTES = 128_000_000

# The kernel's own figure of a child would count the memory of the process that started it.
_EXPORT = """
import sys
from pathlib import Path
from tidings.cli.main import main
sys.argv = ["tidings", "collect", "notes", "export", *sys.argv[1:]]
try:
    main()
finally:
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the results."""

    name: str
    # Milliseconds on the clock; for an export bytes at its peak.
    number: float
    most: float
    unit: str

    @property
    def text(self) -> str:
        return f"{self.number / 1e6:.1f} MB" if self.unit == "bytes" else f"{self.number:.1f} ms"


async def measure_notes(environment: Mapping[str, str], *, rounds: int) -> list[Measured]:
    """Lists and searches."""
    async with open_installation(read_settings(environment)) as installation:
        now, clock = installation.clock.now(), _choose_clock(installation)
        filters = {
            "list": NoteFilter(),
            "list of a platform": NoteFilter(platform="weibo"),
            "list of a keyword": NoteFilter(keyword="露营"),
            "list of an author": NoteFilter(author="作者 42"),
            "list of a kind and platform": NoteFilter(kind=NoteKind.ARTICLE, platform="bilibili"),
            "list until half a year ago": NoteFilter(until=now - timedelta(days=180)),
        }
        words = {
            "search 咖啡 (in two of five notes)": NoteFilter(text="咖啡"),
            "search 水温": NoteFilter(text="水温"),
            "search 滑雪 of a platform": NoteFilter(text="滑雪", platform="web"),
            "search 手冲咖啡 (a phrase)": NoteFilter(text="手冲咖啡"),
            "search 没有 (in no note)": NoteFilter(text="没有"),
        }
        found = [
            await _measure_list(installation.collect.notes, name, wanted, rounds=rounds, most=MOST_LIST_MS, clock=clock)
            for name, wanted in filters.items()
        ]
        return found + [
            await _measure_list(
                installation.collect.notes, name, wanted, rounds=rounds, most=MOST_SEARCH_MS, clock=clock
            )
            for name, wanted in words.items()
        ]


async def _measure_list(
    archive: NoteArchive, name: str, wanted: NoteFilter, *, rounds: int, most: float, clock: Callable[[], float]
) -> Measured:
    return await _time(name, lambda: archive.list_page(wanted, limit=50), rounds=rounds, most=most, clock=clock)


def _choose_clock(installation: Installation) -> Callable[[], float]:
    """On a busy machine the clock says little, but PostgreSQL works in processes of its own."""
    return time.process_time if installation.database.dialect == "sqlite" else time.perf_counter


async def measure_status(environment: Mapping[str, str], *, rounds: int, candidates: int) -> list[Measured]:
    async with open_installation(read_settings(environment)) as installation:
        name = f"collect status of {candidates:,} candidates"
        read, clock = installation.collect.status.read, _choose_clock(installation)
        return [await _time(name, read, rounds=rounds, most=MOST_STATUS_MS, clock=clock)]


async def _time(
    name: str, call: Callable[[], Awaitable[Any]], *, rounds: int, most: float, clock: Callable[[], float]
) -> Measured:
    await call()
    times = []
    for _ in range(rounds):
        began = clock()
        await call()
        times.append((clock() - began) * 1000)
    return Measured(name, statistics.median(times), most, "ms")


def measure_exports(environment: Mapping[str, str], folder: Path) -> list[Measured]:
    """The peak memory of `tidings collect notes export`, as a process."""
    found = []
    for form in ExportFormat:
        words = [sys.executable, "-c", _EXPORT, str(folder / f"notes.{form}")]
        ended = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"the export as {form} failed: {ended.stderr}")
        peak = int(ended.stderr.split()[-1]) * 1024.0
        found.append(Measured(f"export of all as {form}, peak", peak, MOST_EXPORT_BYTES, "bytes"))
    return found


def measure_all(options: argparse.Namespace, folder: Path, *, make_url: Callable[[], str | None]) -> list[Measured]:
    """Everything on one database."""
    environment = {"COOKIE_MASTER_KEY": new_master_key()}
    places = []
    for name in ("notes", "candidates"):
        (folder / name).mkdir()
        url = make_url()
        places.append(
            environment | {"TIDINGS_DATA_DIR": str(folder / name)} | ({"TIDINGS_DATABASE_URL": url} if url else {})
        )
    notes, candidates = places
    _say(f"storing {options.notes:,} notes")
    fill_notes(dict(notes), notes=options.notes)
    if url := notes.get("TIDINGS_DATABASE_URL"):
        tidy_tables(url)
    measured = asyncio.run(measure_notes(notes, rounds=options.rounds))
    measured += measure_exports(notes, folder)
    _say(f"making {options.candidates:,} candidates")
    url = candidates.get("TIDINGS_DATABASE_URL") or f"sqlite:///{folder / 'candidates' / 'tidings.db'}"
    asyncio.run(make_table(url, rows=options.candidates, platforms=4, usual="collected", rare="failed"))
    return measured + asyncio.run(measure_status(candidates, rounds=options.rounds, candidates=options.candidates))


def judge(name: str, measured: list[Measured]) -> list[Verdict]:
    return [
        Verdict(
            f"{name}: {each.name} under {each.most / 1e6:.0f} MB" if each.unit == "bytes" else
            f"{name}: {each.name} under {each.most:.0f} ms",
            each.text,
            Mark.PASS if each.number < each.most else Mark.FAIL,
        )
        for each in measured
    ]  # fmt: skip


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    compileall.compile_dir(ROOT / "src", quiet=2)
    # What is measured is Tidings, not whoever else works on this machine. Only root may do this.
    with suppress(PermissionError):
        os.nice(-15)
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as own, start_server(Path(own)) as server:
        folders = {name: Path(own) / name for name in ("SQLite", "PostgreSQL")}
        for folder in folders.values():
            folder.mkdir()
        verdicts = judge("SQLite", measure_all(options, folders["SQLite"], make_url=lambda: None))
        verdicts += judge("PostgreSQL", measure_all(options, folders["PostgreSQL"], make_url=server.make_database))
    text = format_results(machine, table=None, verdicts=verdicts)
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.archive", description="Measure collected notes.")
    parser.add_argument("--notes", type=int, default=100_000, help="how many notes [100000]")
    parser.add_argument("--candidates", type=int, default=1_000_000, help="how many candidates [1000000]")
    parser.add_argument("--rounds", type=int, default=11, help="how often each is measured [11]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
