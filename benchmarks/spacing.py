"""How close together requests reach an engine, and how long a row of them takes: one site by GET, and three sites at
once, each announced by a process of its own, that share one data directory."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.installation import Installation
from benchmarks.measurement import SubjectError, measure
from benchmarks.stage import Stage

INTERVAL = timedelta(milliseconds=100)
ALONE = 100
TOGETHER = (40, 40, 40)
# As far apart as Tidings aims at, so that a little lateness does no harm.
BARE_INTERVAL = timedelta(milliseconds=102)


@dataclass(frozen=True, slots=True)
class Spacing:
    """The arrivals of one row of requests, as the engine saw them. Not `promised`: it shows the machine's noise."""

    name: str
    arrivals: tuple[float, ...]
    promised: bool = True

    @property
    def least(self) -> timedelta:
        return timedelta(seconds=min(after - before for before, after in pairwise(self.arrivals)))

    @property
    def duration(self) -> timedelta:
        return timedelta(seconds=self.arrivals[-1] - self.arrivals[0])

    @property
    def stretch(self) -> float:
        """The duration, as a multiple of the shortest that is allowed."""
        return self.duration / ((len(self.arrivals) - 1) * INTERVAL)


def measure_spacing(say: Callable[[str], None]) -> list[Spacing]:
    """One site, then three at once. Raises SubjectError."""
    with (
        tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder,
        Stage("small", *map(str, (ALONE, *TOGETHER))) as stage,
    ):
        tidings = Installation(Path(folder), stage=stage)
        _announce(tidings, stage.sitemaps[:1], pages=ALONE)
        alone = Spacing(f"one site, {ALONE} pages by GET", _take_arrivals(stage, skip=0, count=ALONE))
        say(f"{alone.name}: {alone.duration.total_seconds():.2f} s")
        _announce(tidings, stage.sitemaps[1:], pages=sum(TOGETHER))
        arrivals = _take_arrivals(stage, skip=ALONE, count=sum(TOGETHER))
        together = Spacing(f"{len(TOGETHER)} sites at once, {sum(TOGETHER)} pages by GET", arrivals)
        say(f"{together.name}: {together.duration.total_seconds():.2f} s")
        measure("metronome", urlsplit(stage.endpoint).netloc, str(ALONE), str(BARE_INTERVAL.total_seconds()))
        arrivals = _take_arrivals(stage, skip=ALONE + sum(TOGETHER), count=ALONE)
        bare = Spacing("a sender that does nothing but wait 102 ms", arrivals, promised=False)
    return [alone, together, bare]


def _take_arrivals(stage: Stage, *, skip: int, count: int) -> tuple[float, ...]:
    arrivals = stage.ask_engine()["arrivals"][skip:]
    if len(arrivals) != count:
        raise SubjectError(f"the engine had {len(arrivals)} requests, not {count}")
    return tuple(arrivals)


def _announce(tidings: Installation, sitemaps: Sequence[str], *, pages: int) -> None:
    """Announce these sites by GET, all at once."""
    subjects = [tidings.start(sitemap, method="get") for sitemap in sitemaps]
    submitted = sum(int(subject.wait().found["submitted"]) for subject in subjects)
    if submitted != pages:
        raise SubjectError(f"{pages} pages were to be sent, and {submitted} were")
