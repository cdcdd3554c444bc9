"""The writer's routes of comments, for n8n or another driver of collect. A driver leases threads whose next page is
due, and reports each page that /crawler/comments answered."""

from collections.abc import Callable

from tidings.collect.comments import read_comment
from tidings.collect.write.comments.stage import CommentStage, LeasedThread, ReadComments, ThreadResult
from tidings.collect.write.writer import Writer
from tidings.web.description import problem_answers
from tidings.web.envelope import EnvelopeRoutes
from tidings.web.models import comments as shapes
from tidings.web.models.workflow import LeaseBody, LeasedRecords


def add_comment_routes(
    routes: EnvelopeRoutes, *, writer: Writer, stage: CommentStage, redact: Callable[[str], str]
) -> None:
    """Add the routes. `redact` removes secrets from a text."""

    @routes.add("POST", "/comments/lease", "Lease comments", responses=problem_answers(409))
    async def lease_comments(body: LeaseBody) -> LeasedRecords[LeasedThread]:
        """Notes whose next page of comments is due, one by default. Skips a platform that is paused, or that has no
        cookie left for this execution."""
        execution = await writer.resume(body.execution_id)
        leased = await stage.lease(execution, limit=body.limit or 1, platform=body.platform)
        return LeasedRecords(leased, len(leased))

    @routes.add("POST", "/comments/settle", "Report pages of comments", responses=problem_answers(409))
    async def settle_comments(body: shapes.SettleCommentsBody) -> shapes.SettledThreads:
        """All or nothing, and once, also if repeated. A thread with a further page is due again at once."""
        execution = await writer.resume(body.execution_id)
        results = [_read_result(item, redact=redact) for item in body.items]
        settled = await stage.settle(execution, body.platform, results)
        return shapes.SettledThreads.model_validate({"items": settled})


def _read_result(item: shapes.SettleCommentsItem, *, redact: Callable[[str], str]) -> ThreadResult:
    if item.data is not None:
        comments = [read_comment(each.model_dump()) for each in item.data.comments]
        return ReadComments(
            note_id=item.note_id, comments=comments, cursor=item.data.cursor, cookie_used=item.cookie_used
        )
    return item.to_failure(item.note_id, redact=redact)
