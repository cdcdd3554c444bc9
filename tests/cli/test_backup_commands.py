"""`tidings backup` and `tidings restore` as people run them, each a process of its own."""

import asyncio
import os
import signal
import stat
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from tests.cli.fork_server import Command
from tests.cli.terminal import SCRIPT, Ended, Terminal, count_each_once, end, make_sandbox
from tidings.announce.ledger.ledger import ledger
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import newest_revision
from tidings.core.secrets.master_key import new_master_key
from tidings.sandbox.bundle import Sandbox

FILE = "tidings.backup"
MOVED = 100_000


async def set_up(terminal: Terminal, sandbox: Sandbox) -> None:
    """A stored site, announced once."""
    site, engine = sandbox.site, sandbox.engines[0]
    words = ["sites", "add", site.sitemap_url, "--key", site.key, "--engine", engine.endpoint, "--id", "mine"]
    assert (await terminal.run(*words)).code == 0
    assert (await terminal.run("run", "mine")).code == 0


async def add_site(terminal: Terminal, name: str = "mine", **variables: str | None) -> None:
    """A stored site that is not announced."""
    words = ["sites", "add", "https://example.com/sitemap.xml", "--key", "0123456789abcdef", "--id", name]
    assert (await terminal.run(*words, **variables)).code == 0


async def list_sites(terminal: Terminal, **variables: str | None) -> list[str]:
    document = (await terminal.run("sites", "list", "--json", **variables)).document
    return [site["id"] for site in document["sites"]]


async def start_service(terminal: Terminal) -> Command:
    process = await terminal.start("serve", "--port", "0", "--quiet", TIDINGS_TOKEN="a-long-one-for-backups-7Kp2")
    async with asyncio.timeout(30):
        assert b"Tidings listens on" in await process.stdout.readline()
    return process


@pytest.mark.thorough
async def test_backup_is_made_while_the_service_runs_and_restored_when_it_does_not(terminal: Terminal) -> None:
    """A41: the refusal says what to do; nothing is announced again after the restore."""
    async with make_sandbox() as sandbox:
        await set_up(terminal, sandbox)
        service = await start_service(terminal)
        made = await terminal.run("backup", FILE)
        refused = await terminal.run("restore", FILE, "--replace", "--yes")
        service.send_signal(signal.SIGTERM)
        assert (await end(service)).code == 0
        restored = await terminal.run("restore", FILE, "--replace", "--yes")
        ran = await terminal.run("run", "mine", "--json")
        assert (made.code, made.err) == (0, "")
        assert f"1 site, 60 accepted pages, 1 execution) at revision {newest_revision()} to {FILE}" in made.out
        assert "The master key is not in it. Keep a copy of COOKIE_MASTER_KEY" in made.out
        assert (refused.code, refused.complaint) == (
            2,
            f"tidings: another Tidings process works on {terminal.data_dir}; stop it, then restore",
        )
        assert (restored.code, restored.err) == (0, "")
        assert "1 site, 60 accepted pages, 1 execution)" in restored.out
        assert (ran.document["submitted"], dict(sandbox.engines[0].accepted)) == (0, count_each_once(sandbox))


async def test_backup_is_private_and_holds_no_key_in_clear(terminal: Terminal) -> None:
    """A4, attack cases, secrets: 0600 under umask 000; neither the site's key nor the master key is in it."""
    await add_site(terminal)
    before = os.umask(0)
    try:
        made = await terminal.run("backup", FILE, "--json")
    finally:
        os.umask(before)
    file = terminal.folder / FILE
    text = (await run_shell(terminal, f"gzip -dc {FILE}")).out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (made.document["rows"]["sites"], made.document["revision"]) == (1, newest_revision())
    assert "example.com" in text
    assert "0123456789abcdef" not in text
    assert terminal.variables["COOKIE_MASTER_KEY"].rstrip("=") not in text


