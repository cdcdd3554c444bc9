"""Child processes that read foreign input: their limits, their end, and what they cannot see. The functions that they
run here are in this file."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.processes import list_readers, wait_for_no_reader, wait_for_reader
from tidings.core.isolation.pool import ChildError, ChildKilledError, ChildLimitError, ChildLimits, ChildPool

HERE = "tests.core.test_isolation"
LIMITS = ChildLimits(cpu=timedelta(seconds=1), memory=200 * 1024 * 1024)


def describe(body: bytes, *, name: str) -> dict[str, object]:
    return {"pid": os.getpid(), "body": body.decode(), "name": name, "variables": sorted(os.environ)}


def spin(body: bytes) -> None:
    # C code that holds the interpreter, as a parser does.
    sum(range(10**12))


def fill(body: bytes) -> int:
    return len(bytearray(2**30))


def fail(body: bytes) -> None:
    raise ValueError("not what was expected")


def crash(body: bytes) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def show_limits(body: bytes) -> list[int]:
    return [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)]


@pytest.fixture
async def pool() -> AsyncIterator[ChildPool]:
    opened = ChildPool(2, limits=LIMITS)
    yield opened
    await opened.close()
    assert list_readers() == set()


async def test_a_child_stays_warm_and_knows_no_secret(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """C7: the next call meets the same process; none of our environment variables reaches it."""
    monkeypatch.setenv("COOKIE_MASTER_KEY", "a secret")
    body = "咖啡" * 500_000
    first = await pool.run(f"{HERE}:describe", body.encode(), name="é")
    assert (first["body"], first["name"]) == (body, "é")
    assert "COOKIE_MASTER_KEY" not in first["variables"]
    assert (await pool.run(f"{HERE}:describe", b"", name=""))["pid"] == first["pid"]
    assert await pool.run(f"{HERE}:show_limits", b"") == [0, 0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("function", "error"),
    [("spin", ChildLimitError), ("fill", ChildLimitError), ("crash", ChildLimitError), ("fail", ChildError)],
)
async def test_a_call_that_breaks_its_limits_is_an_error_and_the_next_one_works(
    pool: ChildPool, function: str, error: type[ChildError]
) -> None:
    """C16: CPU time, memory, a crash of the parser, an exception."""
    with pytest.raises(error) as raised:
        await pool.run(f"{HERE}:{function}", b"")
    assert type(raised.value) is error
    assert (await pool.run(f"{HERE}:describe", b"", name="next"))["name"] == "next"


@pytest.mark.thorough
async def test_cpu_time_of_earlier_calls_does_not_count(pool: ChildPool) -> None:
    """C16: a warm child has the whole limit for each call."""
    pids = {(await pool.run(f"{HERE}:work", b"", seconds=0.4))["pid"] for _ in range(4)}
    assert len(pids) == 1


def work(body: bytes, *, seconds: float) -> dict[str, int]:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return {"pid": os.getpid()}


async def test_a_cancelled_call_kills_its_child(pool: ChildPool) -> None:
    """C16: at once, also while C code runs in it."""
    calling = asyncio.create_task(pool.run(f"{HERE}:spin", b""))
    await wait_for_reader()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await wait_for_no_reader()


@pytest.mark.thorough
async def test_a_child_that_somebody_kills_is_replaced(pool: ChildPool) -> None:
    """C16: a call that it was killed under fails and may be repeated."""
    calling = asyncio.create_task(pool.run(f"{HERE}:spin", b""))
    os.kill(await wait_for_reader(), signal.SIGKILL)
    with pytest.raises(ChildKilledError):
        await calling
    idle = (await pool.run(f"{HERE}:describe", b"", name=""))["pid"]
    os.kill(idle, signal.SIGKILL)
    # Whether the parent has heard of it by now is chance.
    with suppress(ChildKilledError):
        await pool.run(f"{HERE}:describe", b"", name="")
    assert (await pool.run(f"{HERE}:describe", b"", name=""))["pid"] != idle


async def test_signals_for_the_whole_group_leave_a_child_alone(pool: ChildPool) -> None:
    """C16: Ctrl-C and systemd's stop concern the parent, which ends its children itself."""
    pid = (await pool.run(f"{HERE}:describe", b"", name=""))["pid"]
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, each)
    assert (await pool.run(f"{HERE}:describe", b"", name=""))["pid"] == pid


async def test_closing_ends_children_at_work_and_refuses_later_calls() -> None:
    """C16: nobody waits for a hostile page."""
    pool = ChildPool(1)
    calls = [asyncio.create_task(pool.run(f"{HERE}:spin", b"")) for _ in range(2)]
    await wait_for_reader()
    await pool.close()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ChildKilledError, ChildKilledError]
    assert list_readers() == set()
