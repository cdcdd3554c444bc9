"""What was promised, and whether the numbers of this run keep it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from benchmarks.comparison import Comparison, Row
from benchmarks.files import Variant
from benchmarks.spacing import BARE_INTERVAL, INTERVAL, Spacing

MOST_BYTES = 128_000_000
MOST_BYTES_FOR_FIRST = 110_000_000
MOST_FOR_FIRST = 3.5
# How much longer than asked a row of requests may take.
MOST_STRETCH = 0.05
# How many times the CPU of a re-scan ultimate-sitemap-parser and Scrapy take, at least.
LEAST_SHARES = {Variant.DIFFERENT: (10, 3.5), Variant.ENTITIES: (7, 2.5), Variant.IMAGES: (7, 2.5)}


class Mark(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    NOISE = "NOISE"  # the machine was so busy that this run cannot tell
    NONE = ""  # nothing was promised


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, what was measured, and whether it was kept."""

    promise: str
    measured: str
    mark: Mark


def judge_comparison(table: Comparison, variant: Variant) -> list[Verdict]:
    verdicts = []
    if table.usp.costs:
        usp, scrapy = LEAST_SHARES.get(variant, LEAST_SHARES[Variant.DIFFERENT])
        verdicts += [
            _judge_share(table, table.usp, name="ultimate-sitemap-parser", least=usp),
            _judge_share(table, table.scrapy, name="Scrapy", least=scrapy),
        ]
    share = table.first.best.cpu / table.rescan.best.cpu
    promise = f"first run: at most {MOST_FOR_FIRST} times the CPU of a re-scan"
    verdicts.append(Verdict(promise, f"{share:.2f} times", _mark(share <= MOST_FOR_FIRST)))
    verdicts.append(_judge_peak(table.first, "first run", most=MOST_BYTES_FOR_FIRST))
    verdicts.append(_judge_peak(table.rescan, "re-scan"))
    if table.rescan_postgresql.costs:
        verdicts.append(_compare_postgresql(table))
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
        in_time = _mark(abs(spacing.stretch - 1) <= MOST_STRETCH)
        if in_time is Mark.FAIL and noise > MOST_STRETCH * INTERVAL:
            in_time = Mark.NOISE
        verdicts += [
            Verdict(f"{spacing.name}: never less than 100 ms apart", least, _judge_least(spacing, noise=noise)),
            Verdict(f"{spacing.name}: (n − 1) × 100 ms within 5 %", duration, in_time),
        ]
    return verdicts


def _judge_least(spacing: Spacing, *, noise: timedelta) -> Mark:
    if spacing.least >= INTERVAL:
        return Mark.PASS
    return Mark.NOISE if spacing.least >= INTERVAL - noise else Mark.FAIL


def _judge_share(table: Comparison, other: Row, *, name: str, least: float) -> Verdict:
    promise = f"re-scan: at most 1/{least:g} of {name}'s CPU"
    share = other.best.cpu / table.rescan.best.cpu
    work = other.best.work / table.rescan.best.work
    return Verdict(promise, f"1/{share:.1f} (without imports 1/{work:.1f})", _mark(share >= least))


def _judge_peak(row: Row, name: str, *, most: int = MOST_BYTES) -> Verdict:
    return Verdict(f"{name}: peak below {most / 1e6:.0f} MB", f"{row.peak / 1e6:.0f} MB", _mark(row.peak < most))


def _compare_postgresql(table: Comparison) -> Verdict:
    first = table.first_postgresql.best.cpu / table.first.best.cpu
    rescan = table.rescan_postgresql.best.cpu / table.rescan.best.cpu
    measured = f"first run {first:.2f} times, re-scan {rescan:.2f} times the CPU of SQLite"
    return Verdict("for comparison: PostgreSQL, with the server's CPU", measured, Mark.NONE)


def _mark(kept: bool) -> Mark:
    return Mark.PASS if kept else Mark.FAIL
