"""What each page of the dashboard costs with many sites, a year of history and many notes.

    python -m benchmarks.dashboard [--sites N] [--days N] [--notes N] [--rounds N] [--folder DIR] [--postgresql]
                                   [--record]

Server time is what is worked for one page, from the request's arrival at the application to the last byte of its
answer: the process's CPU, SQLite's included, and that of PostgreSQL's own processes. The time on the clock stands
beside it; on a busy machine that says little. `--folder` keeps the filled database there and uses it again. Exit code
0: every page keeps its promises. 1: one does not.
"""

import argparse
import asyncio
import compileall
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from benchmarks.history import add_past, fill_sites, name_site
from benchmarks.measurement import ROOT
from benchmarks.notes import fill_notes
from benchmarks.postgresql import start_server, tidy_tables
from benchmarks.report import describe_machine, format_results, format_table, write_readme
from benchmarks.verdicts import Mark, Verdict
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.scopes import Scope
from tidings.core.stop import Stop
from tidings.settings.settings import read_settings
from tidings.web.service import Service
from tidings.wiring.crawl import open_crawler
from tidings.wiring.installation import Installation
from tidings.wiring.opening import open_installation

PAGE = Path(__file__).parent / "dashboard.md"
MOST_MS = 100.0
MOST_BYTES = 100_000
MOST_QUERIES = 10


@dataclass(frozen=True, slots=True)
class PageCost:
    """What one page costs."""

    path: str
    # Milliseconds of CPU and on the clock, one for each round.
    cpu: Sequence[float]
    clock: Sequence[float]
    # Bytes of the body.
    size: int
    queries: int


