"""An hour in which Feishu fails in every way and processes end in the middle of requests: all four tables are equal in
the end."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import delete, insert, select, update

from tests.collect.feishu_stage import (
    MirrorMaker,
    change_candidates,
    count_waiting,
    make_service,
    put_candidates,
    put_cookie,
    put_source,
    read_expected,
    read_mirrored,
    remove_candidates,
)
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.mirror_tables import mirror_outbox
from tidings.collect.tables import sources
from tidings.core.db.database import Database
from tidings.core.executions import Executions, ExecutionStatus
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.wire.request_log import Recorded

MINUTES = 60
FAULTS = (
    bitable.RESET,
    bitable.UNAVAILABLE,
    bitable.ANSWER_LOST,
    bitable.WRITE_CONFLICT,
    bitable.NOT_READY,
    bitable.TIMED_OUT,
    bitable.TOKEN_REFUSED,
    bitable.TOKEN_CONFLICT,
)


@pytest.fixture
async def service() -> AsyncIterator[SandboxBitable]:
    async with make_service() as running:
        yield running


class Writers:
    """What goes on meanwhile: rows of all four tables are written, changed and removed."""

    def __init__(self, database: Database, executions: Executions, chance: random.Random) -> None:
        self._database = database
        self._executions = executions
        self._chance = chance
        self._names = itertools.count()

    async def write(self) -> None:
        names = [f"n{next(self._names)}" for _ in range(4)]
        await put_candidates(self._database, names)
        await change_candidates(self._database, names[:2], status="failed", last_error_code="TIMEOUT_ERROR")
        await remove_candidates(self._database, names[3:])
        await put_source(self._database, names[0], note={"text": "正文", "counts": {"likes": 3}})
        await put_cookie(self._database, names[0])
        execution = await self._executions.acquire(f"collect:{names[0]}", kind="collect")
        if self._chance.random() < 0.8:
            await self._executions.finish(execution, ExecutionStatus.SUCCEEDED, processed=2, failed=0, result={})
        await self._change_some()

    async def _change_some(self) -> None:
        async with self._database.write() as connection:
            known = list((await connection.execute(select(sources.c.idempotency_key))).scalars())
            chosen = self._chance.choice(known)
            await connection.execute(
                update(sources).where(sources.c.idempotency_key == chosen).values(retry_count=1, processing_lock="x")
            )
            marker = {"table_name": sources.name, "platform": "weibo", "note_id": chosen, "created_at": 1}
            await connection.execute(insert(mirror_outbox), [marker])
            names = list((await connection.execute(select(cookies.c.cookie_name))).scalars())
            change, remove = self._chance.choice(names), self._chance.choice(names)
            await connection.execute(update(cookies).where(cookies.c.cookie_name == change).values(daily_used=9))
            if len(names) > 3:
                await connection.execute(delete(cookies).where(cookies.c.cookie_name == remove))


async def deliver_and_die(service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock, *, at: str) -> None:
    """A process that ends when its request came, or when it is about to be answered."""
    delivering = asyncio.create_task(make_mirror(service, clock=clock).deliver())

    def end(entry: Recorded) -> None:
        if "/records/" in entry.path:
            delivering.cancel()

    setattr(service, at, end)
    await asyncio.wait([delivering])
    setattr(service, at, None)
    await service.wait_until_idle()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_four_tables_are_equal_after_an_hour_of_outages_and_dying_processes(
    database: Database,
    service: SandboxBitable,
    make_mirror: MirrorMaker,
    executions: Executions,
    clock: FakeClock,
    seed: int,
) -> None:
    """C21: each row stands in Feishu once and in its latest state, and nothing waits."""
    chance = random.Random(seed)
    writers = Writers(database, executions, chance)
    mirror = make_mirror(service, clock=clock)
    await writers.write()
    assert (await mirror.deliver()).failures == {}
    for minute in range(MINUTES):
        clock.advance(timedelta(minutes=1))
        if minute % 3 == 0:
            await writers.write()
        if minute % 5 == 0:
            service.recover()
            service.misbehave(replace(chance.choice(FAULTS), every=chance.choice((1, 2, 3))))
        if minute % 7 == 0:
            service.forget_client_tokens()
        if minute % 4 == 0:
            await deliver_and_die(service, make_mirror, clock, at=chance.choice(("on_request", "on_answer")))
            mirror = make_mirror(service, clock=clock)
        await mirror.deliver()
    service.recover()
    clock.advance(timedelta(minutes=5))
    for _ in range(3):
        delivered = await mirror.deliver()
        clock.advance(timedelta(minutes=2))
    assert delivered.failures == {}
    assert await count_waiting(database) == 0
    assert read_mirrored(service) == await read_expected(database)
    assert all(len(rows) >= 3 for rows in read_mirrored(service).values())
