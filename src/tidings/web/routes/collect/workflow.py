"""The writer's routes, for n8n or another driver of collect. Each translates one request into one call of the writer
(`tidings.collect.write`), which guards every change. A lost lock is a 409 LOCK_LOST. Every answer is an envelope.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from fastapi import Request

from tidings.collect.alerts.monitor import WorkflowAlerts
from tidings.collect.comments import read_comment
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import RULES, ErrorCode, next_delay
from tidings.collect.notes import read_note
from tidings.collect.write.comments.stage import LeasedThread, ReadComments, ThreadResult
from tidings.collect.write.next_stage import LeasedSource, SourceResult
from tidings.collect.write.values import (
    Added,
    Collected,
    CookieUse,
    Failed,
    LeasedCandidate,
    NewCandidate,
    Recovered,
    Result,
    Settled,
    SettledAction,
    list_uses,
)
from tidings.core.clock import Clock
from tidings.core.executions import ExecutionStatus
from tidings.core.logs.request_id import current_request_id
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.envelope import EnvelopeRoutes
from tidings.web.errors import problem
from tidings.web.middleware.auth import WorkflowGrant, require
from tidings.web.middleware.input import DocumentRoute
from tidings.web.middleware.request_context import REQUEST_ID
from tidings.web.models import workflow as shapes
from tidings.web.models.comments import SettleCommentsBody, SettleCommentsItem, SettledThreads
from tidings.wiring.collect import CollectInstallation

_LOST: Final = problem_answers(409)
_RECORD_LOST: Final = "this execution does not hold the record; nothing was changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterServices:
    """Services and settings that the writer's routes use."""

    collect: CollectInstallation
    # The alert that a workflow failed as a whole.
    failures: WorkflowAlerts
    clock: Clock
    # Removes secrets from a text.
    redact: Callable[[str], str]
    # Candidates in a lease that names no limit.
    batch_size: int
    # The waits before retries, and retries of codes that differ from the table.
    backoff: Sequence[timedelta]
    retries: Mapping[ErrorCode, int]


def make_workflow_router(services: WriterServices) -> ApiRouter:
    router = ApiRouter(
        prefix="/workflow", tags=["workflow"], dependencies=[require(Scope.WORKFLOW)], route_class=DocumentRoute
    )
    routes = EnvelopeRoutes(router, clock=services.clock)
    _add_rule_routes(routes, services)
    _add_execution_routes(routes, services)
    _add_candidate_routes(routes, services)
    _add_result_routes(routes, services)
    _add_source_routes(routes, services)
    _add_comment_routes(routes, services)
    _add_failure_routes(routes, services)
    return router


def _add_rule_routes(routes: EnvelopeRoutes, services: WriterServices) -> None:
    @routes.add("GET", "/rules", "What to do about each error", responses={})
    async def read_rules() -> shapes.RetryRules:
        return shapes.RetryRules([_describe_rule(code, services) for code in RULES])

    @routes.add("GET", "/keywords", "What to search for", responses={})
    async def list_keywords() -> shapes.WatchedKeywords:
        """Without keywords of a platform that is paused now."""
        paused = await services.collect.writer.pauses.list_names()
        keywords = [each for each in await services.collect.keywords.list_enabled() if each.platform not in paused]
        return shapes.WatchedKeywords.model_validate({"keywords": keywords})


def _add_execution_routes(routes: EnvelopeRoutes, services: WriterServices) -> None:
    writer, failures = services.collect.writer, services.failures

    @routes.add("POST", "/executions", "Take the lock of a workflow", responses={})
    async def acquire_workflow(body: shapes.AcquireBody, request: Request, grant: WorkflowGrant) -> shapes.AcquiredLock:
        """A lock without a heartbeat for LOCK_TIMEOUT_MINUTES is free again. A repeated request with the same
        `X-Request-ID` gets the same answer while the execution runs."""
        key = _name_idempotency_key(request, grant)
        acquired = await writer.acquire(body.workflow_name, remote=True, idempotency_key=key)
        return shapes.AcquiredLock.model_validate(acquired)

    @routes.add("POST", "/executions/heartbeat", "Keep the lock", responses=_LOST)
    async def renew_execution(body: shapes.ExecutionBody) -> shapes.RenewedLeases:
        """Keeps the execution and everything that it has leased."""
        return shapes.RenewedLeases(await writer.heartbeat(await writer.resume(body.execution_id)))

    @routes.add("POST", "/executions/finish", "Release the lock", responses=_LOST)
    async def finish_execution(body: shapes.FinishBody) -> shapes.FinishedExecution:
        """Gives back, uncounted, what is still leased. A repeated request gets the same status."""
        status = None if body.status is None else ExecutionStatus(body.status)
        ended = await writer.finish_remote(body.execution_id, status=status)
        await failures.judge_end(ended.workflow_name, ended.status)
        return shapes.FinishedExecution.model_validate(ended)


