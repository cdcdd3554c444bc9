"""`tidings serve` as people run it: real processes that are started, asked over HTTP, stopped, killed and started
again, against the sandbox. Time is not waited for: what is to be due is written into the database before the start."""

import asyncio
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from sqlalchemy import select, text, update
from standardwebhooks.webhooks import Webhook

from tests.cli.fork_server import Command
from tests.cli.terminal import Terminal, end
from tidings.announce.schedule.table import SPREAD, Schedules, schedules
from tidings.announce.site.site import Site, SubmitMethod, make_site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.core.alerts.webhook import new_webhook_secret
from tidings.core.clock import SystemClock, to_milliseconds
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import prepare_database
from tidings.core.executions import executions
from tidings.core.process_lock import find_process
from tidings.core.secrets.keyring import KeyRing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.webhook_sink import SandboxSink
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

pytestmark = pytest.mark.slow

TOKEN = "a-long-one-for-serving-7Kp2"
PATIENCE = timedelta(seconds=60)
LONGEST_END = 10.0
CONCURRENCY = 3
DAY = timedelta(days=1)


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    opened = Terminal(tmp_path)
    opened.variables |= {"TIDINGS_TOKEN": TOKEN, "MAX_CONCURRENT_REQUESTS": str(CONCURRENCY)}
    yield opened
    await opened.close()


@dataclass(frozen=True, slots=True)
class Served:
    """A process that listens. `said` is what it had printed by then."""

    process: Command
    said: list[str]
    client: ClientSession

    async def ask(
        self, path: str, *, method: str = "GET", token: str = TOKEN, document: object = None
    ) -> tuple[int, Any]:
        """Status and document of an answer; `document` is the JSON body of the request."""
        url, headers = self.said[-1].split()[3] + path, {"Authorization": f"Bearer {token}"}
        async with self.client.request(method, url, headers=headers, json=document) as answer:
            return answer.status, await answer.json()

    async def trigger(self, site: str) -> dict[str, Any]:
        """A run to its end."""
        status, document = await self.ask(f"/trigger?site={site}&wait=true", method="POST")
        assert status == 200, document
        answer: dict[str, Any] = document
        return answer

    async def end(self) -> float:
        """Ask it to end, and say how many seconds that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        ended = await end(self.process)
        assert (ended.code, ended.err) == (0, "")
        return time.monotonic() - began


class Server:
    """Starts `tidings serve` on a terminal's data directory, as often as a test wants it."""

    def __init__(self, terminal: Terminal, client: ClientSession) -> None:
        self._terminal = terminal
        self._client = client

    async def start(self, **variables: str | None) -> Served:
        return await self.start_with(**variables)

    async def start_with(self, *words: str, **variables: str | None) -> Served:
        """Start it with further options."""
        process = await self._terminal.start("serve", "--port", "0", "--quiet", *words, **variables)
        said: list[str] = []
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while not said or not said[-1].startswith("Tidings listens on "):
                line = await process.stdout.readline()
                assert line, (await end(process)).err
                said.append(line.decode().rstrip())
        return Served(process, said, self._client)


@pytest.fixture
async def server(terminal: Terminal) -> AsyncIterator[Server]:
    async with ClientSession() as client:
        yield Server(terminal, client)


