"""Processes that tests start. They are forked from one that has loaded Tidings, so they start at once."""

import multiprocessing
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool
from typing import Any

from tests.waiting import wait_until

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.conftest", "sqlalchemy.dialects.postgresql.psycopg", "psycopg_binary"])


_line: Any = None


def _take_line(barrier: Any) -> None:
    global _line
    _line = barrier


@contextmanager
def open_pool(processes: int) -> Iterator[Pool]:
    """Other processes, whose functions call `wait_at_line` to begin together."""
    with FORKED.Pool(processes, initializer=_take_line, initargs=(FORKED.Barrier(processes),)) as pool:
        yield pool
        pool.close()
        pool.join()


def wait_at_line(seconds: float) -> None:
    """In a process of `open_pool`: return once all have come here."""
    _line.wait(seconds)


def list_readers(parent: int | None = None) -> set[int]:
    """The ids of the processes that read foreign pages for `parent`; for this process by default."""
    wanted = os.getpid() if parent is None else parent
    return {pid for above, pid, _ in _list_all_readers() if above == wanted}


def _list_all_readers() -> Iterator[tuple[int, int, str]]:
    """Parent, process and state. Those that have ended, and that nobody has waited for, show no arguments."""
    words = ["ps", "-Aww", "-o", "ppid=,pid=,stat=,args="]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        parent, pid, state, arguments = line.split(None, 3)
        if "tidings.core.isolation.child" in arguments:
            yield int(parent), int(pid), state


async def wait_for_end(reader: int) -> None:
    """Return once this process has ended, whoever its parent is."""

    async def has_ended() -> bool:
        return all(pid != reader for _, pid, _ in _list_all_readers())

    await wait_until(has_ended)


async def wait_for_reader(parent: int | None = None) -> int:
    """Return the id of a process that reads foreign pages, once there is one."""
    found: set[int] = set()

    async def has_started() -> bool:
        found.update(list_readers(parent))
        return bool(found)

    await wait_until(has_started)
    return found.pop()


async def wait_for_no_reader(parent: int | None = None) -> None:
    async def has_ended() -> bool:
        return not list_readers(parent)

    await wait_until(has_ended)


async def wait_for_no_reader_at_work() -> None:
    """Return once every reader of this process has ended, or sleeps until the next page comes."""

    async def is_at_rest() -> bool:
        return all(state.startswith("S") for above, _, state in _list_all_readers() if above == os.getpid())

    await wait_until(is_at_rest)
