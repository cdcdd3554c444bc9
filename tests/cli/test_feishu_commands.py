"""`tidings collect feishu setup`: a base that has everything the mirror needs, made by one command."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.cli.terminal import Terminal
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType

pytestmark = pytest.mark.one_database

TABLES = f"/open-apis/bitable/v1/apps/{DEMO_APP_TOKEN}/tables"
NAMES = ["tbl_cookie", "tbl_candidate", "tbl_crawl_execution", "tbl_source", "tbl_keyword"]
VARIABLES = [f"FEISHU_TABLE_{name}" for name in ("COOKIE", "CANDIDATE", "EXECUTION", "SOURCE", "KEYWORD")]


@pytest.fixture
async def service() -> AsyncIterator[SandboxBitable]:
    """A base as Feishu makes it: one table with a field of its own."""
    async with SandboxBitable(tables={"tblDefault": {"文本": BitableFieldType.TEXT}}) as running:
        yield running


@pytest.fixture
def terminal(terminal: Terminal, service: SandboxBitable) -> Terminal:
    terminal.variables |= {
        "FEISHU_APP_ID": DEMO_APP_ID,
        "FEISHU_APP_SECRET": DEMO_APP_SECRET,
        "FEISHU_APP_TOKEN": DEMO_APP_TOKEN,
        "FEISHU_BASE_URL": service.origin,
    }
    return terminal


async def test_a_base_without_tables_is_named_where_the_mirror_matters(terminal: Terminal) -> None:
    """C21: whoever looks at the mirror learns that it is set up halfway; other commands say nothing of it."""
    shown = {words: await terminal.run(*words.split()) for words in ("collect status", "collect mirror", "sites list")}
    counts = {words: ended.err.count("nothing is mirrored") for words, ended in shown.items()}
    assert counts == {"collect status": 1, "collect mirror": 1, "sites list": 0}


def read_settings(out: str) -> dict[str, str]:
    """The settings that a person is to store."""
    return dict(line.split("=") for line in out.splitlines() if line.startswith("FEISHU_TABLE_"))


async def test_an_empty_base_gets_every_table_and_a_second_setup_changes_nothing(
    terminal: Terminal, service: SandboxBitable
) -> None:
    """C21: the command shows what it will do, creates what is missing, prints the settings, and may be repeated."""
    planned = await terminal.run("collect", "feishu", "setup", "--dry-run")
    assert (planned.code, [line.split(":")[0] for line in planned.out.splitlines()]) == (0, NAMES)
    assert "create the table" in planned.out
    assert planned.err == ""
    assert set(service.describe()["records"]) == {"tblDefault"}  # type: ignore[call-overload]

    refused = await terminal.run("collect", "feishu", "setup")
    assert (refused.code, "Change the base?" in refused.out) == (1, True)

    done = await terminal.run("collect", "feishu", "setup", "--yes")
    stored = read_settings(done.out)
    assert (done.code, list(stored)) == (0, VARIABLES)
    assert stored == {name: service.find_table(table) for name, table in zip(VARIABLES, NAMES, strict=True)}
    fields = service.table(stored["FEISHU_TABLE_SOURCE"]).fields
    assert next(iter(fields)) == "key"
    assert {"idempotency_key", "processing_lock", "exec_meta", "note_url"} <= set(fields)
    assert "cookie_encrypted" not in service.table(stored["FEISHU_TABLE_COOKIE"]).fields

    # Also before the settings are stored: the tables are found by their names.
    asked = len([entry for entry in service.requests if entry.method != "GET"])
    again = await terminal.run("collect", "feishu", "setup")
    terminal.variables |= stored
    third = await terminal.run("collect", "feishu", "setup", "--json")
    assert (again.code, read_settings(again.out)) == (0, stored)
    assert third.document["settings"] == stored
    written = [entry.path for entry in service.requests if entry.method != "GET"][asked:]
    assert all(path == bitable.TOKEN_PATH for path in written)
    delivered = await terminal.run("collect", "mirror")
    assert (delivered.code, delivered.err) == (0, "")


async def test_an_earlier_base_gets_the_fields_that_it_lacks_and_dates_for_numbers(
    terminal: Terminal, service: SandboxBitable
) -> None:
    """C21: what exists is kept; a number that holds a timestamp becomes a date, with its values."""
    number, text = BitableFieldType.NUMBER, BitableFieldType.TEXT
    table_id = service.create_table("My candidates", {"key": text, "status": text, "created_at": number, "url": text})
    service.table(table_id).create([{"key": "a person's own", "created_at": 1_800_000_000_000}])
    terminal.variables["FEISHU_TABLE_CANDIDATE"] = table_id
    done = await terminal.run("collect", "feishu", "setup", "--yes")
    fields = service.table(table_id).fields
    assert done.code == 0
    assert "change the type of status, created_at" in done.out
    assert (fields["created_at"], fields["status"]) == (BitableFieldType.DATETIME, BitableFieldType.SINGLE_SELECT)
    assert {"url", "note_url", "retry_count"} <= set(fields)
    assert service.rows(table_id) == [{"key": "a person's own", "created_at": 1_800_000_000_000}]


async def test_a_setup_that_cannot_be_done_says_why_and_is_repeated(
    terminal: Terminal, service: SandboxBitable
) -> None:
    """C21: a field of a wrong type, an outage between two tables, a table that is gone, and no settings at all."""
    table_id = service.create_table("tbl_keyword", {"keyword": BitableFieldType.TEXT, "pages": BitableFieldType.TEXT})
    service.misbehave(replace(bitable.NO_PERMISSION, path=TABLES, after=2))
    broken = await terminal.run("collect", "feishu", "setup", "--yes")
    assert (broken.code, "may not write" in broken.err, DEMO_APP_SECRET in broken.err) == (1, True, False)
    service.recover()
    done = await terminal.run("collect", "feishu", "setup", "--yes")
    assert (done.code, "pages has a wrong type" in done.err) == (1, True)
    assert len(read_settings(done.out)) == 5
    service.table(table_id).fields["pages"] = BitableFieldType.NUMBER
    assert (await terminal.run("collect", "feishu", "setup", "--yes")).code == 0

    terminal.variables["FEISHU_TABLE_SOURCE"] = "tblGone"
    gone = await terminal.run("collect", "feishu", "setup", "--yes")
    assert (gone.code, "the table does not exist (tbl_source)" in gone.err) == (1, True)
    for name in ("FEISHU_APP_ID", "FEISHU_APP_SECRET", "FEISHU_APP_TOKEN", "FEISHU_TABLE_SOURCE"):
        del terminal.variables[name]
    none = await terminal.run("collect", "feishu", "setup")
    assert (none.code, "set FEISHU_APP_ID" in none.err) == (2, True)
