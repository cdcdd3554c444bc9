"""Eight processes that are stopped and killed at random collect four hundred candidates."""

import sys
from pathlib import Path

import pytest

from tests.collect.chaos import Chaos

NOTES = 400
CONTROL_NOTES = 150

pytestmark = pytest.mark.slow


async def test_each_candidate_is_collected_once_whoever_is_stopped_or_killed(database_url: str, tmp_path: Path) -> None:
    """C3, C4, C5, C27: nothing twice, nothing missing, nothing left locked; and who had lost its lock was refused."""
    outcome = await Chaos(database_url, tmp_path, notes=NOTES, fenced=True).run()
    sys.stdout.write(f"{outcome.stops} stops, {outcome.kills} kills, {outcome.lost} writes refused\n")
    assert outcome.broken == ""
    assert outcome.written_twice == []
    assert len(outcome.written) == outcome.collected == NOTES
    assert (outcome.left_locked, outcome.left_running) == (0, 0)
    assert outcome.stops >= 5
    assert outcome.kills >= 5
    assert outcome.lost >= outcome.overtaken > 0


async def test_without_the_fence_the_same_harness_sees_notes_written_twice(database_url: str, tmp_path: Path) -> None:
    """C4, C5: so the test above can fail. Each worker that was overtaken writes its note a second time."""
    outcome = await Chaos(database_url, tmp_path, notes=CONTROL_NOTES, fenced=False).run()
    assert outcome.broken == ""
    sys.stdout.write(f"without the fence: {len(outcome.written_twice)} of {CONTROL_NOTES} notes twice\n")
    assert outcome.written_twice
    assert outcome.written.total() - CONTROL_NOTES >= outcome.overtaken > 0
