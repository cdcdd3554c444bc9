"""Routes of the workflow: what n8n, or whoever drives collecting from outside, may do to the tables. Each translates,
and calls the writer (`tidings.collect.write`), which guards every change; a lock that was lost is a 409 LOCK_LOST.
Every answer is an envelope, as under /crawler.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, Final, ParamSpec

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from tidings.collect.alerts import record_end, report_failure
from tidings.collect.crawl.envelope import Envelope, Meta
from tidings.collect.errors import RULES, ErrorCode, next_delay
from tidings.collect.notes import read_note
from tidings.collect.write import (
    Collected,
    CookieUse,
    Failed,
    Keyword,
    LeasedCandidate,
    NewCandidate,
    Result,
    Settled,
    SettledAction,
)
from tidings.core.clock import Clock, to_text
from tidings.core.executions import ExecutionStatus
from tidings.core.logs.request_id import NO_REQUEST, current_request_id
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import problem_answers
from tidings.web.errors import problem
from tidings.web.middleware.auth import require
from tidings.web.middleware.request_context import REQUEST_ID
from tidings.web.models.workflow import (
    AcquireAnswer,
    AcquireBody,
    CandidatesAnswer,
    CandidatesBody,
    CookiesAnswer,
    CookiesBody,
    ErrorAnswer,
    ErrorBody,
    ExecutionBody,
    FailAnswer,
    FailBody,
    FinishAnswer,
    FinishBody,
    HeartbeatAnswer,
    KeywordsAnswer,
    LeaseAnswer,
    LeaseBody,
    RecoverAnswer,
    RulesAnswer,
    SettleAnswer,
    SettleBody,
    SettleItem,
    WriteAnswer,
    WriteBody,
)
from tidings.wiring import Installation

# Recovery takes no lock, so no end of an execution tells that it works again.
RECOVERY: Final = "recover"

_LOST: Final = problem_answers(409)
_RECORD_LOST: Final = "this execution does not hold the record; nothing was changed, and whoever holds it goes on"

Caller = Annotated[Grant, require(Scope.WORKFLOW)]
Data = Mapping[str, object]
Asked = ParamSpec("Asked")


def make_workflow_router(installation: Installation) -> APIRouter:
    router = APIRouter(prefix="/workflow", tags=["workflow"], dependencies=[require(Scope.WORKFLOW)])
    _add_rule_routes(router, installation)
    _add_execution_routes(router, installation)
    _add_candidate_routes(router, installation)
    _add_result_routes(router, installation)
    _add_trouble_routes(router, installation)
    return router


def _add_rule_routes(router: APIRouter, installation: Installation) -> None:
    settings = installation.settings.collect

    @router.get("/rules", summary="What to do about each error", response_model=RulesAnswer)
    @_envelop(installation.clock)
    async def read_rules() -> Data:
        known: Mapping[str, Any] = {"backoff": settings.backoff, "retries": settings.retries}
        return {"rules": [_describe_rule(code, **known) for code in RULES]}

    @router.get("/keywords", summary="What to search for", response_model=KeywordsAnswer)
    @_envelop(installation.clock)
    async def list_keywords() -> Data:
        return {"keywords": [_describe_keyword(each) for each in await installation.keywords.list_enabled()]}


def _add_execution_routes(router: APIRouter, installation: Installation) -> None:
    workflows = installation.writer

    @router.post("/executions", summary="Take the lock of a workflow", response_model=AcquireAnswer)
    @_envelop(installation.clock)
    async def acquire_workflow(body: AcquireBody, request: Request, grant: Caller) -> Data:
        """A lock without a sign of life for 30 minutes, or what is set, is free again. Asked again with the same
        `X-Request-ID`, the answer is the same as long as the execution runs."""
        acquired = await workflows.acquire(
            body.workflow_name, remote=True, idempotency_key=_name_idempotency_key(request, grant)
        )
        return {"locked": acquired.locked, "execution_id": acquired.execution_id, "reason": acquired.reason}

    @router.post(
        "/executions/heartbeat", summary="Hold on to the lock", response_model=HeartbeatAnswer, responses=_LOST
    )
    @_envelop(installation.clock)
    async def renew_execution(body: ExecutionBody) -> Data:
        """Keeps the execution and all that it has leased."""
        return {"renewed": await workflows.heartbeat(await workflows.resume(body.execution_id))}

    @router.post("/executions/finish", summary="Give the lock back", response_model=FinishAnswer, responses=_LOST)
    @_envelop(installation.clock)
    async def finish_execution(body: FinishBody) -> Data:
        """What is still leased is given back as if it had never been. Asked again, the answer is how it ended."""
        status = None if body.status is None else ExecutionStatus(body.status)
        ended = await workflows.finish_remote(body.execution_id, status=status)
        await record_end(ended.workflow_name, ended.status, database=installation.database, alerts=installation.alerts)
        return {
            "status": ended.status,
            "items_processed": ended.items_processed,
            "items_failed": ended.items_failed,
            "released": ended.released,
        }


def _add_candidate_routes(router: APIRouter, installation: Installation) -> None:
    workflows = installation.writer

    @router.post("/candidates", summary="Tell what a search found", response_model=CandidatesAnswer, responses=_LOST)
    @_envelop(installation.clock)
    async def add_candidates(body: CandidatesBody) -> Data:
        """A note that is known stays as it is. Also for a search that failed: it counts the use of its cookie."""
        execution = await workflows.resume(body.execution_id)
        added = await workflows.add_candidates(
            execution,
            _read_candidates(body),
            keyword_id=body.keyword_id,
            code=body.error_code,
            uses=_read_search_use(body),
            continued=body.continued,
        )
        return {"created": added.created, "known": added.known}

    @router.post("/candidates/lease", summary="Get candidates to work on", response_model=LeaseAnswer, responses=_LOST)
    @_envelop(installation.clock)
    async def lease_candidates(body: LeaseBody) -> Data:
        """All of one platform; a platform that has no cookie left for this execution is left out."""
        execution = await workflows.resume(body.execution_id)
        limit = body.limit or installation.settings.collect.batch_size
        leased = await workflows.lease(execution, limit=limit, platform=body.platform)
        return {"records": [_describe_candidate(each) for each in leased], "locked_count": len(leased)}


def _add_result_routes(router: APIRouter, installation: Installation) -> None:
    workflows, redact = installation.writer, installation.redactor.redact

    async def settle(body: WriteBody | FailBody, result: Result) -> Settled:
        """The fate of one candidate, which has to be this execution's."""
        [settled] = await workflows.settle(await workflows.resume(body.execution_id), body.platform, [result])
        if settled.action is SettledAction.LOST:
            problem(409, "record_lost", _RECORD_LOST)
        return settled

    @router.post("/sources", summary="Write a note", response_model=WriteAnswer, responses=_LOST)
    @_envelop(installation.clock)
    async def write_note(body: WriteBody) -> Data:
        """Once, however often it is asked for; its candidate is collected in the same transaction."""
        note = read_note(body.note.model_dump())
        written = await settle(body, Collected(note_id=body.note_id, note=note, cookie_used=body.cookie_used))
        return {"action": written.action, "existing_id": written.existing_id}

    @router.post(
        "/candidates/fail", summary="Tell that a note was not read", response_model=FailAnswer, responses=_LOST
    )
    @_envelop(installation.clock)
    async def fail_candidate(body: FailBody) -> Data:
        """The candidate is tried again later, given up, or given back where the fault is not its own."""
        failed = await settle(
            body,
            Failed(
                note_id=body.note_id,
                code=body.code,
                message=redact(body.message),
                cookie_used=body.cookie_used,
                captcha=body.captcha,
            ),
        )
        described = _describe_settled(failed)
        return {name: described[name] for name in ("action", "status", "retry_count", "retry_at")}

    @router.post(
        "/candidates/settle", summary="Tell what became of a batch", response_model=SettleAnswer, responses=_LOST
    )
    @_envelop(installation.clock)
    async def settle_candidates(body: SettleBody) -> Data:
        """All or nothing, and once however often it is asked for."""
        execution = await workflows.resume(body.execution_id)
        results = [_read_result(item, redact=redact) for item in body.items]
        settled = {each.note_id: each for each in await workflows.settle(execution, body.platform, results)}
        ordered = [settled[note_id] for note_id in dict.fromkeys(item.id for item in body.items)]
        counts = {action.value: sum(each.action is action for each in ordered) for action in SettledAction}
        return {"items": [_describe_settled(each) for each in ordered], "summary": {"total": len(ordered), **counts}}

    @router.post("/cookies/outcomes", summary="Count uses of cookies", response_model=CookiesAnswer, responses=_LOST)
    @_envelop(installation.clock)
    async def count_cookies(body: CookiesBody) -> Data:
        """For requests that were repeated; every other use is counted with what it brought."""
        uses = [CookieUse(cookie_name=each.cookie_name, code=each.code, captcha=each.captcha) for each in body.uses]
        await workflows.count_cookie_uses(await workflows.resume(body.execution_id), uses)
        return {"counted": len(uses)}