def _add_candidate_routes(routes: EnvelopeRoutes, services: WriterServices) -> None:
    writer = services.collect.writer

    @routes.add("POST", "/candidates", "Report a search", responses=_LOST)
    async def add_candidates(body: shapes.CandidatesBody) -> Added:
        """Adds the hits that are new. A failed search is reported too: its cookie's use is counted."""
        error = None if body.error_code is None else body.to_error(body.error_code, redact=services.redact)
        return await writer.add_candidates(
            await writer.resume(body.execution_id),
            _read_candidates(body),
            keyword_id=body.keyword_id,
            platform=body.platform,
            error=error,
            uses=list_uses(body.cookie_used, error),
            continued=body.continued,
        )

    @routes.add("POST", "/candidates/lease", "Lease candidates", responses=_LOST)
    async def lease_candidates(body: shapes.LeaseBody) -> shapes.LeasedRecords[LeasedCandidate]:
        """All of one platform. Skips a platform that is paused, or that has no cookie left for this execution. Gives no
        more than cookies and pace can ask for in time, and one candidate to probe a platform after its pause."""
        execution = await writer.resume(body.execution_id)
        leased = await writer.lease(execution, limit=body.limit or services.batch_size, platform=body.platform)
        return shapes.LeasedRecords(leased, len(leased))


def _add_result_routes(routes: EnvelopeRoutes, services: WriterServices) -> None:
    writer, redact = services.collect.writer, services.redact

    async def settle_one(body: shapes.SourceBody | shapes.FailBody, result: Result) -> Settled:
        [settled] = await writer.settle(await writer.resume(body.execution_id), body.platform, [result])
        if settled.action is SettledAction.LOST:
            problem(409, "record_lost", _RECORD_LOST)
        return settled

    @routes.add("POST", "/sources", "Write a note", responses=_LOST)
    async def write_note(body: shapes.SourceBody) -> shapes.WrittenSource:
        """Writes the note once, also if repeated, and marks its candidate as collected in the same transaction."""
        note = read_note(body.note.model_dump())
        written = await settle_one(body, Collected(note_id=body.note_id, note=note, cookie_used=body.cookie_used))
        assert written.existing_id is not None  # noqa: S101 - a note that was written has a row
        action: Literal["created", "skipped"] = "created" if written.action is SettledAction.CREATED else "skipped"
        return shapes.WrittenSource(action=action, existing_id=written.existing_id)

    @routes.add("POST", "/candidates/fail", "Report that a note was not read", responses=_LOST)
    async def fail_candidate(body: shapes.FailBody) -> shapes.FailedRecord:
        """The candidate is retried later, given up, or released uncounted if the fault is not its own."""
        error = body.to_error(body.code, redact=redact)
        failed = Failed(note_id=body.note_id, error=error, cookie_used=body.cookie_used)
        return shapes.FailedRecord.model_validate(await settle_one(body, failed))

    @routes.add("POST", "/candidates/settle", "Report a batch of results", responses=_LOST)
    async def settle_candidates(body: shapes.SettleBody) -> shapes.SettledBatch:
        """All or nothing, and once, also if repeated."""
        execution = await writer.resume(body.execution_id)
        results = [_read_result(item, redact=redact) for item in body.items]
        settled = {each.note_id: each for each in await writer.settle(execution, body.platform, results)}
        return _describe_batch([settled[note_id] for note_id in dict.fromkeys(item.id for item in body.items)])

    @routes.add("POST", "/cookies/outcomes", "Count uses of cookies", responses=_LOST)
    async def count_outcomes(body: shapes.OutcomesBody) -> shapes.CountedOutcomes:
        """For requests that were repeated; every other use is counted with its result."""
        uses = [CookieUse(cookie_name=each.cookie_name, code=each.code, captcha=each.captcha) for each in body.uses]
        await writer.count_cookie_uses(await writer.resume(body.execution_id), uses)
        return shapes.CountedOutcomes(len(uses))