@dataclass(frozen=True, slots=True)
class House:
    """The database of an installation, and a site of the sandbox with its engine."""

    database: Database
    keys: KeyRing
    web: SandboxSite
    engine: SandboxEngine

    async def store(self, name: str = "shop", *, due: timedelta | None = timedelta(minutes=1), **settings: Any) -> Site:
        """Store a site that has been due for so long."""
        clock = SystemClock()
        records = SiteRecords(self.database, keys=self.keys, clock=clock, planner=Schedules(self.database, clock=clock))
        values = {"sitemap_urls": [self.web.sitemap_url], "key": self.web.key, "engines": [self.engine.endpoint]}
        site = await records.save(make_site(site_id=name, **{**values, **settings}), origin=Origin.API)
        if due is not None:
            past = to_milliseconds(datetime.now(UTC) - due)
            async with self.database.write() as connection:
                await connection.execute(update(schedules).where(schedules.c.site == site.number).values(next_at=past))
        return site

    async def list_statuses(self) -> list[tuple[str, str]]:
        """Workflow and status of every execution, the oldest first."""
        statement = select(executions.c.workflow_name, executions.c.status).order_by(executions.c.id)
        # By the door for writing: after a clean end, SQLite has no log that the other one could read.
        async with self.database.write() as connection:
            return [(row.workflow_name, row.status) for row in await connection.execute(statement)]

    async def wait_for_ends(self, count: int) -> list[tuple[str, str]]:
        """Return once so many executions have ended."""
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while sum(status != "running" for _, status in await self.list_statuses()) < count:
                pass
        return await self.list_statuses()

    def strike(self, number: int, do: Callable[[], Awaitable[None]]) -> "asyncio.Future[None]":
        """Do something when the engine has taken the `number`-th request, before it answers."""
        struck: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def hook(_: Recorded) -> None:
            if self.engine.accepted.total() >= number and not struck.done():
                struck.set_result(None)
                await do()

        self.engine.on_answer = hook
        return struck


@asynccontextmanager
async def open_house(terminal: Terminal, *, pages: int = 60, database_url: str | None = None) -> AsyncIterator[House]:
    terminal.data_dir.mkdir(mode=0o700, exist_ok=True)
    database = open_database(database_url or f"sqlite:///{terminal.data_dir / 'tidings.db'}")
    keys = KeyRing.parse(terminal.variables["COOKIE_MASTER_KEY"])
    try:
        await prepare_database(database)
        async with SandboxSite(pages=pages, per_sitemap=20) as web, SandboxEngine("alpha") as engine:
            yield House(database, keys, web, engine)
    finally:
        await database.close()


async def test_the_first_start_writes_a_token_to_a_file_and_the_second_makes_none(
    terminal: Terminal, server: Server
) -> None:
    """Design decision 8: made at first start, in a file of the owner's, kept only as a digest, good from then on. What
    is printed may stay in a journal, so it is not printed."""
    del terminal.variables["TIDINGS_TOKEN"]
    file = terminal.data_dir / "admin.token"
    first = await server.start()
    token = file.read_text().strip()
    answers = [await first.ask("/api/sites", token=token), await first.ask("/api/sites", token="guess")]
    await first.end()
    file.unlink()
    second = await server.start()
    again = await second.ask("/api/sites", token=token)
    await second.end()
    assert first.said[0] == f"Your admin token is in {file}, which only this user can read."
    assert token.startswith("tid_")
    assert [status for status, _ in answers] == [200, 401]
    assert (len(first.said), len(second.said), again[0], file.exists()) == (2, 1, 200, False)
    assert token not in terminal.log + "".join(first.said)


async def test_a_first_token_that_cannot_be_written_is_taken_back(terminal: Terminal) -> None:
    """Design decision 8: else nobody could ever sign in. The next start makes another."""
    terminal.data_dir.mkdir(mode=0o700)
    (terminal.data_dir / "admin.token").mkdir()
    ended = await terminal.run("serve", "--port", "0", TIDINGS_TOKEN=None)
    assert ended.code != 0
    assert (await terminal.run("tokens", "list", "--json")).document == {"tokens": []}


async def test_a_token_of_ones_own_is_not_printed_and_no_other_is_made(terminal: Terminal, server: Server) -> None:
    """Design decision 8: TIDINGS_TOKEN; and without any, everything but health is closed."""
    served = await server.start()
    statuses = [(await served.ask("/api/sites", token=token))[0] for token in (TOKEN, TOKEN[:-1], "")]
    live = await served.ask("/health/live", token="")
    await served.end()
    assert (len(served.said), TOKEN in served.said[0]) == (1, False)
    assert statuses == [200, 401, 401]
    assert live[0] == 200
    assert (await terminal.run("tokens", "list", "--json")).document == {"tokens": []}