def _add_trouble_routes(router: APIRouter, installation: Installation) -> None:
    database, alerts = installation.database, installation.alerts

    @router.post("/recover", summary="Free what dead workers hold", response_model=RecoverAnswer)
    @_envelop(installation.clock)
    async def recover_records() -> Data:
        """Safe at any time, by anybody."""
        recovered = await installation.writer.recover()
        await record_end(RECOVERY, ExecutionStatus.SUCCEEDED, database=database, alerts=alerts)
        return {
            "executions": recovered.executions,
            "records": recovered.records,
            "failed": recovered.failed,
        }

    @router.post("/errors", summary="Tell that a workflow failed", response_model=ErrorAnswer)
    @_envelop(installation.clock)
    async def report_error(body: ErrorBody) -> Data:
        """A person is told, once until the workflow has come to its end again."""
        await report_failure(
            body.workflow_name, body.message, execution_id=body.execution_id, database=database, alerts=alerts
        )
        return {"alerted": True}


def _envelop(
    clock: Clock,
) -> Callable[[Callable[Asked, Awaitable[Data]]], Callable[Asked, Awaitable[JSONResponse]]]:
    """A route's data becomes an envelope, which is sent as it is: a test holds it equal to its description."""

    def wrap(route: Callable[Asked, Awaitable[Data]]) -> Callable[Asked, Awaitable[JSONResponse]]:
        @wraps(route)
        async def answer(*args: Asked.args, **kwargs: Asked.kwargs) -> JSONResponse:
            began = clock.monotonic()
            data = await route(*args, **kwargs)
            latency = round((clock.monotonic() - began) * 1000)
            meta = Meta(request_id=current_request_id() or NO_REQUEST, latency_ms=latency)
            return JSONResponse(Envelope(meta=meta, data=data).to_json())

        return answer

    return wrap


