"""The stand-in for Feishu's Bitable."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from tests.fakes import FakeClock
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, TOKEN_PATH, SandboxBitable
from tidings.sandbox.feishu.limits import RESET_HEADER
from tidings.sandbox.feishu.tables import BitableFieldType
from tidings.sandbox.wire.faults import Fault, FaultKind

TABLE = "tblOne"
ROOT = f"/open-apis/bitable/v1/apps/{DEMO_APP_TOKEN}/tables/{TABLE}"
RECORDS = f"{ROOT}/records"


@pytest.fixture
async def service(clock: FakeClock) -> AsyncIterator[SandboxBitable]:
    fields = {"key": BitableFieldType.TEXT, "count": BitableFieldType.NUMBER, "kind": BitableFieldType.SINGLE_SELECT}
    async with SandboxBitable(tables={TABLE: fields, "tblTwo": fields}, now=clock.now) as running:
        yield running


class Caller:
    """One who has a token, and sees code and data."""

    def __init__(self, client: ClientSession, service: SandboxBitable, token: str) -> None:
        self._client, self._service, self.token = client, service, token

    async def ask(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url = self._service.origin + path
        async with self._client.request(method, url, json=body, params=query, headers=headers) as response:
            document = await response.json()
            return document["code"], document["data"]

    async def post(self, path: str, body: object = None, **query: str) -> tuple[int, dict[str, Any]]:
        return await self.ask("POST", path, body, **query)

    async def create(self, *rows: Mapping[str, object], **query: str) -> tuple[int, dict[str, Any]]:
        return await self.post(f"{RECORDS}/batch_create", {"records": [{"fields": row} for row in rows]}, **query)

    async def search(self, *conditions: tuple[str, str], **query: str) -> tuple[int, dict[str, Any]]:
        listed = [{"field_name": "key", "operator": operator, "value": [value]} for operator, value in conditions]
        body = {"filter": {"conjunction": "or", "conditions": listed}} if conditions else {}
        return await self.post(f"{RECORDS}/search", body, **query)


@pytest.fixture
async def caller(client: ClientSession, service: SandboxBitable) -> Caller:
    body = {"app_id": DEMO_APP_ID, "app_secret": DEMO_APP_SECRET}
    async with client.post(service.origin + TOKEN_PATH, json=body) as response:
        return Caller(client, service, (await response.json())["tenant_access_token"])


async def test_a_token_is_given_for_the_secret_and_ends(
    client: ClientSession, service: SandboxBitable, caller: Caller, clock: FakeClock
) -> None:
    """C21: an expired token, an unknown one and none have other codes than a wrong secret."""
    assert (await caller.search())[0] == 0
    clock.advance(timedelta(minutes=119))
    assert (await caller.search())[0] == 0
    clock.advance(timedelta(minutes=1))
    assert (await caller.search())[0] == 99991663
    caller.token = "t-unknown"
    assert (await caller.search())[0] == 99991663
    caller.token = ""
    assert (await caller.search())[0] == 99991661
    for wrong, code in (({"app_id": DEMO_APP_ID, "app_secret": "x"}, 10014), ({"app_id": "x"}, 10003)):
        async with client.post(service.origin + TOKEN_PATH, json=wrong) as response:
            assert (response.status, (await response.json())["code"]) == (200, code)


async def test_texts_are_written_as_they_are_and_shown_in_pieces(service: SandboxBitable, caller: Caller) -> None:
    """C21: the asymmetry of the real one; a number stays a number, and an empty field is not shown."""
    code, data = await caller.create({"key": "a", "count": 3}, {"key": "b", "count": None})
    assert (code, data["records"][0]["fields"]) == (0, {"key": "a", "count": 3})
    _, found = await caller.search()
    assert [item["fields"] for item in found["items"]] == [
        {"key": [{"text": "a", "type": "text"}], "count": 3},
        {"key": [{"text": "b", "type": "text"}]},
    ]
    assert service.rows(TABLE) == [{"key": "a", "count": 3}, {"key": "b"}]


async def test_a_client_token_creates_once(service: SandboxBitable, caller: Caller) -> None:
    """C21: the same request again is the same answer; another one under it is refused, and only a UUIDv4 is one."""
    token = str(uuid.uuid4())
    first = await caller.create({"key": "a"}, client_token=token)
    assert await caller.create({"key": "a"}, client_token=token) == first
    assert len(service.rows(TABLE)) == 1
    assert (await caller.create({"key": "b"}, client_token=token))[0] == 1255006
    for wrong in ("x", str(uuid.uuid1()), uuid.uuid4().hex):
        assert (await caller.create({"key": "a"}, client_token=wrong))[0] == 1254037
    service.forget_client_tokens()
    assert (await caller.create({"key": "a"}, client_token=token))[0] == 0
    assert len(service.rows(TABLE)) == 2


async def test_records_are_updated_by_put_and_by_the_batch(
    client: ClientSession, service: SandboxBitable, caller: Caller
) -> None:
    """C21: PATCH is no address; a batch is done as a whole or not at all; null empties a field."""
    _, data = await caller.create({"key": "a", "count": 1}, {"key": "b", "count": 2})
    one, two = (record["record_id"] for record in data["records"])
    assert (await caller.ask("PUT", f"{RECORDS}/{one}", {"fields": {"count": 5}}))[0] == 0
    async with client.patch(
        f"{service.origin}{RECORDS}/{one}", headers={"Authorization": f"Bearer {caller.token}"}
    ) as r:
        assert r.status == 404
    changes = [{"record_id": one, "fields": {"count": None}}, {"record_id": two, "fields": {"key": "c"}}]
    assert (await caller.post(f"{RECORDS}/batch_update", {"records": changes}))[0] == 0
    assert service.rows(TABLE) == [{"key": "a"}, {"key": "c", "count": 2}]
    changes = [{"record_id": one, "fields": {"count": 9}}, {"record_id": "recX", "fields": {}}]
    assert (await caller.post(f"{RECORDS}/batch_update", {"records": changes}))[0] == 1254043
    assert (await caller.post(f"{RECORDS}/batch_delete", {"records": [one, "recX"]}))[0] == 1254043
    assert service.rows(TABLE)[0] == {"key": "a"}
    code, deleted = await caller.post(f"{RECORDS}/batch_delete", {"records": [one]})
    assert (code, deleted["records"]) == (0, [{"deleted": True, "record_id": one}])
    assert (await caller.post(RECORDS, {"fields": {"key": "d"}}))[1]["record"]["fields"] == {"key": "d"}


async def test_a_search_goes_by_pages_and_by_a_text(caller: Caller) -> None:
    """C21: whether capitals count is not promised, and here they do not."""
    await caller.create(*({"key": f"weibo:{number}"} for number in range(7)), {"key": "Weibo:1"})
    seen, page = [], {"page_size": "3"}
    for _ in range(3):
        _, data = await caller.search(**page)
        seen += [item["fields"]["key"][0]["text"] for item in data["items"]]
        page = {"page_size": "3", "page_token": data.get("page_token", "")}
    assert (len(seen), data["has_more"], data["total"]) == (8, False, 8)
    _, found = await caller.search(("is", "weibo:1"), ("is", "weibo:5"), ("is", "nothing"))
    assert [item["fields"]["key"][0]["text"] for item in found["items"]] == ["weibo:1", "weibo:5", "Weibo:1"]
    assert (await caller.search(("contains", "bo:6")))[1]["total"] == 1
    assert (await caller.search(*[("is", "x")] * 51))[0] == 1254018
    assert (await caller.search(("resembles", "x")))[0] == 1254018
    assert (await caller.search(page_size="501"))[0] == 99992402
    assert (await caller.search(page_token="elsewhere"))[0] == 1254001


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"unknown": 1}, 1254045),
        ({"key": 1}, 1254060),
        ({"count": "1"}, 1254061),
        ({"count": True}, 1254061),
        ({"kind": 1}, 1254062),
        ({"key": "x" * 100_001}, 1254130),
    ],
)
async def test_what_does_not_fit_is_refused_with_its_code(
    service: SandboxBitable, caller: Caller, row: dict[str, object], code: int
) -> None:
    """C21: one bad record refuses the batch."""
    assert (await caller.create({"key": "good"}, row))[0] == code
    assert service.rows(TABLE) == []


async def test_limits_are_kept(service: SandboxBitable, caller: Caller) -> None:
    """C21: 500 at once, and as many records as the table takes."""
    assert (await caller.create(*[{"key": "a"}] * 501))[0] == 1254104
    assert (await caller.create(*[{"key": "a"}] * 500))[0] == 0
    service.table(TABLE).most_records = 501
    assert (await caller.create({"key": "a"}, {"key": "b"}))[0] == 1254103
    assert (await caller.post(f"{RECORDS}/batch_delete", {"records": ["x"] * 501}))[0] == 1254104
    assert (await caller.create())[0] == 1254001


async def test_of_two_writes_at_once_one_is_refused(service: SandboxBitable, caller: Caller) -> None:
    """C21: on one table; a search meanwhile, another table and one after the other are well."""
    service.write_time = timedelta(milliseconds=300)
    other = RECORDS.replace(TABLE, "tblTwo")
    began = asyncio.gather(caller.create({"key": "a"}), caller.create({"key": "b"}))
    aside = asyncio.gather(caller.search(), caller.post(other, {"fields": {"key": "c"}}))
    assert sorted(code for code, _ in await began) == [0, 1254291]
    assert [code for code, _ in await aside] == [0, 0]
    assert (await caller.create({"key": "d"}))[0] == 0
    assert len(service.rows(TABLE)) == 2


async def test_fields_are_listed_and_made(caller: Caller) -> None:
    """C21: with the numbers of their types."""
    assert (await caller.post(f"{ROOT}/fields", {"field_name": "new", "type": 2}))[0] == 0
    _, data = await caller.ask("GET", f"{ROOT}/fields")
    assert [(item["field_name"], item["type"], item["is_primary"]) for item in data["items"]] == [
        ("key", 1, True),
        ("count", 2, False),
        ("kind", 3, False),
        ("new", 2, False),
    ]
    assert (await caller.post(f"{ROOT}/fields", {"field_name": "new", "type": 1}))[0] == 1254014
    assert (await caller.post(f"{ROOT}/fields", {"field_name": "other", "type": 99}))[0] == 1254001


async def test_another_base_or_table_is_not_there(caller: Caller) -> None:
    """C21: with the codes of the real one, as HTTP 200."""
    assert (await caller.post(RECORDS.replace(DEMO_APP_TOKEN, "other") + "/search"))[0] == 1254040
    assert (await caller.post(RECORDS.replace(TABLE, "tblX") + "/search"))[0] == 1254041


async def test_faults_are_carried_out(client: ClientSession, service: SandboxBitable, caller: Caller) -> None:
    """C21: the next answers are a code, an answer is lost after the effect, the gateway says how long to wait."""
    service.misbehave(replace(bitable.WRITE_CONFLICT, times=2))
    codes = [(await caller.create({"key": "a"}))[0] for _ in range(3)]
    assert codes == [1254291, 1254291, 0]
    service.misbehave(replace(bitable.ANSWER_LOST, times=1))
    with pytest.raises(ClientError):
        await caller.create({"key": "b"})
    assert [row["key"] for row in service.rows(TABLE)] == ["a", "b"]
    service.misbehave(replace(bitable.NO_PERMISSION, matching="bad", times=1))
    assert [(await caller.create({"key": key}))[0] for key in ("good", "bad", "good")] == [0, 1254302, 0]
    service.misbehave(replace(bitable.limit_rate(1.5), times=1))
    async with client.post(service.origin + RECORDS) as response:
        assert (response.status, response.headers[RESET_HEADER]) == (429, "1.5")
    service.misbehave(Fault(FaultKind.RESET))
    with pytest.raises(ClientError):
        await caller.search()


async def test_the_record_holds_what_was_asked_and_no_secret(service: SandboxBitable, caller: Caller) -> None:
    """C7: how much it was, how many records, under which client_token and about which keys."""
    token = str(uuid.uuid4())
    await caller.create({"key": "a"}, {"key": "b"}, client_token=token)
    last = service.requests[-1]
    fields = {"bytes": 65, "records": 2, "client_token": token}
    assert (last.fields, last.urls) == (fields, ("a", "b"))
    shown = repr(service.describe(full=True))
    assert DEMO_APP_SECRET not in shown
    assert caller.token not in shown
    assert service.tokens == [caller.token]


async def test_no_more_is_taken_in_a_second_than_is_documented(
    client: ClientSession, service: SandboxBitable, caller: Caller, clock: FakeClock
) -> None:
    """C21: 50 writes and 20 searches for each table, and then a refusal with the time to wait."""
    assert [(await caller.search())[0] for _ in range(21)] == [0] * 20 + [99991400]
    assert [(await caller.create({"key": "a"}))[0] for _ in range(51)] == [0] * 50 + [99991400]
    headers = {"Authorization": f"Bearer {caller.token}"}
    async with client.post(f"{service.origin}{RECORDS}/search", json={}, headers=headers) as response:
        assert (response.status, response.headers[RESET_HEADER]) == (429, "1")
    assert (await caller.post(f"{RECORDS.replace(TABLE, 'tblTwo')}/search", {}))[0] == 0
    clock.advance(timedelta(seconds=1))
    assert ((await caller.search())[0], (await caller.create({"key": "a"}))[0]) == (0, 0)


async def test_what_is_too_large_is_refused_without_a_document(client: ClientSession, service: SandboxBitable) -> None:
    """C21: by the gateway, no matter what it is."""
    url = f"{service.origin}{RECORDS}/batch_create"
    async with client.post(url, data=BytesIO(b"x" * 2_000_001)) as response:
        assert (response.status, response.content_type) == (413, "text/plain")


async def test_a_search_shows_a_record_when_it_is_old_enough_and_a_look_up_at_once(
    service: SandboxBitable, caller: Caller, clock: FakeClock
) -> None:
    """C21: a search may lag behind; who asks by the id does not wait, and hears what is not there."""
    service.table(TABLE).search_delay = timedelta(seconds=2)
    _, data = await caller.create({"key": "a"})
    record_id = data["records"][0]["record_id"]
    assert (await caller.search(("is", "a")))[1]["items"] == []
    _, found = await caller.post(f"{RECORDS}/batch_get", {"record_ids": [record_id, "recNone"]})
    assert ([record["record_id"] for record in found["records"]], found["absent_record_ids"]) == (
        [record_id],
        ["recNone"],
    )
    clock.advance(timedelta(seconds=2))
    assert len((await caller.search(("is", "a")))[1]["items"]) == 1
    assert (await caller.post(f"{RECORDS}/batch_get", {"record_ids": ["x"] * 101}))[0] == 1254104


async def test_a_field_that_is_made_anew_is_another_field(service: SandboxBitable, caller: Caller) -> None:
    """C21: it has an id of its own, even under a name that was there before."""
    before = (await caller.ask("GET", f"{ROOT}/fields"))[1]["items"]
    del service.table(TABLE).fields["count"]
    await caller.post(f"{ROOT}/fields", {"field_name": "count", "type": 2})
    after = (await caller.ask("GET", f"{ROOT}/fields"))[1]["items"]
    ids = [{item["field_name"]: item["field_id"] for item in items} for items in (before, after)]
    assert (ids[0]["key"] == ids[1]["key"], ids[0]["count"] == ids[1]["count"]) == (True, False)
