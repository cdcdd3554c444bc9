"""`tidings announce` as a person or a cron job meets it: exit codes, what is said where, signals, a second execution
beside the first, a full disk. What an execution does in detail is tested on the pipeline."""

import asyncio
import os
import resource
import signal
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, announce_words, count_each_once, end, make_sandbox
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

ADDRESS = "https://site.example/sitemap.xml"
KEY = "an-indexnow-key-of-good-form"
PATIENCE = timedelta(seconds=30)
# What requests under way are given after the first signal.
GRACE_MS = 5_000


async def test_all_sent_ends_with_0_and_a_line_for_each_engine(terminal: Terminal) -> None:
    """A18, A23: the summary names every engine with its counts; a second execution has nothing to send."""
    async with make_sandbox(engines=2) as sandbox:
        first = await terminal.run(*announce_words(sandbox))
        second = await terminal.run(*announce_words(sandbox, "--json"))
        assert (first.code, first.err) == (0, "")
        assert first.out.startswith(f"succeeded {sandbox.site.host} ")
        for engine in sandbox.engines:
            row = next(line.split() for line in first.out.splitlines() if line.startswith(engine.host))
            assert row[1:5] == ["60", "0", "0", "1"]
            assert dict(engine.accepted) == count_each_once(sandbox)
        assert (second.code, second.err) == (0, "")
        assert (second.document["status"], second.document["new"], second.document["cached"]) == ("succeeded", 0, 60)


async def test_some_refused_ends_with_1_and_says_what_becomes_of_them(terminal: Terminal) -> None:
    """A13, A18, A22: one bad URL costs the others nothing, is shown with its reason, and is sent again next time."""
    async with make_sandbox(engines=2) as sandbox:
        bad = sandbox.site.url(7)
        sandbox.engine("beta").misbehave(Fault(status=422, body="not welcome here", matching=bad))
        first = await terminal.run(*announce_words(sandbox))
        sandbox.engine("beta").recover()
        second = await terminal.run(*announce_words(sandbox, "--json"))
        assert (first.code, first.err) == (1, "")
        assert first.out.startswith("partial ")
        assert "HTTP 422: not welcome here" in first.out
        assert "Pages that were not accepted are kept, and sent first next time." in first.out
        assert second.code == 0
        assert second.document["repeated"] == 1
        assert all(dict(engine.accepted) == count_each_once(sandbox) for engine in sandbox.engines)


@pytest.mark.parametrize(
    ("arguments", "variables", "rule"),
    [
        pytest.param([ADDRESS, "--key", "short"], {}, "indexnowKey: it must have 8 to 128 characters", id="bad key"),
        pytest.param([ADDRESS], {}, "a key is needed: give --key or set INDEXNOW_API_KEY", id="no key"),
        pytest.param(["ftp://site.example/", "--key", KEY], {}, "only http:// and https://", id="bad URL"),
        pytest.param(
            ["https://me:open-sesame@site.example/", "--key", KEY],
            {},
            "password in the URL is not allowed",
            id="password",
        ),
        pytest.param(
            ["http://169.254.169.254/latest/meta-data/", "--key", KEY],
            {},
            "169.254.169.254 is not a public address; TIDINGS_ALLOW_NETWORKS=169.254.169.254 would allow it",
            id="metadata address",
        ),
        pytest.param(
            ["http://127.0.0.1:9/sitemap.xml", "--key", KEY],
            {"TIDINGS_ALLOW_NETWORKS": None},
            "127.0.0.1 is not a public address; TIDINGS_ALLOW_NETWORKS=127.0.0.1 would allow it",
            id="loopback",
        ),
        pytest.param(
            [ADDRESS, "--key", KEY],
            {"MAX_RETRIES": "many"},
            "MAX_RETRIES: it must be a whole number from 0 to 20",
            id="bad setting",
        ),
        pytest.param(
            [ADDRESS, "--key", KEY], {"COOKIE_MASTER_KEY": "open-sesame"}, "the master key is weak", id="bad master key"
        ),
    ],
)
async def test_bad_input_ends_with_2_and_one_line_that_names_the_rule(
    terminal: Terminal, arguments: list[str], variables: dict[str, str | None], rule: str
) -> None:
    """A1, A4: no traceback, no part of a secret, nothing on standard output."""
    ended = await terminal.run("announce", *arguments, **variables)
    assert ended.code == 2
    assert ended.complaint.startswith("tidings: ")
    assert rule in ended.complaint
    assert "open-sesame" not in ended.err
    assert KEY not in ended.err


