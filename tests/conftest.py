"""What the tests stand on: both databases, real ones, with all tables; and an announcer that talks to the sandbox."""

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.postgres import EmptiedDatabase, Server, lock_folder, stop_server
from tidings.announce.channels.bing import DEFAULT_BASE
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.pipeline import Announcer
from tidings.announce.site.site import Site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.core.alerts import Alerts
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database, open_database, prepare_database
from tidings.core.executions import Executions
from tidings.core.net.client import GuardedClient
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.stop import Stop
from tidings.wiring import load_tables

load_tables()

LOOPBACK = (ip_network("127.0.0.0/8"),)
SHARED = pytest.StashKey[Path]()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--again", action="store_true", help="name those that pass as flaky; for --last-failed")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--again"):
        for report in terminalreporter.stats.get("passed", []):
            terminalreporter.line(f"FLAKY: {report.nodeid} failed beside the others and passed alone", yellow=True)


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder that all processes of this test session share, in the process that ends last."""
    if not hasattr(config, "workerinput"):
        config.stash[SHARED] = Path(tempfile.mkdtemp(prefix="tidings-tests-"))
        # PostgreSQL's package looks into the folder once more when the process ends.
        atexit.register(shutil.rmtree, config.stash[SHARED], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["shared_folder"] = str(node.config.stash[SHARED])


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        stop_server(config.stash[SHARED])


@pytest.fixture(scope="session")
def shared_folder(pytestconfig: pytest.Config) -> Path:
    """A folder that all processes of this test session share; `lock_folder` gives it to one at a time."""
    if hasattr(pytestconfig, "workerinput"):
        return Path(pytestconfig.workerinput["shared_folder"])
    return pytestconfig.stash[SHARED]


@pytest.fixture(scope="session")
def postgres_server(shared_folder: Path) -> Server:
    """A real PostgreSQL server, for the tests that make databases of their own."""
    return Server(shared_folder, fill=_fill)


@pytest.fixture(scope="session")
def _emptied(postgres_server: Server) -> Iterator[EmptiedDatabase]:
    database = EmptiedDatabase(postgres_server)
    yield database
    database.close()


@pytest.fixture(scope="session")
def _sqlite_template(shared_folder: Path) -> Path:
    path = shared_folder / "template.db"
    with lock_folder(shared_folder):
        if not path.exists():
            _fill(f"sqlite:///{path}")
    return path


def _fill(url: str) -> None:
    async def prepare() -> None:
        database = open_database(url)
        await prepare_database(database)
        await database.close()

    asyncio.run(prepare())


@pytest.fixture
def sqlite_url(_sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database of this test's own, with all tables."""
    path = tmp_path / "tidings.db"
    shutil.copy(_sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(_emptied: EmptiedDatabase) -> Iterator[str]:
    """A PostgreSQL database with all tables and no rows."""
    yield _emptied.url
    _emptied.empty()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with a database runs on both, since SQL plays a part in it; marked `one_database` it runs on SQLite alone.
    The mark of a test goes before that of its module."""
    marks = list(metafunc.definition.iter_markers())
    is_chosen = any(mark.name == "parametrize" and mark.args[0] == "database_url" for mark in marks)
    if "database_url" in metafunc.fixturenames and not is_chosen:
        nearest = next((mark.name for mark in marks if mark.name in ("one_database", "both_databases")), "")
        names = ["sqlite"] if nearest == "one_database" else ["sqlite", "postgresql"]
        metafunc.parametrize("database_url", names, indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a database with all tables and no rows."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = open_database(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def process_lock(tmp_path: Path) -> Iterator[ProcessLock]:
    held = ProcessLock(tmp_path)
    yield held
    held.close()


@pytest.fixture
def keys() -> KeyRing:
    return KeyRing.parse(new_master_key())


@pytest.fixture
def records(database: Database, keys: KeyRing, clock: FakeClock) -> SiteRecords:
    return SiteRecords(database, keys=keys, clock=clock)


@pytest.fixture
async def client() -> AsyncIterator[GuardedClient]:
    async with GuardedClient(user_agent="tests", allow_networks=LOOPBACK) as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Bench:
    """An announcer on a test's own database, with short waits, and what tests ask of it."""

    announcer: Announcer
    records: SiteRecords
    database: Database
    executions: Executions
    clock: Clock

    async def store(self, site: Site) -> Site:
        return await self.records.save(site, origin=Origin.API)

    def make_stop(self, budget: timedelta = timedelta(seconds=60)) -> Stop:
        return Stop(clock=self.clock, budget=budget)


BenchMaker = Callable[..., Bench]


@pytest.fixture
def make_bench(database: Database, client: GuardedClient, process_lock: ProcessLock, keys: KeyRing) -> BenchMaker:
    """Builds a Bench; keyword arguments change the rules it works by."""

    def make(
        *,
        interval: timedelta = timedelta(milliseconds=1),
        concurrency: int = 3,
        retries: int = 3,
        scale: float = 0.001,
        rules: DueRules | None = None,
        clock: Clock | None = None,
        bing_base: str = DEFAULT_BASE,
    ) -> Bench:
        used = clock or SystemClock()
        executions = Executions(database, clock=used, process_lock=process_lock)
        announcer = Announcer(
            database=database,
            executions=executions,
            client=client,
            clock=used,
            alerts=Alerts(database, clock=used, destinations=()),
            pace=Pace(database, clock=used, interval=interval, concurrency=concurrency),
            policy=RetryPolicy(retries=retries, scale=scale),
            rules=rules or DueRules(resubmit_gap=timedelta(0)),
            concurrency=concurrency,
            bing_base=bing_base,
        )
        return Bench(announcer, SiteRecords(database, keys=keys, clock=used), database, executions, used)

    return make