async def test_a_host_without_address_ends_it_with_one_line_that_says_what_to_check(terminal: Terminal) -> None:
    """A1: exit code 1, and no traceback."""
    ended = await terminal.run("serve", "--quiet", "--port", "0", "--host", "bad..host", TIDINGS_TOKEN=TOKEN)
    assert ended.code == 1
    assert ended.complaint.startswith("tidings: this host has no address here; check --host and TIDINGS_HOST")


@pytest.mark.parametrize("folder", ["/proc/foo", "/dev/null"])
async def test_a_data_directory_that_cannot_be_made_ends_it_with_one_line(terminal: Terminal, folder: str) -> None:
    """A1: it does not point to a log that there is not."""
    ended = await terminal.run("serve", "--port", "0", TIDINGS_DATA_DIR=folder)
    assert ended.code == 2
    assert ended.complaint.startswith(f"tidings: the data directory {folder} cannot be used (")
    assert ended.complaint.endswith("; set TIDINGS_DATA_DIR to another")


@pytest.mark.parametrize("owned", ["", "master.key"], ids=["directory", "key file"])
async def test_what_another_user_owns_is_refused_at_start(terminal: Terminal, owned: str) -> None:
    """C7: that user could read and replace it. The line says what to do."""
    del terminal.variables["COOKIE_MASTER_KEY"]
    assert (await terminal.run("status")).code == 0
    # Without root's rights nothing can be given away; this user's own is then accepted.
    if os.geteuid() == 0:
        os.chown(terminal.data_dir / owned, 65_534, 65_534)
    ended = await terminal.run("status")
    if os.geteuid() == 0:
        assert ended.code == 2
        assert "belongs to another user (uid 65534); " in ended.complaint
        assert f"{terminal.data_dir}" in ended.complaint.partition(f"chown {'' if owned else '-R '}0 ")[2]
    else:
        assert ended.code == 0


async def test_a_taken_port_ends_it_with_one_line_that_names_it(terminal: Terminal) -> None:
    """A1: exit code 1, nothing on standard output, and no execution was begun."""
    async with open_house(terminal) as house:
        await house.store()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            ended = await terminal.run("serve", "--port", str(port))
        assert ended.code == 1
        assert ended.complaint.startswith("tidings: Address already in use")
        assert str(port) in ended.complaint
        assert await house.list_statuses() == []


async def test_a_run_that_was_missed_is_made_up_once_after_the_start(terminal: Terminal, server: Server) -> None:
    """A38: the machine was off for three days: one execution, by itself, and the next one at its time."""
    async with open_house(terminal) as house:
        await house.store(due=3 * DAY, schedule="0 0 * * *")
        await house.store("disabled", due=None, enabled=False)
        served = await server.start()
        ended = await house.wait_for_ends(1)
        _, status = await served.ask("/status?site=shop")
        await served.end()
        assert ended == await house.list_statuses() == [("announce:shop", "succeeded")]
        next_run = datetime.fromisoformat(status["nextRun"])
        assert datetime.now(UTC) < next_run <= datetime.now(UTC) + DAY + SPREAD
        assert dict(house.engine.accepted) == dict.fromkeys(house.web.urls(), 1)