async def test_key_may_come_from_the_environment(terminal: Terminal) -> None:
    """A1: INDEXNOW_API_KEY stands in for --key, as the help says, and keeps the key out of the list of processes."""
    async with make_sandbox(pages=3) as sandbox:
        ended = await terminal.run(
            "announce",
            sandbox.site.sitemap_url,
            "--engine",
            sandbox.engines[0].endpoint,
            INDEXNOW_API_KEY=sandbox.site.key,
        )
        assert (ended.code, ended.err) == (0, "")
        assert dict(sandbox.engines[0].accepted) == count_each_once(sandbox)


@pytest.mark.parametrize(("method", "verbs"), [("get", ["GET"] * 3), ("post", ["POST"]), (None, ["POST"])])
async def test_the_environment_alone_decides_how_its_site_is_sent(
    terminal: Terminal, method: str | None, verbs: list[str]
) -> None:
    """A1, A16: INDEXNOW_SUBMIT_METHOD is for `run`, and what `announce` does without --method."""
    async with make_sandbox(pages=3) as sandbox:
        engine = sandbox.engines[0]
        variables = {
            "SITEMAP_URL": sandbox.site.sitemap_url,
            "INDEXNOW_API_KEY": sandbox.site.key,
            "INDEXNOW_SEARCH_ENGINES": engine.endpoint,
            "INDEXNOW_SUBMIT_METHOD": method,
        }
        ended = await terminal.run("run", **variables)
        assert (ended.code, ended.err) == (0, "")
        assert [request.method for request in engine.requests] == verbs


@pytest.mark.thorough
async def test_dry_run_lists_what_is_due_and_sends_and_saves_nothing(terminal: Terminal) -> None:
    """A12: the list is on standard output, what it means on standard error; the real run then sends it all."""
    async with make_sandbox(pages=3) as sandbox:
        dry = await terminal.run(*announce_words(sandbox, "--dry-run"))
        as_json = await terminal.run(*announce_words(sandbox, "--dry-run", "--json"))
        saved = await terminal.run("sites", "list", "--json")
        assert not sandbox.engines[0].requests
        real = await terminal.run(*announce_words(sandbox, "--json"))
        assert (dry.code, dry.out.splitlines()) == (0, list(sandbox.site.urls()))
        assert dry.err == "3 of 3 pages are due. Nothing was sent.\n"
        assert (as_json.document["urls"], as_json.err) == (list(sandbox.site.urls()), "")
        assert (real.document["new"], real.document["filesUnchanged"]) == (3, 0)
        assert saved.document == {"sites": []}


@pytest.mark.parametrize("fault", [Fault(status=404), Fault(FaultKind.RESET)], ids=["missing", "unreachable"])
async def test_sitemap_that_cannot_be_fetched_ends_with_1_and_one_clear_line(terminal: Terminal, fault: Fault) -> None:
    """A6: the line says which address and why; nothing is sent."""
    reason = "the server answered 404 instead of a sitemap" if fault.status == 404 else "failed: "
    async with make_sandbox() as sandbox:
        sandbox.site.misbehave(fault)
        ended = await terminal.run(*announce_words(sandbox))
        assert (ended.code, ended.err) == (1, "")
        lines = ended.out.splitlines()
        assert lines[0].startswith("failed ")
        assert [sandbox.site.sitemap_url in line and reason in line for line in lines[1:]] == [True]
        assert not sandbox.engines[0].requests


