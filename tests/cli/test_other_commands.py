"""The commands around announcing: sites, run, status, keys, ledger, database, sandbox; each as a process of its own,
but for the help, which is asked of every command there is."""

import asyncio
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.cli.terminal import Terminal, announce_words, count_each_once, end, make_sandbox
from tidings import __version__
from tidings.cli.main import make_app
from tidings.sandbox.wire.faults import Fault

ADDRESS = "https://site.example/sitemap.xml"
MASK = "****...****"


@pytest.mark.thorough
async def test_site_is_stored_shown_masked_run_and_removed(terminal: Terminal) -> None:
    """A2, A4, A37: from `sites add` to `sites remove`, with an execution and its record in between."""
    async with make_sandbox() as sandbox:
        site, engine = sandbox.site, sandbox.engines[0]
        added = await terminal.run(
            "sites", "add", site.sitemap_url, "--key", site.key, "--engine", engine.endpoint, "--id", "mine"
        )
        listed, shown = await asyncio.gather(terminal.run("sites", "list"), terminal.run("sites", "show", "mine"))
        ran = await terminal.run("run", "mine", "--json")
        status = await terminal.run("status")
        removed = await terminal.run("sites", "remove", "mine")
        again = await terminal.run("sites", "remove", "mine")
        assert (added.code, added.out) == (0, "Stored mine.\n")
        assert [part in listed.out for part in ("mine", site.sitemap_url, "indexnow")] == [True] * 3
        assert shown.document["site"]["indexnowKey"] == MASK
        assert shown.document["site"]["keyLocation"] == f"{site.origin}/{MASK}.txt"
        assert site.key not in listed.out + shown.out + terminal.log
        assert (ran.code, dict(engine.accepted)) == (0, count_each_once(sandbox))
        row = status.out.splitlines()[1].split()
        assert (row[0], row[3:6], row[-1]) == ("mine", ["succeeded", "60", "0"], ran.document["executionId"])
        assert (removed.code, removed.out) == (0, "Removed mine.\n")
        assert again.code == 2
        assert "there is no site 'mine'" in again.complaint


@pytest.mark.thorough
async def test_status_of_a_site_names_the_urls_that_failed_and_why(terminal: Terminal) -> None:
    """A13, A36, A37: the URL, the engine, its reason, and how often it was tried."""
    async with make_sandbox() as sandbox:
        bad = sandbox.site.url(7)
        sandbox.engines[0].misbehave(Fault(status=422, body="not welcome", matching=bad))
        ran = await terminal.run(*announce_words(sandbox), "--json")
        shown = await terminal.run("status", sandbox.site.host)
        document = (await terminal.run("status", sandbox.site.host, "--json")).document
        assert (ran.code, ran.document["failed"]) == (1, 1)
        assert f"{bad} at {sandbox.engines[0].endpoint}: HTTP 422: not welcome (1 attempts" in shown.out
        assert [(page["url"], page["attempts"]) for page in document["failed"]] == [(bad, 1)]


async def test_environment_alone_sets_a_site_up(terminal: Terminal) -> None:
    """A1: SITEMAP_URL, INDEXNOW_API_KEY and INDEXNOW_SEARCH_ENGINES, and nothing else; status knows it by its host."""
    async with make_sandbox(engines=2) as sandbox:
        site = sandbox.site
        terminal.variables |= {
            "SITEMAP_URL": site.sitemap_url,
            "INDEXNOW_API_KEY": site.key,
            "INDEXNOW_SEARCH_ENGINES": ",".join(engine.endpoint for engine in sandbox.engines),
        }
        ran = await terminal.run("run")
        status = await terminal.run("status", site.host, "--json")
        assert (ran.code, ran.err) == (0, "")
        assert all(dict(engine.accepted) == count_each_once(sandbox) for engine in sandbox.engines)
        record = status.document["executions"][0]
        assert (record["site"], record["status"], record["result"]["submitted"]) == (site.host, "succeeded", 60)


@pytest.mark.parametrize(
    ("words", "variables", "rule"),
    [
        pytest.param(["run"], {}, "name a site, or set SITEMAP_URL and INDEXNOW_API_KEY", id="no site"),
        pytest.param(
            ["run"], {"SITEMAP_URL": ADDRESS}, "INDEXNOW_API_KEY: required because SITEMAP_URL is set", id="half a site"
        ),
        pytest.param(
            ["ledger", "forget", "mine", "--since", "lately"],
            {},
            "--since: it must be a time such as",
            id="no timestamp",
        ),
        pytest.param(["database", "downgrade", "tomorrow", "--yes"], {}, "tomorrow", id="no revision"),
        pytest.param(["status"], {"TIDINGS_DATABASE_URL": "mysql://a:b@c/d"}, "mysql is not supported", id="database"),
    ],
)
async def test_bad_input_ends_with_2_and_one_line(
    terminal: Terminal, words: list[str], variables: dict[str, str], rule: str
) -> None:
    """A1: every command refuses in the same way."""
    ended = await terminal.run(*words, **variables)
    assert ended.code == 2
    assert ended.complaint.startswith("tidings: ")
    assert rule in ended.complaint