@pytest.mark.parametrize("engine", ["slow", "silent"])
async def test_sigterm_in_the_middle_of_sending_ends_in_time_and_the_rest_follows(
    terminal: Terminal, server: Server, engine: str
) -> None:
    """A20: within ten seconds, `interrupted`, all saved; the next start goes on by itself and sends nothing twice."""
    async with open_house(terminal) as house:
        await house.store(submit_method=SubmitMethod.GET)
        latency = timedelta(milliseconds=50)
        fault = Fault(FaultKind.SLOW, latency=latency) if engine == "slow" else Fault(FaultKind.HANG, after=9, times=1)
        house.engine.misbehave(fault)
        served = await server.start()
        await house.engine.wait_for_requests(12, timeout=PATIENCE)
        seconds = await served.end()
        assert seconds < LONGEST_END
        assert await house.list_statuses() == [("announce:shop", "interrupted")]
        taken = house.engine.accepted.total()
        assert 1 <= taken < 60
        house.engine.recover()
        again = await server.start()
        ended = await house.wait_for_ends(2)
        await again.end()
        assert sorted(ended) == [("announce:shop", "interrupted"), ("announce:shop", "succeeded")]
        assert dict(house.engine.accepted) == dict.fromkeys(house.web.urls(), 1)


async def test_after_kill_9_the_execution_is_taken_back_at_once_and_the_site_runs_again(
    terminal: Terminal, server: Server
) -> None:
    """A39, design decision 4: by itself, and without a silent half hour; only what was in flight is repeated."""
    async with open_house(terminal) as house:
        await house.store(submit_method=SubmitMethod.GET)
        starting = asyncio.create_task(server.start())

        async def kill() -> None:
            process = (await starting).process
            process.kill()
            await process.wait()

        struck = house.strike(10, kill)
        async with asyncio.timeout(PATIENCE.total_seconds()):
            served = await starting
            await struck
            await served.process.communicate()
        house.engine.on_answer = None
        again = await server.start()
        ended = await house.wait_for_ends(2)
        await again.end()
        assert sorted(ended) == [("announce:shop", "interrupted"), ("announce:shop", "succeeded")]
        assert set(house.engine.accepted) == set(house.web.urls())
        assert house.engine.accepted.total() - 60 <= CONCURRENCY


async def test_two_services_on_one_postgresql_share_thirty_due_sites_and_run_each_once(
    tmp_path: Path, postgres_url: str, terminal: Terminal
) -> None:
    """A38, A39: two machines, one database."""
    terminal.variables["TIDINGS_DATABASE_URL"] = postgres_url
    async with AsyncExitStack() as stack:
        house = await stack.enter_async_context(open_house(terminal, pages=3, database_url=postgres_url))
        client = await stack.enter_async_context(ClientSession())
        names = [f"site-{number}" for number in range(30)]
        await Schedules(house.database, clock=SystemClock()).pause(None)
        for name in names:
            await house.store(name)
        other = Terminal(tmp_path / "other")
        other.folder.mkdir()
        other.variables = {**terminal.variables, "TIDINGS_DATA_DIR": str(other.data_dir)}
        stack.push_async_callback(other.close)
        both = await asyncio.gather(*(Server(each, client).start() for each in (terminal, other)))
        assert await house.list_statuses() == []
        await asyncio.gather(*(served.ask("/api/resume", method="POST") for served in both))
        ended = await house.wait_for_ends(30)
        await asyncio.gather(*(served.end() for served in both))
        async with house.database.read() as connection:
            holders = Counter(map(find_process, (await connection.execute(select(executions.c.holder))).scalars()))
        assert sorted(ended) == sorted((f"announce:{name}", "succeeded") for name in names)
        assert await house.list_statuses() == ended
        assert dict(house.engine.accepted) == dict.fromkeys(house.web.urls(), 30)
        assert len(holders) == 2, holders


