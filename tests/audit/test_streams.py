"""Large files a piece at a time: nothing is missed or told twice where two pieces meet, and memory stays small."""

import io
import tracemalloc
from pathlib import Path

import pytest

from tidings.audit.report import CheckName, Notes
from tidings.audit.streams import read_windows, scan_file
from tidings.audit.traces import KnownSecret, TraceFinder, looks_random
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

SECRET = "kanarienvogel-7f3b9c"
MEGABYTE = 1024 * 1024
OVERLAP = 64 * 1024


@pytest.mark.parametrize("size", [0, 1, OVERLAP, MEGABYTE, MEGABYTE + OVERLAP, 3 * MEGABYTE + 17])
def test_every_position_belongs_to_one_window(size: int) -> None:
    """C25."""
    whole = bytes(number % 251 for number in range(1024)) * (size // 1024 + 1)
    windows = list(read_windows(io.BytesIO(whole[:size])))
    assert b"".join(window.data[window.first : window.last] for window in windows) == whole[:size]


@pytest.mark.parametrize("edge", [MEGABYTE - OVERLAP, MEGABYTE, 2 * MEGABYTE - OVERLAP - 4, 2 * MEGABYTE])
def test_secret_across_an_edge_is_found_once_with_its_line(edge: int, tmp_path: Path) -> None:
    """C25: at each place around the edge."""
    finder = TraceFinder([KnownSecret("it", Secret(SECRET))])
    path = tmp_path / "x.log"
    for position in range(edge - len(SECRET) - 1, edge + 2):
        notes = Notes(Redactor())
        path.write_bytes(b"\n" * position + SECRET.encode() + b"\n" * (3 * MEGABYTE - position))
        scan_file(path, finder, strict=True, notes=notes, report=notes.find)
        found = notes.close(CheckName.LOGS, "").findings
        assert [each.where for each in found] == [f"{path}, line {position + 1:,}"]


def test_large_file_and_many_secrets_need_little_memory(tmp_path: Path) -> None:
    """C25: 100 MB, a thousand secrets."""
    path = tmp_path / "large.db"
    with path.open("wb") as file:
        file.truncate(100 * MEGABYTE)
        file.seek(99 * MEGABYTE)
        file.write(SECRET.encode())
    secrets = [KnownSecret("another", Secret(f"{number:06}-{'abcdefghij'[number % 10] * 20}")) for number in range(999)]
    finder = TraceFinder([*secrets, KnownSecret("it", Secret(SECRET))])
    notes = Notes(Redactor())
    tracemalloc.start()
    scan_file(path, finder, strict=False, notes=notes, report=notes.find, lines=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each.where for each in notes.close(CheckName.LOGS, "").findings] == [f"{path}, byte {99 * MEGABYTE:,}"]
    assert peak < 10 * MEGABYTE


@pytest.mark.parametrize(
    ("value", "random"),
    [
        (b"040069b1c2d3e4f5a6b7", True),
        (b"a-long-value-of-words", False),
        (b"0000000000000000000a", False),
        (b"12345678901234567890", False),
        (b"040069tidings-sandbox-web-session-9d2f", False),
    ],
)
def test_only_what_could_be_real_looks_random(value: bytes, random: bool) -> None:
    """C25: examples in texts are no findings."""
    assert looks_random(value) is random
