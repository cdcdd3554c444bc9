"""Routes of collected notes: list, search, read, export and delete. The workflow token may read them."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import PlainValidator, WithJsonSchema
from starlette.convertors import PathConvertor, register_url_convertor

from tidings.collect.archive.archive import CURSOR, MOST_IN_PAGE, NoteFilter
from tidings.collect.archive.export import (
    MEDIA_TYPES,
    ExportContent,
    Exporter,
    ExportError,
    ExportFormat,
    check_export,
)
from tidings.collect.notes import NoteKind
from tidings.collect.write.writer import Writer
from tidings.core.clock import Clock, parse_timestamp
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import problem, refuse_field
from tidings.web.middleware.auth import AdminGrant, WorkflowGrant
from tidings.web.models.comments import CommentsAnswer
from tidings.web.models.notes import NoteAnswer, NotesAnswer


def _read_time(value: object) -> datetime:
    found = parse_timestamp(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("it must be a timestamp such as 2026-11-15T10:00:00Z, or a day")
    return found


TimeText = Annotated[datetime, PlainValidator(_read_time), WithJsonSchema({"type": "string", "format": "date-time"})]


class AnyNoteIdConvertor(PathConvertor):
    """A note id, which may contain slashes and, in a request of any client, line ends."""

    regex = "(?s:.*)"


class NoteIdConvertor(PathConvertor):
    """The same, but not the path of another note's comments."""

    regex = "(?s:.*)(?<!/comments)"


register_url_convertor("any_note", AnyNoteIdConvertor())
register_url_convertor("note", NoteIdConvertor())
PlatformPath = Annotated[str, Path(max_length=32, examples=["bilibili"])]
NoteIdPath = Annotated[str, Path(max_length=256, examples=["BV1xx411c7mD"])]


def read_filter(
    platform: Annotated[str | None, Query(max_length=32, description="Of this platform.")] = None,
    keyword: Annotated[str | None, Query(max_length=256, description="Found by this keyword first.")] = None,
    author: Annotated[str | None, Query(max_length=256, description="The author's name or id.")] = None,
    kind: Annotated[NoteKind | None, Query(description="Of this kind.")] = None,
    since: Annotated[TimeText | None, Query(description="Published at this time or day (UTC), or later.")] = None,
    until: Annotated[TimeText | None, Query(description="Published before this time or day (UTC).")] = None,
    q: Annotated[str | None, Query(max_length=256, description="Words in title, author, tags or text.")] = None,
) -> NoteFilter:
    """The filter that the query parameters name."""
    return NoteFilter(platform=platform, keyword=keyword, author=author, kind=kind, since=since, until=until, text=q)


def make_notes_router(exporter: Exporter, *, writer: Writer, clock: Clock) -> ApiRouter:
    notes, comments = exporter.notes, exporter.comments
    router = ApiRouter(prefix="/api/notes", tags=["notes"])
    wanted_notes = Annotated[NoteFilter, Depends(read_filter)]

    @router.get("", summary="List and search notes")
    async def list_notes(
        _grant: WorkflowGrant,
        wanted: wanted_notes,
        limit: Annotated[int, Query(ge=1, le=MOST_IN_PAGE, description="How many at most.")] = 50,
        cursor: Annotated[str | None, Query(pattern=CURSOR, description="The `next` of the page before.")] = None,
    ) -> NotesAnswer:
        page = await notes.list_page(wanted, limit=limit, cursor=cursor)
        return NotesAnswer.model_validate({"notes": [each.describe() for each in page.notes], "next": page.next})

    @router.get("/export", summary="Export notes", response_class=StreamingResponse)
    async def export_all_notes(
        _grant: WorkflowGrant,
        wanted: wanted_notes,
        form: Annotated[ExportFormat, Query(alias="format", description="The file's format.")] = ExportFormat.JSONL,
        content: Annotated[
            ExportContent, Query(alias="of", description="What of the notes; `all` is not for CSV.")
        ] = ExportContent.NOTES,
    ) -> StreamingResponse:
        """All notes that match, the oldest collected first: the notes, their comments or their counts over time. XLSX
        begins when the whole file is written."""
        try:
            check_export(form, content)
        except ExportError as error:
            refuse_field("of", str(error))
        name = f"{content.value.replace('all', 'notes')}-{clock.now():%Y-%m-%d}.{form.value}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        pieces: AsyncIterator[bytes] = exporter.export(wanted, form, content=content)
        return StreamingResponse(pieces, media_type=MEDIA_TYPES[form], headers=headers)

    @router.get("/{platform}/{note_id:any_note}/comments", summary="Read the comments of a note")
    async def list_note_comments(
        platform: PlatformPath,
        note_id: NoteIdPath,
        _grant: WorkflowGrant,
        limit: Annotated[int, Query(ge=1, le=MOST_IN_PAGE, description="How many at most.")] = 50,
        cursor: Annotated[str | None, Query(pattern=CURSOR, description="The `next` of the page before.")] = None,
    ) -> CommentsAnswer:
        """None if its keyword asks for none."""
        page = await comments.list_page(platform, note_id, limit=limit, cursor=cursor)
        total = await comments.count(platform, note_id)
        described = [each.describe() for each in page.comments]
        return CommentsAnswer.model_validate({"comments": described, "total": total, "next": page.next})

    @router.get("/{platform}/{note_id:note}", summary="Read a note", responses=problem_answers(404))
    async def read_stored_note(platform: PlatformPath, note_id: NoteIdPath, _grant: WorkflowGrant) -> NoteAnswer:
        """With all its versions, and its counts each time it was read."""
        versions = [each.describe() for each in await notes.list_versions(platform, note_id)]
        if not versions:
            problem(404, "unknown_note", "there is no collected note of this platform and id")
        snapshots = [each.describe() for each in await notes.list_snapshots(platform, note_id)]
        return NoteAnswer.model_validate({"note": versions[-1], "versions": versions, "snapshots": snapshots})

    @router.delete(
        "/{platform}/{note_id:note}", summary="Delete a note", status_code=204, responses=problem_answers(404)
    )
    async def delete_stored_note(platform: PlatformPath, note_id: NoteIdPath, _grant: AdminGrant) -> Response:
        """Deletes it everywhere, also in Feishu, and does not collect it again."""
        if not await writer.corrections.delete_note(platform, note_id):
            problem(404, "unknown_note", "there is neither a note nor a candidate of this platform and id")
        return Response(status_code=204)

    return router