async def test_restore_takes_a_file_that_cannot_be_opened_for_bad_input(terminal: Terminal) -> None:
    """A41: exit code 2, as for every file that a command reads."""
    missing, folder = await terminal.run("restore", "none.backup"), await terminal.run("restore", ".")
    assert (missing.code, missing.err) == (
        2,
        "tidings: No such file or directory (none.backup); nothing was changed\n",
    )
    assert (folder.code, folder.err) == (2, "tidings: Is a directory (.); nothing was changed\n")


@pytest.mark.thorough
async def test_restore_does_not_replace_anything_unasked(terminal: Terminal) -> None:
    """A41: without --replace it is refused, without --yes it asks; then, and only then, it replaces all."""
    await add_site(terminal)
    await terminal.run("backup", FILE)
    await add_site(terminal, "later")
    refused = await terminal.run("restore", FILE)
    unanswered = await terminal.run("restore", FILE, "--replace")
    denied = await answer(terminal, "n\n", "restore", FILE, "--replace")
    assert (refused.code, "--replace puts the backup in their place" in refused.complaint) == (2, True)
    assert [(each.code, each.out.strip()) for each in (unanswered, denied)] == [(1, ""), (1, "")]
    assert await list_sites(terminal) == ["later", "mine"]
    agreed = await answer(terminal, "y\n", "restore", FILE, "--replace")
    assert (agreed.code, "will be replaced by the backup of 20" in agreed.err) == (0, True)
    assert await list_sites(terminal) == ["mine"]


async def answer(terminal: Terminal, line: str, *words: str) -> Ended:
    return await terminal.pipe(*words, given=line)


async def run_shell(terminal: Terminal, command: str) -> Ended:
    """Run a line of shell where `tidings` is on the path."""
    environment = {**terminal.variables, "PATH": f"{SCRIPT.parent}:{terminal.variables['PATH']}"}
    return await end(
        await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, cwd=terminal.folder, env=environment, stdout=PIPE, stderr=PIPE
        )
    )


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def flip_byte(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 1
    file.write_bytes(whole)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        pytest.param(cut_off, "not a complete backup", id="cut off"),
        pytest.param(flip_byte, "not a complete backup", id="altered"),
        pytest.param(lambda file: file.write_bytes(b"what is this"), "not a complete backup", id="another file"),
        pytest.param(Path.unlink, "No such file or directory", id="no file"),
    ],
)
async def test_restore_refuses_what_is_not_a_whole_backup(terminal: Terminal, damage: object, complaint: str) -> None:
    """A41: in one line, before anything is changed."""
    assert callable(damage)
    await add_site(terminal)
    await terminal.run("backup", FILE)
    await add_site(terminal, "later")
    damage(terminal.folder / FILE)
    refused = await terminal.run("restore", FILE, "--replace", "--yes")
    assert refused.code in (1, 2)
    assert complaint in refused.complaint
    assert refused.complaint.endswith("nothing was changed")
    assert await list_sites(terminal) == ["later", "mine"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["backup", "data/tidings.db"], "is there already and is not a backup"),
        (["backup", "data"], "is there already and is not a backup"),
        (["backup", "nowhere/tidings.backup"], "No such file or directory"),
    ],
)
async def test_backup_refuses_a_place_where_it_would_do_harm(
    terminal: Terminal, words: Sequence[str], complaint: str
) -> None:
    """A41: above all the database's own file."""
    await add_site(terminal)
    refused = await terminal.run(*words)
    assert refused.code in (1, 2)
    assert complaint in refused.complaint
    assert await list_sites(terminal) == ["mine"]


async def test_backup_of_a_mistyped_data_directory_is_refused(terminal: Terminal) -> None:
    """A41: a backup of nothing would look like a backup."""
    refused = await terminal.run("backup", FILE)
    assert (refused.code, "there is nothing to back up" in refused.complaint) == (2, True)
    assert not terminal.data_dir.exists()


