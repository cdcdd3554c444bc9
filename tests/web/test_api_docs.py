"""docs/api.md is true: it names every route, and each of its curl lines works as it stands."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from tests.web.api_stage import ApiStage, open_api, serve
from tests.web.stage import Answer
from tidings.collect.errors import BACKOFF, RULES, Action, ErrorCode, ErrorRule
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.settings import CollectSettings
from tidings.web.description import OF_EVERY_ROUTE, OF_GUARDED_ROUTES, list_operations
from tidings.web.envelope import STATUSES
from tidings.web.errors import Problem, ProblemResponse

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"
SITE = "example.com"
# As the release stored it that collected it.
STORED_NOTE = ".data.records[].note"


@dataclass(frozen=True, slots=True)
class Line:
    """A curl line as a request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


def read_lines(text: str) -> list[Line]:
    return [_read_line(shlex.split(line)) for line in text.splitlines() if line.startswith("curl ")]


def _read_line(words: list[str]) -> Line:
    method, target, headers, body = "GET", "", [], None
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "-X":
                method = next(rest)
            case "-H":
                name, _, value = next(rest).partition(": ")
                headers.append((name, value))
            case "-d":
                body = next(rest).encode()
            case "-N":
                pass
            case _:
                target = word.removeprefix("$TIDINGS")
    return Line(method, target, tuple(headers), body)


def fits(template: str, target: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), target.partition("?")[0]) is not None


async def test_every_route_has_a_line(sqlite_url: str, tmp_path: Path) -> None:
    """A33–A36: whatever the service answers is explained, with a line to try."""
    lines = read_lines(DOCUMENT.read_text())
    async with open_api(sqlite_url, tmp_path) as api:
        described = list(list_operations(api.stage.app.openapi()))
    missing = [
        f"{method} {path}"
        for path, method, _ in described
        if not any(line.method.lower() == method and fits(path, line.target) for line in lines)
    ]
    assert missing == []


@pytest.mark.thorough
async def test_every_line_works_as_it_stands(sqlite_url: str, tmp_path: Path) -> None:
    """A33–A36: in the order of the page, on a site that can be announced. The description knows every field."""
    driven = CollectSettings(runs=False)
    async with SandboxOpenWeb() as articles, open_api(sqlite_url, tmp_path, collect=driven) as api, serve(api):
        await api.add_site(id=SITE)
        text = DOCUMENT.read_text()
        text = text.replace(f"https://{SITE}/feed.xml", articles.rss_url)
        text = text.replace(f"https://{SITE}/article", articles.url(1)).replace(f"https://{SITE}", api.web.origin)
        execution = ""
        for line in read_lines(text):
            answer = await _send(api, line, execution=execution)
            # What was started here has ended by now, which the page says of a stop.
            is_over = line.target.endswith("/stop") and answer.status == 409
            assert is_over or 200 <= answer.status < 300, (line, answer.body)
            assert is_over or list(_list_undescribed(api.stage.app.openapi(), line, answer)) == [], line
            if answer.status == 202:
                execution = answer.json["executionId"]
                await api.wait_for_end(SITE, execution)
            elif line.target == "/workflow/executions":
                execution = answer.json["data"]["execution_id"]


WORDS = {
    Action.PAUSE: "pauses",
    Action.SWITCH_COOKIE: "tries again with another cookie",
    Action.RETRY: "tries again",
    Action.RETRY_FAILED_ITEMS: "tries the failed items again",
    Action.SKIP: "skips it",
    Action.STOP: "stops",
}
BY_ROUTER = (404, 405)
OF_LOCKS = (409,)


async def test_the_table_of_codes_is_the_one_that_is_used() -> None:
    """C13, C15: status, retryable, what a workflow does and how often, for every code there is."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+) \| (.+) \| (.+) \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    statuses = {code: {status} for code, status in STATUSES.items()} | {ErrorCode.PARTIAL_FAIL: {200}}
    for refused in (*OF_EVERY_ROUTE, *OF_GUARDED_ROUTES, *BY_ROUTER, *OF_LOCKS):
        status, code = await _refuse(refused)
        statuses.setdefault(code, set()).add(status)
    assert rows == [
        (
            code.value,
            ", ".join(map(str, sorted(statuses[code]))),
            "yes" if rule.retryable else "no",
            _describe_action(rule),
            str(rule.most_retries),
        )
        for code, rule in RULES.items()
    ]


def _describe_action(rule: ErrorRule) -> str:
    waits = ", ".join(f"{wait.seconds} s" for wait in BACKOFF)
    return WORDS[rule.action] + (f" after {waits}" if rule.backs_off else "") + (", and alerts" if rule.alerts else "")


async def _refuse(status: int) -> tuple[int, ErrorCode]:
    """What becomes of a problem with this status at a path of the crawl API."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await ProblemResponse(Problem(status, "any", "any"))({"type": "http", "path": "/crawler/search"}, receive, send)
    return sent[0]["status"], ErrorCode(json.loads(sent[1]["body"])["error"]["code"])


def _list_undescribed(document: dict[str, Any], line: Line, answer: Answer) -> Iterator[str]:
    """The fields of an answer that the description does not have."""
    for path, method, operation in list_operations(document):
        if method == line.method.lower() and fits(path, line.target) and path != "/openapi.json":
            content = operation["responses"][str(answer.status)].get("content", {}).get("application/json")
            if content and answer.body:
                yield from _list_unknown(document, content["schema"], answer.json, "")


def _list_unknown(document: dict[str, Any], schema: dict[str, Any], value: Any, place: str) -> Iterator[str]:
    schemas = [schema, *schema.get("anyOf", ())]
    schemas = [
        document["components"]["schemas"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        for each in schemas
    ]
    if isinstance(value, list):
        items: dict[str, Any] = next((each["items"] for each in schemas if "items" in each), {})
        for item in value:
            yield from _list_unknown(document, items, item, f"{place}[]")
    if isinstance(value, dict):
        fields = {name: field for each in schemas for name, field in each.get("properties", {}).items()}
        others: Any = next((each["additionalProperties"] for each in schemas if "additionalProperties" in each), None)
        for name, field in value.items():
            if name in fields or isinstance(others, dict):
                yield from _list_unknown(document, fields.get(name, others), field, f"{place}.{name}")
            elif place != STORED_NOTE:
                yield f"{place}.{name}"


async def _send(api: ApiStage, line: Line, *, execution: str) -> Answer:
    open_path = line.target.startswith(("/health/", "/hooks/"))
    assert open_path or ("Authorization", "Bearer $TOKEN") in line.headers, line
    headers = [(name, value) for name, value in line.headers if name != "Authorization"]
    target = line.target.replace("$EXECUTION", execution)
    body = None if line.body is None else line.body.replace(b"$EXECUTION", execution.encode())
    return await api.stage.ask(line.method, target, headers=headers, body=body)
