"""Bad input and attacks on the real routes: each gets a 4xx with a reason, nothing is repeated, and no key gets out."""

import asyncio
import base64
import io
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import pytest
from structlog.typing import EventDict

from tests.waiting import feel_pulse
from tests.web.api_stage import BING_KEY, KEY, ApiStage, serve
from tests.web.stage import ADMIN, SOON, Answer, send_raw
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.secrets.scopes import Scope
from tidings.sandbox.wire.faults import Fault
from tidings.web.description import list_operations
from tidings.web.envelope import is_enveloped
from tidings.web.middleware.admission import LARGEST_UNUSED
from tidings.web.middleware.callers import WRONG_TRIES
from tidings.web.middleware.input import LARGEST_BODY, LARGEST_NOTES, MOST_BODIES

pytestmark = pytest.mark.one_database

SITE: Final = "example.com"
HUNDRED_MB: Final = 100_000_000
# No site has one of these names, and no text of them may do anything but be looked for.
HOSTILE_NAMES: Final = [
    "1' OR 1=1",
    "1' OR '1'='1' --",
    "'; DROP TABLE sites; --",
    "../",
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udcff\ud800",
    "\r\nX-Injected: 1",
    "\x1b[31m",
    "\u202eevil",
    "<img src=x onerror=alert(1)>",
    "%",
    "%s%n",
    "{0}",
    "x" * 254,
    "x" * 100_000,
    " ",
]
# Wrong wherever a text, a number, a list or an object is asked for; as they go over the wire.
HOSTILE_JSON: Final = [
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1",
    b"9" * 30,
    b"9" * 5_000,
    b"1.5",
    b'"\\u0000"',
    b'"\\ud800"',
    b'"' + b"x" * 100_000 + b'"',
    b"[null]",
    b"[[]]",
    b'[{"a":1}]',
    b"{}",
    b'{"$ne":null}',
    b"[" * 40 + b"]" * 40,
    b"[" * 100_000,
    b'"\xff"',
]


@pytest.fixture(autouse=True)
async def site(api: ApiStage) -> None:
    await api.add_site(id=SITE, bingEnabled=True, bingApiKey=BING_KEY)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, as it is written; the process gets its logging back afterwards."""
    loggers = [logging.getLogger(name) for name in (None, "tidings")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield io.StringIO()
    logging.captureWarnings(False)
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def list_routes(api: ApiStage) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every route."""
    return [(method.upper(), path, operation) for path, method, operation in list_operations(api.stage.app.openapi())]


def spell(name: str) -> str:
    """A name as a part of an address, lone surrogates and all."""
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def fill(path: str, **names: str) -> str:
    """The path with these names in it, and harmless ones for the rest."""
    given = {"site_id": SITE, "execution_id": "exec-1-0", **names}
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: given.get(match[1], "1"), path)


def is_empty(answer: Answer) -> bool:
    """Whether the answer is a list, a count or an export of nothing."""
    if answer.headers["content-type"].startswith("application/json"):
        return not answer.json.get("found", any(answer.json.values()))
    return answer.text.count("\n") <= 1


def check_refused(answer: Answer, *about: object) -> None:
    assert 400 <= answer.status < 500, (*about, answer.status, answer.body[:200])
    if any(is_enveloped(str(each)) for each in about):
        assert (answer.json["success"], answer.json["data"]) == (False, None), about
        return
    assert answer.headers["content-type"] == "application/problem+json", about
    assert answer.json["status"] == answer.status


