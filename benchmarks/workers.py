"""Workers in processes of their own that begin together: `python -m benchmarks.workers KIND NUMBER [SIZE]`, set
up by its environment as `tidings serve` is.

A worker opens everything, does a little work of the same kind that nobody counts, says on its first line of output that
it is ready, and begins when it is given a line. Its last line of output tells what it has done, from when to when, and
with how much CPU.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Any

from benchmarks.candidates import make_note
from benchmarks.jobs import open_app
from benchmarks.measurement import ROOT, SubjectError
from tidings.cli.session import Session
from tidings.collect.write.values import BATCH_SIZE, Collected, NewCandidate
from tidings.collect.write.writer import Writer
from tidings.core.executions import Execution

PLATFORM = "bilibili"
QUEUE = "measured"
WARM_UP = 100

_LONGEST_SECONDS = 900

# Does the work and says how much of it that was.
Work = Callable[[], Awaitable[int]]


class Kind(StrEnum):
    TIDINGS = "tidings"
    PROCRASTINATE = "procrastinate"


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What several workers did together: so many, in so many seconds by the clock and of their CPU."""

    done: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.done / self.seconds


def run_workers(kind: Kind, count: int, *arguments: str, environment: Mapping[str, str]) -> RoundResult:
    """From the moment that the first one begins to the moment that the last one finds nothing more to do.

    Raises SubjectError.
    """
    workers = [_start(kind, str(number), *arguments, environment=environment) for number in range(count)]
    try:
        for worker in workers:
            if not _open(worker.stdout).readline():
                raise SubjectError(f"a worker did not start: {_open(worker.stderr).read()[-2000:]}")
        for worker in workers:
            _open(worker.stdin).write("\n")
            _open(worker.stdin).flush()
        return _add_up([_read_end(worker) for worker in workers])
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    finally:
        for worker in workers:
            worker.communicate()


def _start(kind: Kind, *arguments: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.workers", kind, *arguments],
        cwd=ROOT,
        env={"PATH": os.environ.get("PATH", ""), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _read_end(worker: subprocess.Popen[str]) -> Mapping[str, Any]:
    line = _open(worker.stdout).readline()
    if not line:
        raise SubjectError(f"a worker broke down: {_open(worker.stderr).read()[-2000:]}")
    end: Mapping[str, Any] = json.loads(line)
    return end


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _add_up(ends: Sequence[Mapping[str, Any]]) -> RoundResult:
    return RoundResult(
        done=sum(end["done"] for end in ends),
        seconds=max(end["ended"] for end in ends) - min(end["began"] for end in ends),
        cpu=sum(end["cpu"] for end in ends),
    )


async def collect_all(writer: Writer, execution: Execution, *, platform: str, batch: int = BATCH_SIZE) -> int:
    """What the runner does with a platform that answers at once, with so many candidates at a time."""
    done = 0
    while leased := await writer.lease(execution, limit=batch, platform=platform):
        results = [Collected(note_id=each.note_id, note=make_note(platform, each.note_id)) for each in leased]
        await writer.settle(execution, platform, results)
        done += len(results)
    return done


async def _run_tidings(number: str, size: str = str(BATCH_SIZE)) -> None:
    async with Session() as session:
        installation = await session.open()
        writer, platform = installation.collect.writer, f"warm-up-{number}"
        execution = (await writer.acquire(f"collect-{number}")).execution
        assert execution is not None
        await writer.add_candidates(execution, [_make_candidate(platform, nth) for nth in range(WARM_UP)])
        await collect_all(writer, execution, platform=platform, batch=int(size))
        await _take_turn(lambda: collect_all(writer, execution, platform=PLATFORM, batch=int(size)))
        await writer.finish(execution)


def _make_candidate(platform: str, number: int) -> NewCandidate:
    return NewCandidate(
        platform=platform, note_id=f"n{number}", note_url="https://example.com/", title="茶", source_keyword="茶"
    )


async def _run_procrastinate(number: str, concurrency: str) -> None:
    async with open_app(os.environ["TIDINGS_DATABASE_URL"], concurrency=int(concurrency)) as app:
        await app.defer(WARM_UP, queue=f"warm-up-{number}")
        await app.work(queue=f"warm-up-{number}")
        await _take_turn(lambda: app.work(queue=QUEUE))


async def _take_turn(work: Work) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    began, before = time.monotonic(), time.process_time()
    done = await work()
    result = {"done": done, "began": began, "ended": time.monotonic(), "cpu": time.process_time() - before}
    print(json.dumps(result), flush=True)


def _main() -> None:
    # Whatever becomes of the parent, this process ends.
    signal.alarm(_LONGEST_SECONDS)
    kind, *arguments = sys.argv[1:]
    asyncio.run(_run_tidings(*arguments) if kind == Kind.TIDINGS else _run_procrastinate(*arguments))


if __name__ == "__main__":
    _main()
