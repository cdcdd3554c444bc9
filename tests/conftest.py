"""What the tests stand on: both databases, real ones, with all tables; and an announcer that talks to the sandbox."""

import asyncio
import atexit
import gc
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.postgres import EmptiedDatabase, Guard, Server, lock_folder
from tests.stage import LOOPBACK, make_installation
from tidings.announce.announcer import Announcer
from tidings.announce.site.site import Site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import prepare_database
from tidings.core.executions import Executions
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.stop import Stop
from tidings.wiring.installation import Installation
from tidings.wiring.opening import load_tables

load_tables()

SHARED = pytest.StashKey[Path]()
GUARD = pytest.StashKey[Guard]()


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
        config.stash[GUARD] = Guard(config.stash[SHARED])
        # PostgreSQL's package looks into the folder once more when the process ends.
        atexit.register(shutil.rmtree, config.stash[SHARED], ignore_errors=True)


def pytest_collection_finish() -> None:
    """Spare the garbage collector thousands of tests and their modules: it takes a quarter of the time otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["shared_folder"] = str(node.config.stash[SHARED])


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        config.stash[GUARD].close()


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

    # In a thread, because a fixture may ask for the server while an event loop runs.
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(lambda: asyncio.run(prepare())).result()


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
    marks = metafunc.definition.iter_markers()
    if "database_url" in metafunc.fixturenames:
        nearest = next((mark.name for mark in marks if mark.name in ("one_database", "both_databases")), "")
        names = ["sqlite"] if nearest == "one_database" else ["sqlite", "postgresql"]
        metafunc.parametrize("database_url", names, indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a database with all tables and no rows."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/older.db"
        return
    server: Server = request.getfixturevalue("postgres_server")
    url = server.make_database(empty=True)
    yield url
    server.drop_database(url)


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
    """An installation on a test's own database, with short waits, and the parts of it that announce."""

    installation: Installation

    @property
    def announcer(self) -> Announcer:
        return self.installation.announcer

    @property
    def records(self) -> SiteRecords:
        return self.installation.sites

    @property
    def database(self) -> Database:
        return self.installation.database

    @property
    def executions(self) -> Executions:
        return self.installation.executions

    @property
    def clock(self) -> Clock:
        return self.installation.clock

    async def store(self, site: Site) -> Site:
        return await self.records.save(site, origin=Origin.API)

    def make_stop(self, budget: timedelta = timedelta(seconds=60)) -> Stop:
        return Stop(clock=self.clock, budget=budget)


BenchMaker = Callable[..., Bench]


@pytest.fixture
def make_bench(database: Database, client: GuardedClient, process_lock: ProcessLock, keys: KeyRing) -> BenchMaker:
    """Builds a Bench; keyword arguments are settings of it."""

    def make(*, clock: Clock | None = None, **settings: Any) -> Bench:
        used = clock or SystemClock()
        return Bench(
            make_installation(database, clock=used, client=client, process_lock=process_lock, keys=keys, **settings)
        )

    return make