def find_body(path: str, method: str) -> list[object]:
    """A body that this route takes; none where it takes none."""
    bodies: dict[str, object] = {
        "PUT /api/sites/{site_id}": {"enabled": False},
        "POST /api/sites/{site_id}/urls": {"urls": ["https://example.com/"]},
        "POST /api/sites/{site_id}/requeue": {"urls": ["https://example.com/"]},
        "POST /api/sites/{site_id}/forget": {"since": "2026-01-01"},
    }
    name = f"{method} {path}"
    return [bodies[name]] if name in bodies else []


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_hostile_names_in_paths_find_nothing(api: ApiStage) -> None:
    """Attack cases "API": on every route with a name in its path; 4xx, and the site is as it was."""
    before = await api.read("/api/sites")
    places = [
        (method, path, name)
        for method, path, _ in list_routes(api)
        for name in ("site_id", "execution_id")
        if f"{{{name}}}" in path
    ]
    assert len(places) > 15
    for method, path, name in places:
        for hostile in HOSTILE_NAMES:
            answer = await api.ask(method, fill(path, **{name: spell(hostile)}), *find_body(path, method))
            check_refused(answer, method, path, hostile)
    assert await api.read("/api/sites") == before


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_hostile_values_in_queries_find_nothing(api: ApiStage) -> None:
    """Attack cases "API": on every parameter of every route: 4xx, or an empty answer, never a 5xx."""
    asked = 0
    for method, path, operation in list_routes(api):
        for parameter in operation.get("parameters", []):
            if parameter["in"] != "query":
                continue
            for hostile in [*HOSTILE_NAMES, "Infinity", "NaN", "-1", "1e3", "9" * 30, "9" * 5_000]:
                target = f"{fill(path)}?{parameter['name']}={spell(hostile)}"
                answer = await api.ask(method, target)
                all_is_right = parameter["name"] in {"after", "before"} or (
                    parameter["name"] == "search" and not hostile.strip()
                )
                if answer.status == 200 and (all_is_right or is_empty(answer)):
                    continue
                check_refused(answer, method, path, parameter["name"], hostile)
                asked += 1
            twice = await api.ask(method, f"{fill(path)}?{parameter['name']}=1&{parameter['name']}=1")
            check_refused(twice, method, path, parameter["name"], "twice")
    assert asked > 200


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_wrong_types_in_bodies_are_refused_everywhere(api: ApiStage) -> None:
    """Attack cases "API": in place of the body, and in place of each of its fields."""
    document = api.stage.app.openapi()
    before = await api.read("/api/sites")
    asked = 0
    for method, path, operation in list_routes(api):
        if "requestBody" not in operation:
            continue
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
        target = fill(path)
        for hostile in HOSTILE_JSON:
            bodies = {f"its {field}": b'{"%s":%s}' % (field.encode(), hostile) for field in schema["properties"]}
            bodies["an unknown field"] = b'{"__proto__":' + hostile + b"}"
            # An empty object changes nothing of a site, and retries whatever failed.
            if hostile != b"{}" or (method != "PUT" and path != "/api/candidates/retry"):
                bodies["the body"] = hostile
            for where, body in bodies.items():
                answer = await api.stage.ask(method, target, body=body)
                check_refused(answer, method, path, where, hostile[:40])
                asked += 1
    assert asked > 500
    assert await api.read("/api/sites") == before


@pytest.mark.thorough
async def test_body_of_100_mb_is_refused_before_it_is_read(api: ApiStage) -> None:
    """Attack cases "API": 413 over a socket, whether its length is given or not."""
    head = f"POST /api/sites HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n"
    too_much = LARGEST_BODY + 1
    async with serve(api) as port:
        shown = await send_raw(port, f"{head}Content-Length: {HUNDRED_MB}\r\n\r\n".encode())
        chunk = f"{head}Transfer-Encoding: chunked\r\n\r\n{too_much:x}\r\n".encode()
        untold = await send_raw(port, chunk, b" " * too_much)
    for answer in (shown, untold):
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"body_too_large" in answer