def _add_source_routes(routes: EnvelopeRoutes, services: WriterServices) -> None:
    writer, stage, redact = services.collect.writer, services.collect.next_stage, services.redact

    @routes.add("POST", "/sources/lease", "Lease collected notes", responses=_LOST)
    async def lease_sources(body: shapes.LeaseBody) -> shapes.LeasedRecords[LeasedSource]:
        """For a next stage: the same leases as for candidates. All of one platform."""
        execution = await writer.resume(body.execution_id)
        leased = await stage.lease(execution, limit=body.limit or services.batch_size, platform=body.platform)
        return shapes.LeasedRecords(leased, len(leased))

    @routes.add("POST", "/sources/settle", "Report work on collected notes", responses=_LOST)
    async def settle_sources(body: shapes.SettleSourcesBody) -> shapes.SettledSources:
        """All or nothing, and once, also if repeated. A note that you no longer hold has the action `lost`."""
        results = [
            SourceResult(
                idempotency_key=item.idempotency_key,
                error=None if item.code is None else make_error(item.code, redact(item.message)),
            )
            for item in body.items
        ]
        execution = await writer.resume(body.execution_id)
        return shapes.SettledSources.model_validate({"items": await stage.settle(execution, body.platform, results)})


def _add_comment_routes(routes: EnvelopeRoutes, services: WriterServices) -> None:
    writer, stage, redact = services.collect.writer, services.collect.comments, services.redact

    @routes.add("POST", "/comments/lease", "Lease comments", responses=_LOST)
    async def lease_comments(body: shapes.LeaseBody) -> shapes.LeasedRecords[LeasedThread]:
        """Notes whose next page of comments is due, one by default. Skips a platform that is paused, or that has no
        cookie left for this execution."""
        execution = await writer.resume(body.execution_id)
        leased = await stage.lease(execution, limit=body.limit or 1, platform=body.platform)
        return shapes.LeasedRecords(leased, len(leased))

    @routes.add("POST", "/comments/settle", "Report pages of comments", responses=_LOST)
    async def settle_comments(body: SettleCommentsBody) -> SettledThreads:
        """All or nothing, and once, also if repeated. A thread with a further page is due again at once."""
        execution = await writer.resume(body.execution_id)
        results = [_read_comments(item, redact=redact) for item in body.items]
        return SettledThreads.model_validate({"items": await stage.settle(execution, body.platform, results)})


def _add_failure_routes(routes: EnvelopeRoutes, services: WriterServices) -> None:
    failures = services.failures

    @routes.add("POST", "/recover", "Free records of dead executions", responses={})
    async def recover_records() -> Recovered:
        """Safe at any time, for every driver."""
        recovered = await services.collect.writer.recover()
        await failures.record_recovery()
        return recovered

    @routes.add("POST", "/errors", "Report a failed workflow", responses={})
    async def report_error(body: shapes.FailureBody) -> shapes.ReportedFailure:
        """Raises an alert, once until the workflow ends well again."""
        await failures.report_failure(body.workflow_name, body.message, execution_id=body.execution_id)
        return shapes.ReportedFailure(alerted=True)


def _name_idempotency_key(request: Request, grant: Grant) -> str | None:
    """The token's name and the request id; None if the client sent no request id."""
    request_id = current_request_id()
    return f"{grant.name}/{request_id}" if request_id and request.headers.get(REQUEST_ID) == request_id else None


def _read_candidates(body: shapes.CandidatesBody) -> list[NewCandidate]:
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


def _read_result(item: shapes.SettleItem, *, redact: Callable[[str], str]) -> Result:
    if item.data is not None:
        return Collected(note_id=item.id, note=read_note(item.data.model_dump()), cookie_used=item.cookie_used)
    return item.to_failure(item.id, redact=redact)


def _read_comments(item: SettleCommentsItem, *, redact: Callable[[str], str]) -> ThreadResult:
    if item.data is not None:
        comments = [read_comment(each.model_dump()) for each in item.data.comments]
        return ReadComments(
            note_id=item.note_id, comments=comments, cursor=item.data.cursor, cookie_used=item.cookie_used
        )
    return item.to_failure(item.note_id, redact=redact)


def _describe_rule(code: ErrorCode, services: WriterServices) -> shapes.RetryRule:
    backoff, retries = services.backoff, services.retries
    rule, most = RULES[code], retries.get(code, RULES[code].most_retries)
    waits = [next_delay(code, retry=retry, backoff=backoff, retries=retries) for retry in range(1, most + 1)]
    return shapes.RetryRule(
        code=code,
        retryable=rule.retryable,
        action=rule.action,
        most_retries=most,
        backoff_seconds=[wait.total_seconds() for wait in waits if wait is not None],
    )


def _describe_batch(settled: Sequence[Settled]) -> shapes.SettledBatch:
    counts = {action.value: sum(each.action is action for each in settled) for action in SettledAction}
    items = [shapes.SettledItem.model_validate(each) for each in settled]
    return shapes.SettledBatch(items=items, summary=shapes.SettledSummary(total=len(items), **counts))