@pytest.mark.thorough
async def test_restore_says_whether_the_stored_keys_can_be_read(terminal: Terminal) -> None:
    """A4, A41: with no master key, a wrong one, and the right one; none is made that would stand in its way."""
    await add_site(terminal, COOKIE_MASTER_KEY=None)
    made = await terminal.run("backup", FILE, COOKIE_MASTER_KEY=None)
    here, there = terminal.data_dir / "master.key", terminal.folder / "new"
    assert f"Keep a copy of {here} in another place" in made.out
    moved = {"COOKIE_MASTER_KEY": None, "TIDINGS_DATA_DIR": str(there)}
    missing = await terminal.run("restore", FILE, **moved)
    assert not (there / "master.key").exists()
    wrong = await terminal.run("restore", FILE, "--replace", "--yes", **moved | {"COOKIE_MASTER_KEY": new_master_key()})
    (there / "master.key").write_bytes(here.read_bytes())
    (there / "master.key").chmod(0o600)
    right = await terminal.run("restore", FILE, "--replace", "--yes", **moved)
    assert [each.code for each in (missing, wrong, right)] == [0, 0, 0]
    assert "there is no master key here; put the key" in missing.err
    assert str(there / "master.key") in missing.err
    assert "cannot be read (cannot decrypt sites.indexnow_key of row 'mine'" in wrong.err
    assert right.err == ""
    assert await list_sites(terminal, **moved) == ["mine"]


@pytest.mark.thorough
async def test_restore_says_whether_the_stored_cookies_can_be_read(terminal: Terminal) -> None:
    """A4, A41: cookies are encrypted with the master key too, and there may be no site beside them."""
    await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given="SUB=1")
    assert (await terminal.run("backup", FILE)).code == 0
    other = {"COOKIE_MASTER_KEY": new_master_key(), "TIDINGS_DATA_DIR": str(terminal.folder / "new")}
    wrong, right = await terminal.run("restore", FILE, **other), await terminal.run("restore", FILE)
    assert (wrong.code, right.code, right.err) == (0, 0, "")
    assert "cannot be read (cannot decrypt tbl_cookie" in wrong.err


@pytest.mark.thorough
async def test_what_is_paused_stays_paused(terminal: Terminal) -> None:
    """A41: anybody who paused before the restore wants to look before anything runs; and `resume` ends it."""
    await add_site(terminal)
    await add_site(terminal, "other")
    await terminal.run("backup", FILE)
    await terminal.run("pause", "other")
    one = await terminal.run("restore", FILE, "--replace", "--yes")
    await terminal.run("pause")
    everything = await terminal.run("restore", FILE, "--replace", "--yes")
    resumed = await terminal.run("resume")
    assert "other is still paused; `tidings resume` lets it run again." in one.out
    assert "Everything is still paused" in everything.out
    assert resumed.out == "Everything runs again.\n"


async def test_backup_names_the_file_that_it_cannot_open(terminal: Terminal) -> None:
    """A41: the database, not the file that was to be written."""
    database = terminal.data_dir / "tidings.db"
    database.mkdir(parents=True, mode=0o700)
    failed = await terminal.run("backup", FILE)
    assert (failed.code, failed.complaint) == (1, f"tidings: Is a directory ({database}); no backup was written")


# SQLite itself needs 32 kB beside a database that is read.
@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [36, 128])
async def test_full_disk_during_a_backup_leaves_the_older_one(terminal: Terminal, kilobytes: int) -> None:
    """A41: early and late; no half backup is left beside it either."""
    await add_site(terminal)
    await terminal.run("backup", FILE)
    before = (terminal.folder / FILE).read_bytes()
    await enter(terminal.data_dir / "tidings.db", rows=20_000)
    failed = await run_shell(terminal, f"ulimit -f {2 * kilobytes}; exec tidings backup {FILE}")
    assert (failed.code, failed.complaint) == (1, f"tidings: File too large ({FILE}); no backup was written")
    assert (terminal.folder / FILE).read_bytes() == before
    assert [path.name for path in list_files(terminal.folder) if path.suffix == ".part"] == []