@pytest.mark.thorough
async def test_nobody_is_waited_for_whose_request_is_refused_anyway(api: ApiStage) -> None:
    """Attack cases "API": route, method and scope are checked before a byte of the body is read."""
    metrics = (await api.installation.tokens.make(Scope.METRICS, name="m")).reveal()
    cases = [
        ("/health/live", None, 405),
        ("/no/such/path", ADMIN, 404),
        ("/status", ADMIN, 405),
        ("/workflow/sources", None, 401),
        ("/workflow/sources", metrics, 403),
        ("/api/sites", metrics, 403),
        ("/sign-in", None, 413),
    ]
    async with serve(api) as port:
        for path, token, status in cases:
            authorization = "" if token is None else f"Authorization: Bearer {token}\r\n"
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{authorization}Content-Type: application/json\r\n"
            answer = await send_raw(port, f"{head}Content-Length: {LARGEST_BODY}\r\n\r\n{{".encode())
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (path, answer[:200])
            assert b"connection: close" in answer.lower()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "body",
    [
        b"{" + b",".join(b'"n%d":0' % number for number in range(1_000_000)) + b"}",
        b'{"execution_id": "1", "results": [' + b"{}," * 5_500_000 + b"{}]}",
        b'["' + b'\\"' * 8_000_000,
    ],
    ids=["names", "objects", "a string without end"],
)
async def test_a_large_body_stops_nobody_else(api: ApiStage, body: bytes) -> None:
    """Attack cases "API": 16 MiB of errors from a workflow token are refused; others are answered meanwhile."""
    workflow = (await api.installation.tokens.make(Scope.WORKFLOW, name="n8n")).reveal()
    asking = asyncio.create_task(
        api.stage.ask("POST", "/workflow/candidates/settle", token=workflow, body=body[:LARGEST_NOTES])
    )
    async with feel_pulse() as pulse:
        answer = await asking
    assert answer.status == 422
    assert len(answer.body) < 10_000
    assert pulse.longest < 2


