"""What was promised, and whether the numbers of this run keep it."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.comparison import Comparison, Row
from benchmarks.spacing import INTERVAL, Spacing

MOST_BYTES = 128_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, what was measured, and whether it was kept; None where nothing was promised."""

    promise: str
    measured: str
    kept: bool | None


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
            Verdict("re-scan of twice as many: at most 2.2 times the CPU", f"{growth:.2f} times", growth <= 2.2)
        )
        verdicts.append(_judge_peak(table.double, "re-scan of twice as many"))
    return verdicts


def judge_spacings(spacings: Iterable[Spacing]) -> list[Verdict]:
    verdicts = []
    for spacing in spacings:
        least = f"least {spacing.least.total_seconds() * 1000:.1f} ms"
        if not spacing.promised:
            verdicts.append(Verdict(f"for comparison: {spacing.name}", least, None))
            continue
        duration = f"{spacing.duration.total_seconds():.2f} s, {spacing.stretch - 1:+.1%}"
        verdicts += [
            Verdict(f"{spacing.name}: never less than 100 ms apart", least, spacing.least >= INTERVAL),
            Verdict(f"{spacing.name}: (n − 1) × 100 ms within 5 %", duration, abs(spacing.stretch - 1) <= 0.05),
        ]
    return verdicts


def _judge_share(table: Comparison, other: Row, *, promise: str, least: float) -> Verdict:
    share = other.best.cpu / table.rescan.best.cpu
    work = other.best.work / table.rescan.best.work
    return Verdict(promise, f"1/{share:.1f} (without imports 1/{work:.1f})", share > least)


def _judge_peak(row: Row, name: str) -> Verdict:
    return Verdict(f"{name}: peak below 128 MB", f"{row.peak / 1e6:.0f} MB", row.peak < MOST_BYTES)
