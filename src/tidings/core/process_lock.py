"""The process lock: tells at once whether the process that holds an execution is dead.

Each process locks a file of its own in the data directory for as long as it lives. The operating system drops the lock
when the process ends, even by kill -9. A process that can take the lock therefore knows that its owner is dead.
This works for processes that share a data directory. A holder elsewhere is judged by its heartbeat.

A holder names a process or a part of its work: `{place}/{process}#{work}`; on PostgreSQL with the id of the worker,
`{place}/{process}@{worker}#{job}`.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_FOLDER = "processes"
# The holder for the work of the present task.
_present: ContextVar[str | None] = ContextVar("holder", default=None)


class ProcessLock:
    """The lock of this process. `id` is what the holder of each of its executions begins with."""

    def __init__(self, data_dir: Path) -> None:
        """Create and lock this process's file in `data_dir`, which must exist."""
        self._folder = data_dir / _FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._place = _read_place(data_dir)
        name = secrets.token_hex(8)
        self._path = self._folder / name
        self._descriptor = _create_locked(self._path)
        self._remove_dead()
        self.id = f"{self._place}/{name}"
        self._held: set[str] = set()

    @property
    def holder(self) -> str:
        """The holder for executions that the present task acquires: the work that `hold` named, else the process."""
        present = _present.get()
        return present if present in self._held else self.id

    @contextmanager
    def hold(self, holder: str) -> Iterator[None]:
        """Name the work of this block, and of the tasks that it starts. After the block this holder counts as dead."""
        self._held.add(holder)
        token = _present.set(holder)
        try:
            yield
        finally:
            _present.reset(token)
            self._held.discard(holder)

    def owns(self, holder: str) -> bool:
        """Whether this holder is this process, or a part of its work."""
        return find_process(holder) == self.id

    def is_dead(self, holder: str) -> bool:
        """True only if the process of `holder` has certainly ended, or is this one and has ended that work."""
        if self.owns(holder):
            # A name without work is that of the process itself, or of a worker in it.
            return "#" in holder and holder not in self._held
        place, _, name = find_process(holder).partition("/")
        return place == self._place and name.isalnum() and _take_lock(self._folder / name)

    def _remove_dead(self) -> None:
        """Delete the files of processes that were killed."""
        for path in self._folder.iterdir():
            if path != self._path and not path.suffix:
                _take_lock(path)

    def close(self) -> None:
        """Release the lock. Other processes may then recover executions that this one still holds."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def find_process(holder: str) -> str:
    """The id of the process that a holder belongs to."""
    return holder.partition("#")[0].partition("@")[0]


def _create_locked(path: Path) -> int:
    # The file gets its name once it is locked, so that no process mistakes it for a dead one's.
    unlocked = path.with_suffix(".new")
    descriptor = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    unlocked.rename(path)
    return descriptor


def _read_place(data_dir: Path) -> str:
    """The random name of the data directory, created once. It distinguishes holders on other directories."""
    path = data_dir / "place"
    if not path.exists():
        proposal = data_dir / f"place.{secrets.token_hex(8)}"
        proposal.touch(mode=0o600)
        proposal.write_text(secrets.token_hex(8))
        with suppress(FileExistsError):
            os.link(proposal, path)
        proposal.unlink()
    return path.read_text()


def _take_lock(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)
