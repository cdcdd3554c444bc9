"""Collected notes: search, filters and pages; one note with its counts, comments and the addresses of its images;
deletion.

Images are never loaded, because platforms would then see who reads the notes.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from markupsafe import Markup, escape

from tidings.collect.archive.archive import CURSOR, NoteFilter, NoteSnapshot, StoredNote
from tidings.collect.archive.comments import StoredCommentPage
from tidings.collect.archive.export import ExportFormat
from tidings.collect.comments import Comment
from tidings.collect.notes import NoteKind
from tidings.core.clock import to_text
from tidings.core.secrets.scopes import Scope
from tidings.web.errors import problem
from tidings.web.pages.collect import name_platform
from tidings.web.pages.view.charts import draw_line
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import read_form
from tidings.web.pages.view.questions import Question, ask
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, make_page_router, require_scope

_PAGE: Final = 25
# Counting stops here: "1,000+" says enough, and a page never reads the whole archive.
_MOST_COUNTED: Final = 1_000
_EXCERPT: Final = 90
_LONGEST: Final = 256
# The blank of a line's end is a hole after Chinese punctuation.
_FULL_WIDTH_BLANK: Final = re.compile("(?<=[，。！？；：、）》」…]) ")
_PERIODS: Final = {"7": timedelta(days=7), "30": timedelta(days=30), "365": timedelta(days=365)}
# Rows of the table below the chart, dates below the chart (a phone shows every other one), comments on a page.
_MOST_ROWS: Final = 30
_MOST_DATES: Final = 8
_COMMENTS: Final = 50
COUNTS: Final = ("views", "likes", "favorites", "comments", "shares", "coins", "danmaku")


def make_notes_pages_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    _add_list(router, dashboard)
    _add_deletion(router, dashboard)
    _add_note(router, dashboard)
    return router


def locate_note(platform: str, note_id: str) -> str:
    """The URL of a note's page; an id may contain any character."""
    return f"/notes/{quote(platform, safe='')}/{quote(note_id, safe='')}"


def _add_list(router: APIRouter, dashboard: Dashboard) -> None:
    installation, renderer = dashboard.installation, dashboard.renderer

    @router.get("/notes")
    async def show_notes(
        request: Request,
        q: str = Query("", max_length=_LONGEST),
        platform: str = Query("", max_length=32),
        keyword: str = Query("", max_length=_LONGEST),
        author: str = Query("", max_length=_LONGEST),
        kind: str = Query("", max_length=32),
        days: str = Query("", max_length=3),
        after: str | None = Query(None, pattern=CURSOR),
    ) -> Response:
        require_scope(request, Scope.WORKFLOW)
        formats = renderer.formats(request)
        query = {"q": q.strip(), "platform": platform, "keyword": keyword, "author": author, "kind": kind, "days": days}
        wanted = read_query(query, formats)
        page = await installation.collect.notes.list_page(wanted, limit=_PAGE, cursor=after)
        found = await installation.collect.notes.count(wanted, most=_MOST_COUNTED)
        watched = await installation.collect.keywords.list_all()
        return await dashboard.render(
            request,
            "notes.html",
            query=query,
            rows=[_describe_row(each, formats, words=q.split()) for each in page.notes],
            found=f"{formats.number(found)}{'+' if found == _MOST_COUNTED else ''}",
            is_filtered=any(query.values()),
            keywords=[(each, each) for each in sorted({each.keyword for each in watched})],
            kinds=[(each.value, formats.texts(f"note.kind.{each.value}")) for each in NoteKind],
            periods=[(each, formats.texts(f"notes.days.{each}")) for each in _PERIODS],
            segments=_make_segments(query, [each.platform for each in watched], formats),
            next=None if page.next is None else _make_link(query, after=page.next),
            newest=_make_link(query) if after else None,
            exports=_make_exports(query, wanted),
        )


def read_query(query: Mapping[str, str], formats: Formats) -> NoteFilter:
    """The filter that the fields name; unknown values filter nothing."""
    period = _PERIODS.get(query["days"])
    return NoteFilter(
        platform=query["platform"] or None,
        keyword=query["keyword"] or None,
        author=query["author"] or None,
        kind=NoteKind(query["kind"]) if query["kind"] in set(NoteKind) else None,
        since=None if period is None else formats.now - period,
        text=query["q"] or None,
    )


def _describe_row(stored: StoredNote, formats: Formats, *, words: Sequence[str]) -> dict[str, Any]:
    note = stored.note
    return {
        "href": locate_note(note.platform, note.note_id),
        "title": mark_words(note.title or note.note_id, words),
        # Some platforms repeat the title at the beginning of the text.
        "excerpt": mark_words(cut_excerpt(note.text.removeprefix(note.title), words), words),
        "platform": name_platform(note.platform, formats),
        "kind": formats.texts(f"note.kind.{note.kind.value}"),
        "author": note.author.name,
        "keyword": stored.keyword,
        "counts": [(name, formats.compact(getattr(note.counts, name))) for name in ("views", "likes", "comments")],
        "published": formats.time(note.published_at),
        "collected": formats.ago(stored.collected_at),
    }


