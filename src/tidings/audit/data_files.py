"""The files of an installation: which there are, and the checks that search them. A folder that cannot be entered fails
the audit, because "passed" would say that nothing is in it.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidings.audit.file_scan import scan_file
from tidings.audit.report import Check, CheckBuilder, CheckName, count_things
from tidings.audit.secret_finder import Patterns, SecretFinder

KEY_FILES: Final = ("master.key", "webhook.secret", "admin.token")

_SQLITE_ENDS: Final = ("", "-wal", "-shm", "-journal")
# fsck makes it on every disk, and only root can read it.
_LOST_AND_FOUND: Final = "lost+found"

# Called with the path of a folder that was not entered, and the reason.
Skip = Callable[[Path, str], None]


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files of an installation, by kind."""

    # SQLite's file and its companions. Empty on PostgreSQL.
    database: tuple[Path, ...]
    # The master key, the webhook secret and the first admin token.
    keys: tuple[Path, ...]
    logs: tuple[Path, ...]
    # Everything else in the data directory. Any of it may be a backup.
    others: tuple[Path, ...]
    # Folders of the data directory that were not entered, with the reasons.
    skipped: Mapping[Path, str]


def list_data_files(data_dir: Path, *, database: Path | None) -> DataFiles:
    """All files of the data directory, and SQLite's files wherever they are."""
    sqlite = [] if database is None else [database.with_name(database.name + end) for end in _SQLITE_ENDS]
    keys = [data_dir / name for name in KEY_FILES]
    logs = list(data_dir.glob("*.log*")) if _is_folder(data_dir) else []
    known = {path.absolute() for path in (*sqlite, *keys, *logs)}
    skipped: dict[Path, str] = {}
    others = [path for path in walk_folder(data_dir, skip=skipped.__setitem__) if path.absolute() not in known]
    kept = [tuple(path for path in sorted(each) if _is_file(path)) for each in (sqlite, keys, logs, others)]
    return DataFiles(kept[0], kept[1], kept[2], kept[3], skipped)


def expand_folders(paths: Collection[Path], *, skip: Skip = lambda *_: None) -> tuple[Path, ...]:
    """The paths, with each folder replaced by its files. `skip` gets the folders that were not entered."""
    return tuple(
        file for path in paths for file in (sorted(walk_folder(path, skip=skip)) if _is_folder(path) else [path])
    )


def check_database_files(files: DataFiles, finder: SecretFinder, *, check: CheckBuilder) -> Check:
    """Search SQLite's files as bytes for known secrets, because deleted rows stay in them for a while.

    Bytes do not tell whose text they are. The search for unknown cookies is left to `database_text`.
    """
    for path in files.database:
        scan_file(path, finder, patterns=Patterns.NONE, check=check, report=check.find, lines=False)
    return check.build(CheckName.DATABASE_FILES, _measure(files.database))


def check_logs(files: DataFiles, finder: SecretFinder, *, check: CheckBuilder) -> Check:
    """Search the log and its rotated files."""
    for path in files.logs:
        scan_file(path, finder, patterns=Patterns.STRICT, check=check, report=check.find)
    return check.build(CheckName.LOGS, _measure(files.logs))


def check_backups(files: DataFiles, named: Collection[Path], finder: SecretFinder, *, check: CheckBuilder) -> Check:
    """Search the named backups, and every file of the data directory that is not Tidings' own."""
    skipped = dict(files.skipped)
    paths = tuple(dict.fromkeys((*files.others, *expand_folders(named, skip=skipped.__setitem__))))
    searched = {path.resolve() for path in named}
    for path, reason in skipped.items():
        if not _is_link(path) or path.resolve() not in searched:
            check.find(path, f"it was not searched ({reason})")
    for path in named:
        # Opening the file reports a missing permission.
        with suppress(PermissionError):
            if not path.exists():
                check.find(path, "there is no such file")
    for path in paths:
        scan_file(path, finder, patterns=Patterns.STRICT, check=check, report=check.find)
    return check.build(CheckName.BACKUPS, _measure(paths))


def walk_folder(folder: Path, *, skip: Skip, enters: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    """The files below a folder, in the folders that `enters` accepts. `skip` gets those that were not entered."""

    def fail(error: OSError) -> None:
        path = Path(error.filename)
        # A folder that was just removed counts as missing.
        if not isinstance(error, FileNotFoundError | NotADirectoryError) and path.name != _LOST_AND_FOUND:
            skip(path, str(error.strerror))

    for name, folders, files in os.walk(folder, onerror=fail):
        here = Path(name)
        folders[:] = sorted(each for each in folders if enters(here / each))
        for path in (here / each for each in folders):
            # `os.walk` does not follow links. One that leads back into the folder needs no search of its own.
            if _is_link(path) and not path.resolve().is_relative_to(folder.resolve()):
                skip(path, "it is a link to a folder elsewhere; name it with --backup, too")
        yield from (here / each for each in sorted(files))


def _is_file(path: Path) -> bool:
    """Whether there is a file. A path without permission counts as one; opening it reports the reason."""
    try:
        return path.is_file()
    except OSError:
        return True


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return path.is_dir()
    return False


def _is_link(path: Path) -> bool:
    with suppress(OSError):
        return path.is_symlink()
    return False


def _measure(paths: Collection[Path]) -> str:
    size = 0
    for path in paths:
        with suppress(OSError):
            size += path.stat().st_size
    return f"{count_things(len(paths), 'file')}, {size / 1_000_000:,.1f} MB"
