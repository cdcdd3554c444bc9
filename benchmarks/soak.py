"""A soak: many sites that run every minute, by a real `tidings serve` against the sandbox, watched for minutes.

    python -m benchmarks.soak [--minutes N] [--sites N] [--record]

Counted from the history: each site runs exactly once in every whole minute. Sampled meanwhile: the memory of the
process. Everything ends by itself. Exit code 0: all promises are kept. 1: one is not. 2: something could not be
measured. `soak.md` has the details.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.measurement import SubjectError
from benchmarks.report import describe_machine, format_results, write_readme
from benchmarks.verdicts import Mark, Verdict
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite

PAGE = Path(__file__).parent / "soak.md"
RESULTS = Path(__file__).parent / "results"
SCRIPT = Path(sys.executable).with_name("tidings")
SITES = 100
MINUTES = 10
PAGES = 20
# After the last site has had its turn, and well before the first has its next one.
CHANGE_AT = timedelta(seconds=40)
MOST_GROWTH = 0.02
SAMPLE_EVERY = timedelta(seconds=2)
LONGEST_END = timedelta(seconds=10)

_TOKEN = "soak-4b1f-not-a-secret"
_MINUTE = timedelta(minutes=1)
_TICKS = os.sysconf("SC_CLK_TCK")
_LISTENS = re.compile(rb"http://\S+:\d+")


@dataclass(frozen=True, slots=True)
class Sample:
    """The process at a moment: seconds since the first whole minute, bytes of memory, seconds of CPU so far."""

    at: float
    memory: int
    cpu: float


@dataclass(frozen=True, slots=True)
class Run:
    """One execution, as the history tells it. `minute` counts from the first whole one."""

    site: str
    minute: int
    status: str
    submitted: int


@dataclass(frozen=True, slots=True)
class Soak:
    """All that was seen."""

    sites: int
    minutes: int
    runs: Sequence[Run]
    samples: Sequence[Sample]
    ended_in: float
    code: int | None

    @property
    def missed(self) -> int:
        return self.sites * self.minutes - len(self._counts)

    @property
    def double(self) -> int:
        return sum(count - 1 for count in self._counts.values())

    @property
    def incomplete(self) -> int:
        """Runs that did not send what was new: everything at first, then the one page that had changed."""
        return sum(run.status != "succeeded" or run.submitted != (1 if run.minute else PAGES) for run in self.runs)

    @property
    def _counts(self) -> Counter[tuple[str, int]]:
        return Counter((run.site, run.minute) for run in self.runs)

    @property
    def growth(self) -> float:
        """By which share of itself the memory would grow in the second half, along the line that fits it best."""
        half = [sample for sample in self.samples if sample.at >= self.samples[-1].at / 2]
        times, sizes = [sample.at for sample in half], [sample.memory for sample in half]
        slope = statistics.linear_regression(times, sizes).slope
        return slope * (times[-1] - times[0]) / statistics.median(sizes)

    @property
    def cpu(self) -> float:
        """Seconds of CPU between the first sample and the last."""
        return self.samples[-1].cpu - self.samples[0].cpu

    def judge(self) -> list[Verdict]:
        expected = self.sites * self.minutes
        span = self.samples[-1].at - self.samples[0].at
        middle = [sample.memory / 1e6 for sample in self.samples]
        memory = f"{self.growth:+.1%}; {middle[0]:.1f} MB first, {max(middle):.1f} most, {middle[-1]:.1f} last"
        cpu = f"{self.cpu / span:.1%} of a core, {self.cpu / max(1, len(self.runs)) * 1000:.1f} ms for each run"
        end = f"code {self.code} after {self.ended_in:.1f} s"
        return [
            Verdict(
                f"{self.sites} sites × {self.minutes} minutes: no run missed",
                _of(self.missed, expected),
                _mark(not self.missed),
            ),
            Verdict("no double run", _of(self.double, expected), _mark(not self.double)),
            Verdict(
                "every run sent what was new, and nothing else",
                f"{self.incomplete} did not",
                _mark(not self.incomplete),
            ),
            Verdict(
                f"memory flat: less than {MOST_GROWTH:.0%} more in the second half",
                memory,
                _mark(self.growth < MOST_GROWTH),
            ),
            Verdict(
                "SIGTERM: ends with 0 within 10 s",
                end,
                _mark(self.code == 0 and self.ended_in < LONGEST_END.total_seconds()),
            ),
            Verdict("CPU of the process, for information", cpu, Mark.NONE),
        ]


def _of(count: int, expected: int) -> str:
    return f"{count} of {expected:,}"


def _mark(kept: bool) -> Mark:
    return Mark.PASS if kept else Mark.FAIL


class Service:
    """`tidings serve` in a process of its own, and its API."""

    def __init__(self, process: Process, session: aiohttp.ClientSession) -> None:
        self.process = process
        self._session = session

    async def add_site(self, name: str, *, site: SandboxSite, engine: SandboxEngine) -> None:
        body = {
            "id": name,
            "sitemapUrl": site.sitemap_url,
            "indexnowKey": site.key,
            "searchEngines": [engine.endpoint],
            "schedule": "* * * * *",
        }
        await self._ask("POST", "/api/sites", body)

    async def list_runs(self, name: str, *, begin: datetime, minutes: int) -> list[Run]:
        """The executions of a site in the whole minutes."""
        shown = await self._ask("GET", f"/api/sites/{name}/executions?limit=200")
        runs = []
        for each in shown["executions"]:
            minute = (datetime.fromisoformat(each["startedAt"]) - begin) // _MINUTE
            if 0 <= minute < minutes:
                runs.append(Run(name, minute, each["status"], (each["result"] or {}).get("submitted", 0)))
        return runs

    def take_sample(self, *, begin: datetime) -> Sample:
        """Raises SubjectError where the process has ended."""
        folder = Path("/proc", str(self.process.pid))
        try:
            status, stat = (folder / "status").read_text(), (folder / "stat").read_text()
        except OSError as error:
            raise SubjectError(f"the service has ended: {error}") from None
        kibibytes = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
        # The name of the process, in brackets, may hold anything.
        fields = stat.rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        return Sample((datetime.now(UTC) - begin).total_seconds(), kibibytes * 1024, cpu)

    async def end(self) -> float:
        """Ask it to end; returns how many seconds that took."""
        began = time.monotonic()
        self.process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(3 * LONGEST_END.total_seconds()):
                await self.process.wait()
        return time.monotonic() - began

    async def _ask(self, method: str, target: str, body: Any = None) -> Any:
        async with self._session.request(method, target, json=body) as answer:
            if answer.status >= 300:
                raise SubjectError(f"{method} {target} was answered {answer.status}: {await answer.text()}")
            return await answer.json()


@asynccontextmanager
async def start_service(folder: Path) -> AsyncIterator[Service]:
    """Start it on an empty data directory; at the end it is gone, however that came. Raises SubjectError."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "TIDINGS_DATA_DIR": str(folder),
        "TIDINGS_TOKEN": _TOKEN,
        "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
        "TIDINGS_MAX_EXECUTIONS": "10",
        "TIDINGS_RESUBMIT_GAP_SECONDS": "0",
        "REQUEST_INTERVAL_MS": "1",
    }
    with (folder / "errors").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(SCRIPT, "serve", "--port", "0", "--quiet"), env=environment, stdout=PIPE, stderr=errors
        )
    assert process.stdout is not None
    try:
        found = _LISTENS.search(await asyncio.wait_for(process.stdout.readline(), 60))
        if found is None:
            raise SubjectError(f"the service did not start: {(folder / 'errors').read_text()[-500:]}")
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        async with aiohttp.ClientSession(found[0].decode(), headers=headers) as session:
            yield Service(process, session)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def soak(folder: Path, *, sites: int, minutes: int) -> Soak:
    """Let it run. Raises SubjectError."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(SandboxEngine("engine"))
        origins = [await stack.enter_async_context(SandboxSite(pages=PAGES, per_sitemap=PAGES)) for _ in range(sites)]
        service = await stack.enter_async_context(start_service(folder))
        names = [f"soak-{number:03}" for number in range(sites)]
        begin = await _add_sites(service, names, origins=origins, engine=engine)
        _say(f"{sites} sites are set up; the first whole minute is {begin:%H:%M}")
        changing = asyncio.create_task(_change_pages(origins, begin=begin))
        stack.callback(changing.cancel)
        samples = await _watch(service, begin=begin, minutes=minutes)
        runs = [run for name in names for run in await service.list_runs(name, begin=begin, minutes=minutes)]
        ended_in = await service.end()
        return Soak(sites, minutes, runs, samples, ended_in, service.process.returncode)


async def _add_sites(
    service: Service, names: Sequence[str], *, origins: Sequence[SandboxSite], engine: SandboxEngine
) -> datetime:
    """Set the sites up; returns the beginning of the first minute in which all of them run."""
    if (second := datetime.now(UTC).second) > 30:
        # All of them in one minute, so that the first run of each is in the next.
        await asyncio.sleep(60 - second)
    for name, site in zip(names, origins, strict=True):
        await service.add_site(name, site=site, engine=engine)
    return datetime.now(UTC).replace(second=0, microsecond=0) + _MINUTE


async def _change_pages(origins: Sequence[SandboxSite], *, begin: datetime) -> None:
    """Change one page of each site in every minute."""
    while True:
        for page in range(1, PAGES + 1):
            begin += _MINUTE
            await asyncio.sleep((begin - _MINUTE + CHANGE_AT - datetime.now(UTC)).total_seconds())
            for site in origins:
                site.change(page)


async def _watch(service: Service, *, begin: datetime, minutes: int) -> list[Sample]:
    """Sample the process through the whole minutes."""
    end, samples = begin + minutes * _MINUTE, []
    await asyncio.sleep((begin - datetime.now(UTC)).total_seconds())
    while datetime.now(UTC) < end:
        samples.append(service.take_sample(begin=begin))
        await asyncio.sleep(min(SAMPLE_EVERY, max(timedelta(0), end - datetime.now(UTC))).total_seconds())
    return samples


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    try:
        with tempfile.TemporaryDirectory(prefix="tidings-soak-") as folder:
            seen = asyncio.run(soak(Path(folder), sites=options.sites, minutes=options.minutes))
    except SubjectError as error:
        _say(str(error))
        return 2
    verdicts = seen.judge()
    text = format_results(machine, table=None, verdicts=verdicts)
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    _say(f"everything is in {_save(machine, seen)}")
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _save(machine: dict[str, str], seen: Soak) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-soak.json"
    path.write_text(json.dumps({"machine": machine, **asdict(seen)}, indent=1))
    return path


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="Let many sites run for minutes.")
    parser.add_argument("--minutes", type=int, default=MINUTES, help=f"whole minutes to watch [{MINUTES}]")
    parser.add_argument("--sites", type=int, default=SITES, help=f"how many sites [{SITES}]")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
