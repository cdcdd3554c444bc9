"""What a workflow is run on, as a test sees it: `tidings serve` at the end of the wire that n8n knows, its tables and
its log, the platform behind it, and the way out that nobody may take."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession
from sqlalchemy import text

from tests.cli.terminal import Terminal, end
from tests.n8n.driver import N8n, Run
from tests.n8n.wire import Wire
from tests.test_serve import PATIENCE, Served
from tidings.core.db.database import Database
from tidings.sandbox.media import bilibili

TOKEN = "a-long-one-that-n8n-has-7Kp2"
# Every character that one spelling or another changes.
CANARY = "Kana+rien/vogel=7f3b&9c%2Fd1#e8?a4\"f6'0\\=="
KEYWORD = "tea"


@dataclass(slots=True)
class Outside:
    """A proxy that n8n must go out by. It lets nobody out, and notes who wanted to."""

    port: int = 0
    wanted: list[str] = field(default_factory=list)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.wanted.append((await reader.readline()).decode().strip())
        self.was_asked.set()
        writer.close()

    @property
    def variables(self) -> dict[str, str]:
        return dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{self.port}")


@dataclass(frozen=True, slots=True)
class Stage:
    """Tidings as it serves n8n, its tables, and the platform that it asks."""

    n8n: N8n
    wire: Wire
    terminal: Terminal
    served: Served
    platform: bilibili.SandboxBilibili
    database: Database
    outside: Outside

    async def execute(self, workflow: str) -> Run:
        """Run a workflow to its end."""
        return await self.n8n.execute(workflow, **self.outside.variables)

    async def ask(self, path: str, document: Mapping[str, object]) -> dict[str, Any]:
        """The data of a workflow route's answer."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with self.served.client.post(self.n8n.base_url + path, json=document, headers=headers) as answer:
            envelope = await answer.json()
        assert answer.status == 200, envelope
        data: dict[str, Any] = envelope["data"]
        return data

    async def read(self, statement: str) -> list[dict[str, Any]]:
        async with self.database.read() as connection:
            return [dict(row) for row in (await connection.execute(text(statement))).mappings()]

    async def change(self, statement: str) -> None:
        async with self.database.write() as connection:
            await connection.execute(text(statement))

    async def read_candidates(self) -> dict[str, dict[str, Any]]:
        return {row["note_id"]: row for row in await self.read("SELECT * FROM tbl_candidate ORDER BY note_id")}

    async def read_executions(self, workflow: str) -> list[dict[str, Any]]:
        statement = f"SELECT * FROM tbl_crawl_execution WHERE workflow_name = '{workflow}' ORDER BY started_at"
        return await self.read(statement)

    async def count_cookie_uses(self) -> int:
        [row] = await self.read("SELECT daily_used FROM tbl_cookie")
        return int(row["daily_used"])

    def read_log(self, request_id: str) -> list[str]:
        """The events that the service has logged under a request id."""
        lines = (json.loads(line) for line in self.terminal.log.splitlines())
        return [line["event"] for line in lines if line.get("request_id") == request_id]

    def count_questions(self, note_id: str) -> int:
        """How often the platform was asked for a note, or a keyword."""
        return sum(note_id in each.urls for each in self.platform.requests)


async def serve(terminal: Terminal, client: ClientSession) -> Served:
    process = await terminal.start("serve", "--port", "0", "--quiet")
    assert process.stdout is not None
    said: list[str] = []
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while not said or not said[-1].startswith("Tidings listens on "):
            line = await process.stdout.readline()
            assert line, (await end(process)).err
            said.append(line.decode().rstrip())
    return Served(process, said, client)
