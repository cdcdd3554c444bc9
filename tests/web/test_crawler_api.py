"""The crawl API over HTTP: every answer is the envelope, no matter who gives it, and as it is described."""

import io
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import jsonschema_rs
import pytest

from tests.collect.crawl_stage import CrawlStage, open_crawl, open_weibo, session_of
from tests.collect.test_cookie_secrets import COOKIE, find_traces
from tests.web.conftest import StageMaker
from tests.web.stage import CANARY, FIXED, Answer, Stage, make_odd_router, make_router, run_server, send_raw
from tidings.collect.crawl.crawler import Crawler
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.scopes import Scope
from tidings.sandbox.media import weibo as sandbox
from tidings.sandbox.media.weibo import SandboxWeibo, name_post
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.web.description import PROBLEM_TYPE, ApiRouter, list_operations
from tidings.web.middleware.auth import require
from tidings.web.middleware.input import LARGEST_BODY
from tidings.web.routes.collect.crawler import make_crawler_router

TOKEN = FIXED[Scope.CRAWL].reveal()
ACCOUNT = "account"
SEARCH = {"platform": "weibo", "keyword": "生活"}
DETAIL = {"platform": "weibo", "note_id": name_post(30)}
BATCH = {"platform": "weibo", "items": [{"note_id": name_post(number)} for number in (1, 2, 3)]}
PATHS: dict[str, dict[str, Any]] = {
    "/crawler/search": SEARCH,
    "/crawler/detail": DETAIL,
    "/crawler/detail/batch": BATCH,
}
SHORT = timedelta(milliseconds=300)


@pytest.fixture
async def weibo() -> AsyncIterator[SandboxWeibo]:
    async with open_weibo(ACCOUNT) as running:
        yield running


@pytest.fixture
async def crawl(sqlite_url: str, keys: KeyRing, weibo: SandboxWeibo) -> AsyncIterator[CrawlStage]:
    async with open_crawl(sqlite_url, keys=keys, weibo=weibo.origin) as opened:
        yield opened


def make_failing_router() -> ApiRouter:
    """Stands for the workflow's routes, on a bad day."""
    router = ApiRouter(prefix="/workflow", dependencies=[require(Scope.WORKFLOW)])

    @router.post("/candidates/fail")
    async def fail_at_work() -> None:
        raise RuntimeError(f"broken by {CANARY}")

    return router


@pytest.fixture
def crawler(crawl: CrawlStage) -> Crawler:
    return crawl.make(request_timeout=SHORT)


@pytest.fixture
def stage(make_stage: StageMaker, crawler: Crawler) -> Stage:
    return open_stage(make_stage, crawler)


def open_stage(make_stage: StageMaker, crawler: Crawler, **services: Any) -> Stage:
    routers = [make_crawler_router(crawler), make_failing_router(), make_router(), make_odd_router()]
    return make_stage(routers=routers, **services)


async def ask(
    stage: Stage, path: str, document: object, *, token: str | None = TOKEN, request_id: str | None = None
) -> Answer:
    headers = [("X-Request-ID", request_id)] if request_id else []
    answer = await stage.ask("POST", path, token=token, headers=headers, body=json.dumps(document).encode())
    check_described(stage, "POST", path, answer)
    return answer


def check_described(stage: Stage, method: str, path: str, answer: Answer) -> None:
    """The answer is one that the description knows, field by field."""
    document = stage.app.openapi()
    content = document["paths"][path][method.lower()]["responses"][str(answer.status)]["content"]
    assert answer.headers["content-type"] == "application/json"
    schema = {**content["application/json"]["schema"], "components": document["components"]}
    jsonschema_rs.validate(schema, answer.json)


