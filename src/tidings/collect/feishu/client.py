"""Feishu's Bitable API over the guarded HTTP client: the target, the access token, and one method for each URL.

Every method raises FeishuError and nothing else. Requests follow the retry rule of `errors`. No message holds a secret.

ValueError
└── FeishuTargetError
"""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from tidings.collect.feishu.errors import (
    FeishuError,
    FeishuErrorKind,
    classify_answer,
    make_forbidden_address,
    make_unreachable,
    make_unreadable,
    next_delay,
)
from tidings.collect.feishu.rows import KEY_FIELD, MIRRORED_TABLES, OWNER_FIELD, Cell, MirrorField
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.net.client import FetchError, GuardedClient, RefusedError
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

FEISHU_URL: Final = "https://open.feishu.cn"
TIMEOUT: Final = timedelta(seconds=30)
# Records in one create, update or delete.
MOST_RECORDS: Final = 500

_TOKEN_PATH: Final = "/open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 - a path
# Feishu refuses an `or` of more conditions.
_MOST_CONDITIONS: Final = 50
_MOST_IDS: Final = 100
_RECORD_PAGE: Final = "500"
_FIELD_PAGE: Final = "100"
# `batch_get` answers whole records: 100 of 50,000 characters, each written as \uXXXX.
_LONGEST_ANSWER: Final = 32 * 1024 * 1024
# Replace a token this long before it expires, so that none expires during a request.
_MARGIN: Final = timedelta(minutes=10)
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_OK: Final = 200

_log = get_logger(__name__)

Document = Mapping[str, Any]


class FeishuTargetError(ValueError):
    """The FEISHU_ settings cannot work. The message holds no secret."""


@dataclass(frozen=True, slots=True)
class FeishuTarget:
    """The base that the mirror writes to. Raises FeishuTargetError."""

    app_id: str
    app_secret: Secret
    # The id of the base, from its URL.
    app_token: str
    # The table's id in the base, by the name of our table; only mirrored tables are named. May be empty for a setup.
    tables: Mapping[str, str] = field(hash=False)
    # The id of the table that people write keywords into. None if there is none.
    keyword_table: str | None = None
    # The origin of Feishu's or Lark's server.
    base_url: str = FEISHU_URL

    def __post_init__(self) -> None:
        if not (self.app_id and self.app_secret and self.app_token):
            raise FeishuTargetError("the app's id, its secret and the base's token are needed")
        _check_base_url(self.base_url)
        if any(name not in MIRRORED_TABLES or not given for name, given in self.tables.items()):
            raise FeishuTargetError(f"tables: name the table in the base for some of {', '.join(MIRRORED_TABLES)}")
        ids = [*self.tables.values(), *([] if self.keyword_table is None else [self.keyword_table])]
        if len(set(ids)) < len(ids):
            raise FeishuTargetError("two tables cannot be mirrored to the same one")

    def fingerprint(self, table_name: str) -> str:
        """Identifies where a table is mirrored to, without showing it."""
        place = "\n".join((self.base_url, self.app_token, self.tables[table_name]))
        return hashlib.blake2b(place.encode(), digest_size=16, person=b"tidings.feishu").hexdigest()


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record in Feishu."""

    record_id: str
    # The text of its key field.
    key: str
    # The text of its `managed_by` field.
    owner: str


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field of a table in Feishu."""

    # Feishu's number of the type.
    type: int
    # Feishu never uses an id twice: a field that was removed and created again has another one.
    field_id: str