def _name_idempotency_key(request: Request, grant: Grant) -> str | None:
    """The caller and its request id, as the idempotency key; None where the caller sent no request id."""
    request_id = current_request_id()
    return f"{grant.name}/{request_id}" if request_id and request.headers.get(REQUEST_ID) == request_id else None


def _read_candidates(body: CandidatesBody) -> list[NewCandidate]:
    return [
        NewCandidate(
            platform=body.platform,
            note_id=hit.note_id,
            note_url=hit.url,
            title=hit.title,
            source_keyword=body.source_keyword,
        )
        for hit in body.hits
    ]


def _read_search_use(body: CandidatesBody) -> list[CookieUse]:
    if body.cookie_used is None:
        return []
    return [CookieUse(cookie_name=body.cookie_used, code=body.error_code, captcha=body.captcha)]


def _read_result(item: SettleItem, *, redact: Callable[[str], str]) -> Result:
    if item.data is not None:
        return Collected(note_id=item.id, note=read_note(item.data.model_dump()), cookie_used=item.cookie_used)
    assert item.error is not None  # noqa: S101 - the shape has one of the two
    return Failed(
        note_id=item.id,
        code=item.error.code,
        message=redact(item.error.message),
        cookie_used=item.cookie_used,
        captcha=item.error.captcha,
    )


def _describe_rule(
    code: ErrorCode, *, backoff: Sequence[timedelta], retries: Mapping[ErrorCode, int]
) -> dict[str, Any]:
    rule, most = RULES[code], retries.get(code, RULES[code].most_retries)
    waits = [next_delay(code, retry=retry, backoff=backoff, retries=retries) for retry in range(1, most + 1)]
    return {
        "code": code,
        "retryable": rule.retryable,
        "action": rule.action,
        "most_retries": most,
        "backoff_seconds": [wait.total_seconds() for wait in waits if wait is not None],
    }


def _describe_keyword(keyword: Keyword) -> dict[str, Any]:
    return {name: getattr(keyword, name) for name in ("id", "platform", "keyword", "pages")}


def _describe_candidate(candidate: LeasedCandidate) -> dict[str, Any]:
    return {name: getattr(candidate, name) for name in LeasedCandidate.__slots__}


def _describe_settled(settled: Settled) -> dict[str, Any]:
    return {
        "note_id": settled.note_id,
        "action": settled.action,
        "existing_id": settled.existing_id,
        "status": settled.status,
        "retry_count": settled.retry_count,
        "retry_at": None if settled.retry_at is None else to_text(settled.retry_at),
    }