def check_refusal(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """An error in the envelope; gives the whole of it."""
    envelope: dict[str, Any] = answer.json
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert envelope.keys() == {"success", "data", "error", "meta"}
    assert (envelope["success"], envelope["data"]) == (False, None)
    assert envelope["error"].keys() == {"code", "message", "retryable", "captcha", "blocked", "asked", "retry_after"}
    assert envelope["error"]["code"] == code
    assert envelope["meta"].keys() == {"request_id", "latency_ms", "cookie_used"}
    assert envelope["meta"]["request_id"] == answer.headers["x-request-id"]
    return envelope


@pytest.mark.parametrize("path", PATHS)
async def test_an_excluded_cookie_is_not_used_whatever_its_priority(stage: Stage, crawl: CrawlStage, path: str) -> None:
    """C15: a caller switches cookies by naming those that were refused; with none left nothing is asked."""
    await crawl.add("refused", priority=9)
    await crawl.add(ACCOUNT)
    good = (await ask(stage, path, PATHS[path] | {"exclude_cookies": ["refused"]})).json
    none = (await ask(stage, path, PATHS[path] | {"exclude_cookies": ["refused", ACCOUNT]})).json
    used = [each["cookie_used"] for each in good.get("items", [good["meta"]])]
    codes = [each["error"]["code"] for each in none.get("items", [none])]
    assert (good["success"], set(used), set(codes)) == (True, {ACCOUNT}, {"COOKIE_EXHAUSTED"})


@pytest.mark.parametrize("path", PATHS)
async def test_a_success_is_described_and_names_request_and_cookie(stage: Stage, crawl: CrawlStage, path: str) -> None:
    """C6, C13, C14, C16: the caller's id comes back; each item of a batch names its own cookie."""
    await crawl.add(ACCOUNT)
    answer = await ask(stage, path, PATHS[path], request_id="n8n-77")
    assert (answer.status, answer.headers["x-request-id"]) == (200, "n8n-77")
    assert (answer.json["success"], answer.json["error"], answer.json["meta"]["request_id"]) == (True, None, "n8n-77")
    if path.endswith("batch"):
        assert {item["cookie_used"] for item in answer.json["items"]} == {ACCOUNT}
        assert answer.json["meta"]["cookie_used"] is None
    else:
        assert answer.json["meta"]["cookie_used"] == ACCOUNT


@pytest.mark.parametrize(
    ("fault", "status", "code", "retryable"),
    [
        (sandbox.NO_SUCH_POST, 422, "INVALID_INPUT", False),
        (sandbox.SESSION_REFUSED, 502, "COOKIE_INVALID", True),
        (sandbox.UNAVAILABLE, 502, "PLATFORM_ERROR", True),
        (sandbox.RESET, 502, "NETWORK_ERROR", True),
        (sandbox.DRIP, 504, "TIMEOUT_ERROR", True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_error_of_the_crawl_has_its_status(
    stage: Stage, crawl: CrawlStage, weibo: SandboxWeibo, fault: Fault, status: int, code: str, retryable: bool
) -> None:
    """C13, C15: by the code alone; the same failure in a batch is a 200 with PARTIAL_FAIL. No error tells a crawl token
    the operator's own address of the platform."""
    await crawl.add(ACCOUNT)
    weibo.misbehave(fault)
    envelope = check_refusal(await ask(stage, "/crawler/detail", DETAIL), status, code)
    assert (envelope["error"]["retryable"], envelope["meta"]["cookie_used"]) == (retryable, ACCOUNT)
    batch = await ask(stage, "/crawler/detail/batch", {**BATCH, "items": [{"note_id": DETAIL["note_id"]}]})
    assert (batch.status, batch.json["success"], batch.json["error"]["code"]) == (200, False, "PARTIAL_FAIL")
    assert [item["error"]["code"] for item in batch.json["items"]] == [code]
    assert weibo.host not in envelope["error"]["message"] + batch.json["items"][0]["error"]["message"]


async def test_a_captcha_is_reported_beside_the_code(stage: Stage, crawl: CrawlStage, weibo: SandboxWeibo) -> None:
    """C17: for anybody who counts what became of the cookie; an answer that says nothing of one says false."""
    await crawl.add(ACCOUNT)
    weibo.misbehave(sandbox.EMPTY_DATA)
    blocked = check_refusal(await ask(stage, "/crawler/detail", DETAIL), 502, "COOKIE_INVALID")
    assert (blocked["error"]["captcha"], blocked["meta"]["cookie_used"]) == (True, ACCOUNT)
    resting = check_refusal(await ask(stage, "/crawler/detail", DETAIL), 503, "COOKIE_EXHAUSTED")
    assert (resting["error"]["captcha"], resting["meta"]["cookie_used"], len(weibo.requests)) == (False, None, 1)


async def test_without_a_cookie_nothing_can_be_asked(stage: Stage) -> None:
    """C15: 503, and a retry is no use."""
    envelope = check_refusal(await ask(stage, "/crawler/search", SEARCH), 503, "COOKIE_EXHAUSTED")
    assert (envelope["error"]["retryable"], envelope["meta"]["cookie_used"]) == (False, None)


@pytest.mark.thorough
async def test_three_asked_and_one_times_out(make_stage: StageMaker, crawl: CrawlStage, weibo: SandboxWeibo) -> None:
    """C8: two results and one error, over HTTP, when the batch's own time ends."""
    await crawl.add(ACCOUNT)
    weibo.misbehave(Fault(FaultKind.HANG, matching=name_post(3)))
    stage = open_stage(
        make_stage, crawl.make(batch_timeout=timedelta(seconds=1.5), request_timeout=timedelta(minutes=5))
    )
    answer = await ask(stage, "/crawler/detail/batch", BATCH)
    assert (answer.status, answer.json["summary"]) == (200, {"total": 3, "succeeded": 2, "failed": 1})
    assert answer.json["error"]["code"] == "PARTIAL_FAIL"
    assert [item["success"] for item in answer.json["items"]] == [True, True, False]
    assert answer.json["items"][2]["error"]["code"] == "TIMEOUT_ERROR"


@pytest.mark.parametrize(
    ("path", "document", "message"),
    [
        ("/crawler/search", {"platform": "weibo"}, "keyword: it is required"),
        ("/crawler/search", {**SEARCH, "cookie": CANARY}, "cookie: it is not known; allowed are platform, keyword"),
        ("/crawler/search", {**SEARCH, "page": 0}, "page: "),
        ("/crawler/search", {**SEARCH, "page": "1"}, "page: "),
        ("/crawler/search", {**SEARCH, "keyword": "x" * 201}, "keyword: "),
        ("/crawler/search", {**SEARCH, "keyword": "\t"}, "the keyword must have"),
        ("/crawler/search", {**SEARCH, "platform": CANARY}, "unknown platform"),
        ("/crawler/search", [SEARCH], "body: "),
        ("/crawler/detail", {"platform": "weibo"}, "note_id or url is required"),
        ("/crawler/detail", {"platform": "weibo", "note_id": None, "url": None}, "note_id or url is required"),
        ("/crawler/detail", {"platform": "weibo", "note_id": CANARY * 100}, "note_id: "),
        ("/crawler/detail/batch", {**BATCH, "items": []}, "items: "),
        ("/crawler/detail/batch", {**BATCH, "items": [{"note_id": "x"}] * 51}, "items: "),
        ("/crawler/detail/batch", {**BATCH, "items": [{"note_id": "x"}, {"xsec_token": CANARY}]}, "items[1]: "),
    ],
)
async def test_bad_input_is_a_422_that_says_what_is_allowed_and_repeats_nothing(
    stage: Stage, weibo: SandboxWeibo, path: str, document: object, message: str
) -> None:
    """C13, C15: INVALID_INPUT, before anything is asked."""
    answer = await ask(stage, path, document)
    envelope = check_refusal(answer, 422, "INVALID_INPUT")
    assert message in envelope["error"]["message"]
    assert not envelope["error"]["retryable"]
    assert CANARY.encode() not in answer.body
    assert len(weibo.requests) == 0


@pytest.mark.parametrize(
    ("method", "target", "token", "status", "code", "header"),
    [
        ("POST", "/crawler/search", None, 401, "UNAUTHORIZED", "www-authenticate"),
        ("POST", "/crawler/search", "wrong", 401, "UNAUTHORIZED", "www-authenticate"),
        ("POST", "/workflow/candidates/fail", None, 401, "UNAUTHORIZED", "www-authenticate"),
        ("POST", "/crawler/search", FIXED[Scope.METRICS].reveal(), 403, "UNAUTHORIZED", None),
        ("POST", "/workflow/candidates/fail", TOKEN, 403, "UNAUTHORIZED", None),
        ("POST", "/crawler/nowhere", TOKEN, 404, "NOT_FOUND", None),
        ("GET", "/crawler", TOKEN, 404, "NOT_FOUND", None),
        ("POST", "/crawler/search/", TOKEN, 404, "NOT_FOUND", None),
        ("POST", "/workflow/nowhere", TOKEN, 404, "NOT_FOUND", None),
        ("GET", "/crawler/search", TOKEN, 405, "INVALID_INPUT", "allow"),
        ("POST", "/crawler/search?keyword=x", TOKEN, 422, "INVALID_INPUT", None),
        ("POST", "/crawler/search?x=%00", TOKEN, 422, "INVALID_INPUT", None),
        ("POST", "/workflow/candidates/fail", FIXED[Scope.WORKFLOW].reveal(), 500, "INTERNAL_ERROR", None),
    ],
)
async def test_what_never_reaches_a_platform_is_reported_in_the_envelope_too(
    stage: Stage, method: str, target: str, token: str | None, status: int, code: str, header: str | None
) -> None:
    """C13: no matter who refuses it, middleware, router or handler; HTTP's own headers stay."""
    body = json.dumps(SEARCH).encode() if method == "POST" else None
    answer = await stage.ask(method, target, token=token, body=body)
    envelope = check_refusal(answer, status, code)
    assert (envelope["error"]["retryable"], envelope["meta"]["latency_ms"]) == (False, 0)
    assert header is None or header in answer.headers
    assert CANARY.encode() not in answer.body


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 422),
        (b'{"page": NaN}', "application/json", 422),
        (b"keyword=x", "application/x-www-form-urlencoded", 415),
        (b" " * (LARGEST_BODY + 1), "application/json", 413),
    ],
)
async def test_a_body_that_cannot_be_taken_is_reported_in_the_envelope(
    stage: Stage, body: bytes, content_type: str, status: int
) -> None:
    """C13: 413, 415, and 422 for what is no JSON."""
    headers = [("Content-Type", content_type)]
    answer = await stage.ask("POST", "/crawler/search", token=TOKEN, headers=headers, body=body)
    check_refusal(answer, status, "INVALID_INPUT")
    check_described(stage, "POST", "/crawler/search", answer)


async def test_too_many_wrong_tokens_and_too_slow_a_body(make_stage: StageMaker, crawler: Crawler) -> None:
    """C13: 429 with the time to wait, 408 over a socket."""
    stage = open_stage(make_stage, crawler, slowest_body=timedelta(milliseconds=50))
    answers = [await ask(stage, "/crawler/search", SEARCH, token="wrong") for _ in range(11)]
    check_refusal(answers[-1], 429, "UNAUTHORIZED")
    assert int(answers[-1].headers["retry-after"]) > 0
    head = f"POST /crawler/search HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n"
    async with run_server(stage) as port:
        slow = await send_raw(port, head.encode(), b"{")
    assert slow.startswith(b"HTTP/1.1 408 ")
    assert json.loads(slow.partition(b"\r\n\r\n")[2])["error"]["code"] == "TIMEOUT_ERROR"


@pytest.mark.parametrize(
    ("target", "status"), [("/crawlers", 404), ("/things/one?days=0", 400), ("/fail", 500), ("/x/crawler/search", 404)]
)
async def test_everywhere_else_problems_stay_what_they_were(stage: Stage, target: str, status: int) -> None:
    """RFC 9457, and 400 for bad input."""
    answer = await stage.ask("GET", target)
    assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM_TYPE)
    assert answer.json["status"] == status


