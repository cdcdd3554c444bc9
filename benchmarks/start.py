"""What starting costs: commands that do little, and a service that does nothing; measured in one run and judged.

    python -m benchmarks.start [--rounds N] [--seconds N] [--sites N] [--record]

Exit code 0: all promises are kept. 1: one is not. 2: something could not be measured. `start.md` has the details.
"""

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.child import TOKEN
from benchmarks.history import fill_sites
from benchmarks.measurement import ROOT, SubjectError
from benchmarks.report import describe_machine, format_results, format_table, write_readme
from benchmarks.stage import Stage
from benchmarks.verdicts import Mark, Verdict
from tidings.core.secrets.master_key import new_master_key

PAGE = Path(__file__).parent / "start.md"
PAGES = 1_000
# Seconds of CPU, and bytes.
MOST_FOR_HELP, MOST_BYTES_FOR_HELP = 0.25, 35_000_000
MOST_FOR_ANNOUNCING = 0.6
MOST_IDLE_SHARE, MOST_IDLE_BYTES = 0.005, 130_000_000
SETTLED_AFTER = 20

# The program measures itself: `getrusage` of a child begins with the peak of its parent.
_PROGRAM = """
import sys, time
from pathlib import Path
def tell():
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(time.process_time(), int(peak.split()[1]) * 1024, file=sys.stderr)
try:
    {work}
finally:
    tell()
"""
_TIDINGS = "from tidings.cli import main; main()"


@dataclass(slots=True)
class Start:
    """One program, some times over: the least CPU counts, and the highest peak."""

    name: str
    work: str
    arguments: Sequence[str] = ()
    # What it must print.
    expected: str = ""
    # The most seconds of CPU and bytes that are promised; None: nothing is.
    most_cpu: float | None = None
    most_peak: int | None = None
    cpu: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)

    def run(self, environment: Mapping[str, str]) -> None:
        """Raises SubjectError."""
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(work=self.work), *self.arguments],
            cwd=ROOT,
            env={"PATH": os.environ.get("PATH", ""), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if ended.returncode or self.expected not in ended.stdout:
            raise SubjectError(f"{self.name} ended with {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-500:]}")
        cpu, peak = ended.stderr.splitlines()[-1].split()
        self.cpu.append(float(cpu))
        self.peaks.append(int(peak))


@dataclass(frozen=True, slots=True)
class Idle:
    """A service with nothing to do."""

    sites: int
    # The share of one core that it used.
    share: float
    # Bytes of its resident set in the end.
    memory: int


def measure_starts(folder: Path, *, rounds: int) -> list[Start]:
    """Raises SubjectError."""
    with Stage("small", str(PAGES)) as stage:
        environment = {
            "TIDINGS_DATA_DIR": str(folder / "announcing"),
            "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
            "REQUEST_INTERVAL_MS": "0",
        }
        words = ("announce", stage.sitemaps[0], "--key", stage.key, "--engine", stage.endpoint, "--json")
        Start("first run", _TIDINGS, (*words, "--method", "post"), expected='"status": "succeeded"').run(environment)
        unchanged = f'"total": {PAGES}, "new": 0'
        starts = [
            Start("Python itself", "pass"),
            Start("Python with Typer and Rich's console", "import typer, rich.console"),
            _promise_help("tidings --version", "--version", expected="tidings"),
            _promise_help("tidings --help", "--help", expected="announce"),
            Start(f"tidings announce, {PAGES:,} pages, all 304", _TIDINGS, words, unchanged, MOST_FOR_ANNOUNCING),
        ]
        for _ in range(rounds):
            for start in starts:
                start.run(environment)
    return starts


def _promise_help(name: str, *words: str, expected: str) -> Start:
    return Start(name, _TIDINGS, words, expected, MOST_FOR_HELP, MOST_BYTES_FOR_HELP)


def measure_idle(folder: Path, *, sites: int, seconds: int) -> Idle:
    """`tidings serve` with so many sites, none of which is due. Raises SubjectError."""
    environment = {"TIDINGS_DATA_DIR": str(folder), "COOKIE_MASTER_KEY": new_master_key(), "TIDINGS_TOKEN": TOKEN}
    folder.mkdir()
    fill_sites(environment, sites=sites)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _TIDINGS, "serve", "--port", "0"],
            cwd=ROOT,
            env={"PATH": os.environ.get("PATH", ""), **environment},
            stdout=output,
            stderr=output,
        )
        try:
            # What the start itself leaves to do is done by then.
            time.sleep(SETTLED_AFTER)
            before, began = _read_cpu(process.pid), time.monotonic()
            time.sleep(seconds)
            share = (_read_cpu(process.pid) - before) / (time.monotonic() - began)
            idle = Idle(sites, share, _read_memory(process.pid))
            if process.poll() is not None:
                output.seek(0)
                raise SubjectError(f"tidings serve ended with {process.returncode}: {output.read()[-500:].decode()}")
            return idle
        finally:
            process.terminate()
            process.wait(60)


def _read_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def judge(starts: Sequence[Start], idles: Sequence[Idle]) -> list[Verdict]:
    verdicts = []
    for start in starts:
        cpu, peak = min(start.cpu), max(start.peaks)
        if start.most_cpu is not None:
            promise = f"{start.name}: at most {start.most_cpu:g} s of CPU"
            verdicts.append(Verdict(promise, f"{cpu:.2f} s", _mark(cpu <= start.most_cpu)))
        if start.most_peak is not None:
            promise = f"{start.name}: peak at most {start.most_peak / 1e6:.0f} MB"
            verdicts.append(Verdict(promise, f"{peak / 1e6:.1f} MB", _mark(peak <= start.most_peak)))
    for idle in idles:
        name, kept = f"tidings serve, {idle.sites:,} sites", idle.share < MOST_IDLE_SHARE
        verdicts.append(
            Verdict(f"{name}: under {MOST_IDLE_SHARE:.1%} of a core", f"{idle.share:.2%}", _mark(kept)),
        )
        promise = f"{name}: under {MOST_IDLE_BYTES / 1e6:.0f} MB"
        verdicts.append(Verdict(promise, f"{idle.memory / 1e6:.0f} MB", _mark(idle.memory < MOST_IDLE_BYTES)))
    return verdicts


def _mark(kept: bool) -> Mark:
    return Mark.PASS if kept else Mark.FAIL


def format_starts(starts: Sequence[Start]) -> str:
    rows = [(each.name, f"{min(each.cpu):.2f}", f"{max(each.peaks) / 1e6:.1f}") for each in starts]
    return format_table(("", "CPU s", "peak MB"), rows)


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    # Not a part of any run: the first command after an installation would pay for it.
    compileall.compile_dir(ROOT / "src", quiet=2)
    try:
        with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
            starts = measure_starts(Path(folder), rounds=options.rounds)
            idles = [
                measure_idle(Path(folder, f"idle-{sites}"), sites=sites, seconds=options.seconds)
                for sites in (0, options.sites)
            ]
    except SubjectError as error:
        print(error, file=sys.stderr)
        return 2
    verdicts = judge(starts, idles)
    text = f"{format_results(machine, table=None, verdicts=verdicts)}\n\n{format_starts(starts)}"
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description="Measure what starting costs.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each command runs [5]")
    parser.add_argument("--seconds", type=int, default=120, help="how long an idle service is watched [120]")
    parser.add_argument("--sites", type=int, default=1_000, help="sites of the idle service [1000]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
