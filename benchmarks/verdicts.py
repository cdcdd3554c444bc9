"""What was promised, and whether the numbers of this run keep it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from benchmarks.comparison import Comparison, Row
from benchmarks.spacing import BARE_INTERVAL, INTERVAL, Spacing

MOST_BYTES = 128_000_000


class Mark(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    NOISE = "NOISE"  # short of the promise by no more than the bare sender was of its own interval
    NONE = ""  # nothing was promised


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, what was measured, and whether it was kept."""

    promise: str
    measured: str
    mark: Mark


def judge_comparison(table: Comparison) -> list[Verdict]:
    verdicts = []
    if table.usp.costs:
        verdicts += [
            _judge_share(table, table.usp, promise="re-scan: at most 1/6 of ultimate-sitemap-parser's CPU", least=6),
            _judge_share(table, table.scrapy, promise="re-scan: less than 1/2 of Scrapy's CPU", least=2),
        ]
    verdicts += [_judge_peak(table.first, "first run"), _judge_peak(table.rescan, "re-scan")]
    if table.double.costs:
        growth = table.double.best.cpu / table.rescan.best.cpu
        verdicts.append(
            Verdict("re-scan of twice as many: at most 2.2 times the CPU", f"{growth:.2f} times", _mark(growth <= 2.2))
        )
        verdicts.append(_judge_peak(table.double, "re-scan of twice as many"))
    return verdicts


def judge_spacings(spacings: Sequence[Spacing]) -> list[Verdict]:
    noise = max((BARE_INTERVAL - each.least for each in spacings if not each.promised), default=timedelta(0))
    verdicts = []
    for spacing in spacings:
        least = f"least {spacing.least.total_seconds() * 1000:.1f} ms"
        if not spacing.promised:
            verdicts.append(Verdict(f"for comparison: {spacing.name}", least, Mark.NONE))
            continue
        duration = f"{spacing.duration.total_seconds():.2f} s, {spacing.stretch - 1:+.1%}"
        in_time = _mark(abs(spacing.stretch - 1) <= 0.05)
        verdicts += [
            Verdict(f"{spacing.name}: never less than 100 ms apart", least, _judge_least(spacing, noise=noise)),
            Verdict(f"{spacing.name}: (n − 1) × 100 ms within 5 %", duration, in_time),
        ]
    return verdicts


def _judge_least(spacing: Spacing, *, noise: timedelta) -> Mark:
    if spacing.least >= INTERVAL:
        return Mark.PASS
    return Mark.NOISE if spacing.least >= INTERVAL - noise else Mark.FAIL


def _judge_share(table: Comparison, other: Row, *, promise: str, least: float) -> Verdict:
    share = other.best.cpu / table.rescan.best.cpu
    work = other.best.work / table.rescan.best.work
    return Verdict(promise, f"1/{share:.1f} (without imports 1/{work:.1f})", _mark(share > least))


def _judge_peak(row: Row, name: str) -> Verdict:
    return Verdict(f"{name}: peak below 128 MB", f"{row.peak / 1e6:.0f} MB", _mark(row.peak < MOST_BYTES))


def _mark(kept: bool) -> Mark:
    return Mark.PASS if kept else Mark.FAIL
