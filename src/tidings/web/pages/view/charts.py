"""Charts as geometry: coordinates for SVG attributes. Templates draw them; nothing here knows HTML.

Accepted pages are above the line and failed ones below it, so that position distinguishes them, not only colour.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BAR, GAP = 4, 1
_UP, _DOWN = 24, 7
_LEAST = 2
# The gap's share of a bar's place, and what a line leaves free on both sides, in percent.
_GAP_SHARE = 0.3
_LINE_MARGIN = 5


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
class Bar:
    """One bar of a large chart."""

    # Its index.
    day: int
    # Percent of the chart's width.
    x: float
    width: float
    # Pixels.
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class GridLine:
    y: int
    value: int


@dataclass(frozen=True, slots=True)
class LargeBars:
    """A chart with grid lines. It is as wide as there is room: heights are pixels, and places are percent."""

    height: int
    accepted: tuple[Bar, ...]
    failed: tuple[Bar, ...]
    grid: tuple[GridLine, ...]


def draw_large_bars(accepted: Sequence[int], failed: Sequence[int], *, can_fail: bool = True) -> LargeBars:
    """Bars with three grid lines at round numbers. Failed pages share the scale, at least 3 and at most 18 high.

    `can_fail`: keep room for failed pages, so that neighbouring charts align.
    """
    top, plot, below = 8, 88, 28 if can_fail else 12
    ceiling = find_ceiling(max(*accepted, *([] if any(accepted) else failed), 1))
    baseline, place = top + plot, 100 / max(len(accepted), 1)

    def stand(day: int, y: int, height: int) -> Bar:
        # The gap lies on the left, so that the last bar ends with the chart.
        return Bar(day, round((day + _GAP_SHARE) * place, 2), round((1 - _GAP_SHARE) * place, 2), y, height)

    up = tuple(
        stand(day, baseline - height, height)
        for day, value in enumerate(accepted)
        if (height := _scale(value, ceiling, plot) if value else 0)
    )
    down = tuple(
        stand(day, baseline + 1, max(3, min(18, round(value / ceiling * plot))))
        for day, value in enumerate(failed)
        if value
    )
    grid = tuple(GridLine(baseline - round(plot * part / 2), round(ceiling * part / 2)) for part in range(3))
    return LargeBars(baseline + below + 16, up, down, grid)


@dataclass(frozen=True, slots=True)
class LineChart:
    """One series over time. `points` are (percent of the width, pixels from the top)."""

    height: int
    points: tuple[tuple[float, int], ...]
    grid: tuple[GridLine, ...]


def draw_line(values: Sequence[int]) -> LineChart:
    """A line from zero up, with a dot for each value."""
    top, plot = 16, 120
    ceiling = find_ceiling(max(*values, 1) if values else 1)
    room = 100 - 2 * _LINE_MARGIN
    points = tuple(
        (
            round(_LINE_MARGIN + (at * room / (len(values) - 1) if len(values) > 1 else room / 2), 2),
            top + plot - round(value / ceiling * plot),
        )
        for at, value in enumerate(values)
    )
    lines = 3 if ceiling % 3 == 0 else 2
    grid = tuple(
        GridLine(top + plot - round(plot * part / lines), ceiling * part // lines) for part in range(lines + 1)
    )
    return LineChart(top + plot + 32, points, grid)


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
