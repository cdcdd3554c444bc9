"""Bitable over lark-oapi: a few calls, each done once. Every refusal and every failure comes as a FeishuError; what
follows from one is decided in `delivery`. Nothing here blocks the event loop, and no secret is in any message.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tidings.collect.feishu.answers import FeishuError, Verdict, judge_answer, judge_failure
from tidings.collect.feishu.fields import KEY_FIELD, OWNER_FIELD, Cell, FieldType
from tidings.collect.feishu.library import Library, load_library
from tidings.collect.feishu.target import FeishuTarget
from tidings.core.clock import Clock
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

TIMEOUT: Final = timedelta(seconds=30)
# An `or` of more is refused.
MOST_CONDITIONS: Final = 50
# How many records can be asked for by their ids at once.
MOST_LOOKED_UP: Final = 100

_GOOD: Final = 200
_PAGE: Final = 500
_FIELD_PAGE: Final = 100
# A token is left alone so long before its end, so that none ends on its way.
_MARGIN: Final = timedelta(minutes=10)

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """A record that stands in Feishu, with the texts of its key and of whose it is."""

    record_id: str
    key: str
    owner: str


@dataclass(frozen=True, slots=True)
class Present:
    """A field of a table: the number of its type, and its id, which no other field ever gets."""

    type: int
    field_id: str


class BitableClient:
    """The calls of one target. Each raises FeishuError."""

    def __init__(
        self, target: FeishuTarget, *, clock: Clock, redactor: Redactor | None = None, timeout: timedelta = TIMEOUT
    ) -> None:
        self._target = target
        self._clock = clock
        self._redactor = redactor
        self._timeout = timeout
        self._loaded: Library | None = None
        self._token: Secret | None = None
        self._token_ends = 0.0

    async def create(self, table_id: str, rows: Sequence[Mapping[str, Cell]], *, client_token: str) -> list[str]:
        """New records, all or none; the answer is their ids. The same client_token again creates nothing."""
        library = await self._load()
        builder = library.bitable.BatchCreateAppTableRecordRequest.builder().client_token(client_token)
        body = {"records": [{"fields": dict(row)} for row in rows]}
        data = await self._send(self._address(builder, table_id).request_body(body))
        with _reading():
            made = {_read_text(record["fields"][KEY_FIELD]): str(record["record_id"]) for record in data["records"]}
            return [made[str(row[KEY_FIELD])] for row in rows]

    async def update(self, table_id: str, changes: Mapping[str, Mapping[str, Cell]]) -> None:
        """Set these fields of these records, all or none; None empties one."""
        library = await self._load()
        builder = library.bitable.BatchUpdateAppTableRecordRequest.builder()
        # A plain document: the library's own types would leave every None out.
        body = {"records": [{"record_id": name, "fields": dict(fields)} for name, fields in changes.items()]}
        await self._send(self._address(builder, table_id).request_body(body))

    async def delete(self, table_id: str, record_ids: Sequence[str]) -> None:
        """Remove these records, all or none."""
        library = await self._load()
        builder = library.bitable.BatchDeleteAppTableRecordRequest.builder()
        body = {"records": list(record_ids)}
        await self._send(self._address(builder, table_id).request_body(body))

    async def find_absent(self, table_id: str, record_ids: Sequence[str]) -> set[str]:
        """Those of these records that are no longer there; at most 100 at once."""
        library = await self._load()
        builder = library.bitable.BatchGetAppTableRecordRequest.builder()
        body = {"record_ids": list(record_ids)}
        data = await self._send(self._address(builder, table_id).request_body(body))
        with _reading():
            return {str(name) for name in data.get("absent_record_ids") or []} & set(record_ids)

    async def find(self, table_id: str, keys: Sequence[str]) -> list[Found]:
        """The records with one of these keys; at most 50 keys at once."""
        conditions = [{"field_name": KEY_FIELD, "operator": "is", "value": [key]} for key in keys]
        wanted = set(keys)
        found = self.list_records(table_id, chosen={"conjunction": "or", "conditions": conditions})
        # Whether the search tells capitals apart is nowhere promised.
        return [record async for record in found if record.key in wanted]

    async def list_records(self, table_id: str, *, chosen: Document | None = None) -> AsyncIterator[Found]:
        """Every record, or those chosen by a filter."""
        library = await self._load()
        body: dict[str, Any] = {"field_names": [KEY_FIELD, OWNER_FIELD], "automatic_fields": False}
        if chosen is not None:
            body["filter"] = chosen

        def ask() -> Any:
            builder = library.bitable.SearchAppTableRecordRequest.builder().page_size(_PAGE).request_body(body)
            return self._address(builder, table_id)

        async for items in self._list(ask):
            with _reading():
                page = [_read_found(item) for item in items]
            for found in page:
                yield found

    async def list_fields(self, table_id: str) -> dict[str, Present]:
        """The fields of a table, by their names."""
        library = await self._load()
        fields: dict[str, Present] = {}

        def ask() -> Any:
            builder = library.bitable.ListAppTableFieldRequest.builder().page_size(_FIELD_PAGE)
            return self._address(builder, table_id)

        async for items in self._list(ask):
            with _reading():
                fields |= {
                    str(item["field_name"]): Present(int(item["type"]), str(item.get("field_id"))) for item in items
                }
        return fields

    async def create_field(self, table_id: str, name: str, field_type: FieldType) -> None:
        library = await self._load()
        builder = library.bitable.CreateAppTableFieldRequest.builder()
        body = {"field_name": name, "type": int(field_type)}
        await self._send(self._address(builder, table_id).request_body(body))

    async def _load(self) -> Library:
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(load_library, self._target, timeout=self._timeout)
        return self._loaded

    def _address(self, builder: Any, table_id: str) -> Any:
        return builder.app_token(self._target.app_token).table_id(table_id)

    async def _list(self, ask: Callable[[], Any]) -> AsyncIterator[list[Any]]:
        """Page after page of what `ask` asks for."""
        page_token, seen = "", set[str]()
        while page_token not in seen:
            seen.add(page_token)
            data = await self._send(ask().page_token(page_token) if page_token else ask())
            yield data.get("items") or []
            if not data.get("has_more"):
                return
            page_token = str(data.get("page_token", ""))
        raise judge_failure(LookupError("a page that leads to itself"))

    async def _send(self, builder: Any) -> Document:
        """The data of a good answer. A token that has expired is replaced, once."""
        try:
            return await self._send_once(builder)
        except FeishuError as error:
            if error.verdict is not Verdict.REFRESH:
                raise
            self._token = None
        return await self._send_once(builder)

    async def _send_once(self, builder: Any) -> Document:
        library = await self._load()
        token = await self._find_token(library)
        data = (await self._exchange(library.send(builder.build(), token=token.reveal()))).get("data")
        return data if isinstance(data, dict) else {}

    async def _find_token(self, library: Library) -> Secret:
        if self._token is None or self._clock.monotonic() >= self._token_ends:
            self._token = await self._fetch_token(library)
        return self._token

    async def _fetch_token(self, library: Library) -> Secret:
        body = {"app_id": self._target.app_id, "app_secret": self._target.app_secret.reveal()}
        request = library.auth.InternalTenantAccessTokenRequest.builder().request_body(body).build()
        document = await self._exchange(library.send(request))
        token, expire = document.get("tenant_access_token"), document.get("expire")
        if not isinstance(token, str) or not token or not isinstance(expire, int):
            raise judge_failure(ValueError("no token"))
        lifetime = max(timedelta(seconds=expire) - _MARGIN, timedelta(seconds=expire) / 2)
        self._token_ends = self._clock.monotonic() + lifetime.total_seconds()
        if self._redactor is not None:
            self._redactor.add(token)
        return Secret(token)

    async def _exchange(self, call: Awaitable[Any]) -> Document:
        """The answer as a document whose code is 0."""
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                raw = await call
        except Exception as error:  # noqa: BLE001 - whatever the library or the wire does, its text may hold a secret
            raise judge_failure(error) from None
        document, code = _read_document(raw.content)
        if code != 0 or raw.status_code != _GOOD:
            raise judge_answer(code, status=raw.status_code, headers=raw.headers)
        return document


@contextmanager
def _reading() -> Iterator[None]:
    """An answer of another shape than is known is as good as none."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise judge_failure(error) from None


def _read_document(content: bytes) -> tuple[Document, int | None]:
    """An answer and its code; no code where it is no answer of Feishu's."""
    try:
        document = json.loads(content)
        return dict(document), int(document["code"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}, None


def _read_found(item: Document) -> Found:
    fields = item["fields"]
    return Found(str(item["record_id"]), _read_text(fields.get(KEY_FIELD)), _read_text(fields.get(OWNER_FIELD)))


def _read_text(value: object) -> str:
    """A text as it is written, and as it is shown: in pieces."""
    if isinstance(value, list):
        return "".join(str(piece.get("text", "")) for piece in value if isinstance(piece, dict))
    return value if isinstance(value, str) else ""
