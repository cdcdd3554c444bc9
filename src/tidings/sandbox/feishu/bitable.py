"""The server of Feishu's Bitable API: access tokens that expire, records one by one and in batches, searches, tables,
fields, `client_token`, and refusal of concurrent writes; and the bot of a group. Each of Feishu's refusals is ready to
be set as a fault. People change records with `edit_records`, also over the control address."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from aiohttp import web

from tidings.sandbox.feishu.bot import BOT_PATH, DEMO_BOT, GroupBot
from tidings.sandbox.feishu.limits import DOCUMENTED_LIMITS, RESET_HEADER, BitableLimits, RateGate
from tidings.sandbox.feishu.requests import (
    BitableRequest,
    is_uuid4,
    read_changes,
    read_field_types,
    read_fields,
    read_ids,
    read_records,
)
from tidings.sandbox.feishu.tables import BitableFieldType, BitableTable, Fields, RefusalError
from tidings.sandbox.wire.answers import SandboxAnswer, answer_json
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.stand_in import MASK, Now, SandboxExchange, StandIn, read_object, read_utc

DEMO_APP_ID: Final = "cli_tidings_sandbox"
DEMO_APP_SECRET: Final = "tidings-sandbox-app-secret-93c1f07a"  # noqa: S105 - opens nothing but this stand-in
DEMO_APP_TOKEN: Final = "bascn-tidings-sandbox"  # noqa: S105 - the name of a base
DEMO_TABLES: Final = ("tblCandidates", "tblSources")
TOKEN_PATH: Final = "/open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 - a path

TOO_LARGE: Final = SandboxAnswer(413, b"<html><title>413 Request Entity Too Large</title></html>")

_APPS_PATH: Final = "/open-apis/bitable/v1/apps/"
_TOKEN_LASTS: Final = timedelta(hours=2)


def refuse(code: int, message: str = "", *, status: int = 200, headers: Mapping[str, str] | None = None) -> Fault:
    """A fault that answers with one of Feishu's error codes."""
    return Fault(status=status, headers=headers or {}, body=json.dumps({"code": code, "msg": message, "data": {}}))


def limit_rate(seconds: float) -> Fault:
    """The gateway's answer to too many requests."""
    headers = {"x-ogw-ratelimit-limit": "50", RESET_HEADER: f"{seconds:g}"}
    return refuse(99991400, "request trigger frequency limit", status=429, headers=headers)


TOO_MANY_REQUESTS = refuse(1254290, "TooManyRequest")
WRITE_CONFLICT = refuse(1254291, "Write conflict")
NOT_READY = refuse(1254607, "Data not ready, please try again later", status=400)
TIMED_OUT = refuse(1255040, "Request timed out, please try again later", status=504)
TOKEN_REFUSED = refuse(99991663, "Invalid access token for authorization.", status=400)
NO_PERMISSION = refuse(1254302, "Permission denied.", status=403)
QUOTA_USED_UP = refuse(99991403, "This month's API call quota has been exceeded.", status=400)
TOKEN_CONFLICT = refuse(1255006, "Client token conflict, please generate a new client token.", status=400)
REPEATED = refuse(1254608, "Same API requests are submitted repeatedly.", status=403)
RESET = Fault(FaultKind.RESET)
HANG = Fault(FaultKind.HANG)
UNAVAILABLE = Fault(
    status=502, headers={"Content-Type": "text/html"}, body="<html><title>502 Bad Gateway</title></html>"
)
ANSWER_LOST = Fault(FaultKind.RESET_AFTER_ACCEPTING)


@dataclass(slots=True)
class _OpenTable:
    """A table and the requests to it."""

    name: str
    table: BitableTable
    writes: RateGate
    searches: RateGate
    is_written: bool = False
    # For each client_token, the request and its answer.
    answered: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)