async def test_name_with_a_private_address_is_refused_and_the_setting_named(terminal: Terminal) -> None:
    """A6: what a name leads to is known only on connecting, so this is a failed execution and not bad input."""
    async with make_sandbox() as sandbox:
        address = f"http://localhost:{sandbox.site.port}/sitemap.xml"
        ended = await terminal.run("announce", address, "--key", KEY, TIDINGS_ALLOW_NETWORKS=None)
        assert ended.code == 1
        assert "is not public, and TIDINGS_ALLOW_NETWORKS does not allow it" in ended.out
        assert not sandbox.site.requests


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_ends_a_run_in_good_order_and_the_next_repeats_nothing(
    terminal: Terminal, number: signal.Signals
) -> None:
    """A20: interrupted, exit 1, all that was done is saved."""
    async with make_sandbox() as sandbox:
        engine = sandbox.engines[0]
        words = announce_words(sandbox, "--method", "get", "--json")
        process = await terminal.start(*words, REQUEST_INTERVAL_MS="50")

        def interrupt(_: Recorded) -> None:
            if len(engine.requests) == 5:
                process.send_signal(number)

        engine.on_request = interrupt
        first = await end(process)
        sent = engine.accepted.total()
        second = await terminal.run(*words)
        assert (first.code, first.err) == (1, "")
        assert first.document["status"] == "interrupted"
        assert f"{number.name} was received" in first.document["warnings"][0]
        assert 5 <= sent == first.document["submitted"] < 60
        assert second.code == 0
        assert dict(engine.accepted) == count_each_once(sandbox)


@pytest.mark.thorough
async def test_second_signal_ends_a_run_at_once_with_one_line(terminal: Terminal) -> None:
    """A20: nobody who presses Ctrl-C twice waits for an engine that hangs, and it is recorded as interrupted."""
    async with make_sandbox() as sandbox:
        engine = sandbox.engines[0]
        engine.misbehave(Fault(FaultKind.HANG, times=1))
        process = await terminal.start(*announce_words(sandbox))
        await engine.wait_for_requests(1, timeout=PATIENCE)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        first = await end(process)
        shown = await terminal.run("status", sandbox.site.host, "--json")
        second = await terminal.run(*announce_words(sandbox))
        record = shown.document["executions"][0]
        assert record["status"] == "interrupted"
        assert record["result"]["durationMs"] < GRACE_MS
        assert (second.code, dict(engine.accepted)) == (0, count_each_once(sandbox))
        assert first.code == 1
        assert first.complaint.startswith("tidings: ")


@pytest.mark.thorough
async def test_second_announce_beside_a_running_one_ends_with_1_and_names_it(terminal: Terminal) -> None:
    """A39: one execution of a site at a time, over all processes."""
    async with make_sandbox() as sandbox:
        engine = sandbox.engines[0]
        released = asyncio.Event()

        async def hold(_: Recorded) -> None:
            await released.wait()

        engine.on_request = hold
        process = await terminal.start(*announce_words(sandbox, "--json"))
        await engine.wait_for_requests(1, timeout=PATIENCE)
        second = await terminal.run(*announce_words(sandbox))
        released.set()
        first = await end(process)
        assert second.code == 1
        assert f"is already running as {first.document['executionId']}, since " in second.complaint
        assert second.complaint.endswith("; try again when it has ended")
        assert first.code == 0
        assert dict(engine.accepted) == count_each_once(sandbox)


async def test_key_is_never_shown_in_full(terminal: Terminal) -> None:
    """A4: neither screen, record nor log has more than four characters of it, also when an engine repeats it."""
    async with make_sandbox(pages=3, engines=2) as sandbox:
        key = sandbox.site.key
        sandbox.engine("beta").misbehave(Fault(status=401, body=f"the key {key} is unknown"))
        ended = await terminal.run(*announce_words(sandbox, "--verbose", "--method", "get"))
        shown = await terminal.run("status", sandbox.site.host, "--json")
        assert ended.code == 1
        assert "execution.started" in ended.err
        assert f'"key_hint": "{key[:4]}****"' in terminal.log
        texts = {"err": ended.err, "log": terminal.log, "out": ended.out, "status": shown.out}
        assert [place for place, text in texts.items() if key in text] == []


