"""`tidings collect notes`: collected notes, listed, searched, exported and deleted."""

import sys
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from tidings.cli.collect.run import require_platform
from tidings.cli.language import label, say, translate
from tidings.cli.options import PlatformOption, YesOption, make_group
from tidings.cli.output import escape, format_time, make_console, print_json, print_table, show_bar
from tidings.cli.session import Exit, Session, answering, command, fail
from tidings.core.clock import parse_timestamp

if TYPE_CHECKING:
    from tidings.collect.archive.archive import NoteFilter, NoteSnapshot, StoredNote
    from tidings.collect.archive.comments import StoredComment
    from tidings.collect.archive.export import ExportContent, ExportFormat

app = make_group("Read, search and export collected notes.")

# Comments that `show` prints.
_SHOWN_COMMENTS = 20
# The counts that fit into a line of the list.
_LISTED_COUNTS = ("views", "likes", "comments")

SearchOption = Annotated[str | None, typer.Option("--search", "-s", help="Words in title, author, tags or text.")]
KeywordOption = Annotated[str | None, typer.Option("--keyword", help="Only notes that this keyword found first.")]
AuthorOption = Annotated[str | None, typer.Option("--author", help="Only this author: the name or the id.")]
KindOption = Annotated[str | None, typer.Option("--kind", help="Only video, images, text or article.")]
SinceOption = Annotated[str | None, typer.Option("--since", help="Published at this time or day, or later (UTC).")]
UntilOption = Annotated[str | None, typer.Option("--until", help="Published before this time or day (UTC).")]
PlatformArgument = Annotated[str, typer.Argument(help="The platform, such as bilibili.")]
NoteArgument = Annotated[str, typer.Argument(help="The note's id.")]


@app.command("list")
@answering
async def list_notes(
    session: Session,
    search: SearchOption = None,
    platform: PlatformOption = None,
    keyword: KeywordOption = None,
    author: AuthorOption = None,
    kind: KindOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option("--limit", help="How many.", min=1, max=500)] = 20,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on where the page before ended.")] = None,
) -> None:
    """List notes, the newest collected first."""
    from tidings.collect.archive.archive import CursorError

    wanted = _make_filter(platform, keyword, author, kind, since, until, search)
    installation = await session.open()
    try:
        page = await installation.collect.notes.list_page(wanted, limit=limit, cursor=cursor)
    except CursorError as error:
        fail(translate(str(error)))
    if session.as_json:
        print_json({"notes": [each.describe() for each in page.notes], "next": page.next})
        return
    if not page.notes:
        typer.echo(say("No note matches."))
    console = make_console()
    for each in page.notes:
        # One line of each, cut to the terminal: a Chinese character takes two columns.
        console.print(f"[bold]{escape(each.note.title) or '-'}[/]", no_wrap=True, overflow="ellipsis")
        console.print(f"  {_summarise(each)}", no_wrap=True, overflow="ellipsis", highlight=False)
    if page.next is not None:
        typer.echo(say("There are more: --cursor {cursor}", cursor=page.next))


@app.command("show")
@answering
async def show(session: Session, platform: PlatformArgument, note_id: NoteArgument) -> None:
    """Show one note with its whole text.

    Also its versions, its counts each time it was read, and its first comments.
    """
    installation = await session.open()
    versions = await installation.collect.notes.list_versions(platform, note_id)
    if not versions:
        message = say(
            "there is no note {note_id!r} of {platform}; `tidings collect notes list` shows the notes",
            note_id=note_id,
            platform=platform,
        )
        fail(message)
    snapshots = await installation.collect.notes.list_snapshots(platform, note_id)
    stored = installation.collect.stored_comments
    page = await stored.list_page(platform, note_id, limit=_SHOWN_COMMENTS)
    total = await stored.count(platform, note_id)
    if session.as_json:
        described = {
            **versions[-1].describe(),
            "versions": [each.describe() for each in versions],
            "snapshots": [each.describe() for each in snapshots],
            "comments": {"total": total, "first": [each.describe() for each in page.comments]},
        }
        print_json(described, indent=2)
    else:
        _print_note(versions[-1])
        _print_history(versions, snapshots)
        _print_comments(page.comments, total=total)


