"""Routes of collect for people and their programs: status, executions, keywords, candidates and cookies. Reading is
open to the workflow token too; changes need an admin's."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Path, Query, Response

from tidings.collect.crawl.platforms.registry import list_platforms
from tidings.collect.errors import CrawlError
from tidings.collect.note_urls import NoteUrlError, find_note
from tidings.collect.status.queries import list_candidates, list_executions
from tidings.collect.tables import CandidateStatus
from tidings.collect.watching import KeywordChecks
from tidings.collect.write.corrections import CollectCorrections
from tidings.collect.write.keywords import NO_REFRESH, Keyword, Keywords, RefreshPlan, parse_refresh
from tidings.collect.write.values import NewCandidate
from tidings.core.db.database import Database
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import problem, refuse_field
from tidings.web.middleware.auth import AdminGrant, WorkflowGrant
from tidings.web.models import collect as shapes
from tidings.wiring.collect import CollectInstallation

KeywordId = Annotated[int, Path(ge=1, le=2**63 - 1, description="The keyword's id.", examples=[1])]


def make_collect_router(
    collect: CollectInstallation, *, database: Database, checks: KeywordChecks, wake: Callable[[], None]
) -> ApiRouter:
    """`wake` tells the jobs that there is something to do."""
    router = ApiRouter(prefix="/api", tags=["collect"])
    _add_status_routes(router, collect, database)
    _add_keyword_routes(router, collect.keywords, checks, wake)
    _add_keyword_changes(router, collect.keywords, wake)
    _add_candidate_routes(router, collect.writer.corrections, database, wake)
    return router


def _add_status_routes(router: ApiRouter, collect: CollectInstallation, database: Database) -> None:
    @router.get("/collect/status", summary="Read the status of collect")
    async def read_collect_status(_grant: WorkflowGrant) -> shapes.CollectStatusAnswer:
        return shapes.CollectStatusAnswer.model_validate(await collect.status.read())

    @router.get("/collect/executions", summary="List executions of collect")
    async def list_collect_executions(
        _grant: WorkflowGrant, limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50
    ) -> shapes.CollectExecutionsAnswer:
        """The newest first."""
        async with database.read() as connection:
            found = await list_executions(connection, limit=limit)
        return shapes.CollectExecutionsAnswer.describe(executions=found)

    @router.get("/cookies", summary="List cookies")
    async def list_cookies(_grant: WorkflowGrant) -> shapes.CookiesAnswer:
        """Names and states, never values."""
        return shapes.CookiesAnswer.describe(cookies=await collect.cookies.list_all())


def _add_keyword_routes(router: ApiRouter, keywords: Keywords, checks: KeywordChecks, wake: Callable[[], None]) -> None:
    @router.get("/keywords", summary="List watched keywords")
    async def list_watched_keywords(_grant: WorkflowGrant) -> shapes.KeywordsAnswer:
        return shapes.KeywordsAnswer.describe(keywords=await keywords.list_all())

    @router.post("/keywords", summary="Watch a keyword", status_code=201)
    async def add_keyword(body: shapes.KeywordBody, _grant: AdminGrant) -> shapes.AddedKeywordAnswer:
        """A keyword that the platform cannot search for as things are (no feeds, a missing package) is refused."""
        if body.platform not in (names := list_platforms()):
            refuse_field("platform", f"there is no such platform; the platforms are {', '.join(names)}")
        refresh = _read_refresh(body)
        try:
            checks.check(body.platform, body.keyword, comments=body.comments)
            await keywords.add(body.platform, body.keyword, pages=body.pages, refresh=refresh, comments=body.comments)
        except CrawlError as error:
            refuse_field("keyword", error.message)
        wake()
        wanted = (body.platform, body.keyword.strip())
        [added] = [each for each in await keywords.list_all() if (each.platform, each.keyword) == wanted]
        overload = await checks.find_overload(body.platform)
        return shapes.AddedKeywordAnswer.describe(keyword=added, overload=overload)


def _read_refresh(body: shapes.KeywordBody) -> RefreshPlan | None:
    if not isinstance(body.refresh, shapes.RefreshBody):
        return NO_REFRESH if body.refresh == "off" else None
    try:
        return parse_refresh(body.refresh.every, body.refresh.period)
    except CrawlError as error:
        refuse_field("refresh", error.message)


def _add_keyword_changes(router: ApiRouter, keywords: Keywords, wake: Callable[[], None]) -> None:
    async def require_keyword(keyword_id: int) -> Keyword:
        found = await keywords.find(keyword_id)
        if found is None:
            problem(404, "unknown_keyword", "there is no keyword of this id; GET /api/keywords lists them")
        return found

    async def set_enabled(keyword_id: int, *, enabled: bool) -> shapes.KeywordAnswer:
        before = await require_keyword(keyword_id)
        await keywords.set_enabled(before.platform, before.keyword, enabled=enabled)
        wake()
        return shapes.KeywordAnswer.describe(keyword=await require_keyword(keyword_id))

    @router.post("/keywords/{keyword_id}/pause", summary="Pause a keyword", responses=problem_answers(404))
    async def pause_keyword(keyword_id: KeywordId, _grant: AdminGrant) -> shapes.KeywordAnswer:
        return await set_enabled(keyword_id, enabled=False)

    @router.post("/keywords/{keyword_id}/resume", summary="Resume a keyword", responses=problem_answers(404))
    async def resume_keyword(keyword_id: KeywordId, _grant: AdminGrant) -> shapes.KeywordAnswer:
        return await set_enabled(keyword_id, enabled=True)

    @router.delete(
        "/keywords/{keyword_id}", summary="Stop watching a keyword", status_code=204, responses=problem_answers(404)
    )
    async def remove_keyword(keyword_id: KeywordId, _grant: AdminGrant) -> Response:
        """Its candidates and notes stay."""
        found = await require_keyword(keyword_id)
        await keywords.remove(found.platform, found.keyword)
        return Response(status_code=204)


def _add_candidate_routes(
    router: ApiRouter, corrections: CollectCorrections, database: Database, wake: Callable[[], None]
) -> None:
    @router.get("/candidates", summary="List candidates")
    async def list_all_candidates(
        _grant: WorkflowGrant,
        status: Annotated[CandidateStatus | None, Query(description="Of this status.")] = None,
        platform: Annotated[str | None, Query(max_length=32, description="Of this platform.")] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50,
        cursor: Annotated[str | None, Query(max_length=300, description="The `next` of the page before.")] = None,
    ) -> shapes.CandidatesAnswer:
        """By platform and note id."""
        first, _, rest = (cursor or "").partition(":")
        after = (first, rest) if cursor else None
        async with database.read() as connection:
            found = await list_candidates(connection, status=status, platform=platform, limit=limit + 1, after=after)
        last = found[limit - 1] if len(found) > limit else None
        return shapes.CandidatesAnswer.describe(
            candidates=found[:limit],
            next=None if last is None else f"{last.platform}:{last.note_id}",
        )

    @router.post("/candidates", summary="Add a note by its URL", status_code=201)
    async def add_given_note(body: shapes.GivenNoteBody, _grant: AdminGrant) -> shapes.GivenNoteAnswer:
        """Collected next. A note that is known stays as it is, and one that was deleted stays deleted."""
        try:
            note = find_note(body.url)
        except NoteUrlError as error:
            refuse_field("url", str(error))
        new = NewCandidate(platform=note.platform, note_id=note.note_id, note_url=note.url, title="", source_keyword="")
        created = await corrections.add_candidate(new)
        wake()
        return shapes.GivenNoteAnswer(platform=note.platform, note_id=note.note_id, created=created)

    @router.post("/candidates/retry", summary="Try failed candidates again")
    async def retry_candidates(body: shapes.RetryBody, _grant: AdminGrant) -> shapes.RequeuedAnswer:
        if body.note_ids is not None and body.platform is None:
            refuse_field("platform", "it is required with noteIds")
        count = await corrections.requeue(body.platform, note_ids=body.note_ids)
        wake()
        return shapes.RequeuedAnswer(requeued=count)