def cut_excerpt(text: str, words: Sequence[str]) -> str:
    """The part of a text around the first of these words; its beginning without any."""
    flat = _FULL_WIDTH_BLANK.sub("", " ".join(text.split()))
    found = [at for word in words if (at := flat.lower().find(word.lower())) >= 0]
    start = max(0, min(found, default=0) - _EXCERPT // 3)
    part = flat[start : start + _EXCERPT]
    return f"{'…' if start else ''}{part}{'…' if start + _EXCERPT < len(flat) else ''}"


def mark_words(text: str, words: Sequence[str]) -> Markup:
    """The text, escaped, with every one of these words marked."""
    if not words:
        return escape(text)
    pattern = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    parts, at = [], 0
    for hit in pattern.finditer(text):
        parts += [escape(text[at : hit.start()]), Markup("<mark>{}</mark>").format(hit.group())]
        at = hit.end()
    return Markup("").join([*parts, escape(text[at:])])


def _make_link(query: Mapping[str, str], **more: str) -> str:
    fields = {name: value for name, value in {**query, **more}.items() if value}
    return f"/notes?{urlencode(fields)}" if fields else "/notes"


def _make_segments(query: Mapping[str, str], platforms: Sequence[str], formats: Formats) -> list[dict[str, Any]]:
    names = ["", *dict.fromkeys([*sorted(platforms), *([query["platform"]] if query["platform"] else [])])]
    return [
        {
            "href": _make_link({**query, "platform": each}),
            "title": name_platform(each, formats) if each else formats.texts("sites.segment.all"),
            "current": query["platform"] == each,
        }
        for each in names
    ]


def _make_exports(query: Mapping[str, str], wanted: NoteFilter) -> list[tuple[str, str]]:
    """Name and address of each format: the API's own export, which a session may read."""
    fields = {name: query[name] for name in ("q", "platform", "keyword", "author", "kind") if query[name]}
    if wanted.since is not None:
        fields["since"] = to_text(wanted.since)
    paths = {each.value: urlencode({**fields, "format": each.value}) for each in ExportFormat}
    return [(name.upper(), f"/api/notes/export?{path}") for name, path in paths.items()]


def _add_note(router: APIRouter, dashboard: Dashboard) -> None:
    collect = dashboard.installation.collect

    @router.get("/notes/{platform}/{note_id:path}")
    async def show_note(
        request: Request,
        platform: str,
        note_id: str,
        count: str = "",
        after: str | None = Query(None, pattern=CURSOR),
    ) -> Response:
        """`count`: the series of the chart. `after`: the cursor of a page of comments."""
        grant = require_scope(request, Scope.WORKFLOW)
        notes, comments = collect.notes, collect.stored_comments
        stored = await notes.find(platform, note_id)
        if stored is None:
            problem(404, "unknown_note", "there is no collected note of this platform and id")
        formats = dashboard.renderer.formats(request)
        return await dashboard.render(
            request,
            "note.html",
            note=stored.note,
            web_url=stored.note.url if stored.note.url.startswith(("https://", "http://")) else "",
            numbers=_describe_counts(stored, formats),
            trend=_draw_trend(await notes.list_snapshots(platform, note_id), count, stored, formats),
            versions=[
                {
                    "title": each.note.title or note_id,
                    "text": each.note.text,
                    "at": each.collected_at,
                    "n": each.version,
                }
                for each in reversed(await notes.list_versions(platform, note_id) if stored.version > 1 else [])
            ],
            comments=_describe_comments(
                await comments.list_page(platform, note_id, limit=_COMMENTS, cursor=after),
                total=await comments.count(platform, note_id),
                first=locate_note(platform, note_id),
                is_first=after is None,
                formats=formats,
            ),
            facts=_describe_facts(stored, formats),
            record=_describe_record(stored, formats),
            deletion=_locate_deletion(platform, note_id) if grant.allows(()) else "",
        )


def _describe_counts(stored: StoredNote, formats: Formats) -> list[tuple[str, str]]:
    values = [(name, getattr(stored.note.counts, name)) for name in COUNTS]
    return [(formats.texts(f"note.count.{name}"), formats.number(value)) for name, value in values if value is not None]


def _draw_trend(
    snapshots: Sequence[NoteSnapshot], chosen: str, stored: StoredNote, formats: Formats
) -> dict[str, Any] | None:
    """Counts over time: the chart of one series, and a table of all. None before the second snapshot."""
    shown = [name for name in COUNTS if any(getattr(each.counts, name) is not None for each in snapshots)]
    if len(snapshots) < 2 or not shown:
        return None
    name = chosen if chosen in shown else shown[0]
    points = [(each.taken_at, value) for each in snapshots if (value := getattr(each.counts, name)) is not None]
    href, growth = locate_note(stored.note.platform, stored.note.note_id), points[-1][1] - points[0][1]
    return {
        **_draw_line(points, formats),
        "label": formats.texts(f"note.count.{name}"),
        "growth": formats.texts(
            "note.growth", n=f"{growth:+,}", day=formats.date(points[0][0].astimezone(formats.zone).date())
        ),
        "segments": [(f"{href}?count={each}", formats.texts(f"note.count.{each}"), each == name) for each in shown],
        "columns": [(formats.texts(f"note.count.{each}"), "right") for each in shown],
        "chosen": shown.index(name),
        "rows": [
            (formats.time(each.taken_at), [formats.number(getattr(each.counts, name)) for name in shown])
            for each in reversed(snapshots[-_MOST_ROWS:])
        ],
    }


def _draw_line(points: Sequence[tuple[datetime, int]], formats: Formats) -> dict[str, Any]:
    """One series as a line from dot to dot; the dots tell their values, and some have their date below."""
    chart = draw_line([value for _, value in points])
    step = max(1, -(-len(points) // _MOST_DATES))
    shown = list(zip(chart.points, points, strict=True))
    return {
        "chart": chart,
        "lines": list(pairwise(chart.points)),
        "dots": [(x, y, formats.clock_time(at), value) for (x, y), (at, value) in shown],
        "dates": [(x, formats.date(at.astimezone(formats.zone).date())) for (x, _), (at, _) in shown[::step]],
    }


def _describe_comments(
    page: StoredCommentPage, *, total: int, first: str, is_first: bool, formats: Formats
) -> dict[str, Any] | None:
    """A page of comments, in the platform's order; None if none is stored. `first`: the address of the first page."""
    if not total:
        return None
    return {
        "total": formats.number(total),
        "rows": [
            {
                "text": each.comment.text,
                "is_reply": bool(each.comment.parent_id),
                "facts": _describe_comment(each.comment, formats),
            }
            for each in page.comments
        ],
        "next": None if page.next is None else f"{first}?{urlencode({'after': page.next})}#comments-title",
        "first": None if is_first else f"{first}#comments-title",
    }


def _describe_comment(comment: Comment, formats: Formats) -> list[str]:
    """A comment's author, time, place and likes, as far as the platform says."""
    texts = formats.texts
    facts = [
        texts("note.reply") if comment.parent_id else "",
        comment.author.name,
        formats.time(comment.published_at) if comment.published_at else "",
        comment.place,
        texts.count("note.comment_likes", comment.likes) if comment.likes else "",
    ]
    return [each for each in facts if each]


def _describe_facts(stored: StoredNote, formats: Formats) -> list[tuple[str, Any]]:
    note, texts = stored.note, formats.texts
    facts: list[tuple[str, Any]] = [
        ("platform", f"{name_platform(note.platform, formats)} · {texts(f'note.kind.{note.kind.value}')}"),
        ("author", note.author.name),
        ("keyword", stored.keyword),
        ("published", formats.time(note.published_at)),
        ("updated", formats.time(note.updated_at) if note.updated_at else None),
        ("collected", formats.ago(stored.collected_at)),
        ("duration", formats.duration(note.duration) if note.duration else None),
        ("place", note.place),
        ("tags", ", ".join(note.tags)),
    ]
    return [(texts(f"note.fact.{name}"), value) for name, value in facts if value]


def _describe_record(stored: StoredNote, formats: Formats) -> list[tuple[str, str]]:
    """The fields of a note that only programs need."""
    facts = (("version", f"v{stored.version}"), ("key", stored.idempotency_key))
    return [(formats.texts(f"note.fact.{name}"), value) for name, value in facts if value]


def _locate_deletion(platform: str, note_id: str) -> str:
    return f"/notes/delete/confirm?{urlencode({'platform': platform, 'note_id': note_id})}"


def _add_deletion(router: APIRouter, dashboard: Dashboard) -> None:
    installation, renderer = dashboard.installation, dashboard.renderer

    @router.get("/notes/delete/confirm")
    async def ask_deletion(request: Request, platform: str, note_id: str) -> Response:
        require_scope(request)
        stored = await installation.collect.notes.find(platform, note_id)
        if stored is None:
            problem(404, "unknown_note", "there is no collected note of this platform and id")
        question = Question(
            key="delete_note" if installation.collect.mirror is None else "delete_mirrored_note",
            values={"title": stored.note.title or note_id},
            action="/notes/delete",
            list_href="/notes",
            list_key="nav.notes",
            back=locate_note(platform, note_id),
            name=note_id,
            hidden={"platform": platform, "note_id": note_id},
        )
        return await ask(dashboard, request, question)

    @router.post("/notes/delete")
    async def delete_note(request: Request) -> Response:
        require_scope(request)
        form = await read_form(request)
        if not await installation.collect.writer.corrections.delete_note(form.get("platform"), form.get("note_id")):
            problem(404, "unknown_note", "there is no collected note of this platform and id")
        return renderer.redirect("/notes", PageMessage("note_deleted"))