async def test_a_failing_site_is_reported_to_the_webhook_once_and_so_is_its_recovery(
    terminal: Terminal, server: Server
) -> None:
    """A6, A24: signed, in the form of Standard Webhooks; the second failure in a row is nothing new."""
    secret = new_webhook_secret().reveal()
    async with open_house(terminal, pages=5) as house, SandboxSink() as sink:
        await house.store()
        house.web.misbehave(Fault(status=404, path="/sitemap.xml"))
        served = await server.start(TIDINGS_WEBHOOK_URL=sink.address, TIDINGS_WEBHOOK_SECRET=secret)
        await sink.wait_for_requests(1, timeout=PATIENCE)
        failed = await served.trigger("shop")
        _, alerts = await served.ask("/api/alerts")
        house.web.recover()
        answer = await served.trigger("shop")
        await sink.wait_for_requests(2, timeout=PATIENCE)
        await served.end()
        messages = [_verify(recorded, secret) for recorded in sink.taken]
        assert (failed["status"], answer["status"]) == ("failed", "succeeded")
        assert [(each["kind"], each["subject"]) for each in alerts["alerts"]] == [("execution_failed", "shop")]
        assert [each["type"] for each in messages] == ["alert.fired", "alert.resolved"]
        assert {(each["data"]["kind"], each["data"]["subject"]) for each in messages} == {("execution_failed", "shop")}
        assert "404" in messages[0]["data"]["reason"]
        assert secret not in terminal.log


def _verify(recorded: Recorded, secret: str) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in recorded.headers.items()}
    body = str(recorded.fields["body"])
    Webhook(secret).verify(body, headers)
    document: dict[str, Any] = json.loads(body)
    return document


async def test_an_alert_that_could_not_be_sent_goes_out_after_the_next_start(
    terminal: Terminal, server: Server
) -> None:
    """A24, design decision 5: kept in the outbox, under the same id, until somebody takes it."""
    async with open_house(terminal, pages=5) as house, SandboxSink() as sink:
        await house.store()
        house.web.misbehave(Fault(status=404, path="/sitemap.xml"))
        sink.misbehave(Fault(status=500))
        first = await server.start(TIDINGS_WEBHOOK_URL=sink.address)
        await sink.wait_for_requests(1, timeout=PATIENCE)
        await first.end()
        refused = {recorded.headers["webhook-id"] for recorded in sink.requests}
        sink.recover()
        # However long the rule lets it wait: what is due now is sent now.
        async with house.database.write() as connection:
            await connection.execute(text("UPDATE alert_outbox SET due_at = 0"))
        seen = len(sink.requests)
        second = await server.start(TIDINGS_WEBHOOK_URL=sink.address)
        await sink.wait_for_requests(seen + 1, timeout=PATIENCE)
        await second.end()
        assert [recorded.headers["webhook-id"] for recorded in sink.taken] == list(refused)


async def test_a_paused_site_does_not_run_and_runs_as_soon_as_it_is_resumed(terminal: Terminal, server: Server) -> None:
    """A41: over the API, without a wait for the next minute."""
    async with open_house(terminal, pages=5) as house:
        site = await house.store()
        await Schedules(house.database, clock=SystemClock()).pause(site.number)
        served = await server.start()
        _, before = await served.ask("/status?site=shop")
        resumed = await served.ask("/api/sites/shop/resume", method="POST")
        ended = await house.wait_for_ends(1)
        await served.end()
        assert (before["status"], before["executing"], before["lastExecution"]) == ("paused", False, None)
        assert resumed == (200, {"paused": False, "freed": 0})
        assert ended == [("announce:shop", "succeeded")]


async def test_a_site_that_is_added_while_it_runs_can_be_run_and_is_planned(terminal: Terminal, server: Server) -> None:
    """A2, A38: no restart is needed; the environment's own site is there from the start."""
    async with open_house(terminal, pages=5) as house:
        terminal.variables |= {
            "SITEMAP_URL": house.web.sitemap_url,
            "INDEXNOW_API_KEY": house.web.key,
            "INDEXNOW_SEARCH_ENGINES": house.engine.endpoint,
        }
        served = await server.start()
        own = await served.trigger(house.web.host)
        await house.store("later", due=None, schedule="0 0 1 1 *")
        later = await served.trigger("later")
        _, status = await served.ask("/status?site=later")
        await served.end()
        assert [each["result"]["submitted"] for each in (own, later)] == [5, 5]
        assert "-01-01T00:0" in status["nextRun"]
