"""The canary: a Bing key that is looked for in all that is written, printed or raised, in every spelling of it."""

import base64
import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from io import StringIO
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import delete, insert, select, text

from tests.announce.bing_stage import BingStage, open_bing_stage
from tests.announce.stage import Events, pick_events
from tests.cli.terminal import Terminal
from tests.conftest import BenchMaker
from tests.fakes import FakeClock
from tests.traces import find_traces, spell
from tidings.announce.channels.answer import Verdict
from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.protocols.bing import BingApi
from tidings.announce.channels.quota.key_cooldowns import key_rests
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import Site, make_site
from tidings.core.db.database import Database, metadata
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.redaction import Redactor
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines import bing as faults
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

PLAIN = "kanarienvogel5d81c0e29b7f43a6"
# Every character that one spelling or another changes.
AWKWARD = "Kana+rien/vogel=7f3b&9c%2Fd1#e8?a4\"f6'0\\=="
KEYS = pytest.mark.parametrize("key", [PLAIN, AWKWARD], ids=["plain", "awkward"])
ONE_DAY = timedelta(days=1)
# It would hold the test up for half a minute, and says the same as a reset.
READY = {name: fault for name, fault in vars(faults).items() if isinstance(fault, Fault) and name != "HANG"}


async def dump(database: Database, folder: Path) -> bytes:
    """All that the database holds: every row, and where it is a file, every byte of it and of its log."""
    rows = []
    async with database.read() as connection:
        for table in metadata.sorted_tables:
            rows += [repr(tuple(row)) for row in await connection.execute(select(table))]
    return "\n".join(rows).encode() + read_files(folder, "tidings.db*")


def read_files(folder: Path, pattern: str) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob(pattern)) if path.is_file())


