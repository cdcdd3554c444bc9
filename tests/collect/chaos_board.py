"""What the processes of `tests.collect.chaos` know of each other, in a file that all of them map into memory."""

import asyncio
import mmap
from datetime import UTC, datetime, timedelta
from pathlib import Path

_BEGIN = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
# Two numbers for all (the time, whether it is done) and three for each worker (writes, whether to wait, its note).
_WORKERS = 8
_TIME, _DONE, _FIRST = 0, 1, 2
_WRITES, _WAIT, _HELD = range(3)


def name_note(number: int) -> str:
    return f"n{number}"


def find_number(note_id: str) -> int:
    return int(note_id.removeprefix("n"))


class Board:
    """Each number has one writer at a time, and is read and written as a whole."""

    def __init__(self, folder: Path) -> None:
        with (folder / "board").open("a+b") as file:
            file.truncate((_FIRST + 3 * _WORKERS) * 8)
            self._numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    @property
    def time(self) -> datetime:
        return _BEGIN + timedelta(milliseconds=self._numbers[_TIME])

    def advance(self, duration: timedelta) -> None:
        self._numbers[_TIME] += duration // timedelta(milliseconds=1)

    @property
    def is_done(self) -> bool:
        return bool(self._numbers[_DONE])

    def end(self) -> None:
        self._numbers[_DONE] = 1

    def count_write(self, worker: int) -> None:
        self._numbers[_find(worker, _WRITES)] += 1

    def list_writes(self) -> list[int]:
        return [self._numbers[_find(worker, _WRITES)] for worker in range(_WORKERS)]

    def tell_to_wait(self, worker: int) -> None:
        self._numbers[_find(worker, _WAIT)] = 1

    def let_go_on(self, worker: int) -> None:
        self._numbers[_find(worker, _HELD)] = 0
        self._numbers[_find(worker, _WAIT)] = 0

    def is_to_wait(self, worker: int) -> bool:
        return bool(self._numbers[_find(worker, _WAIT)])

    def show_held(self, worker: int, note: int) -> None:
        # Zero says that there is none.
        self._numbers[_find(worker, _HELD)] = note + 1

    def is_holding(self, worker: int) -> bool:
        return self._numbers[_find(worker, _HELD)] > 0

    def find_held(self, worker: int) -> int:
        return self._numbers[_find(worker, _HELD)] - 1


def _find(worker: int, number: int) -> int:
    return _FIRST + 3 * worker + number


class BoardClock:
    """The time of the board. It stands still while a worker sleeps."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def now(self) -> datetime:
        return self._board.time

    def monotonic(self) -> float:
        return (self._board.time - _BEGIN).total_seconds()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())