@pytest.mark.thorough
async def test_keys_are_rotated_and_the_old_master_key_can_go(terminal: Terminal) -> None:
    """A4, design decision 6: `k2:NEW,k1:OLD` encrypts again what k1 had encrypted; k2 alone reads it then, k1 does
    not."""
    made = await asyncio.gather(*(terminal.run("keys", "new", *options) for options in ([], [], ["--indexnow"])))
    old, new, indexnow = (ended.out.strip() for ended in made)
    only_old, both, only_new = f"k1:{old}", f"k2:{new},k1:{old}", f"k2:{new}"
    await terminal.run("sites", "add", ADDRESS, "--key", indexnow, COOKIE_MASTER_KEY=only_old)
    before = await terminal.run("keys", "status", COOKIE_MASTER_KEY=both)
    rotated = await terminal.run("keys", "rotate", COOKIE_MASTER_KEY=both)
    after, readable, unreadable = await asyncio.gather(
        terminal.run("keys", "status", COOKIE_MASTER_KEY=only_new),
        terminal.run("sites", "show", "site.example", COOKIE_MASTER_KEY=only_new),
        terminal.run("sites", "show", "site.example", COOKIE_MASTER_KEY=only_old),
    )
    assert before.out == "New secrets are encrypted with k2.\nk1: 1 secret; run `tidings keys rotate`\n"
    assert rotated.out == "Encrypted 1 stored secret again.\n"
    assert after.out == "New secrets are encrypted with k2.\nk2: 1 secret\n"
    assert (readable.code, readable.document["site"]["indexnowKey"]) == (0, MASK)
    assert unreadable.code == 2
    assert "is encrypted with key 'k2', which is not in the key ring (k1)" in unreadable.complaint


@pytest.mark.thorough
async def test_forgotten_pages_are_due_again(terminal: Terminal) -> None:
    """A36, A41, A44: a bad run is undone, also for files that have not changed since; a look-up shows it."""
    async with make_sandbox(pages=5) as sandbox:
        engine = sandbox.engines[0]
        terminal.variables |= {
            "SITEMAP_URL": sandbox.site.sitemap_url,
            "INDEXNOW_API_KEY": sandbox.site.key,
            "INDEXNOW_SEARCH_ENGINES": engine.endpoint,
        }
        await terminal.run("run")
        known = await terminal.run("ledger", "find", sandbox.site.url(2))
        foreign = await terminal.run("ledger", "find", "https://other.example/", "--site", sandbox.site.host)
        forgotten = await terminal.run("ledger", "forget", sandbox.site.host, "--since", "2020-01-01")
        unknown = (await terminal.run("ledger", "find", sandbox.site.url(2), "--json")).document["sites"]
        ran = await terminal.run("run", "--json")
        assert forgotten.out == "5 entries are forgotten; their pages are due again.\n"
        assert (known.code, "not due, unless it changed" in known.out) == (0, True)
        assert (foreign.code, "not of the site's host" in foreign.out) == (1, True)
        assert unknown[0]["channels"][0] | {"open": []} == {
            "channel": "indexnow",
            "due": True,
            "rule": "new",
            "acceptedAt": None,
            "lastmod": None,
            "until": None,
            "open": [],
        }
        assert (ran.document["new"], ran.document["filesUnchanged"]) == (5, 0)
        assert dict(engine.accepted) == dict.fromkeys(sandbox.site.urls(), 2)


async def test_a_page_is_found_by_every_spelling_of_its_address(terminal: Terminal) -> None:
    """A44, A47: as browsers read it, with another alphabet in the host; what is no URL is bad input."""
    (terminal.folder / "sites.json").write_text(
        '[{"id": "books", "sitemapUrl": "https://xn--bcher-kva.example/s.xml", "indexnowKey": "0123456789abcdef"}]'
    )
    await terminal.run("sites", "import", "sites.json")
    plain = "https://xn--bcher-kva.example/a b"
    spellings = (plain, "https://bücher.example/a b", "HTTPS://BÜCHER.example:443/a%20b#end")
    ended = [await terminal.run("ledger", "find", each, "--json") for each in spellings]
    assert [each.document["sites"][0]["url"] for each in ended] == ["https://xn--bcher-kva.example/a%20b"] * 3
    for url in ("https://[::1", "bücher.example/a", "", "ftp://bücher.example/a", "https://bücher.example/a\nb"):
        wrong = await terminal.run("ledger", "find", url)
        assert (wrong.code, wrong.complaint.startswith("tidings: URL: ")) == (2, True), url
    unknown = await terminal.run("ledger", "find", "https://other.example/")
    assert (unknown.code, "no site has the host of this URL" in unknown.complaint) == (2, True)