class PageClient:
    """Asks the application for pages as a browser that has signed in does."""

    def __init__(self, app: Any, *, cookie: str) -> None:
        self._app = app
        self._headers = [
            (b"host", b"127.0.0.1"),
            (b"accept", b"text/html"),
            (b"accept-language", b"en"),
            (b"cookie", f"tidings-session={cookie}".encode()),
        ]

    async def get(self, target: str) -> tuple[int, bytes]:
        """Status and body."""
        path, _, query = target.partition("?")
        scope: Mapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": self._headers,
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8080),
            "root_path": "",
        }
        status, body = 0, bytearray()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body.extend(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, bytes(body)


@contextmanager
def count_queries() -> Iterator[list[str]]:
    """The statements that are executed within the block."""
    seen: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            seen.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", record)


async def list_paths(installation: Installation) -> list[str]:
    """Every page, the lists at their start and deep inside."""
    site = f"/sites/{name_site(7)}"
    [execution] = await installation.executions.list_recent(f"announce:{name_site(7)}", limit=1)
    return [
        "/",
        "/?q=many-07",
        "/sites?sort=last",
        "/sites?state=attention",
        "/sites?from=9000&sort=name",
        site,
        f"{site}/executions",
        f"{site}/executions/{execution.public_id}",
        f"{site}/failed",
        f"{site}/settings",
        "/alerts",
        "/keywords",
        "/candidates",
        "/cookies",
        "/notes",
        "/workers",
        "/executions",
        "/executions?of=collect",
        "/executions?of=trouble",
        "/settings",
        "/docs",
    ]


async def measure_pages(environment: dict[str, str], *, rounds: int, postmaster: int | None) -> list[PageCost]:
    """Each page in turn, several times over."""
    async with open_installation(read_settings(environment)) as installation, open_crawler(installation) as crawler:
        token = await installation.tokens.make(Scope.ADMIN, name="benchmark")
        cookie = await installation.sessions.open(token)
        app = Service(installation, crawler=crawler, stop=Stop(clock=installation.clock)).make_app()
        client = PageClient(app, cookie=cookie.reveal())
        paths = await list_paths(installation)
        return [await _measure(client, path, rounds=rounds, postmaster=postmaster) for path in paths]


async def _measure(client: PageClient, path: str, *, rounds: int, postmaster: int | None) -> PageCost:
    # The first request may open a connection, which asks for things of its own.
    await client.get(path)
    with count_queries() as queries:
        status, body = await client.get(path)
    if status != 200:
        raise SystemExit(f"{path} was answered {status}: {body[:300]!r}")
    cpu, clock = [], []
    served = read_server_time(postmaster)
    for _ in range(rounds):
        began, worked = time.perf_counter(), time.process_time()
        await client.get(path)
        cpu.append((time.process_time() - worked) * 1000)
        clock.append((time.perf_counter() - began) * 1000)
    # The server's clock ticks a hundred times a second: only the sum of all rounds tells something.
    each = (read_server_time(postmaster) - served) * 1000 / rounds
    return PageCost(path, [own + each for own in cpu], clock, len(body), len(queries))


def read_server_time(postmaster: int | None) -> float:
    """Seconds of CPU that PostgreSQL has used: its processes, and those of them that have ended."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat") if postmaster else ():
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == postmaster:
                total += sum(map(int, fields[11:13]))
            elif stat.parent.name == str(postmaster):
                total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def judge(costs: Sequence[PageCost]) -> list[Verdict]:
    def find_time(cost: PageCost) -> float:
        return statistics.median(cost.cpu)

    slowest = max(costs, key=find_time)
    largest = max(costs, key=lambda cost: cost.size)
    chattiest = max(costs, key=lambda cost: cost.queries)
    return [
        _judge(f"every page: server time under {MOST_MS:.0f} ms", f"{find_time(slowest):.1f} ms ({slowest.path})",
               kept=find_time(slowest) < MOST_MS),
        _judge(f"every page: under {MOST_BYTES // 1000} kB", f"{largest.size / 1000:.1f} kB ({largest.path})",
               kept=largest.size < MOST_BYTES),
        _judge(f"every page: at most {MOST_QUERIES} queries", f"{chattiest.queries} ({chattiest.path})",
               kept=chattiest.queries <= MOST_QUERIES),
    ]  # fmt: skip


def _judge(promise: str, measured: str, *, kept: bool) -> Verdict:
    return Verdict(promise, measured, Mark.PASS if kept else Mark.FAIL)


def format_costs(costs: Sequence[PageCost]) -> str:
    rows = [
        (
            cost.path,
            f"{statistics.median(cost.cpu):.1f}",
            f"{statistics.median(cost.clock):.1f}",
            f"{cost.size / 1000:.1f}",
            str(cost.queries),
        )
        for cost in costs
    ]
    return format_table(("page, medians", "CPU ms", "clock ms", "kB", "queries"), rows)


@contextmanager
def _open_folder(options: argparse.Namespace) -> Iterator[tuple[dict[str, str], int | None]]:
    """The environment of a filled installation, and PostgreSQL's first process."""
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as own:
        folder = Path(options.folder or own)
        mark, key = folder / "filled", folder / "benchmark-master-key"
        folder.mkdir(parents=True, exist_ok=True)
        if not key.exists():
            key.write_text(new_master_key())
        environment = {"TIDINGS_DATA_DIR": str(folder), "COOKIE_MASTER_KEY": key.read_text()}
        if not options.postgresql:
            if not mark.exists():
                _fill(environment, options)
                mark.touch()
            yield environment, None
            return
        with start_server(folder) as server:
            environment["TIDINGS_DATABASE_URL"] = server.make_database()
            _fill(environment, options)
            tidy_tables(environment["TIDINGS_DATABASE_URL"])
            yield environment, int((folder / "postgresql" / "postmaster.pid").read_text().split()[0])


def _fill(environment: dict[str, str], options: argparse.Namespace) -> None:
    _say(f"storing {options.sites:,} sites")
    fill_sites(environment, sites=options.sites)
    _say(f"making {options.sites * options.days:,} executions")
    add_past(environment, first=0, last=options.days)
    _say(f"making {options.notes:,} notes")
    fill_notes(environment, notes=options.notes)


def main() -> int:
    options = _read_options()
    machine = describe_machine()
    compileall.compile_dir(ROOT / "src", quiet=2)
    # What is measured is the service, not whoever else works on this machine. Only root may do this.
    with suppress(PermissionError):
        os.nice(-15)
    with _open_folder(options) as (environment, postmaster):
        costs = asyncio.run(measure_pages(environment, rounds=options.rounds, postmaster=postmaster))
    verdicts = judge(costs)
    text = "\n\n".join([format_results(machine, table=None, verdicts=verdicts), format_costs(costs)])
    print(f"\n{text}\n")
    if options.record:
        write_readme(PAGE, text)
    return 1 if any(verdict.mark is Mark.FAIL for verdict in verdicts) else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description="Measure the dashboard.")
    parser.add_argument("--sites", type=int, default=10_000, help="how many sites [10000]")
    parser.add_argument("--days", type=int, default=365, help="days that each has run [365]")
    parser.add_argument("--notes", type=int, default=100_000, help="how many notes [100000]")
    parser.add_argument("--rounds", type=int, default=20, help="how often each page is asked for [20]")
    parser.add_argument("--folder", help="keep the filled SQLite database here, and use it again")
    parser.add_argument("--postgresql", action="store_true", help="measure on a PostgreSQL of its own")
    parser.add_argument("--record", action="store_true", help=f"put the results into {PAGE.name}")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