class SandboxBitable(StandIn[BitableRequest]):
    """One base with `tables` (id → fields; the first field is the primary one), for one app. A given table's name is
    its id.

    A write takes `write_time`; a concurrent write to the same table is refused. Without `limits` nothing is refused for
    its size or rate.
    """

    def __init__(
        self,
        *,
        tables: Mapping[str, Mapping[str, BitableFieldType]] | None = None,
        app_secret: str = DEMO_APP_SECRET,
        limits: BitableLimits | None = DOCUMENTED_LIMITS,
        now: Now = read_utc,
    ) -> None:
        super().__init__("feishu", now=now)
        given = tables if tables is not None else {table_id: {"key": BitableFieldType.TEXT} for table_id in DEMO_TABLES}
        self.write_time = timedelta(0)
        self._app_secret = app_secret
        self._limits = limits
        self.bot = GroupBot(now=now)
        self._tokens: dict[str, datetime] = {}
        self._tables: dict[str, _OpenTable] = {}
        for table_id, fields in given.items():
            self._tables[table_id] = self._open_table(table_id, fields)

    def _open_table(self, name: str, fields: Mapping[str, BitableFieldType]) -> _OpenTable:
        limits = self._limits
        return _OpenTable(
            name,
            BitableTable(fields, now=self._now),
            writes=RateGate(None if limits is None else limits.writes_a_second, now=self._now),
            searches=RateGate(None if limits is None else limits.searches_a_second, now=self._now),
        )

    def create_table(self, name: str, fields: Mapping[str, BitableFieldType]) -> str:
        """Create a table; returns its id. Raises RefusalError for a name that is taken."""
        if any(opened.name == name for opened in self._tables.values()):
            raise RefusalError(1254013)
        table_id = f"tblSandbox{len(self._tables) + 1:02}"
        self._tables[table_id] = self._open_table(name, fields)
        return table_id

    def find_table(self, name: str) -> str:
        """The id of the table of this name. Raises RefusalError."""
        for table_id, opened in self._tables.items():
            if name in (opened.name, table_id):
                return table_id
        raise RefusalError(1254041)

    def edit_records(
        self,
        name: str,
        *,
        add: Sequence[Fields] = (),
        change: Mapping[str, Fields] | None = None,
        remove: Sequence[str] = (),
    ) -> dict[str, object]:
        """Add, change and remove records of a table as a person does. Raises RefusalError. Returns what it holds."""
        table = self.table(self.find_table(name))
        if add:
            table.create(add)
        if change:
            table.update(list(change.items()))
        if remove:
            table.delete(remove)
        return {"records": table.records}

    @property
    def bot_url(self) -> str:
        """The webhook of the group's bot."""
        return self.origin + BOT_PATH + DEMO_BOT

    def table(self, table_id: str) -> BitableTable:
        """A table, to read it or to change it as a person would."""
        return self._tables[table_id].table

    def rows(self, table_id: str) -> list[Fields]:
        """The records of a table, in order of creation."""
        return list(self.table(table_id).records.values())

    @property
    def tokens(self) -> list[str]:
        """Every access token that was issued and not expired by `expire_tokens`."""
        return list(self._tokens)

    def expire_tokens(self) -> None:
        """Expire every access token."""
        self._tokens.clear()

    def forget_client_tokens(self) -> None:
        """Forget every client_token, as Feishu does after some time."""
        for opened in self._tables.values():
            opened.answered.clear()

    def describe(self, *, full: bool = False) -> dict[str, object]:
        counts = {opened.name: len(opened.table.records) for opened in self._tables.values()}
        messages = {"messages": self.bot.messages} if full else {}
        return super().describe(full=full) | {"records": counts, "botMessages": len(self.bot.messages)} | messages

    def read_request(self, request: web.BaseRequest, body: bytes) -> BitableRequest:
        split = urlsplit(request.raw_path)
        document = read_object(body)
        return BitableRequest(
            method=request.method,
            path=unquote(split.path),
            query=dict(parse_qsl(split.query, keep_blank_values=True)),
            token=request.headers.get("Authorization", "").removeprefix("Bearer "),
            document=document,
            size=len(body),
            urls=tuple(self._name_subjects(unquote(split.path), document)),
        )

    async def judge(self, exchange: SandboxExchange, asked: BitableRequest) -> SandboxAnswer:
        if self._limits is not None and asked.size > self._limits.most_bytes:
            return TOO_LARGE
        if asked.path == TOKEN_PATH:
            return self._give_token(asked)
        if asked.path == BOT_PATH + DEMO_BOT:
            return answer_json(self.bot.take(asked.document, size=asked.size))
        try:
            data = await self._answer_app(asked)
        except RefusalError as error:
            document = {"code": error.code, "msg": error.message, "data": {}}
            return answer_json(document, status=error.status, headers=error.headers)
        if data is None:
            return SandboxAnswer(404, b"404 page not found")
        return answer_json({"code": 0, "msg": "success", "data": data})

    def mask_header(self, name: str, value: str) -> str:
        return f"Bearer {MASK}" if name.lower() == "authorization" else value

    def _give_token(self, asked: BitableRequest) -> SandboxAnswer:
        if asked.document.get("app_id") != DEMO_APP_ID:
            return answer_json({"code": 10003, "msg": "bad app"})
        if asked.document.get("app_secret") != self._app_secret:
            return answer_json({"code": 10014, "msg": "app secret invalid"})
        token = f"t-{uuid.uuid4().hex}"
        self._tokens[token] = self._now() + _TOKEN_LASTS
        expire = int(_TOKEN_LASTS.total_seconds())
        return answer_json({"code": 0, "msg": "ok", "tenant_access_token": token, "expire": expire})

    async def _answer_app(self, asked: BitableRequest) -> dict[str, object] | None:
        """The `data` of the answer; None for an unknown path."""
        if not asked.path.startswith(_APPS_PATH):
            return None
        self._check_token(asked.token)
        match asked.path.removeprefix(_APPS_PATH).split("/"):
            case [app_token, "tables", *_] if app_token != DEMO_APP_TOKEN:
                raise RefusalError(1254040)
            case [_, "tables"]:
                return self._answer_base(asked)
            case [_, "tables", table_id, "records" | "fields" as kind, *rest]:
                if table_id not in self._tables:
                    raise RefusalError(1254041)
                return await self._answer_table(self._tables[table_id], asked, kind, rest)
        return None

    def _answer_base(self, asked: BitableRequest) -> dict[str, object] | None:
        if asked.method == "GET":
            items = [{"table_id": table_id, "name": opened.name} for table_id, opened in self._tables.items()]
            return {"items": items, "has_more": False, "total": len(items)}
        match asked.method, asked.document.get("table"):
            case "POST", {"name": str(name), "default_view_name": str(), "fields": [_, *_] as fields}:
                return {"table_id": self.create_table(name, read_field_types(fields))}
        raise RefusalError(1254001)

    def _check_token(self, token: str) -> None:
        if not token:
            raise RefusalError(99991661, "Missing access token for authorization.", status=400)
        ends = self._tokens.get(token)
        if ends is None or self._now() >= ends:
            raise RefusalError(99991663, "Invalid access token for authorization.", status=400)

    async def _answer_table(
        self, opened: _OpenTable, asked: BitableRequest, kind: str, rest: Sequence[str]
    ) -> dict[str, object] | None:
        match asked.method, kind, *rest:
            case "POST", "records", "search":
                opened.searches.pass_one()
                page_size, page_token = asked.query.get("page_size", "20"), asked.query.get("page_token", "")
                return opened.table.search(asked.document, page_size=page_size, page_token=page_token)
            case "POST", "records", "batch_get":
                opened.searches.pass_one()
                return opened.table.look_up(asked.document.get("record_ids"))
            case "GET", "fields":
                return opened.table.list_fields()
        opened.writes.pass_one()
        return await self._change_table(opened, asked, kind, rest)

    async def _change_table(
        self, opened: _OpenTable, asked: BitableRequest, kind: str, rest: Sequence[str]
    ) -> dict[str, object] | None:
        table, document = opened.table, asked.document
        if (asked.method, kind, *rest) == ("POST", "records", "batch_create"):
            return await self._create_once(opened, asked)
        async with self._write(opened):
            match asked.method, kind, *rest:
                case "POST", "fields":
                    return {"field": table.create_field(document.get("field_name"), document.get("type"))}
                case "PUT", "fields", field_id:
                    return {"field": table.change_field(field_id, document.get("field_name"), document.get("type"))}
                case "POST", "records":
                    return {"record": table.create([read_fields(document)])[0]}
                case "PUT", "records", record_id:
                    return {"record": table.update([(record_id, read_fields(document))])[0]}
                case "POST", "records", "batch_update":
                    return {"records": table.update(read_changes(document))}
                case "POST", "records", "batch_delete":
                    return {"records": table.delete(read_ids(document))}
        return None

    async def _create_once(self, opened: _OpenTable, asked: BitableRequest) -> dict[str, object]:
        """Create records. A known client_token creates nothing and returns the earlier answer."""
        token, body = asked.query.get("client_token"), json.dumps(asked.document, sort_keys=True)
        if token is not None and not is_uuid4(token):
            raise RefusalError(1254037, "Invalid client token, make sure that it complies.", status=400)
        if token in opened.answered:
            known, answer = opened.answered[token]
            if known != body:
                raise RefusalError(1255006, "Client token conflict, please generate a new one.", status=400)
            return answer
        async with self._write(opened):
            answer = {"records": opened.table.create(read_records(asked.document))}
        if token is not None:
            opened.answered[token] = body, answer
        return answer

    @asynccontextmanager
    async def _write(self, opened: _OpenTable) -> AsyncIterator[None]:
        if opened.is_written:
            raise RefusalError(1254291, "Write conflict")
        opened.is_written = True
        try:
            await asyncio.sleep(self.write_time.total_seconds())
            yield
        finally:
            opened.is_written = False

    def _name_subjects(self, path: str, document: Mapping[str, Any]) -> list[str]:
        table_id = path.removeprefix(_APPS_PATH).split("/")[2:3]
        opened = self._tables.get(table_id[0]) if table_id else None
        records = document.get("records")
        if opened is None or not isinstance(records, list):
            return []
        named = [record for record in records if isinstance(record, str)]
        for record in records:
            if isinstance(record, dict) and isinstance(record.get("fields"), dict):
                named += [str(record["fields"].get(opened.table.primary, "")), str(record.get("record_id", ""))]
        return [name for name in named if name]
