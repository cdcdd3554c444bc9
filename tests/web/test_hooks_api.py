"""Deploy hooks: GitHub's and Netlify's signatures begin an execution; nothing else does."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tests.waiting import wait_until
from tests.web.api_stage import ApiStage, hold, serve
from tests.web.stage import Answer
from tidings.announce.schedule.seen_hooks import REMEMBERED, SeenHooks

pytestmark = pytest.mark.one_database

SECRET = "a-secret-of-deploy-hooks"
BODY = json.dumps({"ref": "refs/heads/main"}).encode()
JSON = ("Content-Type", "application/json")


def sign_github(body: bytes, secret: str = SECRET) -> tuple[str, str]:
    return "X-Hub-Signature-256", f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def sign_netlify(
    body: bytes, secret: str = SECRET, *, algorithm: str = "HS256", issuer: str = "netlify"
) -> tuple[str, str]:
    payload = {"iss": issuer, "sha256": hashlib.sha256(body).hexdigest()}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in ({"alg": algorithm}, payload)]
    signature = hmac.new(secret.encode(), b".".join(parts), hashlib.sha256).digest()
    return "X-Webhook-Signature", b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


async def call(api: ApiStage, *headers: tuple[str, str], body: bytes = BODY, site: str = "shop") -> Answer:
    return await api.stage.ask("POST", f"/hooks/{site}", token=None, headers=[JSON, *headers], body=body)


@pytest.mark.thorough
@pytest.mark.parametrize("sign", [sign_github, sign_netlify])
async def test_a_signed_hook_begins_an_execution_once(api: ApiStage, sign: Callable[[bytes], tuple[str, str]]) -> None:
    """A35: as /trigger does, without a token; the same request again begins nothing."""
    await api.add_site(id="shop", hookSecret=SECRET)
    answer = await call(api, sign(BODY))
    assert (answer.status, answer.json["status"]) == (202, "running")
    state = await api.wait_for_end("shop", answer.json["executionId"])
    assert (state["status"], len(api.engine.accepted)) == ("succeeded", 20)
    again = await call(api, sign(BODY))
    assert (again.status, again.json["status"], again.json["executionId"]) == (
        200,
        "repeated",
        answer.json["executionId"],
    )


@pytest.mark.thorough
async def test_a_hook_that_is_not_signed_with_the_secret_is_refused(api: ApiStage) -> None:
    """A35: another secret, body, algorithm or issuer; an unknown site and one without a secret answer the same."""
    await api.add_site(id="shop", hookSecret=SECRET)
    await api.add_site(id="plain")
    refused = [
        await call(api),
        await call(api, sign_github(BODY, "another-secret-of-hooks")),
        await call(api, sign_github(BODY + b" ")),
        await call(api, ("X-Hub-Signature-256", "sha256=")),
        await call(api, sign_netlify(BODY, "another-secret-of-hooks")),
        await call(api, sign_netlify(BODY + b" ")),
        await call(api, sign_netlify(BODY, algorithm="none")),
        await call(api, sign_netlify(BODY, issuer="somebody")),
        await call(api, ("X-Webhook-Signature", "a.b.c")),
        await call(api, sign_github(BODY), site="plain"),
        await call(api, sign_github(BODY), site="nowhere"),
    ]
    assert {(answer.status, answer.json["code"]) for answer in refused} == {(401, "signature_wrong")}
    assert len({answer.json["detail"] for answer in refused}) == 1
    assert api.engine.requests == []


@pytest.mark.thorough
async def test_a_hook_respects_a_pause_the_size_and_the_ping(api: ApiStage) -> None:
    """A35, A41: a deploy does not undo a pause; a large body is not read; GitHub's ping begins nothing."""
    await api.add_site(id="shop", hookSecret=SECRET)
    ping = await call(api, sign_github(BODY), ("X-GitHub-Event", "ping"))
    assert (ping.status, ping.json["status"]) == (200, "pong")
    assert (await api.ask("POST", "/api/sites/shop/pause")).status == 200
    paused = await call(api, sign_github(BODY))
    assert (paused.status, paused.json["code"]) == (409, "paused")
    large = json.dumps({"a": "x" * 1024 * 1024}).encode()
    assert (await call(api, sign_github(large), body=large)).status == 413
    assert (await call(api, body=json.dumps("x" * 70_000).encode())).status == 413
    assert (await api.stage.ask("GET", "/hooks/shop", token=None)).status == 401
    assert api.engine.requests == []


@pytest.mark.thorough
async def test_a_hook_during_an_execution_leads_to_another_right_after_it(api: ApiStage) -> None:
    """A35, A38: the sitemap may have changed since the present one read it. A copy of either hook begins nothing."""
    await api.add_site(id="shop", hookSecret=SECRET, schedule="0 0 1 1 *")
    bodies = [json.dumps({"deploy": number}).encode() for number in range(3)]
    async with serve(api):
        async with hold(api.engine):
            first = await call(api, sign_github(bodies[0]), body=bodies[0])
            await api.engine.wait_for_requests(1, timeout=timedelta(seconds=10))
            api.web.add(1)
            followers = [await call(api, sign_github(body), body=body) for body in bodies[1:]]
            copies = [await call(api, sign_github(body), body=body) for body in bodies]
        await wait_until(lambda: _has_ended(api, executions=2))
    assert (first.status, first.json["status"]) == (202, "running")
    assert [(answer.status, answer.json["status"]) for answer in followers] == [(202, "follows")] * 2
    assert [answer.json["status"] for answer in copies] == ["repeated"] * 3
    assert len(api.engine.accepted) == 21


async def _has_ended(api: ApiStage, *, executions: int) -> bool:
    found = (await api.read("/api/sites/shop/executions"))["executions"]
    return [each["status"] for each in found] == ["succeeded"] * executions


async def test_a_copy_of_a_hook_is_known_to_every_process_and_only_one_obeys_it(make_bench: BenchMaker) -> None:
    """A35: many processes get one hook at once: one obeys it, also after a restart; after a day it is forgotten."""
    clock = StageClock(datetime(2026, 11, 1, tzinfo=UTC))
    database = make_bench(clock=clock).database
    processes = [SeenHooks(database, clock=clock) for _ in range(5)]
    claimed = await asyncio.gather(*(each.claim(b"digest") for each in processes))
    assert sorted(claimed, key=str) == ["", "", "", "", None]
    await processes[0].record_execution(b"digest", "exec-1")
    assert await SeenHooks(database, clock=clock).claim(b"digest") == "exec-1"
    clock.advance(REMEMBERED + timedelta(seconds=1))
    assert await processes[1].claim(b"digest") is None
    await processes[1].forget(b"digest")
    assert await processes[2].claim(b"digest") is None