@pytest.mark.parametrize("path", ["/hooks/example.com", "/sign-in"])
async def test_half_a_body_of_a_stranger_gives_way_to_the_bodies_of_others(api: ApiStage, path: str) -> None:
    """Attack cases "API": a deploy hook may send a mebibyte before its signature is checked; few of them are held, and
    callers with a token have places of their own."""
    kind = "Content-Type: application/x-www-form-urlencoded\r\nX-Hub-Signature-256: sha256=00\r\n"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{kind}Content-Length: {LARGEST_UNUSED}\r\n\r\n".encode()
    async with serve(api) as port, AsyncExitStack() as stack:
        readers = []
        for _ in range(MOST_BODIES + 10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(head + b"x" * (LARGEST_UNUSED - 1))
            readers.append(reader)
        for reader in readers[:10]:
            assert (await asyncio.wait_for(reader.readline(), SOON)).startswith(b"HTTP/1.1 408 ")
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with aiohttp.request(
            "PUT", f"http://127.0.0.1:{port}/api/sites/{SITE}", json={"enabled": False}, headers=headers
        ) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("token", [None, "", "wrong", "tid_" + "x" * 43, ADMIN.upper(), "\xff"])
async def test_every_route_but_health_needs_a_right_token(api: ApiStage, token: str | None) -> None:
    """Attack cases "API": 401 with no, an empty or a wrong bearer, before anything else of a request is looked at."""
    for number, (method, path, _) in enumerate(list_routes(api)):
        target = fill(path)
        answer = await api.stage.ask(method, target, token=token, body=b"{", peer=f"192.0.2.{number}")
        if path.startswith("/health/"):
            assert answer.status != 401
        elif path.startswith("/hooks/"):
            # A signature opens it, no token.
            assert answer.status == 401
        else:
            assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="tidings"'), path
    assert (await api.read("/api/sites"))["total"] == 1


async def test_flood_of_wrong_tokens_is_slowed_down(api: ApiStage, events: list[EventDict]) -> None:
    """Attack cases "API": 429, whatever X-Forwarded-For says; neither a token nor an address is written down by it, and
    the log does not fill with it."""
    answers = [
        await api.ask("GET", "/status", token=f"guess-{n}", headers=[("X-Forwarded-For", f"198.51.100.{n}")])
        for n in range(WRONG_TRIES + 5)
    ]
    assert [answer.status for answer in answers] == WRONG_TRIES * [401] + 5 * [429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (await api.ask("GET", "/status")).status == 429
    assert "guess-" not in repr(events)
    assert "198.51.100." not in repr(events)
    assert [each for each in events if each["event"] == "http.request" and each["log_level"] != "debug"] == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "target", [f"/api/sites/{SITE}", f"/api/sites/{SITE}/executions", "/status", "/trigger", "/api/stats/daily"]
)
async def test_token_in_the_address_or_a_cookie_opens_nothing(api: ApiStage, target: str) -> None:
    """Design 8: it would stand in logs, or be sent by a page of another site."""
    for name in ("token", "access_token"):
        answer = await api.ask("GET", f"{target}?{name}={quote(ADMIN)}", token=None)
        assert answer.status == 401
    answer = await api.ask("GET", target, token=None, headers=[("Cookie", f"token={ADMIN}; session={ADMIN}")])
    assert answer.status == 401


def spell_secret(secret: str) -> set[str]:
    """The secret, and the forms in which it could get out unseen."""
    raw = secret.encode()
    return {secret, secret.upper(), quote(secret, safe=""), raw.hex(), base64.b64encode(raw).decode().rstrip("=")}


def list_right_uses(site_token: str) -> Iterator[tuple[str, str, Sequence[object], str]]:
    """Method, target, body and token of requests that are as they should be."""
    yield "POST", "/trigger?wait=true", (), site_token
    yield "POST", f"/api/sites/{SITE}/forget", ({"since": "2026-01-01"},), ADMIN
    yield "POST", "/trigger?wait=true", (), ADMIN
    for path in (f"/api/sites/{SITE}", f"/api/sites/{SITE}/failed", f"/api/sites/{SITE}/executions", "/api/sites"):
        yield "GET", path, (), ADMIN
    for path in ("/status", "/api/alerts", "/metrics", "/api/stats/daily", "/openapi.json", "/docs"):
        yield "GET", path, (), ADMIN


def list_wrong_uses(
    method: str, path: str, operation: dict[str, Any], *, secret: str
) -> Iterator[tuple[str, str, Sequence[object], str]]:
    """The same with a secret in every place of a route where something else is asked for."""
    target, hidden = fill(path), spell(secret)
    yield method, fill(path), (), ADMIN
    yield method, f"{target}?{hidden}={hidden}", (), ADMIN
    for parameter in operation.get("parameters", []):
        yield method, f"{target}?{parameter['name']}={hidden}", (), ADMIN
    if "requestBody" in operation:
        for wrong in (secret, [secret], {secret: secret}, {"enabled": secret}, {"schedule": f"{secret} * * * *"}):
            yield method, target, (wrong,), ADMIN


@pytest.mark.thorough
async def test_no_key_and_no_token_gets_out(api: ApiStage, log: io.StringIO) -> None:
    """A4, attack cases "Secrets": a canary sent through every route, right and wrong: in no answer, log or problem."""
    redactor = api.installation.redactor
    configure_logging(format=LogFormat.JSON, level="debug", redactor=redactor, stream=log, colors=False)
    made = (await api.ask("POST", f"/api/sites/{SITE}/token")).json["token"]
    secrets = {"IndexNow": KEY, "Bing": BING_KEY, "admin": ADMIN, "site": made}
    api.engine.misbehave(Fault(status=403, body=f"key={KEY} is refused", after=1))
    refusal = json.dumps({"ErrorCode": 3, "Message": f"apikey={BING_KEY}"})
    api.bing.misbehave(Fault(status=400, body=refusal, after=1))
    uses = [
        *list_right_uses(made),
        *(
            use
            for method, path, operation in list_routes(api)
            if method != "DELETE"
            for secret in secrets.values()
            for use in list_wrong_uses(method, path, operation, secret=secret)
        ),
    ]
    shown = []
    for method, target, document, token in uses:
        answer = await api.ask(method, target, *document, token=token)
        shown.append(f"{answer.headers} {answer.body.decode()}")
    assert len(shown) > 300
    assert (len(api.engine.requests) > 1, len(api.bing.requests) > 1) == (True, True)
    written = log.getvalue()
    assert "http.request" in written
    for where, text in (("the answers", "\n".join(shown)), ("the log", written)):
        for name, secret in secrets.items():
            assert not {form for form in spell_secret(secret) if form in text}, f"the {name} key is in {where}"
