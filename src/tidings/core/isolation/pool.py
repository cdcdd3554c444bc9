"""The parent's side: a few warm child processes that run pure functions on foreign input.

Parsers of pages and feeds have inputs for which they take minutes and hold the interpreter. In a thread they would stop
the whole service. In a child they cost one child: it is killed when the caller is cancelled, and the kernel ends it at
its limit of CPU time. A child has none of our environment variables, so it knows no secret.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tidings.core.isolation.child import LENGTH
from tidings.core.logs.logger import get_logger

_LARGEST_ANSWER: Final = 16 * 1024 * 1024
_MODULE: Final = "tidings.core.isolation.child"

_log = get_logger(__name__)


class ChildError(Exception):
    """The function raised, or its child ended; the message is the reason."""


class ChildLimitError(ChildError):
    """The input needs more CPU time or memory than a child may use."""


class ChildKilledError(ChildError):
    """The child was killed from outside: the next try may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """What one call may cost."""

    # CPU time; the kernel counts whole seconds.
    cpu: timedelta = timedelta(seconds=5)
    # Elapsed time; the callers' own limits are shorter.
    total: timedelta = timedelta(seconds=60)
    # Address space of a child, in bytes. macOS does not enforce it.
    memory: int = 768 * 1024 * 1024


_DEFAULT_LIMITS: Final = ChildLimits()


class ChildPool:
    """Up to `most` children. A child starts when it is first needed, and stays until `close`."""

    def __init__(self, most: int, *, limits: ChildLimits = _DEFAULT_LIMITS) -> None:
        self._most = most
        self._limits = limits
        self._free = asyncio.Semaphore(most)
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._ending: set[asyncio.Task[int]] = set()
        self._closed = False

    async def run(self, function: str, body: bytes, **arguments: object) -> Any:
        """Call `function` ("package.module:name") with the body and the arguments, and return its answer.

        Arguments and answer are JSON values. If the caller is cancelled, the child is killed. Raises ChildError.
        """
        async with self._free:
            child = await self._take()
            self._busy.add(child)
            try:
                # `close` may have been called while the child started.
                self._check_open()
                answer = await child.ask(self._describe(function, arguments), body)
            except BaseException:
                self._end(child)
                raise
            finally:
                self._busy.discard(child)
            if answer.pop("last") or self._closed:
                self._end(child)
            else:
                self._idle.append(child)
        if "error" not in answer:
            return answer["result"]
        if answer["error"] == MemoryError.__name__:
            raise ChildLimitError("it needs too much memory")
        raise ChildError(f"{answer['error']}: {answer['reason']}")

    async def close(self) -> None:
        """End all children at once, also those at work, and wait until they are gone."""
        self._closed = True
        for child in (*self._idle, *self._busy):
            self._end(child)
        self._idle.clear()
        # Calls that wait for a child, or for its start, then find the pool closed.
        async with AsyncExitStack() as stack:
            for _ in range(self._most):
                await stack.enter_async_context(self._free)
        await asyncio.gather(*self._ending)

    def _check_open(self) -> None:
        if self._closed:
            raise ChildKilledError("the service ends")

    async def _take(self) -> "_Child":
        self._check_open()
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._end(child)
        return await _Child.start(self._limits)

    def _end(self, child: "_Child") -> None:
        child.kill()
        ending = asyncio.create_task(child.wait())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _describe(self, function: str, arguments: dict[str, object]) -> bytes:
        header = {
            "function": function,
            "arguments": arguments,
            "cpu_seconds": self._limits.cpu.total_seconds(),
            "total_seconds": self._limits.total.total_seconds(),
        }
        return json.dumps(header).encode()


class _Child:
    """One child process, which does one thing at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, limits: ChildLimits) -> "_Child":
        # -P: no module of the working directory. The path is ours, so that the child finds the same packages.
        command = (sys.executable, "-P", "-B", "-m", _MODULE, str(limits.memory))
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        _log.debug("child.started", pid=process.pid)
        return cls(process)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, header: bytes, body: bytes) -> dict[str, Any]:
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        try:
            for piece in (header, body):
                self._process.stdin.write(LENGTH.pack(len(piece)))
                self._process.stdin.write(piece)
            await self._process.stdin.drain()
            (size,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
            if size > _LARGEST_ANSWER:
                raise ChildLimitError("its result is too large")
            answer = json.loads(await self._process.stdout.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise await self._explain_end() from None
        except (ValueError, RecursionError):
            raise ChildError("its result cannot be read") from None
        return dict(answer)

    def kill(self) -> None:
        if self.is_alive:
            self._process.kill()

    async def wait(self) -> int:
        """Wait until the process is gone. Returns its exit code."""
        return await self._process.wait()

    async def _explain_end(self) -> ChildError:
        code = await self.wait()
        _log.warning("child.ended", pid=self._process.pid, code=code)
        if code == -signal.SIGXCPU:
            return ChildLimitError("it takes too long")
        if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
            return ChildLimitError("it needs too much memory, or breaks the parser")
        return ChildKilledError(f"the process that reads it ended with code {code}")
