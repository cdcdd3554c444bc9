"""How long one lease takes beside a million candidates: most of them waiting, or nearly all of them collected."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.candidates import PLATFORMS, make_table
from benchmarks.load import Latencies
from benchmarks.measurement import SubjectError
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.tables import CandidateStatus
from tidings.collect.write.values import BATCH_SIZE, Failed
from tidings.collect.write.writer import Writer
from tidings.core.clock import SystemClock
from tidings.core.db.database import open_database
from tidings.core.executions import Execution, Executions
from tidings.core.process_lock import ProcessLock

LEASES = 200
WARM_UP = 20
PLATFORM = "platform-1"


@dataclass(frozen=True, slots=True)
class LeaseTime:
    """How long leases took, in milliseconds, in a table that is filled like this."""

    name: str
    milliseconds: Sequence[float] = field(repr=False)

    @property
    def seen(self) -> Latencies:
        return Latencies(self.milliseconds)


async def measure_leases(title: str, url: str, *, data_dir: Path, rows: int, usual: CandidateStatus) -> list[LeaseTime]:
    """With so many candidates, all but one in a thousand of them of the status `usual`. Raises SubjectError."""
    rare = CandidateStatus.COLLECTED if usual is CandidateStatus.PENDING else CandidateStatus.PENDING
    await make_table(url, rows=rows, platforms=PLATFORMS, usual=usual, rare=rare)
    database, process_lock, clock = open_database(url), ProcessLock(data_dir), SystemClock()
    executions = Executions(database, clock=clock, process_lock=process_lock)
    writer = Writer(database, executions=executions, clock=clock)
    name = f"{title}, most are {usual}"
    try:
        execution = (await writer.acquire("collect")).execution
        assert execution is not None
        return [
            LeaseTime(f"{name}, platform named", await _time(writer, execution, platform=PLATFORM)),
            LeaseTime(f"{name}, any of {PLATFORMS} platforms", await _time(writer, execution, platform=None)),
        ]
    finally:
        await database.close()
        process_lock.close()


async def _time(writer: Writer, execution: Execution, *, platform: str | None) -> list[float]:
    """The leases alone; what they got is given back in between."""
    milliseconds = []
    for _ in range(WARM_UP + LEASES):
        began = time.perf_counter()
        leased = await writer.lease(execution, platform=platform)
        milliseconds.append((time.perf_counter() - began) * 1000)
        if len(leased) != BATCH_SIZE:
            raise SubjectError(f"a lease got {len(leased)} candidates instead of {BATCH_SIZE}")
        # Nothing was asked, so they are due again at once, and nothing is said about their platform.
        results = [
            Failed(note_id=each.note_id, error=make_error(ErrorCode.TIMEOUT_ERROR, "", asked=False)) for each in leased
        ]
        await writer.settle(execution, leased[0].platform, results)
    return milliseconds[WARM_UP:]
