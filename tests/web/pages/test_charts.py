"""Charts: geometry that fits its frame."""

import pytest

from tidings.web.pages.view.charts import draw_large_bars, draw_line, draw_small_bars, draw_stack, find_ceiling

DAYS = 30


def test_accepted_stands_above_the_line_and_failed_hangs_below_it() -> None:
    chart = draw_small_bars([10, 0, 5], [0, 10, 0])
    assert chart.accepted == "M2 24v-24M12 24v-12"
    assert chart.failed == "M7 25v7"


def test_a_day_without_work_is_a_tick_and_a_small_number_is_still_seen() -> None:
    chart = draw_small_bars([0, 1, 100_000], [0, 0, 0])
    assert chart.rest == "M2 24v-1"
    assert "M7 24v-2" in chart.accepted


def test_a_chart_of_thirty_days_is_small() -> None:
    chart = draw_small_bars(list(range(DAYS)), [1] * DAYS)
    assert chart.width == 149
    assert len(chart.accepted + chart.failed + chart.rest) < 800


@pytest.mark.parametrize(("value", "ceiling"), [(0, 2), (1, 2), (3, 4), (7, 10), (11, 20), (61, 100), (45_100, 60_000)])
def test_the_scale_ends_at_a_round_number(value: int, ceiling: int) -> None:
    assert find_ceiling(value) == ceiling


def test_large_bars_stay_within_their_frame() -> None:
    chart = draw_large_bars([0, 50, 100], [0, 0, 100_000])
    for bar in (*chart.accepted, *chart.failed):
        assert bar.x >= 0
        assert bar.x + bar.width <= 100.01
        assert bar.y >= 0
        assert bar.y + bar.height <= chart.height
    assert [line.value for line in chart.grid] == [0, 50, 100]


@pytest.mark.parametrize("values", [[], [5], [1, 2, 3], [0, 0]])
def test_a_line_has_a_dot_for_each_value(values: list[int]) -> None:
    chart = draw_line(values)
    assert len(chart.points) == len(values)
    assert all(0 < x < 100 and 0 < y < chart.height for x, y in chart.points)
    assert len({x for x, _ in chart.points}) == len(values)


def test_parts_of_a_stack_leave_a_gap_and_fit() -> None:
    stack = draw_stack([("pending", 412), ("processing", 1), ("collected", 61), ("failed", 0)], most=474)
    assert [part[0] for part in stack.parts] == ["pending", "processing", "collected"]
    for (_, x, width), (_, following, _) in zip(stack.parts, stack.parts[1:], strict=False):
        assert following == x + width + 1
    assert stack.parts[-1][1] + stack.parts[-1][2] <= stack.width