@dataclass(slots=True, eq=False)
class BitableClient:
    """The API of one target."""

    target: FeishuTarget
    _: KW_ONLY
    client: GuardedClient
    clock: Clock
    # Learns each access token.
    redactor: Redactor | None = None
    # The limit of one request.
    timeout: timedelta = TIMEOUT
    _token: Secret | None = field(default=None, init=False)
    # By the monotonic clock, in seconds.
    _token_expires_at: float = field(default=0.0, init=False)

    async def create_records(
        self, table_id: str, rows: Sequence[Mapping[str, Cell]], *, client_token: str
    ) -> list[str]:
        """Create all or none; returns their ids. Repeating a client_token creates nothing and returns the same ids."""
        body = {"records": [{"fields": row} for row in rows]}
        data = await self._send("POST", f"/{table_id}/records/batch_create", body, client_token=client_token)
        with _reading():
            ids = {_read_text(record["fields"][KEY_FIELD]): str(record["record_id"]) for record in data["records"]}
            return [ids[str(row[KEY_FIELD])] for row in rows]

    async def update_records(self, table_id: str, changes: Mapping[str, Mapping[str, Cell]]) -> None:
        """Set these fields of these records, all or none. A value of None clears a field."""
        body = {"records": [{"record_id": record_id, "fields": fields} for record_id, fields in changes.items()]}
        await self._send("POST", f"/{table_id}/records/batch_update", body)

    async def delete_records(self, table_id: str, record_ids: Sequence[str]) -> None:
        """Delete all or none."""
        await self._send("POST", f"/{table_id}/records/batch_delete", {"records": list(record_ids)})

    async def find_absent(self, table_id: str, record_ids: Sequence[str]) -> set[str]:
        """Those of these records that were deleted. Unlike a search, this shows every change at once."""
        present = await self.read_records(table_id, record_ids)
        return {record_id for record_id in record_ids if record_id not in present}

    async def read_records(self, table_id: str, record_ids: Sequence[str]) -> dict[str, Document]:
        """The fields of these records, as far as they exist. Unlike a search, this shows every change at once."""
        found: dict[str, Document] = {}
        for start in range(0, len(record_ids), _MOST_IDS):
            body = {"record_ids": list(record_ids[start : start + _MOST_IDS])}
            data = await self._send("POST", f"/{table_id}/records/batch_get", body)
            with _reading():
                absent = {str(name) for name in data.get("absent_record_ids") or []}
                found |= {str(each["record_id"]): _read_fields(each["fields"]) for each in data.get("records") or []}
                # Do not trust an answer that names a record in neither list.
                if missing := set(body["record_ids"]) - absent - found.keys():
                    raise LookupError(len(missing))
        return found

    async def find_records(self, table_id: str, keys: Sequence[str]) -> list[FoundRecord]:
        """The records with one of these keys. A search may show a new record seconds later."""
        found: list[FoundRecord] = []
        for start in range(0, len(keys), _MOST_CONDITIONS):
            some = keys[start : start + _MOST_CONDITIONS]
            conditions = [{"field_name": KEY_FIELD, "operator": "is", "value": [key]} for key in some]
            records = self.list_records(table_id, chosen={"conjunction": "or", "conditions": conditions})
            # Feishu does not document whether `is` ignores case.
            found += [record async for record in records if record.key in some]
        return found

    async def list_records(self, table_id: str, *, chosen: Document | None = None) -> AsyncIterator[FoundRecord]:
        """Every record, or those that the filter `chosen` selects."""
        async for record_id, fields in self.search(table_id, (KEY_FIELD, OWNER_FIELD), chosen=chosen):
            yield FoundRecord(record_id, str(fields.get(KEY_FIELD) or ""), str(fields.get(OWNER_FIELD) or ""))

    async def search(
        self, table_id: str, names: Sequence[str] | None = None, *, chosen: Document | None = None
    ) -> AsyncIterator[tuple[str, Document]]:
        """The ids of records with these fields (None: all); every record, or those that the filter `chosen` selects."""
        body: dict[str, Any] = {"automatic_fields": False}
        if names is not None:
            body["field_names"] = list(names)
        if chosen is not None:
            body["filter"] = chosen
        async for items in self._list("POST", f"/{table_id}/records/search", body, page_size=_RECORD_PAGE):
            with _reading():
                page = [(str(item["record_id"]), _read_fields(item["fields"])) for item in items]
            for record in page:
                yield record

    async def list_fields(self, table_id: str) -> dict[str, FieldInfo]:
        """The fields of a table by name."""
        fields: dict[str, FieldInfo] = {}
        async for items in self._list("GET", f"/{table_id}/fields", None, page_size=_FIELD_PAGE):
            with _reading():
                fields |= {
                    str(item["field_name"]): FieldInfo(int(item["type"]), str(item.get("field_id"))) for item in items
                }
        return fields

    async def create_field(self, table_id: str, name: str, field: MirrorField) -> None:
        await self._send("POST", f"/{table_id}/fields", field.describe(name))

    async def change_field(self, table_id: str, field_id: str, name: str, field: MirrorField) -> None:
        """Give a field this name and type. Feishu converts the values, or empties them."""
        await self._send("PUT", f"/{table_id}/fields/{quote(field_id, safe='')}", field.describe(name))

    async def list_tables(self) -> dict[str, str]:
        """The ids of the base's tables by name."""
        tables: dict[str, str] = {}
        async for items in self._list("GET", "", None, page_size=_FIELD_PAGE):
            with _reading():
                tables |= {str(item["name"]): str(item["table_id"]) for item in items}
        return tables

    async def create_table(self, name: str, fields: Mapping[str, MirrorField]) -> str:
        """Create a table; returns its id. The first field is the primary one."""
        described = [field.describe(field_name) for field_name, field in fields.items()]
        body = {"table": {"name": name, "default_view_name": name, "fields": described}}
        data = await self._send("POST", "", body)
        with _reading():
            return str(data["table_id"])

    async def _list(self, method: str, path: str, body: Document | None, *, page_size: str) -> AsyncIterator[list[Any]]:
        """The items of each page."""
        query, seen = {"page_size": page_size}, set[str]()
        while True:
            data = await self._send(method, path, body, **query)
            yield data.get("items") or []
            if not data.get("has_more"):
                return
            page_token = str(data.get("page_token", ""))
            if page_token in seen:
                raise make_unreadable(LookupError())
            seen.add(page_token)
            query["page_token"] = page_token

    async def _send(self, method: str, path: str, body: Document | None, **query: str) -> Document:
        """The `data` of a successful answer, after retries. `path` follows after the base's tables."""
        app = quote(self.target.app_token, safe="")
        url = f"/open-apis/bitable/v1/apps/{app}/tables{path}?{urlencode(query)}".rstrip("?")
        for retry in count(1):
            try:
                token = await self._find_token()
                data = (await self._exchange(method, url, body, token=token)).get("data")
                break
            except FeishuError as error:
                await self._wait_before(retry, error)
        return data if isinstance(data, dict) else {}

    async def _wait_before(self, retry: int, error: FeishuError) -> None:
        """Prepare a retry, or raise the error."""
        if error.kind is FeishuErrorKind.EXPIRED_TOKEN:
            self._token = None
            if retry == 1:
                return
        delay = next_delay(error, retry=retry) if error.kind is FeishuErrorKind.RETRY else None
        if delay is None:
            raise error
        _log.info("mirror.retried", reason=str(error), seconds=delay.total_seconds())
        await self.clock.sleep(delay)

    async def _find_token(self) -> Secret:
        if self._token is None or self.clock.monotonic() >= self._token_expires_at:
            self._token = await self._fetch_token()
        return self._token

    async def _fetch_token(self) -> Secret:
        body = {"app_id": self.target.app_id, "app_secret": self.target.app_secret.reveal()}
        document = await self._exchange("POST", _TOKEN_PATH, body)
        token, expire = document.get("tenant_access_token"), document.get("expire")
        if not isinstance(token, str) or not token or not isinstance(expire, int):
            raise make_unreadable(ValueError())
        lifetime = max(timedelta(seconds=expire) - _MARGIN, timedelta(seconds=expire) / 2)
        self._token_expires_at = self.clock.monotonic() + lifetime.total_seconds()
        if self.redactor is not None:
            self.redactor.add(token)
        return Secret(token)

    async def _exchange(
        self, method: str, path: str, body: Document | None, *, token: Secret | None = None
    ) -> Document:
        """One request; its answer as a document whose code is 0."""
        headers = {"Content-Type": "application/json; charset=utf-8"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token.reveal()}"
        try:
            answer = await self.client.request(
                method,
                self.target.base_url + path,
                headers=headers,
                body=None if body is None else json.dumps(body, ensure_ascii=False).encode(),
                timeout=self.timeout,
                limit=_LONGEST_ANSWER,
            )
        except RefusedError as error:
            raise make_forbidden_address(error.reason) from None
        except FetchError as error:
            raise make_unreachable(error.reason) from None
        document, code = _read_document(answer.body)
        if code != 0 or answer.status != _OK:
            raise classify_answer(code, status=answer.status, headers=answer.headers)
        return document


