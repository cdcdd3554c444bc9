"""A real n8n, driven by its own command line as people drive it, with PostgreSQL as its database. Nothing of it leaves
loopback: what calls home is turned off, and whatever would go out all the same goes to a proxy that is a test's own."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.n8n.install import Place

SHIPPED = Path(__file__).parent.parent.parent / "n8n"
DISCOVER, COLLECT, COMMENTS = "tidingsDiscover", "tidingsCollect", "tidingsComments"
RECOVER, ERRORS = "tidingsRecover", "tidingsErrors"
# As n8n's editor gives one to a credential.
CREDENTIAL_ID = "k3Jq9tZp2Lw7Vx5B"
LONGEST_COMMAND = 180.0
# Each of these asks a server of the vendor's.
_CALLING_HOME = (
    *("breaking-changes", "chat-hub", "community-packages", "external-secrets", "insights", "instance-ai"),
    *("instance-registry", "instance-reporting", "instance-version-history", "mcp", "mcp-registry", "quick-connect"),
    *("source-control", "workflow-builder"),
)
_SWITCHED_OFF = (
    "N8N_COMMUNITY_PACKAGES_ENABLED",
    "N8N_DIAGNOSTICS_ENABLED",
    "N8N_DYNAMIC_BANNERS_ENABLED",
    "N8N_HIRING_BANNER_ENABLED",
    "N8N_LICENSE_AUTO_RENEW_ENABLED",
    "N8N_PERSONALIZATION_ENABLED",
    "N8N_TEMPLATES_ENABLED",
    "N8N_VERSION_NOTIFICATIONS_ENABLED",
    "N8N_VERSION_NOTIFICATIONS_WHATS_NEW_ENABLED",
)

Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended, and all it printed."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a workflow, as n8n has kept it."""

    id: str
    status: str
    nodes: frozenset[str]

    @property
    def request_id(self) -> str:
        return f"n8n-{self.id}"


class N8n:
    """An n8n whose database is at `database`, and whose workflows ask `base_url`."""

    def __init__(self, place: Place, *, folder: Path, database: str, base_url: str) -> None:
        self.database = database
        self.base_url = base_url
        self._place = place
        self._folder = folder
        self._variables = _choose_variables(place, folder=folder, database=database)
        self._started: list[Process] = []

    def prepare(self, token: str) -> None:
        """Import the credential and the shipped workflows."""
        credential = [
            {
                "id": CREDENTIAL_ID,
                "name": "Tidings API token",
                "type": "httpHeaderAuth",
                "data": {"name": "Authorization", "value": f"Bearer {token}"},
            }
        ]
        file = self._folder / "credential.json"
        file.write_text(json.dumps(credential))
        self._prepare("import:credentials", f"--input={file}")
        self._prepare("import:workflow", "--separate", f"--input={self.aim()}")

    def _prepare(self, *words: str) -> None:
        ended = subprocess.run(
            self._command(*words), env=self._variables, capture_output=True, timeout=LONGEST_COMMAND, check=False
        )
        assert b"Successfully imported" in ended.stdout, ended

    def aim(self, change: Change | None = None) -> Path:
        """A folder with the shipped files, in which nothing differs but the address of Tidings, and what `change`
        does to each."""
        folder = self._folder / "aimed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in SHIPPED.glob("*.json"):
            document = json.loads(file.read_text())
            find_value(document, "Settings", "base_url")["value"] = self.base_url
            if change is not None:
                change(document)
            (folder / file.name).write_text(json.dumps(document))
        return folder

    async def run(self, *words: str, **variables: str) -> Said:
        process = await self.start(*words, **variables)
        async with asyncio.timeout(LONGEST_COMMAND):
            out, _ = await process.communicate()
        assert process.returncode is not None
        return Said(process.returncode, out.decode())

    async def start(self, *words: str, **variables: str) -> Process:
        # Each process has a broker for the code it runs, on a port of its own.
        environment = {**self._variables, "N8N_RUNNERS_BROKER_PORT": str(find_port()), **variables}
        process = await asyncio.create_subprocess_exec(
            *self._command(*words), env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT
        )
        self._started.append(process)
        return process

    async def execute(self, workflow: str, **variables: str) -> Run:
        """Run a workflow to its end."""
        known = {run.id for run in self.read_runs(workflow)}
        said = await self.run("execute", f"--id={workflow}", **variables)
        new = [run for run in self.read_runs(workflow) if run.id not in known]
        assert len(new) == 1, said.text[-3_000:]
        return new[0]

    def read_runs(self, workflow: str) -> list[Run]:
        """All executions of a workflow, in their order."""
        statement = (
            'SELECT e.id, e.status, d.data FROM execution_entity e JOIN execution_data d ON d."executionId" = e.id'
            ' WHERE e."workflowId" = %s ORDER BY e.id'
        )
        return [Run(str(key), status, _list_nodes(data)) for key, status, data in self.read(statement, workflow)]

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def dump(self) -> str:
        """All that n8n keeps, in every table."""
        tables = self.read("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
        rows = (row for (table,) in tables for row in self.read(f"SELECT t::text FROM {table} t"))
        return "\n".join(text for (text,) in rows)

    async def close(self) -> None:
        """Leave nothing running, however the test ended."""
        for process in self._started:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        self._started.clear()

    def _command(self, *words: str) -> list[str]:
        return [str(self._place.node), str(self._place.n8n), *words]


def find_value(document: Mapping[str, Any], node: str, name: str) -> dict[str, Any]:
    """One value of a Set node."""
    [found] = [each for each in document["nodes"] if each["name"] == node]
    [value] = [each for each in found["parameters"]["assignments"]["assignments"] if each["name"] == name]
    assert isinstance(value, dict)
    return value


def find_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _list_nodes(data: str) -> frozenset[str]:
    """The nodes that ran. n8n writes a list in which numbers in quotes stand for other places of it."""
    parts = json.loads(data)

    def follow(value: Any, *names: str) -> Any:
        for name in names:
            value = parts[int(value[name])]
        return value

    return frozenset(follow(parts[0], "resultData", "runData"))


def _choose_variables(place: Place, *, folder: Path, database: str) -> dict[str, str]:
    server = conninfo_to_dict(database)
    return {
        "PATH": f"{place.node.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "N8N_USER_FOLDER": str(folder),
        "N8N_ENCRYPTION_KEY": "a key of the tests' own, for their credential",
        "DB_TYPE": "postgresdb",
        "DB_POSTGRESDB_HOST": str(server["host"]),
        "DB_POSTGRESDB_USER": str(server["user"]),
        "DB_POSTGRESDB_DATABASE": str(server["dbname"]),
        "N8N_LISTEN_ADDRESS": "127.0.0.1",
        "N8N_DISABLED_MODULES": ",".join(_CALLING_HOME),
        # Nobody is there; a test that wants to know who goes out names a proxy of its own.
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
        "NO_PROXY": "127.0.0.1,localhost",
        **dict.fromkeys(_SWITCHED_OFF, "false"),
    }
