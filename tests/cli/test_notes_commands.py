"""`tidings collect notes`, as a person types it."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import openpyxl  # type: ignore[import-untyped]
import pytest
from rich.cells import cell_len
from sqlalchemy import update

from tests.cli.terminal import Terminal
from tests.collect.writer_stage import begin, make_note, store_notes
from tidings.collect.notes import Author, Counts
from tidings.collect.tables import candidates
from tidings.collect.write.values import Collected
from tidings.core.secrets.redaction import Redactor
from tidings.settings.settings import read_settings
from tidings.wiring.opening import open_installation

LONG = "喝咖啡的人越来越多了，这是一个非常长的标题，长到八十列的终端根本放不下它，所以要把它截断才行，对吧"


@pytest.fixture
async def filled(terminal: Terminal) -> Terminal:
    """Three notes, without a process for each."""
    first = replace(
        make_note("n1", platform="weibo", title=LONG),
        text="第一行\n\x1b[31m第二行",
        author=Author(author_id="7", name="一个名字特别特别长的作者" * 3),
        published_at=datetime(2026, 11, 1, 8, tzinfo=UTC),
        counts=Counts(likes=12_000, comments=3, shares=2),
    )
    others = [make_note(name, platform="weibo", title=f"[red]茶馆{name}") for name in ("n2", "n3")]
    async with open_installation(read_settings(terminal.variables), redactor=Redactor()) as installation:
        await store_notes(installation.collect.writer, [first, *others])
    return terminal


async def test_list_is_readable_in_80_columns(filled: Terminal) -> None:
    """C28: no line is wider than the terminal, although a Chinese character takes two columns."""
    shown = await filled.run("collect", "notes", "list", "--limit", "2", COLUMNS="80", FORCE_COLOR="1")
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown.out).splitlines()
    assert lines[:2] == ["[red]茶馆n3", f"  weibo n3 · {datetime.now(UTC):%Y-%m-%d}"]
    cursor = lines[-1].rpartition(" ")[2]
    rest = await filled.run("collect", "notes", "list", "--cursor", cursor, COLUMNS="80", FORCE_COLOR="1")
    lines = re.sub(r"\x1b\[[\d;]*m", "", rest.out).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("喝咖啡的人越来越多了")
    assert lines[1].startswith("  weibo n1 · 2026-11-01 · 一个名字")
    assert all(cell_len(line) <= 80 and line.endswith("…") for line in lines)
    found = await filled.run("collect", "notes", "list", "--search", "咖啡", "--author", "7", "--json")
    assert [each["note_id"] for each in found.document["notes"]] == ["n1"]
    assert (await filled.run("collect", "notes", "list", "-s", "没有")).out == "No note matches.\n"


@pytest.mark.thorough
async def test_note_is_shown_exported_and_deleted(filled: Terminal) -> None:
    """C28: the whole text without control characters; formats by the file's ending; delete asks first."""
    shown = await filled.run("collect", "notes", "show", "weibo", "n1")
    assert "第一行\n" in shown.out
    assert "\x1b" not in shown.out
    assert "12,000 likes, 3 comments, 2 shares" in shown.out
    wrote = await filled.run("collect", "notes", "export", "notes.xlsx")
    assert wrote.out == "Wrote 3 notes to notes.xlsx.\n"
    sheet = openpyxl.load_workbook(filled.folder / "notes.xlsx")["notes"]
    assert [row[1] for row in sheet.iter_rows(min_row=2, values_only=True)] == ["n1", "n2", "n3"]
    one = await filled.run("collect", "notes", "export", "one.csv", "--search", "咖啡", "--author", "7")
    assert one.out == "Wrote 1 note to one.csv.\n"
    piped = await filled.run("collect", "notes", "export", "-", "--format", "jsonl", "--keyword", "tea")
    assert [json.loads(line)["note_id"] for line in piped.out.splitlines()] == ["n1", "n2", "n3"]
    refused = await filled.pipe("collect", "notes", "delete", "weibo", "n1", given="n\n")
    assert (refused.code, "Nothing was deleted." in refused.out) == (1, True)
    assert (await filled.run("collect", "notes", "delete", "weibo", "n1", "--yes")).code == 0
    assert (await filled.run("collect", "notes", "show", "weibo", "n1")).code == 2


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("list", "--kind", "poem"), "--kind must be one of"),
        (("list", "--since", "soon"), "--since must be a timestamp"),
        (("list", "--cursor", "x"), "the cursor must be"),
        (("list", "--platform", "bilibli"), "there is no platform"),
        (("export", "notes.pdf"), "--format must be one of"),
        (("export", "missing/notes.csv"), "No such file or directory (missing/notes.csv); no file was written"),
        (("delete", "weibo", "none", "--yes"), "neither a note nor a candidate"),
    ],
)
async def test_bad_input_is_one_line(terminal: Terminal, words: tuple[str, ...], rule: str) -> None:
    """C28, A7: what is wrong, and nothing else."""
    ended = await terminal.run("collect", "notes", *words)
    assert rule in ended.complaint
    assert ended.code in (1, 2)


@pytest.mark.thorough
async def test_a_note_that_was_read_twice_shows_both(filled: Terminal) -> None:
    """C32: `--refresh 1d --for 7d`, and `notes show` has every version and the counts over time, in Chinese too."""
    watched = await filled.run("collect", "keywords", "add", "weibo", "tea", "--for", "7d")
    assert (watched.code, "--for needs --refresh" in watched.err) == (2, True)
    await filled.run("collect", "keywords", "add", "weibo", "tea", "--refresh", "1d", "--for", "7d")
    listed = await filled.run("collect", "keywords", "list", "--json")
    assert [each["refresh"] for each in listed.document["keywords"]] == [{"every": "1d", "for": "7d"}]
    async with open_installation(read_settings(filled.variables), redactor=Redactor()) as installation:
        async with installation.database.write() as connection:
            await connection.execute(update(candidates).where(candidates.c.note_id == "n1").values(refresh_at=1))
        again = replace(make_note("n1", platform="weibo", title="改了标题"), counts=Counts(likes=13_500))
        execution = await begin(installation.collect.writer)
        await installation.collect.writer.lease(execution, platform="weibo")
        await installation.collect.writer.settle(execution, "weibo", [Collected(note_id="n1", note=again)])
        await installation.collect.writer.finish(execution)
    shown = await filled.run("collect", "notes", "show", "weibo", "n1", TIDINGS_LANGUAGE="zh")
    assert [word in shown.out for word in ("v1", "v2", "改了标题", "点赞", "12,000", "13,500")] == [True] * 6
    document = (await filled.run("collect", "notes", "show", "weibo", "n1", "--json")).document
    assert [each["likes"] for each in document["snapshots"]] == [12_000, 13_500]
    assert [each["idempotency_key"] for each in document["versions"]] == ["n1_v1", "n1_v2"]


async def test_a_period_becomes_a_part_of_the_keyword(terminal: Terminal) -> None:
    """C32: `--since`, `--until`; a platform that cannot search one refuses it."""
    period = ("--since", "2026-01-01", "--until", "2026-02-01")
    watched = await terminal.run("collect", "keywords", "add", "bilibili", "茶", *period)
    assert watched.out == "Watching 茶 since:2026-01-01 until:2026-02-01 on bilibili.\n"
    refused = await terminal.run("collect", "keywords", "add", "weibo", "茶", *period)
    assert (refused.code, "weibo cannot search within a period" in refused.err) == (2, True)