@KEYS
def test_the_search_finds_the_key_in_every_spelling(key: str) -> None:
    """A control: whole, cut, and inside other text; what may be shown of it is not taken for it."""
    for name, form in spell(key).items():
        assert find_traces(f"before {form} after", key), name
        assert find_traces(form.encode()[: len(form) // 2], key), name
    for before in range(3):
        wrapped = base64.b64encode(b"x" * before + f"?apikey={key}&more".encode())
        assert find_traces(wrapped, key)
    site = make_canary_site(key)
    assert site.bing.key is not None
    assert find_traces(f"{site.bing.key.hint} {site.bing.key.masked} {site.bing.key.fingerprint}", key) == set()


def make_canary_site(key: str) -> Site:
    bing = BingSettings.make(enabled=True, key=key)
    return make_site(sitemap_urls=["https://example.com/sitemap.xml"], key="an-indexnow-key", bing=bing)


@KEYS
def test_a_site_does_not_show_its_key(client: GuardedClient, key: str) -> None:
    """A4: as repr, text, dict or inside an error about it."""
    site = make_canary_site(key)
    shown = [repr(site), str(site.bing), f"{site.bing.key}", repr(asdict(site)), repr(BingApi(client, FakeClock()))]
    with pytest.raises(SiteError) as refused:
        BingSettings.make(enabled=True, key=f"{key} {key}")
    with pytest.raises(TypeError) as unfit:
        json.dumps(asdict(site))
    shown += [str(refused.value), repr(refused.value), str(unfit.value)]
    assert find_traces("\n".join(shown), key) == set()


def repeat_key(key: str) -> Iterator[Fault]:
    """Answers that repeat the key, as it came or as a framework would write it."""
    for name, form in spell(key).items():
        if name.startswith(("clear", "URL-encoded")) and '"' not in form and "\\" not in form:
            yield Fault(status=400, body=f"<html>No such resource: /SubmitUrlbatch?apikey={form}</html>")
        if name.startswith("JSON"):
            yield Fault(status=400, body='{"ErrorCode":2,"Message":"ERROR!!! ' + form + '"}')
            yield Fault(status=401, body='{"ErrorCode":"' + form + '","Message":"ERROR!!! InvalidApiKey ' + form + '"}')
    yield faults.refuse(2, f"ERROR!!! {quote(key, safe='')} is not known", status=403)
    yield faults.refuse(17, f"ERROR!!! ThrottleIP {key}")
    yield faults.refuse(2, "x" * 290 + key)


async def meet(stage: BingStage, fault: Fault) -> None:
    """An execution on a new day, with the channel free, that meets this fault; and all is well afterwards."""
    stage.misbehave(fault)
    await stage.announce()
    stage.bing.recover()
    stage.clock.set(stage.clock.now().replace(hour=1) + ONE_DAY)
    async with stage.bench.database.write() as connection:
        await BrokenEngines(stage.bench.database, site=stage.site, channel=Channel.BING).free(connection)
        await connection.execute(delete(key_rests))


@pytest.mark.thorough
@KEYS
async def test_no_answer_of_bing_brings_the_key_into_a_log_or_the_database(
    make_bench: BenchMaker, database: Database, tmp_path: Path, events: Events, key: str
) -> None:
    """A4, A31: no matter what Bing answers; also before any line of the log is redacted."""
    async with open_bing_stage(make_bench, pages=3, quota=500, key=key) as stage:
        for fault in (*READY.values(), faults.refuse_quota(remaining=2, submitted=3)):
            await meet(stage, fault)
        met = {event["verdict"] for event in pick_events(events, "batch.answer")}
        assert met == {verdict.value for verdict in Verdict} - {Verdict.ACCEPTED.value, Verdict.UNVERIFIED.value}
        # Bing knew the key by which it took these.
        assert len(stage.bing.accepted) == 3
        held = await dump(database, tmp_path)
        assert find_traces(repr(events), key) == set()
        assert find_traces(held, key) == set()
        [stored] = [each for each in await stage.bench.records.list_all() if each.bing.key is not None]
        assert stored.bing.require_key().reveal() == key
        await plant(database, key)
        assert find_traces(await dump(database, tmp_path), key)


async def plant(database: Database, key: str) -> None:
    """A leak, for the search to find."""
    hidden = base64.b64encode(b"?apikey=" + key.encode()).decode()
    async with database.write() as connection:
        await connection.execute(insert(key_rests).values(key_fingerprint="x", until=0, reason=hidden))


@pytest.mark.thorough
@KEYS
async def test_an_answer_that_repeats_the_key_is_not_repeated(
    make_bench: BenchMaker, database: Database, tmp_path: Path, events: Events, key: str
) -> None:
    """A4, A31: the reason is stored, logged and shown, so the key is taken out of it, however Bing writes it."""
    async with open_bing_stage(make_bench, pages=3, quota=500, key=key) as stage:
        for fault in repeat_key(key):
            events.clear()
            await meet(stage, fault)
            assert pick_events(events, "batch.answer")
            assert find_traces(repr(events), key) == set(), fault.body
        assert find_traces(await dump(database, tmp_path), key) == set()


@pytest.fixture
def log() -> Iterator[StringIO]:
    """A log whose redactor knows no secret. The process gets its own logging back."""
    loggers = [logging.getLogger(name) for name in (None, "tidings")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    stream = StringIO()
    configure_logging(format=LogFormat.JSON, level="debug", redactor=Redactor(), stream=stream)
    yield stream
    logging.captureWarnings(False)
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@KEYS
async def test_the_traceback_of_what_nobody_expected_does_not_hold_the_key(
    make_bench: BenchMaker, log: StringIO, key: str
) -> None:
    """A4, A27: the log as it is written, with libraries from DEBUG on, and a redactor that was given no secret."""
    async with open_bing_stage(make_bench, pages=3, key=key) as stage:

        async def pull_the_rug(_: object) -> None:
            async with stage.bench.database.write() as connection:
                await connection.execute(text("DROP TABLE channel_quota"))

        stage.bing.on_request = pull_the_rug
        try:
            await stage.announce()
        except Exception as error:  # noqa: BLE001 - whatever leaves, its text is looked at
            log.write("".join(traceback.format_exception(error)))
    assert "bing.broken" in log.getvalue()
    assert "Traceback" in log.getvalue()
    assert find_traces(log.getvalue(), key) == set()


UNCAUGHT = """
import asyncio, os
from tidings.announce.channels.protocols.bing import BingApi
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import make_site
from tidings.core.clock import SystemClock
from tidings.core.net.client import GuardedClient
from tidings.core.logs.logger import LogFormat, configure_logging, log_uncaught_exceptions
from tidings.core.secrets.redaction import Redactor
configure_logging(format=LogFormat.JSON, level="debug", redactor=Redactor())
log_uncaught_exceptions()
bing = BingSettings.make(enabled=True, key=os.environ["CANARY"])
site = make_site(sitemap_urls=["https://example.com/sitemap.xml"], key="an-indexnow-key", bing=bing)
if "PLANT" in os.environ:
    raise ValueError(os.environ["CANARY"])
api = BingApi(GuardedClient(user_agent="tests"), SystemClock())
asyncio.run(api.submit(site, api.build_request(site, ["https://example.com/"]), count=1))
"""


@pytest.mark.thorough
@KEYS
def test_an_uncaught_exception_on_the_way_to_bing_does_not_hold_the_key(key: str) -> None:
    """A4: it ends the process, with the key in its hands; and the same with a leak, which is found."""
    ended = run_script(UNCAUGHT, CANARY=key)
    assert "the client is not open" in ended
    assert find_traces(ended, key) == set()
    assert find_traces(run_script(UNCAUGHT, CANARY=key, PLANT="1"), key)


def run_script(script: str, **variables: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **variables},
    )
    assert ended.returncode == 1
    return ended.stdout + ended.stderr


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    await opened.close()


@asynccontextmanager
async def open_sandbox(key: str) -> AsyncIterator[tuple[Sandbox, SandboxBing]]:
    bing = SandboxBing(keys={key: []})
    async with Sandbox(site=SandboxSite(pages=5), engines=[SandboxEngine("alpha")], bing=bing) as sandbox:
        bing.add_site(sandbox.site.origin, key=key)
        yield sandbox, bing


@pytest.mark.slow
@KEYS
async def test_no_command_shows_or_stores_the_key(terminal: Terminal, key: str) -> None:
    """A4, A25, A31, A32: add, run, status, show, list and check, well and in trouble; log and database as well."""
    async with open_sandbox(key) as (sandbox, bing):
        site, engine = sandbox.site, sandbox.engines[0]
        terminal.variables["BING_API_BASE"] = bing.address
        reported: list[str] = []

        async def run(*words: str, code: int) -> None:
            ended = await terminal.run(*words)
            assert ended.code == code, ended
            reported.extend((ended.out, ended.err))

        address = (site.sitemap_url, "--key", site.key, "--engine", engine.endpoint, "--id", "mine")
        await run("sites", "add", *address, "--bing-key", terminal.keep(f"{key} {key}"), code=2)
        await run("sites", "add", *address, "--bing-key", terminal.keep(key), "--bing-quota", "0", code=2)
        await run("sites", "add", *address, "--bing-key", terminal.keep(key), "--bing-priority", "random", code=0)
        await run("check", "mine", "--json", code=0)
        await run("run", "mine", "--json", code=0)
        assert len(bing.accepted) == 5
        site.add(3)
        bing.misbehave(faults.refuse(2, f"ERROR!!! no key {key}"))
        await run("run", "mine", "--channel", "bing", "--verbose", code=1)
        bing.recover()
        bing.misbehave(faults.refuse(3, f"ERROR!!! InvalidApiKey {quote(key, safe='')}"))
        await run("check", "mine", code=1)
        await run("run", "mine", code=1)
        for words in (("status", "mine", "--json"), ("status", "mine"), ("sites", "show", "mine"), ("sites", "list")):
            await run(*words, code=0)
        assert "InvalidApiKey" in "".join(reported)
        assert find_traces("\n".join(reported), key) == set()
        assert find_traces(read_files(terminal.data_dir, "*"), key) == set()
        assert "InvalidApiKey" in terminal.log


@pytest.mark.thorough
@KEYS
async def test_a_bad_key_in_the_environment_is_not_repeated(terminal: Terminal, key: str) -> None:
    """A1, A4: the variable and the rule are named, not the value."""
    for value in (f"{key} {key}", f"{key}\x07"):
        variables = {"SITEMAP_URL": "https://example.com/sitemap.xml", "INDEXNOW_API_KEY": "an-indexnow-key"}
        ended = await terminal.run("sites", "list", BING_API_KEY=value, **variables)
        assert (ended.code, "BING_API_KEY" in ended.complaint) == (2, True)
        assert find_traces(ended.complaint, key) == set()