@pytest.mark.thorough
async def test_tables_go_down_and_up_again(terminal: Terminal) -> None:
    """A41: a rollback is a command, it asks first, and the way back works."""
    upgraded = await terminal.run("database", "upgrade")
    unknown = await terminal.run("database", "downgrade", "9999")
    asked = await terminal.run("database", "downgrade", "base")
    downgraded = await terminal.run("database", "downgrade", "base", "--yes")
    again = await terminal.run("database", "upgrade")
    used = await terminal.run("sites", "list", "--json")
    assert upgraded.out.startswith("The tables are at revision 0")
    assert (unknown.code, unknown.complaint) == (2, "tidings: there is no revision 9999; nothing was changed")
    assert (asked.code, "Go on?" in asked.out) == (1, True)
    assert (downgraded.code, downgraded.out) == (0, "The tables are at revision base.\n")
    assert (again.code, again.out) == (0, upgraded.out)
    assert (used.code, used.document) == (0, {"sites": []})


# The commands of announce that the sandbox shows.
SHOWN = ("tidings announce", "tidings sites", "tidings run")


@pytest.mark.thorough
async def test_sandbox_says_what_to_try_and_ends_by_ctrl_c(terminal: Terminal) -> None:
    """C33: the lines it shows work as they stand, in another terminal."""
    process = await terminal.start("sandbox", "--port", "0", "--pages", "3")
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "Ctrl-C ends it.":
        lines.append((await process.stdout.readline()).decode().rstrip())
    exported = (line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
    terminal.variables |= {name: value.strip("'") for name, value in exported if name != "TIDINGS_DATA_DIR"}
    shown = [line.strip() for line in lines if line.startswith("  ")]
    ran = []
    for line in shown:
        if line.startswith(SHOWN):
            ran.append(await terminal.run(*line.split()[1:]))
        elif line.startswith("echo "):
            given, words = line.removeprefix("echo ").split(" | tidings ")
            ran.append(await terminal.pipe(*words.split(), given=given.strip("'")))
        elif line.startswith("curl "):
            fetched, words = line.split(" && tidings ")
            await asyncio.to_thread(subprocess.run, fetched.split(), cwd=terminal.folder, check=True)
            ran.append(await terminal.run(*words.split()))
    setup = await terminal.run("collect", "feishu", "setup", "--yes")
    terminal.variables |= dict(line.split("=") for line in setup.out.splitlines() if line.startswith("FEISHU_TABLE_"))
    collecting = [line.split()[1:] for line in shown if line.startswith("tidings collect")]
    ran += [await terminal.run(*words) for words in collecting]
    process.send_signal(signal.SIGINT)
    ended = await end(process)
    assert lines[0].startswith("Site:    http://127.0.0.1:")
    assert [each.code for each in ran] == [0] * 12
    assert "Bing: 3 of 100 used today, 97 remain" in ran[4].out
    assert "Baidu: 3 of " in ran[4].out
    assert "to Google: it changed." in ran[4].out
    assert "12 found, 12 new" in ran[9].out
    assert ran[11].out.startswith("29 created")
    assert (ended.code, ended.err) == (0, "")


async def test_sandbox_on_a_taken_port_ends_with_one_line(terminal: Terminal) -> None:
    """Two sandboxes started by mistake are distinguished from a broken installation."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = await terminal.run("sandbox", "--port", str(taken.getsockname()[1]))
    assert ended.code == 1
    assert ended.complaint.startswith("tidings: ")


async def test_version_and_help_need_no_data_directory(terminal: Terminal) -> None:
    """A1: asking costs nothing and leaves nothing behind."""
    version = await terminal.run("--version")
    assert (version.code, version.out, version.err) == (0, f"tidings {__version__}\n", "")
    assert not terminal.data_dir.exists()


def _list_commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from _list_commands(child, (*path, name))


@pytest.mark.parametrize(
    "path", list(_list_commands(get_command(make_app()))), ids=lambda path: " ".join(path) or "tidings"
)
def test_help_of_every_command_works(path: tuple[str, ...]) -> None:
    """A1: each says how it is used and what it is for."""
    result = CliRunner().invoke(make_app(), [*path, "--help"])
    assert result.exit_code == 0
    usage, _, rest = result.output.partition("\n")
    assert usage.startswith("Usage: ")
    assert rest.strip()
    assert "Options:" in rest


async def test_a_damaged_database_is_named_with_what_to_do(terminal: Terminal) -> None:
    """A25: no unexpected error, and nothing in the file is changed."""
    terminal.data_dir.mkdir(mode=0o700)
    path = terminal.data_dir / "tidings.db"
    path.write_bytes(b"garbage\n")
    ended = await terminal.run("status")
    chinese = await terminal.run("status", TIDINGS_LANGUAGE="zh")
    assert ended.code == chinese.code == 1
    assert ended.complaint.strip() == (
        "tidings: the database does not work (file is not a database); its file is damaged: move tidings.db away and "
        "run `tidings restore` with your last backup"
    )
    assert "文件不是数据库）；数据库文件已损坏：请移走 tidings.db" in chinese.complaint
    assert path.read_bytes() == b"garbage\n"


async def test_a_port_in_use_is_named_with_what_to_do(terminal: Terminal) -> None:
    """A25: serve ends at once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = await terminal.run("serve", "--port", port)
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == (
        f"tidings: Address already in use (127.0.0.1 port {port}); "
        "choose another with --port, or end the program that uses it"
    )
