"""The log file: rotating, readable by its owner alone, and shared by every process of an installation."""

import fcntl
import logging
import logging.handlers
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Final

FILE_SIZE: Final = 10 * 1024 * 1024
FILES_KEPT: Final = 5


class PrivateFileHandler(logging.handlers.RotatingFileHandler):
    """A rotating file that only this user can read, under any umask and after any earlier mode.

    Several processes may write one file: the first that finds it full rotates it under a lock, and the others follow.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_SIZE, backupCount=FILES_KEPT, encoding="utf-8")
        self._rendered: tuple[logging.LogRecord | None, str] = (None, "")
        # Whether this line and the one before could not be written.
        self._is_lost = self._was_lost = False

    def emit(self, record: logging.LogRecord) -> None:
        self._was_lost, self._is_lost = self._is_lost, False
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        # `logging` formats a record twice: to know whether the line fits, and to write it.
        if self._rendered[0] is not record:
            self._rendered = record, super().format(record)
        return self._rendered[1]

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - logging's name
        """Rotate here if necessary: `logging` would do it after this call, outside the lock."""
        length = len(self.format(record).encode("utf-8", "backslashreplace")) + 1
        while self._is_full(stream := self._follow(), length):
            # The lock is on the file that is renamed; it outlives the rotation, which closes the stream.
            descriptor = os.dup(stream.fileno())
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._is_current(stream):
                    self.doRollover()
            finally:
                os.close(descriptor)
        return False

    def _follow(self) -> TextIOWrapper:
        """Reopen the file if its name leads to another one now: another process may have rotated it, or a rotation may
        have failed."""
        if self.stream is None or not self._is_current(self.stream):
            if self.stream is not None:
                self.stream.close()
            self.stream = self._open()
        return self.stream

    def _is_full(self, stream: TextIOWrapper, length: int) -> bool:
        size = os.fstat(stream.fileno()).st_size
        return size > 0 and size + length >= self.maxBytes

    def _is_current(self, stream: TextIOWrapper) -> bool:
        try:
            return os.path.samestat(Path(self.baseFilename).stat(), os.fstat(stream.fileno()))
        except FileNotFoundError:
            return False

    def _open(self) -> TextIOWrapper:
        stream = open(self.baseFilename, "a", encoding="utf-8", errors="backslashreplace", opener=_open_private)  # noqa: SIM115 - close() closes it
        os.fchmod(stream.fileno(), 0o600)
        return stream

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Report the first of several lost lines: the others fail for the same reason, such as a full disk."""
        self._is_lost = True
        if not self._was_lost:
            report_lost_line(record)


def _open_private(path: str, flags: int) -> int:
    # A new file is created private; the mode of an existing one is set after opening.
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def report_lost_line(record: logging.LogRecord) -> None:
    """Report on stderr that a line could not be written, and why, without its content."""
    error = sys.exc_info()[0]
    reason = error.__name__ if error else "unknown error"
    try:
        sys.stderr.write(f"a log line of {record.name} could not be written: {reason}\n")
    except (OSError, ValueError):
        return