def test_the_description_says_envelope_for_every_answer_under_these_paths(stage: Stage) -> None:
    """C13: each refusal is a Failure, bad input a 422; everything else is described as before."""
    document = stage.app.openapi()
    for path, method, operation in list_operations(document):
        kinds = {status: list(answer.get("content", {})) for status, answer in operation["responses"].items()}
        if path.startswith(("/crawler", "/workflow")):
            refusals = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            assert {"401", "403", "408", "413", "415", "422", "429", "500"} <= refusals.keys(), (path, method)
            schemas = [answer["content"]["application/json"]["schema"] for answer in refusals.values()]
            assert schemas == [{"$ref": "#/components/schemas/Failure"}] * len(refusals)
            assert "400" not in kinds
        elif not path.startswith("/health"):
            assert "422" not in kinds
            assert kinds["400"] == [PROBLEM_TYPE]
    assert document["paths"]["/crawler/search"]["post"]["responses"].keys() >= {"200", "502", "503", "504"}


@pytest.fixture
def log(crawl: CrawlStage) -> Iterator[io.StringIO]:
    """All that is logged, as it is written."""
    stream = io.StringIO()
    configure_logging(format=LogFormat.JSON, level="debug", redactor=crawl.redactor, stream=stream)
    yield stream
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), quiet=True)


