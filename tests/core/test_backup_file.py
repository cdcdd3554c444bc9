"""A backup as a file: whole or refused, private, and never half written under its name."""

import asyncio
import gzip
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.processes import FORKED
from tidings.core.backup.file import (
    BackupError,
    DamagedBackupError,
    Header,
    NewerBackupError,
    create_backup,
    decode_row,
    open_backup,
)

HEADER = Header("1.2.3", "0006", datetime(2026, 11, 15, 12, 0, tzinfo=UTC), {"one": ["id", "blob"], "two": ["id"]})
ROWS = [(1, b"\x00\xff"), (-(1 << 63), None), ((1 << 63) - 1, b""), (4, "line\nbreak \u2603 \U0001f600 \"'\\")]
COUNTERS = {"one": 17}
GZIP_HEADER = 10


def write(path: Path) -> None:
    with create_backup(path) as writer:
        writer.begin(HEADER)
        writer.write_rows("one", ROWS[:2])
        writer.write_rows("one", ROWS[2:])
        writer.finish(COUNTERS)


def read(path: Path) -> list[tuple[object, ...]]:
    """All rows, of a file that was checked first."""
    with open_backup(path) as reader:
        totals = reader.check()
        assert (reader.header, totals.rows, totals.counters) == (HEADER, {"one": 4, "two": 0}, COUNTERS)
        return [tuple(decode_row(line, width=2)) for _, lines in reader.batches() for line in lines]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tidings.backup"


def test_what_was_written_is_read_again(path: Path) -> None:
    """A41: numbers of 64 bits, any text, blobs and nothing at all."""
    write(path)
    assert read(path) == ROWS


def test_a_file_that_was_cut_off_anywhere_is_refused(path: Path) -> None:
    """A41: every length that is not the whole."""
    write(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedBackupError):
            read(path)


def test_no_altered_byte_goes_unnoticed(path: Path) -> None:
    """A41: each byte in turn. A few of gzip's own header say nothing about the content, which then is the same."""
    write(path)
    whole = path.read_bytes()
    unnoticed = set()
    for place, byte in enumerate(whole):
        path.write_bytes(whole[:place] + bytes([byte ^ 0x55]) + whole[place + 1 :])
        try:
            assert read(path) == ROWS
            unnoticed.add(place)
        except BackupError:
            continue
    assert unnoticed < set(range(GZIP_HEADER))


Lines = list[bytes]


def drop_row(lines: Lines) -> Lines:
    return lines[:2] + lines[3:]


def change_row(lines: Lines) -> Lines:
    return [*lines[:2], lines[2].replace(b"[1,", b"[2,"), *lines[3:]]


def drop_batch(lines: Lines) -> Lines:
    return lines[:1] + lines[4:]


def add_unknown_table(lines: Lines) -> Lines:
    return [*lines[:-1], b'{"table":"three","rows":1}\n', b"[1]\n", lines[-1]]


def add_after_end(lines: Lines) -> Lines:
    return [*lines, b"[9,null]\n"]


def change_counters(lines: Lines) -> Lines:
    return [*lines[:-1], lines[-1].replace(b'"counters"', b'"others"')]


@pytest.mark.parametrize(
    "change", [drop_row, change_row, drop_batch, add_unknown_table, add_after_end, change_counters]
)
def test_a_file_that_was_changed_and_packed_again_is_refused(path: Path, change: Callable[[Lines], Lines]) -> None:
    """A41: gzip's own checksum is right then, the backup's is not."""
    write(path)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(change(lines))))
    with pytest.raises(DamagedBackupError):
        read(path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"SQLite format 3\x00", id="another file"),
        pytest.param(gzip.compress(b"pg_dump: --\n"), id="another text"),
        pytest.param(gzip.compress(b"[1]\n"), id="a list"),
        pytest.param(gzip.compress(b'{"tidings":"backup"}\n'), id="a bare header"),
        pytest.param(gzip.compress(b"[" * 3_000_000), id="one very long line"),
        pytest.param(gzip.compress(b'{"tidings":"backup","format":"x"}\n'), id="a format that is none"),
    ],
)
def test_another_file_is_refused_in_one_line(path: Path, content: bytes) -> None:
    """A41: no matter what is wrong with it."""
    path.write_bytes(content)
    with pytest.raises(DamagedBackupError) as caught, open_backup(path):
        pass
    assert len(str(caught.value).splitlines()) == 1