@app.command("export")
@command
async def export(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The file to write, or - for standard output.", allow_dash=True)],
    form: Annotated[
        str | None, typer.Option("--format", help="jsonl, csv or xlsx. [the ending of the file's name]")
    ] = None,
    of: Annotated[
        str, typer.Option("--of", help="notes, comments, snapshots (counts over time), or all (not as CSV).")
    ] = "notes",
    search: SearchOption = None,
    platform: PlatformOption = None,
    keyword: KeywordOption = None,
    author: AuthorOption = None,
    kind: KindOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Write notes to a file, the oldest collected first. An existing file is replaced when the new one is complete."""
    wanted, chosen = _make_filter(platform, keyword, author, kind, since, until, search), _read_format(form, file)
    content = _read_content(of, chosen)
    installation = await session.open()
    session.outcome = say("no file was written")
    with show_bar(say("exporting"), enabled=session.is_watched) as on_progress, _open_output(file) as output:
        total = await installation.collect.notes.count(wanted) if session.is_watched else 0
        done = 0

        def count(written: int) -> None:
            nonlocal done
            done = written
            on_progress(written, total)

        pieces: AsyncIterator[bytes] = installation.collect.exporter.export(
            wanted, chosen, content=content, on_progress=count
        )
        async for piece in pieces:
            output.write(piece)
    session.outcome = None
    if str(file) != "-":
        typer.echo(_describe_export(of, done, file))


@app.command("delete")
@answering
async def delete(
    session: Session,
    platform: PlatformArgument,
    note_id: NoteArgument,
    yes: YesOption = False,
) -> Exit | None:
    """Delete a note everywhere.

    It is also deleted in Feishu, and never collected again.
    """
    named: dict[str, Any] = {"note_id": note_id, "platform": platform}
    if not yes and not typer.confirm(say("Delete note {note_id} of {platform} for good?", **named)):
        typer.echo(say("Nothing was deleted."))
        return Exit.FAILED
    installation = await session.open()
    if not await installation.collect.writer.corrections.delete_note(platform, note_id):
        fail("there is neither a note nor a candidate {note_id!r} of {platform}; nothing was deleted", **named)
    session.answer({"deleted": True}, "Deleted note {note_id} of {platform}.", **named)
    return None


def _make_filter(
    platform: str | None,
    keyword: str | None,
    author: str | None,
    kind: str | None,
    since: str | None,
    until: str | None,
    search: str | None,
) -> "NoteFilter":
    from tidings.collect.archive.archive import NoteFilter
    from tidings.collect.notes import NoteKind

    require_platform(platform)
    if kind is not None and kind not in list(NoteKind):
        fail("--kind must be one of {names}", names=", ".join(NoteKind))
    return NoteFilter(
        platform=platform,
        keyword=keyword,
        author=author,
        kind=None if kind is None else NoteKind(kind),
        since=_read_time("--since", since),
        until=_read_time("--until", until),
        text=search,
    )


def _read_time(name: str, text: str | None) -> datetime | None:
    found = None if text is None else parse_timestamp(text)
    if text is not None and found is None:
        fail("{name} must be a timestamp such as 2026-11-15T10:00:00Z, or a day", name=name)
    return found


def _read_format(form: str | None, file: Path) -> "ExportFormat":
    from tidings.collect.archive.export import ExportFormat

    name = file.suffix.removeprefix(".") if form is None else form
    if name not in list(ExportFormat):
        names = ", ".join(ExportFormat)
        fail("--format must be one of {names}, or the ending of the file's name", names=names)
    return ExportFormat(name)


def _read_content(of: str, form: "ExportFormat") -> "ExportContent":
    from tidings.collect.archive.export import ExportContent, ExportError, check_export

    if of not in list(ExportContent):
        fail("--of must be one of {names}", names=", ".join(ExportContent))
    try:
        check_export(form, ExportContent(of))
    except ExportError as error:
        fail(translate(str(error)))
    return ExportContent(of)


def _describe_export(of: str, count: int, file: Path) -> str:
    if of == "comments":
        return say("Wrote the comments of {count} {count:note|notes} to {file}.", count=count, file=file)
    if of == "snapshots":
        return say("Wrote the counts of {count} {count:note|notes} over time to {file}.", count=count, file=file)
    return say("Wrote {count} {count:note|notes} to {file}.", count=count, file=file)


@contextmanager
def _open_output(file: Path) -> Iterator[BinaryIO]:
    """The file under a temporary name. It gets its name when it is complete."""
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as output:
            yield output
        part.replace(file)
    except OSError as error:
        # Show the final name instead of the temporary one, which the user does not know.
        error.filename = str(file)
        raise
    finally:
        part.unlink(missing_ok=True)


def _summarise(stored: "StoredNote") -> str:
    """The second line of a note in the list."""
    note = stored.note
    published = stored.collected_at if note.published_at is None else note.published_at
    parts = [
        f"{note.platform} {note.note_id}",
        f"{published:%Y-%m-%d}",
        note.author.name,
        _name_counts(stored, _LISTED_COUNTS),
    ]
    return " · ".join(escape(part) for part in parts if part)


def _name_counts(stored: "StoredNote", names: Collection[str] | None = None) -> str:
    """The counts that are known: these, or all."""
    counts = stored.note.counts.describe()
    titles = {name: title for name, title in _name_titles().items() if names is None or name in names}
    known = [(f"{counts[name]:,}", title) for name, title in titles.items() if counts[name] is not None]
    return say(", ").join(say("{count} {title}", count=count, title=title) for count, title in known)


def _print_history(versions: "Sequence[StoredNote]", snapshots: "Sequence[NoteSnapshot]") -> None:
    """The versions of a note and its counts over time; nothing if it was read once."""
    if len(versions) > 1:
        kept = [(f"v{each.version}", format_time(each.collected_at), escape(each.note.title)) for each in versions]
        print_table(kept, say("version"), say("collected"), say("title"))
    if len(snapshots) > 1:
        counts = [each.counts.describe() for each in snapshots]
        shown = {name: title for name, title in _name_titles().items() if any(each[name] for each in counts)}
        rows = [
            (format_time(each.taken_at), *(_show_count(found[name]) for name in shown))
            for each, found in zip(snapshots, counts, strict=True)
        ]
        print_table(rows, say("read"), *shown.values())


def _print_comments(comments: "Sequence[StoredComment]", *, total: int) -> None:
    """The first comments of a note. A reply stands under its comment."""
    if not comments:
        return
    console = make_console()
    console.print()
    console.print(f"[bold]{say('comments')}: {total:,}[/]", highlight=False)
    for each in comments:
        comment = each.comment
        indent = "    " if comment.parent_id else "  "
        likes = "" if comment.likes is None else f"{comment.likes:,} {say('likes')}"
        published = format_time(comment.published_at, missing="")
        head = " · ".join(part for part in (comment.author.name, published, likes) if part)
        console.print(f"{indent}{escape(head)}", no_wrap=True, overflow="ellipsis", highlight=False)
        for line in comment.text.split("\n"):
            console.print(f"{indent}  {escape(line)}", highlight=False)
    if total > len(comments):
        rest = say("{count} more: `tidings collect notes export FILE --of comments`", count=total - len(comments))
        console.print(rest, highlight=False)


def _name_titles() -> dict[str, str]:
    """The titles of counts, by their names."""
    return {
        "views": say("views"),
        "likes": say("likes"),
        "comments": say("comments"),
        "shares": say("shares"),
        "favorites": say("favorites"),
        "coins": say("coins"),
        "danmaku": say("danmaku"),
    }


def _show_count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _print_note(stored: "StoredNote") -> None:
    note, console = stored.note, make_console()
    console.print(f"[bold]{escape(note.title)}[/]", highlight=False)
    lines = {
        say("url"): note.url,
        say("author"): " ".join(part for part in (note.author.name, note.author.author_id) if part),
        say("published"): format_time(note.published_at, missing=""),
        say("collected"): say(
            "{time}, version {version}, keyword {keyword}",
            time=format_time(stored.collected_at),
            version=stored.version,
            keyword=stored.keyword,
        ),
        say("counts"): _name_counts(stored),
        say("tags"): ", ".join(note.tags),
        say("place"): note.place,
    }
    for name, value in lines.items():
        if value:
            console.print(label(name, escape(value)), highlight=False)
    if note.text:
        console.print()
        for line in note.text.split("\n"):
            console.print(escape(line), highlight=False)
