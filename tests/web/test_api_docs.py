"""docs/api.md is true: it names every route, and its lines work from top to bottom."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from tests.web.api_stage import ApiStage, open_api, serve
from tests.web.stage import ADMIN, Answer
from tidings.announce.site.document import read_site
from tidings.collect.errors import BACKOFF, RULES, Action, ErrorCode, ErrorRule
from tidings.collect.write.cookies import make_cookie
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, SandboxWeibo
from tidings.settings.collect import CollectSettings, CrawlSettings
from tidings.web.description import OF_EVERY_ROUTE, OF_GUARDED_ROUTES, list_operations
from tidings.web.envelope import STATUSES
from tidings.web.errors import Problem, ProblemResponse
from tidings.web.models.announce import NewSiteBody
from tidings.wiring.alerts import list_alert_kinds

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"
# As the release stored it that collected it.
STORED_NOTE = ".data.records[].note"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the page as a request. Variables stand in it as `$NAME`."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: str | None
    # The variable that the line sets, and the field of the answer that it takes, such as `data.execution_id`.
    sets: tuple[str, str] | None = None

    def fill(self, variables: Mapping[str, str]) -> "Line":
        """The same line with the values of its variables. Raises KeyError for one that no line before has set."""

        def put_in(text: str) -> str:
            return _VARIABLE.sub(lambda found: variables[found[1]], text)

        headers = tuple(_read_header(put_in(f"{name}: {value}" if value else name)) for name, value in self.headers)
        body = None if self.body is None else put_in(self.body)
        return replace(self, target=put_in(self.target), headers=headers, body=body)


_VARIABLE = re.compile(r"\$([A-Z]+)")
_ASSIGNMENT = re.compile(r"export ([A-Z]+)=\$\((curl .+) \| jq -r \.([\w.]+)\)")


def read_lines(text: str) -> list[Line]:
    lines, found = iter(text.splitlines()), []
    for line in lines:
        assigned = _ASSIGNMENT.fullmatch(line)
        command = assigned[2] if assigned else line
        if command.startswith("curl "):
            command, has_document, _ = command.partition(" <<END")
            document = "\n".join(takewhile(lambda each: each != "END", lines)) if has_document else None
            read = _read_line(shlex.split(command), document=document)
            found.append(replace(read, sets=(assigned[1], assigned[3])) if assigned else read)
    return found


def _read_line(words: list[str], *, document: str | None) -> Line:
    method, target, headers, body = "GET", "", [], None
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "-X":
                method = next(rest)
            case "-H":
                headers.append(_read_header(next(rest)))
            case "-d":
                given = next(rest)
                body = document if given == "@-" else given
            case "-o":
                next(rest)
            case "-N":
                pass
            case _:
                target = word.removeprefix("$TIDINGS")
    return Line(method, target, tuple(headers), body)


def _read_header(text: str) -> tuple[str, str]:
    name, _, value = text.partition(": ")
    return name, value


def fits(template: str, target: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), target.partition("?")[0]) is not None


async def test_every_route_has_a_line(sqlite_url: str, tmp_path: Path) -> None:
    """A33–A36: every answer of the service is explained, with a line to try."""
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
async def test_the_lines_work_from_top_to_bottom(sqlite_url: str, tmp_path: Path) -> None:
    """A33–A36: with a cookie and the variables that the page names; the description knows every field."""
    driven = CollectSettings(runs=False)
    async with AsyncExitStack() as stack:
        articles = await stack.enter_async_context(SandboxOpenWeb())
        weibo = await stack.enter_async_context(SandboxWeibo())
        crawl = CrawlSettings(base_urls={"weibo": weibo.origin})
        api = await stack.enter_async_context(open_api(sqlite_url, tmp_path, collect=driven, crawl=crawl))
        await stack.enter_async_context(serve(api))
        cookie = make_cookie("demo", platform="weibo", secret=Secret(DEMO_WEIBO_COOKIE))
        await api.installation.collect.cookies.add(cookie)
        variables = {
            "AUTH": f"Authorization: Bearer {ADMIN}",
            "JSON": "Content-Type: application/json",
            "ORIGIN": api.web.origin,
            "KEY": api.web.key,
            "FEED": articles.rss_url,
            "ARTICLE": articles.url(1),
        }
        for template in read_lines(DOCUMENT.read_text()):
            line = template.fill(variables)
            answer = await _send(api, line)
            # What was started here has ended by now, which the page says of a stop.
            is_over = line.target.endswith("/stop") and answer.status == 409
            assert is_over or 200 <= answer.status < 300, (line, answer.body)
            assert is_over or list(_list_undescribed(api.stage.app.openapi(), line, answer)) == [], line
            if line.sets:
                name, path = line.sets
                variables[name] = str(reduce(lambda found, key: found[key], path.split("."), answer.json))
            if answer.status == 202:
                await api.wait_for_end("shop", answer.json["executionId"])
        assert (await api.read("/api/sites"))["sites"] == []


def test_the_sites_of_the_page_can_be_imported() -> None:
    """A2: the sample of `tidings sites import` has only fields that a site has."""
    (sample,) = re.findall(r'```json\n(\{"sites": .*?)```', DOCUMENT.read_text(), re.DOTALL)
    bodies = [NewSiteBody.model_validate(each) for each in json.loads(sample)["sites"]]
    sites = [read_site(body.to_fields(), engines=("api.indexnow.org",), schedule="0 0 * * *") for body in bodies]
    assert [(site.id, site.group, site.schedule) for site in sites] == [
        ("shop.example.com", "acme", "0 0 * * *"),
        ("blog", None, "30 2 * * *"),
    ]


def test_the_table_of_alerts_names_every_kind_with_its_level() -> None:
    """C24: what a webhook may say."""
    rows = re.findall(r"^\| `([a-z_]+)` \| (P\d|info) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted((str(kind), str(kind.level)) for kind in list_alert_kinds())


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


async def _send(api: ApiStage, line: Line) -> Answer:
    open_path = line.target.startswith(("/health/", "/hooks/"))
    assert open_path or dict(line.headers).get("Authorization") == f"Bearer {ADMIN}", line
    body = None if line.body is None else line.body.encode()
    return await api.stage.ask(line.method, line.target, token=None, headers=line.headers, body=body)