def test_a_newer_format_is_refused_as_such(path: Path) -> None:
    """A41: the reader is asked to use the newer release."""
    path.write_bytes(gzip.compress(json.dumps({"tidings": "backup", "format": 2}).encode()))
    with pytest.raises(NewerBackupError, match="newer release"), open_backup(path):
        pass


@pytest.fixture(params=[0o000, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_the_file_is_for_its_owner_alone_under_any_umask(path: Path, umask: int) -> None:
    """Attack cases, secrets: backups are 0600, also while they are written."""
    with create_backup(path) as writer:
        writer.begin(HEADER)
        modes = [stat.S_IMODE(draft.stat().st_mode) for draft in path.parent.iterdir()]
        writer.finish({})
    assert [*modes, stat.S_IMODE(path.stat().st_mode)] == [0o600, 0o600], oct(umask)


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_an_older_backup_is_replaced_only_by_a_complete_one(path: Path, error: BaseException) -> None:
    """A41: until then it stays as it is, and nothing else is left in the folder."""
    write(path)
    before = path.read_bytes()
    with pytest.raises(type(error)):
        fail_half_way(path, error)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert read(path) == ROWS


def fail_half_way(path: Path, error: BaseException) -> None:
    with create_backup(path) as writer:
        writer.begin(HEADER)
        raise error


def test_what_a_killed_backup_left_is_removed_and_what_another_writes_is_not(path: Path) -> None:
    """A41: the lock of a process that was killed is gone; and other files are nobody's business."""
    left, other = path.with_name(f"{path.name}.0123abcd.part"), path.with_name(f"{path.name}.mine.part")
    left.touch()
    other.touch()
    with create_backup(path) as writer:
        drafts = set(path.parent.iterdir())
        assert left not in drafts
        write(path)
        assert drafts < set(path.parent.iterdir())
        writer.begin(HEADER)
        writer.finish(COUNTERS)
    assert set(path.parent.iterdir()) == {path, other}


# Python announces these calls to its audit hooks before it makes them.
STEPS = {"open", "fcntl.flock", "os.chmod", "os.listdir", "os.remove", "os.rename", "os.scandir"}


def back_up_in_steps(path: Path, pipe: Connection) -> None:
    """In another process: back up again and again, each time with a pause before a later call of the system."""
    calls_left = 0

    def pause(event: str, _: object) -> None:
        nonlocal calls_left
        calls_left -= event in STEPS
        if event in STEPS and calls_left == 0:
            pipe.send(event)
            pipe.recv()

    sys.addaudithook(pause)
    step = 0
    while calls_left <= 0:
        step += 1
        calls_left = step
        write(path)
    pipe.send("end")


def test_two_backups_of_one_name_at_the_same_moment_both_succeed(path: Path) -> None:
    """A41: whatever a backup is about to do, another process may make a whole one before it does."""
    pipe, others = FORKED.Pipe()
    process = FORKED.Process(target=back_up_in_steps, args=(path, others), daemon=True)
    process.start()
    others.close()
    steps = list[str]()
    # Raises EOFError if the other process has failed.
    while (step := pipe.recv()) != "end":
        write(path)
        pipe.send("go on")
        steps.append(step)
    process.join()
    assert {"open", "fcntl.flock", "os.rename"} <= set(steps)
    assert read(path) == ROWS
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("make", [lambda path: path.write_bytes(b"my only key"), lambda path: path.mkdir()])
def test_what_is_not_a_backup_is_not_replaced(path: Path, make: Callable[[Path], object]) -> None:
    """A41: the name that was typed may be that of the database or of a key."""
    make(path)
    with pytest.raises(BackupError, match="is not a backup; name another file"), create_backup(path):
        pass
    assert list(path.parent.iterdir()) == [path]
    assert path.is_dir() or path.read_bytes() == b"my only key"
