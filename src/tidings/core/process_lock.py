"""Who holds an execution: this process, and whether another holder is still alive.

A process locks a file of its own in the data directory for as long as it lives. The operating system drops the lock
when the process ends, however it ends, so whoever can take the lock knows that its owner is dead: no process ids that
are used again, no waiting for a heartbeat to grow old. This works for processes that share a data directory; of a
holder on another one nothing is known here, and its heartbeat has to tell.
"""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

_FOLDER = "processes"


class ProcessLock:
    """This process, as the owner of executions. `id` is what stands in the table."""

    def __init__(self, data_dir: Path) -> None:
        """Announce this process in `data_dir`, which must exist."""
        self._folder = data_dir / _FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._place = _read_place(data_dir)
        name = secrets.token_hex(8)
        self._path = self._folder / name
        self._descriptor = _create_locked(self._path)
        self._remove_dead()
        self.id = f"{self._place}/{name}"

    def is_dead(self, holder: str) -> bool:
        """True only when it is certain that the process behind `holder` has ended."""
        place, _, name = holder.partition("/")
        if place != self._place or holder == self.id or not name.isalnum():
            return False
        return _take_lock(self._folder / name)

    def _remove_dead(self) -> None:
        """Files of processes that were killed."""
        for path in self._folder.iterdir():
            if path != self._path and not path.suffix:
                _take_lock(path)

    def close(self) -> None:
        """Let go. Executions that are still held are then free to be taken back."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _create_locked(path: Path) -> int:
    # It appears under its name only once it is locked: nobody can take it for a dead process's in between.
    unlocked = path.with_suffix(".new")
    descriptor = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    unlocked.rename(path)
    return descriptor


def _read_place(data_dir: Path) -> str:
    """The data directory's own name, made once, so that holders on other directories are told apart."""
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
