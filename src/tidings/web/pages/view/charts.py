"""Charts as geometry: coordinates for SVG attributes. Templates draw them; nothing here knows HTML.

Accepted pages stand above the line and failed ones hang below it, so position tells them apart, not colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BAR, GAP = 4, 1
_UP, _DOWN = 24, 7
_LEAST = 2
# A bar of a large chart has at most so many pixels.
_WIDEST = 14


@dataclass(frozen=True, slots=True)
class SmallBars:
    """A strip of bars, one per day, as one path for each series. A bar is a line as wide as the bar: half the bytes."""

    width: int
    height: int
    accepted: str
    failed: str
    # A tick for each day on which nothing was sent.
    rest: str


def draw_small_bars(accepted: Sequence[int], failed: Sequence[int]) -> SmallBars:
    """Bars for the days of both series; both share one scale."""
    most = max(*accepted, *failed, 1)
    up, down, rest = [], [], []
    for at, (good, bad) in enumerate(zip(accepted, failed, strict=True)):
        middle = at * (BAR + GAP) + BAR // 2
        if good:
            up.append(f"M{middle} {_UP}v-{_scale(good, most, _UP)}")
        if bad:
            down.append(f"M{middle} {_UP + 1}v{min(_DOWN, _scale(bad, most, _UP))}")
        if not good and not bad:
            rest.append(f"M{middle} {_UP}v-1")
    width = max(len(accepted) * (BAR + GAP) - GAP, BAR)
    return SmallBars(width, _UP + _DOWN + 1, "".join(up), "".join(down), "".join(rest))


@dataclass(frozen=True, slots=True)
class Rectangle:
    """One bar of a large chart. `day` is its index."""

    day: int
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class GridLine:
    y: int
    value: int


@dataclass(frozen=True, slots=True)
class LargeBars:
    """A chart with grid lines; coordinates in pixels."""

    width: int
    height: int
    left: int
    baseline: int
    accepted: tuple[Rectangle, ...]
    failed: tuple[Rectangle, ...]
    grid: tuple[GridLine, ...]


def draw_large_bars(
    accepted: Sequence[int], failed: Sequence[int], *, width: int = 388, can_fail: bool = True
) -> LargeBars:
    """Bars with three grid lines at round numbers. Failed pages share the scale, at least 3 and at most 18 high.

    `can_fail`: room for them is kept, so that charts beside each other agree.
    """
    left, top, plot, below = 48, 8, 88, 28 if can_fail else 12
    ceiling = find_ceiling(max(*accepted, *([] if any(accepted) else failed), 1))
    room, count = width - left, max(len(accepted), 1)
    starts = [left + at * room // count for at in range(count + 1)]
    bar, baseline = min(max(room // count - 2, 2), _WIDEST), top + plot
    up = tuple(
        Rectangle(at, starts[at + 1] - bar, baseline - height, bar, height)
        for at, value in enumerate(accepted)
        if (height := _scale(value, ceiling, plot) if value else 0)
    )
    down = tuple(
        Rectangle(at, starts[at + 1] - bar, baseline + 1, bar, max(3, min(18, round(value / ceiling * plot))))
        for at, value in enumerate(failed)
        if value
    )
    grid = tuple(GridLine(baseline - round(plot * part / 2), round(ceiling * part / 2)) for part in range(3))
    return LargeBars(width, baseline + below + 16, left, baseline, up, down, grid)


@dataclass(frozen=True, slots=True)
class LineChart:
    """One series over time. `points` are (x, y)."""

    width: int
    height: int
    left: int
    path: str
    points: tuple[tuple[int, int], ...]
    grid: tuple[GridLine, ...]


def draw_line(values: Sequence[int], *, width: int = 792) -> LineChart:
    """A line from zero up, with a dot for each value."""
    left, right, top, plot = 56, 32, 16, 120
    ceiling = find_ceiling(max(*values, 1) if values else 1)
    room = width - left - right
    points = tuple(
        (
            left + (round(at * room / (len(values) - 1)) if len(values) > 1 else room // 2),
            top + plot - round(value / ceiling * plot),
        )
        for at, value in enumerate(values)
    )
    path = "M" + "L".join(f"{x} {y}" for x, y in points) if points else ""
    lines = 3 if ceiling % 3 == 0 else 2
    grid = tuple(
        GridLine(top + plot - round(plot * part / lines), ceiling * part // lines) for part in range(lines + 1)
    )
    return LineChart(width, top + plot + 32, left, path, points, grid)


@dataclass(frozen=True, slots=True)
class Stack:
    """One row of the funnel: (kind, x, width) for each part that is not empty."""

    width: int
    parts: tuple[tuple[str, int, int], ...]


def draw_stack(parts: Sequence[tuple[str, int]], *, most: int, width: int = 400) -> Stack:
    """Parts beside each other with a gap of 1, on a scale where `most` fills the width."""
    x, drawn = 0, []
    for kind, value in parts:
        if value:
            wide = max(2, round(value / max(most, 1) * (width - len(parts))))
            drawn.append((kind, x, wide))
            x += wide + 1
    return Stack(width, tuple(drawn))


def find_ceiling(value: int) -> int:
    """The least of 2, 4, 6 or 10 times a power of ten that is not below `value`. It is even, for a middle line."""
    power = 1
    while True:
        for factor in (2, 4, 6, 10):
            if value <= factor * power:
                return factor * power
        power *= 10


def _scale(value: int, most: int, height: int) -> int:
    return max(_LEAST, round(value / most * height))
