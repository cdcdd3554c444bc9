"""What tests of the workflow's routes stand on: the service on a port, and a driver that talks to it as n8n does, with
one token. Requests and items that are quickly made."""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession
from sqlalchemy import Table, select, update
from starlette.datastructures import Headers

from tests.collect.crawl_stage import session_of
from tests.web.api_stage import ApiStage, open_api
from tests.web.stage import FIXED, Answer, run_server
from tests.web.test_crawler_api import check_described
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.tables import candidates, collect_minutes, sources, watched_keywords
from tidings.collect.write.cookies import make_cookie
from tidings.core.clock import to_milliseconds
from tidings.core.executions import executions
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.settings.collect import CollectSettings, CrawlSettings

TOKEN: Final = FIXED[Scope.WORKFLOW].reveal()
ACCOUNT: Final = "account"
PLATFORM: Final = "weibo"
LONG_AGO: Final = timedelta(minutes=31)
NOTE: Final[Mapping[str, Any]] = {
    "platform": PLATFORM,
    "note_id": "n1",
    "url": "https://m.weibo.cn/detail/n1",
    "kind": "text",
    "title": "Tea",
    "text": "茶",
    "author": {"author_id": "7", "name": "A"},
    "published_at": "2026-09-22T02:00:00.000Z",
    "updated_at": None,
    "counts": dict.fromkeys(("views", "likes", "comments", "shares", "favorites", "coins", "danmaku")),
    "tags": ["tea"],
    "images": [],
    "duration_seconds": None,
    "place": "",
}


@dataclass(frozen=True, slots=True)
class Driver:
    """What n8n is to the service: one token, and HTTP."""

    api: ApiStage
    client: ClientSession
    origin: str

    async def ask(
        self,
        path: str,
        document: object = None,
        *,
        method: str = "POST",
        token: str | None = TOKEN,
        request_id: str = "n8n-1",
    ) -> Answer:
        """One request, whose answer has to be as it is described."""
        headers = {"X-Request-ID": request_id} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        body = None if document is None else io.BytesIO(json.dumps(document).encode())
        if body is not None:
            headers["Content-Type"] = "application/json"
        async with self.client.request(method, self.origin + path, data=body, headers=headers) as response:
            raw = {name.lower(): value for name, value in response.headers.items()}
            answer = Answer(response.status, Headers(raw), await response.read())
        check_described(self.api.stage, method, path, answer)
        assert answer.json["meta"]["request_id"] == request_id
        return answer

    async def do(self, path: str, **fields: Any) -> Any:
        """The data of an answer that has to be a success."""
        answer = await self.ask(f"/workflow/{path}", fields)
        assert (answer.status, answer.json["success"], answer.json["error"]) == (200, True, None), answer.body
        return answer.json["data"]

    async def begin(self, name: str = "collect") -> str:
        """The id of a new execution."""
        acquired = await self.do("executions", workflow_name=name)
        assert acquired["locked"], acquired
        execution: str = acquired["execution_id"]
        return execution

    async def begin_with(self, *note_ids: str, name: str = "collect") -> str:
        """An execution that has leased these candidates, which are new."""
        execution = await self.begin(name)
        hits = [{"note_id": note_id, "url": f"https://m.weibo.cn/detail/{note_id}"} for note_id in note_ids]
        about = {"execution_id": execution, "platform": PLATFORM}
        added = await self.do("candidates", **about, source_keyword="tea", hits=hits)
        assert added == {"created": len(note_ids), "known": 0}
        leased = await self.do("candidates/lease", **about, limit=50)
        assert {each["note_id"] for each in leased["records"]} == set(note_ids)
        return execution

    async def add_account(self, name: str = ACCOUNT, *, before: str = "") -> None:
        """A cookie of the sandbox's Weibo."""
        value = Secret(f"{before}SUB={session_of(ACCOUNT)}")
        await self.api.installation.collect.cookies.add(make_cookie(name, platform=PLATFORM, secret=value))

    async def read(self, table: Table) -> list[Any]:
        async with self.api.installation.database.read() as connection:
            return list(await connection.execute(select(table).order_by(*table.primary_key)))

    async def read_all(self) -> list[Any]:
        """All that a write may change, but for signs of life."""
        counts = [
            (row.public_id, row.status, row.items_processed, row.items_failed) for row in await self.read(executions)
        ]
        others = [await self.read(table) for table in (candidates, sources, cookies, collect_minutes, watched_keywords)]
        return [counts, *others]

    async def age(self, table: Table, column: str) -> None:
        """All signs of life in this table are older than a lock may be."""
        past = to_milliseconds(self.api.installation.clock.now() - LONG_AGO)
        async with self.api.installation.database.write() as connection:
            await connection.execute(update(table).values({column: past}))


@asynccontextmanager
async def open_driver(database_url: str, folder: Path, *, weibo: str = "", **settings: Any) -> AsyncIterator[Driver]:
    """The service's routes on a port; nothing that it does by itself gets in the way."""
    crawl = CrawlSettings(
        platform_interval=timedelta(0), cookie_interval=timedelta(0), base_urls={PLATFORM: weibo} if weibo else {}
    )
    given = {"tokens": FIXED, "crawl": crawl, "collect": CollectSettings(runs=False), **settings}
    async with (
        open_api(database_url, folder, **given) as api,
        run_server(api.stage) as port,
        ClientSession() as client,
    ):
        yield Driver(api, client, f"http://127.0.0.1:{port}")


def succeed(note_id: str, **note: Any) -> dict[str, Any]:
    """An item of a batch that brought its note."""
    data = {**NOTE, "note_id": note_id, **note}
    return {"id": note_id, "success": True, "data": data, "error": None, "cookie_used": ACCOUNT}


def fail(note_id: str, code: str = "TIMEOUT_ERROR", *, message: str = "too slow") -> dict[str, Any]:
    """An item of a batch that brought none."""
    error = {"code": code, "message": message, "retryable": True, "captcha": False}
    return {"id": note_id, "success": False, "data": None, "error": error, "cookie_used": ACCOUNT}


def list_requests(execution: str) -> dict[str, dict[str, Any]]:
    """A good request for every route that works on an execution, about the candidate n1."""
    about = {"execution_id": execution, "platform": PLATFORM}
    hit = {"note_id": "n9", "url": "https://m.weibo.cn/detail/n9"}
    return {
        "executions/heartbeat": {"execution_id": execution},
        "candidates": {**about, "source_keyword": "tea", "hits": [hit], "cookie_used": ACCOUNT},
        "candidates/lease": {"execution_id": execution},
        "sources": {**about, "note_id": "n1", "note": NOTE, "cookie_used": ACCOUNT},
        "candidates/fail": {**about, "note_id": "n1", "code": "COOKIE_INVALID", "cookie_used": ACCOUNT},
        "candidates/settle": {**about, "items": [succeed("n1")]},
        "cookies/outcomes": {"execution_id": execution, "uses": [{"cookie_name": ACCOUNT, "code": "COOKIE_INVALID"}]},
        "executions/finish": {"execution_id": execution},
    }