async def test_a_request_can_be_followed_and_no_cookie_is_seen(
    stage: Stage, crawl: CrawlStage, weibo: SandboxWeibo, log: io.StringIO
) -> None:
    """C6, C7: one id from the header to the last line; the cookie is in no answer, no header and no line."""
    await crawl.add_cookie("canary", f"{COOKIE}; SUB={session_of(ACCOUNT)}")
    weibo.misbehave(Fault(status=200, body=json.dumps({"ok": 0, "msg": COOKIE}), after=1, times=3))
    answers = [await ask(stage, path, PATHS[path], request_id="trace-5") for path in PATHS]
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    shown = {(line["event"], line["request_id"]) for line in lines if line["event"].startswith(("crawl.", "http."))}
    events = ("crawl.search", "crawl.detail", "crawl.item", "crawl.batch", "http.request")
    assert shown == {(event, "trace-5") for event in events}
    assert [answer.json["meta"]["request_id"] for answer in answers] == ["trace-5"] * 3
    assert [answer.status for answer in answers] == [200, 502, 200]
    whole = b"".join(answer.body + repr(answer.headers).encode() for answer in answers)
    assert [find_traces(part) for part in (whole, log.getvalue())] == [set()] * 2


async def test_a_crawl_is_one_line_of_the_log(stage: Stage, crawl: CrawlStage, log: io.StringIO) -> None:
    """C6: the crawler's own line, found or not; a request that it never saw has the line of every request."""
    await crawl.add_cookie("canary", f"SUB={session_of(ACCOUNT)}")
    await ask(stage, "/crawler/detail", PATHS["/crawler/detail"], request_id="found")
    await ask(stage, "/crawler/detail", {"platform": "weibo", "note_id": "!"}, request_id="wrong")
    await ask(stage, "/crawler/detail", {"platform": 1}, request_id="refused")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    asked = ("crawl.", "http.")
    shown = [
        (line["request_id"], line["event"])
        for line in lines
        if line["level"] != "debug" and line["event"].startswith(asked)
    ]
    assert shown == [("found", "crawl.detail"), ("wrong", "crawl.detail"), ("refused", "http.request")]
