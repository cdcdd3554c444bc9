"""Who is alive: shown by a lock that the operating system drops, for processes that share a data directory."""

import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidings.core.process_lock import ProcessLock

SOON = 20.0

# Says its holder's id and its process id; on request it becomes another program under the same process id.
PROGRAM = """
import os, sys
from pathlib import Path
from tidings.core.process_lock import ProcessLock
process_lock = ProcessLock(Path(sys.argv[1]))
print(process_lock.id, os.getpid(), flush=True)
if sys.stdin.readline() == "again\\n":
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], *sys.argv[1:]])
"""


@contextmanager
def start_process(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process with a holder of its own."""
    command = [sys.executable, "-c", PROGRAM, str(data_dir), PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_holder(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stdout is not None
    holder, number = process.stdout.readline().split()
    return holder, int(number)


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_process_is_alive_until_it_ends_however_it_ends(process_lock: ProcessLock, tmp_path: Path, how: str) -> None:
    """A39, decision 4: asking while it lives does not harm its lock; after its end it is dead at once, and stays so."""
    with start_process(tmp_path) as process:
        other, _ = read_holder(process)
        assert [process_lock.is_dead(other) for _ in range(3)] == [False] * 3
        if how == "killed":
            process.kill()
        else:
            tell(process, "end\n")
        process.wait(SOON)
        assert [process_lock.is_dead(other) for _ in range(3)] == [True] * 3


def test_a_process_id_that_is_used_again_deceives_nobody(process_lock: ProcessLock, tmp_path: Path) -> None:
    """A39, decision 4: the same process id, another life: the first holder is dead, the second is not."""
    with start_process(tmp_path) as process:
        first, first_number = read_holder(process)
        tell(process, "again\n")
        second, second_number = read_holder(process)
        assert first_number == second_number
        assert (process_lock.is_dead(first), process_lock.is_dead(second)) == (True, False)


def test_two_holders_in_one_directory_see_each_other_and_themselves_alive(tmp_path: Path) -> None:
    """A39: a server and a command beside it, on one data directory, leave each other alone."""
    one, two = ProcessLock(tmp_path), ProcessLock(tmp_path)
    try:
        assert one.id != two.id
        assert [who.is_dead(whom.id) for who in (one, two) for whom in (one, two)] == [False] * 4
    finally:
        one.close()
        two.close()


def test_closing_frees_what_was_held_and_leaves_no_file(process_lock: ProcessLock, tmp_path: Path) -> None:
    """A39: an ordinary end is seen like any other, and files do not pile up."""
    before = set(tmp_path.rglob("*"))
    other = ProcessLock(tmp_path)
    other.close()
    assert process_lock.is_dead(other.id)
    assert set(tmp_path.rglob("*")) == before


def test_a_dead_holder_s_file_is_cleared_away(process_lock: ProcessLock, tmp_path: Path) -> None:
    """Decision 4: anybody who finds a dead one tidies up; those of the living stay."""
    before = set(tmp_path.rglob("*"))
    with start_process(tmp_path) as process:
        other, _ = read_holder(process)
        assert len(set(tmp_path.rglob("*")) - before) == 1
    assert process_lock.is_dead(other)
    assert set(tmp_path.rglob("*")) == before


def test_a_new_process_clears_away_the_files_of_the_dead_and_leaves_those_of_the_living(
    process_lock: ProcessLock, tmp_path: Path
) -> None:
    """Decision 4: files of killed processes do not pile up, even where nobody asks for them by name."""
    with start_process(tmp_path) as process:
        other, _ = read_holder(process)
    successor = ProcessLock(tmp_path)
    names = {path.name for path in (tmp_path / "processes").iterdir()}
    dead = successor.is_dead(process_lock.id)
    successor.close()
    assert names == {held.id.partition("/")[2] for held in (process_lock, successor)}
    assert not dead
    assert process_lock.is_dead(other)


def test_a_holder_without_a_file_is_dead(process_lock: ProcessLock) -> None:
    """Decision 4: every holder of this directory has its file for as long as it lives."""
    place, _, _ = process_lock.id.partition("/")
    assert process_lock.is_dead(f"{place}/0123456789abcdef")


def test_of_a_holder_in_another_place_nothing_is_known(process_lock: ProcessLock, tmp_path: Path) -> None:
    """A39, decision 4: another directory, perhaps on another machine: never dead as far as one can tell."""
    (tmp_path / "elsewhere").mkdir()
    other = ProcessLock(tmp_path / "elsewhere")
    assert not process_lock.is_dead(other.id)
    other.close()
    assert not process_lock.is_dead(other.id)


@pytest.mark.parametrize("name", ["", "..", "../place", "."])
def test_a_name_that_is_no_holder_s_is_not_looked_for(process_lock: ProcessLock, tmp_path: Path, name: str) -> None:
    """Decision 4: what stands in the table leads to no other file."""
    place, _, _ = process_lock.id.partition("/")
    before = set(tmp_path.rglob("*"))
    assert not process_lock.is_dead(f"{place}/{name}")
    assert set(tmp_path.rglob("*")) == before


def test_the_place_outlives_the_process_and_the_lock_is_for_its_owner_alone(
    process_lock: ProcessLock, tmp_path: Path
) -> None:
    """Decision 4: a successor on this data directory knows its predecessor's executions for its own."""
    successor = ProcessLock(tmp_path)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "processes").iterdir()]
    successor.close()
    assert successor.id.partition("/")[0] == process_lock.id.partition("/")[0]
    assert modes == [0o600, 0o600]