def _check_base_url(base_url: str) -> None:
    split = urlsplit(base_url)
    is_safe = split.scheme == "https" or (split.scheme == "http" and split.hostname in _LOOPBACK)
    # The app's secret is sent there, so never in clear text over a network.
    if not is_safe or not split.hostname or "@" in split.netloc or base_url != f"{split.scheme}://{split.netloc}":
        raise FeishuTargetError(f"the base URL is the https:// origin of the server, such as {FEISHU_URL}")


@contextmanager
def _reading() -> Iterator[None]:
    """Turn an answer of an unknown shape into a FeishuError."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise make_unreadable(error) from None


def _read_document(content: bytes) -> tuple[Document, int | None]:
    """An answer and its code. The code is None if the answer is not Feishu's."""
    try:
        document = json.loads(content)
        return dict(document), int(document["code"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}, None


def _read_fields(fields: Document) -> Document:
    """The values of a record: texts as text, other values as they are."""
    return {name: _read_text(value) if isinstance(value, list) else value for name, value in fields.items()}


def _read_text(value: object) -> str:
    """A text. A create answers it as it was written, a search as a list of pieces."""
    if isinstance(value, list):
        return "".join(str(piece.get("text", "")) for piece in value if isinstance(piece, dict))
    return value if isinstance(value, str) else ""