@pytest.mark.slow
async def test_full_disk_during_a_restore_leaves_everything_as_it_was(terminal: Terminal) -> None:
    """A41: the database cannot grow to half of what it needs."""
    await add_site(terminal)
    await enter(terminal.data_dir / "tidings.db", rows=50_000)
    await terminal.run("backup", FILE)
    await add_site(terminal, "later", TIDINGS_DATA_DIR=str(terminal.folder / "new"))
    failed = await run_shell(
        terminal, f"ulimit -f 1000; TIDINGS_DATA_DIR=new exec tidings restore {FILE} --replace --yes"
    )
    assert failed.code == 1
    assert failed.complaint.startswith("tidings: the database does not work (")
    assert failed.complaint.endswith("; nothing was changed")
    assert await list_sites(terminal, TIDINGS_DATA_DIR="new") == ["later"]
    assert (await terminal.run("restore", FILE, "--replace", "--yes", TIDINGS_DATA_DIR="new")).code == 0
    assert await list_sites(terminal, TIDINGS_DATA_DIR="new") == ["mine"]


def list_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def enter(path: Path, *, rows: int) -> None:
    """Rows of the ledger of a site that nobody has."""
    database = open_database(f"sqlite:///{path}")
    values = [
        {"site": 999, "channel": 1, "url_hash": number * 2_654_435_761, "submitted_at": number, "lastmod": None}
        for number in range(rows)
    ]
    async with database.write() as connection:
        await connection.execute(insert(ledger), values)
    await database.close()


@pytest.mark.slow
async def test_installation_moves_from_sqlite_to_postgresql_with_all_it_knows(
    terminal: Terminal, postgres_url: str
) -> None:
    """A41, decision 2: 100,000 entries of the ledger; afterwards nothing is announced again but what is new."""
    async with make_sandbox() as sandbox:
        await set_up(terminal, sandbox)
        await enter(terminal.data_dir / "tidings.db", rows=MOVED)
        made = await terminal.run("backup", FILE)
        terminal.variables["TIDINGS_DATABASE_URL"] = postgres_url
        restored = await terminal.run("restore", FILE)
        assert (made.code, restored.code, restored.err) == (0, 0, "")
        assert f"{MOVED + 60:,} accepted pages" in restored.out
        sqlite, postgresql = open_database(f"sqlite:///{terminal.data_dir}/tidings.db"), open_database(postgres_url)
        assert await read_ledger(postgresql) == await read_ledger(sqlite)
        await sqlite.close()
        await postgresql.close()
        added = sandbox.site.add(3)
        ran = await terminal.run("run", "mine", "--json")
        assert (ran.code, ran.document["submitted"]) == (0, 3)
        assert {sandbox.site.url(number) for number in added} < set(sandbox.engines[0].accepted)
        assert dict(sandbox.engines[0].accepted) == count_each_once(sandbox)


async def read_ledger(database: Database) -> set[tuple[object, ...]]:
    async with database.read() as connection:
        return {tuple(row) for row in await connection.execute(select(ledger))}


@pytest.mark.thorough
async def test_backup_without_the_ledger_has_everything_else(terminal: Terminal) -> None:
    """A41: the largest table can be left out; after a restore it is empty, and the sites are there."""
    async with make_sandbox(pages=3) as sandbox:
        await set_up(terminal, sandbox)
        whole = (await terminal.run("backup", FILE, "--json")).document
        without = (await terminal.run("backup", FILE, "--without-ledger", "--json")).document
        restored = await terminal.run("restore", FILE, "--replace", "--yes")
        assert (restored.code, await list_sites(terminal)) == (0, ["mine"])
        assert (whole["rows"]["ledger"], "ledger" in without["rows"]) == (3, False)
        assert without["rows"]["sites"] == whole["rows"]["sites"]
