"""Problem answers: one shape, a message that says what is allowed, and nothing of what was sent."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from structlog.typing import EventDict

from tests.web.stage import CANARY, Stage
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.secrets.redaction import Redactor
from tidings.web.description import PROBLEM_TYPE
from tidings.web.errors import ProblemBody

SHAPE = {"type", "title", "status", "detail", "code", "requestId"}


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code"),
    [
        ("GET", "/nowhere", None, 404, "not_found"),
        ("GET", "/things/", None, 404, "not_found"),
        ("GET", "/things/one/", None, 404, "not_found"),
        ("GET", "/../things/one", None, 404, "not_found"),
        ("GET", "/things/..%2f..%2fetc%2fpasswd", None, 404, "not_found"),
        ("GET", "/things/missing", None, 404, "unknown_thing"),
        ("PUT", "/things/one", None, 405, "method_not_allowed"),
        ("PROPFIND", "/things/one", None, 405, "method_not_allowed"),
        ("GET", "/busy", None, 409, "busy"),
        ("GET", "/things/one?days=many", None, 400, "invalid_input"),
        ("GET", "/trigger?site=1'%20OR%201=1", None, 400, "invalid_input"),
        ("POST", "/things", None, 400, "invalid_input"),
        ("POST", "/things", b"[]", 400, "invalid_input"),
        ("POST", "/things", b"{", 400, "invalid_json"),
        ("GET", "/fail", None, 500, "internal_error"),
    ],
)
async def test_every_problem_has_one_shape(
    stage: Stage, method: str, target: str, body: bytes | None, status: int, code: str
) -> None:
    """Attack cases "API", RFC 9457: the media type, the fields, and the request id of the header."""
    answer = await stage.ask(method, target, body=body)
    assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM_TYPE)
    assert set(answer.json) - {"errors"} == SHAPE
    assert (answer.json["type"], answer.json["status"], answer.json["code"]) == ("about:blank", status, code)
    assert answer.json["requestId"] == answer.headers["x-request-id"]
    assert ProblemBody.model_validate(answer.json).detail


async def test_a_wrong_method_is_reported_every_right_one(stage: Stage) -> None:
    """RFC 9110: Allow names the methods of all routes at this path."""
    answer = await stage.ask("PATCH", "/things/one")
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET")


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"name": "x", "colour": 1}, "colour", "it is not known; allowed are name, kind, count, tags, key"),
        ({}, "name", "it is required"),
        ({"name": "x", "kind": CANARY}, "kind", "Input should be 'small' or 'large'"),
        ({"name": "x", "count": 11}, "count", "Input should be less than or equal to 10"),
        ({"name": "x", "count": CANARY}, "count", "Input should be a valid integer"),
        ({"name": "x" * 51}, "name", "String should have at most 50 characters"),
        ({"name": "x", "tags": [CANARY, 5]}, "tags[1]", "Input should be a valid string"),
        ({"name": "x", "kind": "large"}, "body", "key is required when kind is large"),
        ({"name": "x", CANARY: CANARY}, "…", "it is not known; allowed are name"),
        ({"name": "x", "n" * 500: CANARY}, "…", "it is not known; allowed are name"),
    ],
)
async def test_bad_input_is_a_400_that_says_what_is_allowed_and_repeats_nothing(
    stage: Stage, body: object, field: str, message: str
) -> None:
    """A2, A3, A4: the field by name, the rule, and never the value, which may be a key."""
    answer = await stage.ask("POST", "/things", body=json.dumps(body).encode())
    assert answer.status == 400
    assert [each["field"] for each in answer.json["errors"]] == [field]
    assert answer.json["errors"][0]["message"].startswith(message)
    assert message in answer.json["detail"]
    assert CANARY.encode() not in answer.body


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("days=0", "days", "greater than or equal to 1"),
        ("days=1&days=2", "days", "only once"),
        ("dayz=1", "dayz", "allowed are days"),
        (f"{CANARY}=1", "…", "allowed are days"),
        ("days=1%00", None, "NUL"),
    ],
)
async def test_bad_parameters_are_a_400_too(stage: Stage, query: str, field: str | None, message: str) -> None:
    """Attack cases "API": unknown ones, repeated ones, values that break the rule."""
    answer = await stage.ask("GET", f"/things/one?{query}")
    assert answer.status == 400
    assert message in answer.json["detail"]
    assert [each["field"] for each in answer.json.get("errors", [])] == ([field] if field else [])
    assert CANARY.encode() not in answer.body


async def test_many_errors_are_cut_and_counted(stage: Stage) -> None:
    """Attack cases "API": a body with a thousand faults has a short answer."""
    body = json.dumps({"name": "x", "tags": list(range(1_000))}).encode()
    answer = await stage.ask("POST", "/things", body=body)
    assert "(and 999 more)" in answer.json["detail"]
    assert len(answer.json["errors"]) == 20


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The log as it is written, with a redactor that knows the canary."""
    loggers = [logging.getLogger(name) for name in (None, "tidings")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    stream = io.StringIO()
    yield stream
    logging.captureWarnings(False)
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


async def test_a_failure_is_logged_under_its_request_id_and_the_client_learns_nothing(
    stage: Stage, log: io.StringIO
) -> None:
    """Attack cases "Secrets": no traceback and no secret in the answer, no secret in the log."""
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor([CANARY]), stream=log)
    answer = await stage.ask("GET", "/fail", headers=[("X-Request-ID", "my-id.7")])
    assert answer.status == 500
    assert answer.json["requestId"] == "my-id.7"
    assert b"RuntimeError" not in answer.body
    assert CANARY.encode() not in answer.body
    failed, request = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {failed["request_id"], request["request_id"]} == {"my-id.7"}
    assert (failed["event"], failed["level"]) == ("http.failed", "error")
    assert "RuntimeError" in failed["exception"]
    assert CANARY not in log.getvalue()


async def test_what_a_client_did_wrong_leaves_no_trace_of_its_input_in_the_log(
    stage: Stage, events: list[EventDict]
) -> None:
    """Attack cases "Secrets": one line for the request, without the path, the query or the body."""
    await stage.ask("POST", f"/things?key={CANARY}", body=json.dumps({"name": "x", "count": CANARY}).encode())
    await stage.ask("GET", f"/{CANARY}/{CANARY}?key={CANARY}")
    assert [event["event"] for event in events] == ["http.request"] * 2
    assert CANARY not in str(events)
