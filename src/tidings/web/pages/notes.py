"""Collected notes: search, filters and pages; one note with its counts, comments and the addresses of its images;
deletion.

Images are never loaded, because platforms would then see who reads the notes.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NoReturn
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import Response
from markupsafe import Markup, escape

from tidings.collect.archive.archive import CURSOR, NoteFilter, NoteSnapshot, StoredNote
from tidings.collect.archive.export import ExportFormat
from tidings.collect.notes import NoteKind
from tidings.core.clock import to_text
from tidings.core.secrets.scopes import Scope
from tidings.web.errors import problem
from tidings.web.pages.view.charts import draw_line
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import PageView, make_link, make_page_router

router = make_page_router()

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
    view = PageView(request, Scope.WORKFLOW)
    formats, collect = view.formats, view.installation.collect
    query = {"q": q.strip(), "platform": platform, "keyword": keyword, "author": author, "kind": kind, "days": days}
    wanted = _read_query(query, formats)
    page = await collect.notes.list_page(wanted, limit=_PAGE, cursor=after)
    found = await collect.notes.count(wanted, most=_MOST_COUNTED)
    watched = await collect.keywords.list_all()
    return await view.render(
        "notes.html",
        query=query,
        rows=[_describe_row(each, words=q.split()) for each in page.notes],
        found=f"{formats.number(found)}{'+' if found == _MOST_COUNTED else ''}",
        is_filtered=any(query.values()),
        keywords=[(each, each) for each in sorted({each.keyword for each in watched})],
        kinds=[(each.value, formats.texts(f"note.kind.{each.value}")) for each in NoteKind],
        periods=[(each, formats.texts(f"notes.days.{each}")) for each in _PERIODS],
        segments=_make_segments(query, [each.platform for each in watched], formats),
        next=None if page.next is None else make_link("/notes", {**query, "after": page.next}),
        newest=make_link("/notes", query) if after else None,
        exports=_make_exports(query, wanted),
    )


@router.get("/notes/delete/confirm")
async def ask_deletion(request: Request, platform: str, note_id: str) -> Response:
    view = PageView(request)
    collect = view.installation.collect
    stored = await collect.notes.find(platform, note_id)
    if stored is None:
        _refuse_unknown_note()
    return await view.ask(
        "delete_note" if collect.mirror is None else "delete_mirrored_note",
        {"title": stored.note.title or note_id},
        list_name="notes",
        action="/notes/delete",
        hidden={"platform": platform, "note_id": note_id},
        back=locate_note(platform, note_id),
        name=note_id,
    )


@router.post("/notes/delete")
async def delete_note(request: Request) -> Response:
    view = PageView(request)
    form, corrections = await view.read_form(), view.installation.collect.writer.corrections
    if not await corrections.delete_note(form.get("platform"), form.get("note_id")):
        _refuse_unknown_note()
    return view.redirect("/notes", PageMessage("note_deleted"))


@router.get("/notes/{platform}/{note_id:path}")
async def show_note(
    request: Request, platform: str, note_id: str, count: str = "", after: str | None = Query(None, pattern=CURSOR)
) -> Response:
    """`count`: the series of the chart. `after`: the cursor of a page of comments."""
    view = PageView(request, Scope.WORKFLOW)
    collect, address = view.installation.collect, locate_note(platform, note_id)
    notes, comments = collect.notes, collect.stored_comments
    stored = await notes.find(platform, note_id)
    if stored is None:
        _refuse_unknown_note()
    page = await comments.list_page(platform, note_id, limit=_COMMENTS, cursor=after)
    named = {"platform": platform, "note_id": note_id}
    return await view.render(
        "note.html",
        stored=stored,
        note=stored.note,
        web_url=stored.note.url if stored.note.url.startswith(("https://", "http://")) else "",
        numbers=_describe_counts(stored, view.formats),
        trend=_draw_trend(await notes.list_snapshots(platform, note_id), count, address, view.formats),
        versions=await notes.list_versions(platform, note_id) if stored.version > 1 else [],
        comments=page.comments,
        comments_total=await comments.count(platform, note_id),
        next_comments="" if page.next is None else make_link(address, {"after": page.next}),
        first_comments="" if after is None else address,
        facts=_describe_facts(stored, view.formats),
        deletion=make_link("/notes/delete/confirm", named) if view.grant.allows(()) else "",
    )


def locate_note(platform: str, note_id: str) -> str:
    """The URL of a note's page; an id may contain any character."""
    return f"/notes/{quote(platform, safe='')}/{quote(note_id, safe='')}"


def _refuse_unknown_note() -> NoReturn:
    problem(404, "unknown_note", "there is no collected note of this platform and id")


def _read_query(query: Mapping[str, str], formats: Formats) -> NoteFilter:
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


def _describe_row(stored: StoredNote, *, words: Sequence[str]) -> dict[str, Any]:
    note = stored.note
    return {
        "stored": stored,
        "href": locate_note(note.platform, note.note_id),
        "title": mark_words(note.title or note.note_id, words),
        # Some platforms repeat the title at the beginning of the text.
        "excerpt": mark_words(cut_excerpt(note.text.removeprefix(note.title), words), words),
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


def _make_segments(query: Mapping[str, str], platforms: Sequence[str], formats: Formats) -> list[dict[str, Any]]:
    names = ["", *dict.fromkeys([*sorted(platforms), *([query["platform"]] if query["platform"] else [])])]
    return [
        {
            "href": make_link("/notes", {**query, "platform": each}),
            "title": formats.platform(each) if each else formats.texts("sites.segment.all"),
            "current": query["platform"] == each,
        }
        for each in names
    ]


def _make_exports(query: Mapping[str, str], wanted: NoteFilter) -> list[tuple[str, str]]:
    """Name and address of each format: the API's own export, which a session may read."""
    fields = {name: value for name, value in query.items() if name != "days"}
    fields["since"] = "" if wanted.since is None else to_text(wanted.since)
    return [
        (each.value.upper(), make_link("/api/notes/export", {**fields, "format": each.value})) for each in ExportFormat
    ]


def _describe_counts(stored: StoredNote, formats: Formats) -> list[tuple[str, str]]:
    values = [(name, getattr(stored.note.counts, name)) for name in COUNTS]
    return [(formats.texts(f"note.count.{name}"), formats.number(value)) for name, value in values if value is not None]


def _draw_trend(
    snapshots: Sequence[NoteSnapshot], chosen: str, address: str, formats: Formats
) -> dict[str, Any] | None:
    """Counts over time: the chart of one series, and a table of all. None before the second snapshot. `address`: of the
    note's page."""
    shown = [name for name in COUNTS if any(getattr(each.counts, name) is not None for each in snapshots)]
    if len(snapshots) < 2 or not shown:
        return None
    name = chosen if chosen in shown else shown[0]
    points = [(each.taken_at, value) for each in snapshots if (value := getattr(each.counts, name)) is not None]
    growth = points[-1][1] - points[0][1]
    return {
        **_draw_line(points, formats),
        "label": formats.texts(f"note.count.{name}"),
        "growth": formats.texts(
            "note.growth", n=f"{growth:+,}", day=formats.date(points[0][0].astimezone(formats.zone).date())
        ),
        "segments": [(f"{address}?count={each}", formats.texts(f"note.count.{each}"), each == name) for each in shown],
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


def _describe_facts(stored: StoredNote, formats: Formats) -> list[tuple[str, Any]]:
    note, texts = stored.note, formats.texts
    facts: list[tuple[str, Any]] = [
        ("platform", f"{formats.platform(note.platform)} · {texts(f'note.kind.{note.kind.value}')}"),
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
