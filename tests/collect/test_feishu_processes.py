"""Real processes that deliver and are killed at the worst moments: each row stands in Feishu once all the same."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from tests.collect.feishu_stage import (
    BATCH_CREATE,
    BATCH_DELETE,
    BATCH_UPDATE,
    CANDIDATES,
    COOKIES,
    EXECUTIONS,
    SOURCES,
    MirrorMaker,
    change_candidates,
    make_service,
    make_target,
    put_candidates,
    put_cookie,
    put_source,
    read_expected,
    read_mirrored,
    remove_candidates,
)
from tests.stage import LOOPBACK
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.feishu.client import BitableClient, FeishuTarget
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.mirror_tables import mirror_intents
from tidings.core.alerts.service import Alerts
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.executions import Executions, ExecutionStatus
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.limits import DOCUMENTED_LIMITS
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded

pytestmark = [pytest.mark.slow, pytest.mark.one_database]

SOON = 60.0
# Instead of half an hour.
SILENT = timedelta(seconds=4)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
async def service() -> AsyncIterator[SandboxBitable]:
    async with make_service() as running:
        yield running


def deliver_until_killed(url: str, folder: Path, secret: str, place: dict[str, object]) -> None:
    """In another process: deliver as the service does, until it is killed."""

    async def run() -> None:
        clock, database = SystemClock(), open_database(url)
        async with GuardedClient(user_agent="tests", allow_networks=LOOPBACK) as client:
            target = FeishuTarget(app_secret=Secret(secret), **place)  # type: ignore[arg-type]
            mirror = FeishuMirror(
                database,
                client=BitableClient(target, client=client, clock=clock),
                executions=Executions(database, clock=clock, process_lock=ProcessLock(folder), silent_for=SILENT),
                alerts=Alerts(database, clock=clock, destinations=()),
                clock=clock,
            )
            await mirror.run(Stop(clock=clock))

    asyncio.run(run())


def start_process(url: str, folder: Path, service: SandboxBitable) -> BaseProcess:
    target = make_target(service)
    place = {name: getattr(target, name) for name in ("app_id", "app_token", "base_url")}
    arguments = (url, folder, target.app_secret.reveal(), place | {"tables": dict(target.tables)})
    process = SPAWN.Process(target=deliver_until_killed, args=arguments)
    process.start()
    return process


async def kill_at(
    service: SandboxBitable, url: str, folder: Path, *, path: str, hook: str, before: Callable[[], None] = lambda: None
) -> None:
    """Start a process, and kill it when its request of this path has come, or is about to be answered."""
    killed = asyncio.Event()

    def strike(entry: Recorded) -> None:
        if entry.path == path and not killed.is_set():
            process.kill()
            killed.set()

    before()
    setattr(service, hook, strike)
    process = start_process(url, folder, service)
    async with asyncio.timeout(SOON):
        await killed.wait()
    await asyncio.to_thread(process.join, SOON)
    setattr(service, hook, None)
    service.recover()


async def has_intent(database: Database) -> bool:
    async with database.read() as connection:
        return (await connection.execute(select(mirror_intents.c.table_name))).first() is not None


@pytest.mark.both_databases
async def test_a_process_that_is_killed_anywhere_leaves_each_row_once(
    database: Database, database_url: str, service: SandboxBitable, tmp_path: Path, make_mirror: MirrorMaker
) -> None:
    """C21: after the intent, after the effect, in an update and in a delete; the next one takes over at once."""
    await put_candidates(database, [f"n{number:03}" for number in range(120)])
    hang = replace(bitable.HANG, path=BATCH_CREATE)

    async def kill(path: str, hook: str, before: Callable[[], None] = lambda: None) -> None:
        await kill_at(service, database_url, tmp_path, path=path, hook=hook, before=before)

    await kill(BATCH_CREATE, "on_request", before=lambda: service.misbehave(hang))
    assert await has_intent(database)
    assert service.rows(CANDIDATES) == []
    await kill(BATCH_CREATE, "on_answer")
    assert await has_intent(database)
    assert len(service.rows(CANDIDATES)) == 120
    await kill(BATCH_UPDATE, "on_answer")
    await change_candidates(database, [f"n{number:03}" for number in range(20)], status="collected")
    await remove_candidates(database, [f"n{number:03}" for number in range(100, 120)])
    await put_candidates(database, ["last"])
    await kill(BATCH_DELETE, "on_answer")
    await kill(BATCH_CREATE, "on_answer")
    delivered = await make_mirror(service).deliver()
    assert (delivered.failures, delivered.is_busy) == ({}, False)
    assert read_mirrored(service) == await read_expected(database)
    assert not await has_intent(database)


async def wait_until_equal(database: Database, service: SandboxBitable) -> None:
    """Until what stands there is what the tables say; looked at after every answer."""
    answered = asyncio.Event()
    service.on_answer = lambda entry: answered.set()
    expected = await read_expected(database)
    async with asyncio.timeout(SOON):
        while read_mirrored(service) != expected:
            answered.clear()
            await answered.wait()
    service.on_answer = None


async def stop_at(service: SandboxBitable, process: BaseProcess, *, path: str, until: asyncio.Event) -> None:
    """Stop a process when its request has come; the request itself goes on only when `until` is set."""
    stopped = asyncio.Event()

    async def strike(entry: Recorded) -> None:
        if entry.path == path and not stopped.is_set():
            os.kill(int(str(process.pid)), signal.SIGSTOP)
            stopped.set()
            await until.wait()

    service.on_request = strike
    async with asyncio.timeout(SOON):
        await stopped.wait()


async def test_an_outage_with_kills_and_one_that_is_long_asleep_ends_equal(
    database: Database, database_url: str, tmp_path: Path, request: pytest.FixtureRequest, make_mirror: MirrorMaker
) -> None:
    """C5, C21: Feishu fails in every way and is away for a while, processes are killed within requests, and one is
    stopped in the middle of a create until another has taken over and done the same; then it wakes up, and its request
    arrives. Feishu takes no more than it documents. In the end each row of all four tables stands there once, in its
    latest state."""
    names = [f"n{number:03}" for number in range(150)]
    async with make_service(limits=DOCUMENTED_LIMITS) as service:

        async def kill(path: str, hook: str, fault: Fault | None = None) -> None:
            before = (lambda: service.misbehave(fault)) if fault is not None else (lambda: None)
            await kill_at(service, database_url, tmp_path, path=path, hook=hook, before=before)

        await put_candidates(database, names)
        for name in names[:30]:
            await put_source(database, name, note={"text": "正文", "counts": {"likes": 3}})
            await put_cookie(database, name)
        executions = Executions(database, clock=SystemClock(), process_lock=ProcessLock(tmp_path))
        running = [await executions.acquire(f"collect:{name}", kind="collect") for name in names[:5]]
        await kill(BATCH_CREATE, "on_request", replace(bitable.HANG, path=BATCH_CREATE))
        for table_id in (SOURCES, COOKIES, EXECUTIONS):
            await kill(BATCH_CREATE.replace(CANDIDATES, table_id), "on_answer")
        await put_candidates(database, ["lost"])
        await kill(BATCH_CREATE, "on_answer", replace(bitable.ANSWER_LOST, path=BATCH_CREATE, times=1))
        await change_candidates(database, names[:50], status="processing")
        await kill(BATCH_UPDATE, "on_request", replace(bitable.UNAVAILABLE, path=BATCH_UPDATE, times=1))
        await service.close()
        await change_candidates(database, names[:50], status="collected")
        await remove_candidates(database, names[100:])
        async with database.write() as connection:
            await connection.execute(delete(cookies).where(cookies.c.cookie_name.in_(names[:10])))
            await connection.execute(update(cookies).values(status="cooling", cooling_until=1_800_000_000_000))
        for execution in running[1:]:
            await executions.finish(execution, ExecutionStatus.PARTIAL, processed=7, failed=1, result={})
        assert (await make_mirror(service).deliver()).failures
        await service.start()
        await kill(BATCH_DELETE, "on_answer")

        await put_candidates(database, ["late", "later"])
        awake = asyncio.Event()
        sleeper = start_process(database_url, tmp_path, service)
        request.addfinalizer(sleeper.kill)
        await stop_at(service, sleeper, path=BATCH_CREATE, until=awake)
        other = make_mirror(service, silent_for=SILENT)
        assert (await other.rebuild()).failures == {}
        await change_candidates(database, ["late"], status="failed")
        assert (await other.deliver()).failures == {}
        service.forget_client_tokens()
        os.kill(int(str(sleeper.pid)), signal.SIGCONT)
        awake.set()
        service.on_request = None
        await service.wait_until_idle()
        assert len([row for row in service.rows(CANDIDATES) if row["key"] == "weibo:late"]) == 2
        await wait_until_equal(database, service)
        sleeper.kill()
        await asyncio.to_thread(sleeper.join, SOON)
        assert (await make_mirror(service).deliver()).failures == {}
        assert read_mirrored(service) == await read_expected(database)