async def test_data_is_for_its_owner_alone_under_any_umask(terminal: Terminal) -> None:
    """A4, design decision 6: 0700 and 0600, also of what is there only while it runs; the new master key is named."""
    open_to_others: dict[str, str] = {}
    async with make_sandbox(pages=3) as sandbox:
        sandbox.engines[0].on_request = lambda _: open_to_others.update(_find_open(terminal.data_dir))
        before = os.umask(0)
        try:
            process = await terminal.start(*announce_words(sandbox), COOKIE_MASTER_KEY=None)
        finally:
            os.umask(before)
        ended = await end(process)
        assert ended.code == 0
        made = terminal.data_dir / "master.key"
        assert ended.err == f"Created a master key in {made}. Keep a copy of it in another place.\n"
        assert made.read_text().strip() not in ended.out + ended.err + terminal.log
        assert open_to_others | _find_open(terminal.data_dir) == {}


def _find_open(folder: Path) -> dict[str, str]:
    """Every file and folder from here down that others than its owner may use, with its mode."""
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    return {path.name: oct(mode) for path, mode in modes.items() if mode & 0o077}


async def test_data_directory_that_cannot_be_made_is_named_in_one_line(terminal: Terminal) -> None:
    """A1: a file stands where the directory should be."""
    place = terminal.folder / "file"
    place.touch()
    async with make_sandbox() as sandbox:
        ended = await terminal.run(*announce_words(sandbox), TIDINGS_DATA_DIR=str(place / "data"))
        assert ended.code == 2
        assert str(place) in ended.complaint
        assert not sandbox.engines[0].requests


@pytest.mark.thorough
async def test_full_disk_ends_with_one_line_and_the_next_run_completes(terminal: Terminal) -> None:
    """A11, design decision 5: what could not be recorded is sent again, at most what was in flight; nothing is lost."""
    async with make_sandbox() as sandbox:
        engine = sandbox.engines[0]
        words = announce_words(sandbox, "--method", "get")
        process = await terminal.start(*words)
        _fill_disk_at(sandbox, 10, pid=process.pid)
        first = await end(process)
        engine.on_request = None
        second = await terminal.run(*words)
        # The log lies on the same disk; that a line of it is lost is said, too.
        said = [line for line in first.err.splitlines() if not line.startswith("a log line of tidings.")]
        assert (first.code, first.out, len(said)) == (1, "", 1)
        assert said[0].startswith("tidings: the database does not work (")
        assert "; everything saved before is kept" in said[0]
        assert second.code == 0
        assert set(engine.accepted) == set(sandbox.site.urls())
        assert engine.accepted.total() <= 60 + 3


def _fill_disk_at(sandbox: Sandbox, count: int, *, pid: int) -> None:
    """From the request of this number on, no file of the process can grow: it meets the same failures as on a full
    disk, without one."""
    engine = sandbox.engines[0]

    def fill(_: Recorded) -> None:
        if len(engine.requests) == count:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))

    engine.on_request = fill


@pytest.mark.thorough
async def test_a_dry_run_and_a_check_leave_nothing_behind_and_the_first_execution_says_so(terminal: Terminal) -> None:
    """A12, A25: no database, no key, no folder; an execution in a new place says once that every page is new."""
    async with make_sandbox(pages=3) as sandbox:
        dry = await terminal.run(*announce_words(sandbox, "--dry-run"))
        checked = await terminal.run("check", sandbox.site.sitemap_url, "--key", sandbox.site.key)
        assert (dry.code, checked.code) == (0, 0)
        assert not terminal.data_dir.exists()
        first = await terminal.run(*announce_words(sandbox))
        again = await terminal.run(*announce_words(sandbox))
        assert f"This was the first execution in {terminal.data_dir}: without history" in first.out
        assert "first execution" not in again.out
        status = await terminal.run("status", sandbox.site.host)
        assert "runs next at" not in status.out
