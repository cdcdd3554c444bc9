"""What must stay cheap however many sites there are and however long they have run: an answer, and the round that the
scheduler makes each minute. Measured as the CPU of the service's process, after a day and after a year.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.child import TOKEN
from benchmarks.history import add_past, fill_sites, name_site
from benchmarks.load import Load
from benchmarks.served import Served

_NOW, _ALL_DUE, _ALL_LATE = 0, 13, 72  # hours from now


@dataclass(frozen=True, slots=True)
class Task:
    """Its milliseconds of CPU with a short past and with a long one; without a promise the first may be missing."""

    name: str
    promised: bool = True
    short: list[float] = field(default_factory=list)
    long: list[float] = field(default_factory=list)

    @property
    def after_day(self) -> float:
        return min(self.short, default=math.nan)

    @property
    def after_year(self) -> float:
        return min(self.long)

    @property
    def growth(self) -> float:
        return self.after_year / self.after_day


def measure_tasks(
    environment: dict[str, str], *, title: str, sites: int, days: int, rounds: int, say: Callable[[str], None]
) -> list[Task]:
    """Fill a database, and measure it after a day and after so many days. Raises SubjectError."""
    tasks = [
        Task(f"{title}: GET /api/sites, a page of 50"),
        Task(f"{title}: GET /status"),
        Task(f"{title}: a round, nothing is due"),
        Task(f"{title}: a round, every site is due"),
        Task(f"{title}: GET /api/sites, the largest page (500)", promised=False),
        Task(f"{title}: a round, every site is late", promised=False),
    ]
    say(f"{title}: storing {sites:,} sites")
    fill_sites(environment, sites=sites)
    add_past(environment, first=0, last=1)
    _measure(environment, [task.short for task in tasks], sites=sites, rounds=rounds, is_last=False)
    say(f"{title}: making {sites * (days - 1):,} executions")
    add_past(environment, first=1, last=days)
    _measure(environment, [task.long for task in tasks], sites=sites, rounds=rounds, is_last=True)
    for task in tasks:
        say(f"{task.name}: {task.after_day:.2f} → {task.after_year:.2f} ms")
    return tasks


def _measure(
    environment: dict[str, str], counts: Sequence[list[float]], *, sites: int, rounds: int, is_last: bool
) -> None:
    """Each task in turn, several times over, in one process."""
    page, status, idle, due, largest, late = counts
    with Served(environment) as served:
        for _ in range(rounds):
            some = [name_site(random.randrange(sites)) for _ in range(200)]
            page.append(_measure_requests(served, [f"/api/sites?after={each}" for each in some[:20]]))
            status.append(_measure_requests(served, [f"/status?site={each}" for each in some]))
            idle.append(served.make_rounds(20, hours=_NOW))
            due.append(served.make_rounds(20, hours=_ALL_DUE))
            largest.append(_measure_requests(served, ["/api/sites?limit=500"] * 5))
        if is_last:
            # It leaves a hundred open alerts behind, which nothing after it should have to look at.
            late.append(served.make_rounds(1, hours=_ALL_LATE, late=True))


def _measure_requests(served: Served, targets: Sequence[str]) -> float:
    """Milliseconds of CPU for one of them; they are sent one after the other."""

    async def send() -> None:
        load = Load(served.port, token=TOKEN)
        for target in targets:
            await load.send([target], rate=1)
        await load.close()

    before = served.read_cpu()
    asyncio.run(send())
    return (served.read_cpu() - before) / len(targets) * 1000
