"""The places of this machine where a secret could have been left in clear: the files of the data directory, backups
that lie elsewhere, and the folder that somebody may publish. Which files those are is decided here; reading them is the
business of `streams`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidings.audit.report import Check, CheckName, Notes
from tidings.audit.streams import scan_file
from tidings.audit.traces import KnownSecret, TraceFinder

KEY_FILES: Final = ("master.key", "webhook.secret")

_SQLITE_ENDS: Final = ("", "-wal", "-shm", "-journal")
# What fsck finds, on every disk of its own; it is root's.
_LOST_AND_FOUND: Final = "lost+found"
_MOST_FILES: Final = 50_000
_LARGE_BINARY: Final = 1024 * 1024
_NOT_OURS: Final = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)


@dataclass(frozen=True, slots=True)
class Missed:
    """A folder that was not entered. One that is `elsewhere`, on another disk or behind a link, can be named itself."""

    path: Path
    why: str
    elsewhere: bool = False

    def __str__(self) -> str:
        return f"it was not looked into ({self.why})"


Miss = Callable[[Missed], None]


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files of an installation, by what they are, and the folders of the data directory that were not entered."""

    database: tuple[Path, ...]
    keys: tuple[Path, ...]
    logs: tuple[Path, ...]
    others: tuple[Path, ...]
    missed: tuple[Missed, ...]


def list_data_files(data_dir: Path, *, database: Path | None) -> DataFiles:
    """Everything in the data directory, and SQLite's files, wherever they are. What is nothing else may be a backup."""
    sqlite = [] if database is None else [database.with_name(database.name + end) for end in _SQLITE_ENDS]
    keys = [data_dir / name for name in KEY_FILES]
    logs = list(data_dir.glob("*.log*")) if _is_folder(data_dir) else []
    known = {path.absolute() for path in (*sqlite, *keys, *logs)}
    missed: list[Missed] = []
    others = [path for path in _walk(data_dir, miss=missed.append) if path.absolute() not in known]
    kept = [tuple(path for path in sorted(each) if _is_file(path)) for each in (sqlite, keys, logs, others)]
    return DataFiles(kept[0], kept[1], kept[2], kept[3], tuple(missed))


def expand_folders(paths: Collection[Path], *, miss: Miss = lambda _: None) -> tuple[Path, ...]:
    """The paths, with the files that are in those which are folders. `miss` gets the folders that were not entered."""
    return tuple(file for path in paths for file in (sorted(_walk(path, miss=miss)) if _is_folder(path) else [path]))


def check_database_files(files: DataFiles, finder: TraceFinder, *, notes: Notes) -> Check:
    """SQLite's file and its log as bytes: what was deleted is still there for a while."""
    for path in files.database:
        scan_file(path, finder, strict=False, notes=notes, report=notes.find, lines=False)
    return notes.close(CheckName.DATABASE_FILES, _count(files.database))


def check_logs(files: DataFiles, finder: TraceFinder, *, notes: Notes) -> Check:
    """The log, those before it, and what else looks like one."""
    for path in files.logs:
        scan_file(path, finder, strict=True, notes=notes, report=notes.find)
    return notes.close(CheckName.LOGS, _count(files.logs))


def check_backups(files: DataFiles, named: Collection[Path], finder: TraceFinder, *, notes: Notes) -> Check:
    """Backups that were named, and whatever lies in the data directory that Tidings did not put there."""
    missed = list(files.missed)
    paths = tuple(dict.fromkeys((*files.others, *expand_folders(named, miss=missed.append))))
    _report_missed(missed, named=named, notes=notes)
    for path in named:
        # Whether there is one that may not be looked at is told by reading it.
        with suppress(PermissionError):
            if not path.exists():
                notes.find(path, "there is no such file")
    for path in paths:
        # What was not looked into may hold anything, and "passed" would say that it does not.
        scan_file(path, finder, strict=True, notes=notes, report=notes.find)
    return notes.close(CheckName.BACKUPS, _count(paths))


def _report_missed(missed: Collection[Missed], *, named: Collection[Path], notes: Notes) -> None:
    entered = {path.resolve() for path in named}
    for each in missed:
        if not each.elsewhere:
            report = notes.warn if each.path.name == _LOST_AND_FOUND else notes.find
            report(each.path, str(each))
        elif each.path.resolve() not in entered:
            notes.find(each.path, f"{each}; name it with --backup, too")


def check_repository(
    folder: Path, finder: TraceFinder, *, data_dir: Path, secrets: Collection[KnownSecret], notes: Notes
) -> Check:
    """What git has, or would take next; where there is no git, the whole folder. The data directory is left out."""
    root = _find_checkout(folder)
    # IndexNow wants the key on the site, in a file of its name.
    published = {f"{secret.value.reveal()}.txt" for secret in secrets if secret.published}
    inside, count = data_dir.absolute(), 0
    try:
        for path in _walk_private(folder, data_dir=inside, notes=notes) if root is None else _list_checkout(root):
            if path.is_symlink() or not path.is_file() or path.name in published or inside in path.absolute().parents:
                continue
            if count == _MOST_FILES:
                notes.warn(folder, f"only the first {_MOST_FILES:,} files were looked at")
                break
            count += 1
            if not _is_large_binary(path):
                scan_file(path, finder, strict=False, notes=notes, report=notes.warn)
    except OSError as error:
        notes.find(folder, str(error))
    kind = "files of the working folder" if root is None else "files of the checkout"
    return notes.close(CheckName.REPOSITORY, f"{count:,} {kind} {root or folder.absolute()}")


def _find_checkout(folder: Path) -> Path | None:
    try:
        answer = b"".join(_ask_git(folder, "rev-parse", "--show-toplevel")).removesuffix(b"\n")
    except OSError:
        return None
    return Path(os.fsdecode(answer)) if answer else None


def _list_checkout(root: Path) -> Iterator[Path]:
    """What is tracked, and what `git add` would take, but for settings that are kept private."""
    yield from _list_names(root, "--cached")
    yield from (path for path in _list_names(root, "--others", "--exclude-standard") if not _is_private_settings(path))


def _walk_private(folder: Path, *, data_dir: Path, notes: Notes) -> Iterator[Path]:
    def enter(path: Path) -> bool:
        return _is_ours(path) and path.absolute() != data_dir

    walked = _walk(folder, enters=enter, miss=lambda missed: notes.warn(missed.path, str(missed)))
    return (path for path in walked if not _is_private_settings(path))


def _list_names(root: Path, *options: str) -> Iterator[Path]:
    rest = b""
    for piece in _ask_git(root, "ls-files", "-z", *options):
        *names, rest = (rest + piece).split(b"\0")
        yield from (root / os.fsdecode(name) for name in names)


def _ask_git(folder: Path, *words: str) -> Iterator[bytes]:
    """What git says, a piece at a time; nothing where there is no git. Raises OSError where git refuses."""
    git = shutil.which("git")
    if git is None or not folder.is_dir():
        return
    # A checkout's own settings could name a program that git then starts.
    command = [git, "-C", str(folder), "-c", "core.fsmonitor=false", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        assert process.stdout is not None  # noqa: S101 - it was asked for
        try:
            while piece := process.stdout.read(65_536):
                yield piece
            if process.wait() != 0:
                raise OSError(f"git {words[0]} does not work here")
        finally:
            process.kill()


def _walk(folder: Path, *, miss: Miss, enters: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    """The files below a folder and the folders in it that are to be entered, without leaving its disk. Those of them
    that are not entered after all are told to `miss`."""

    def fail(error: OSError) -> None:
        # What is removed meanwhile is nothing, like a folder that was never there.
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            miss(Missed(Path(error.filename), str(error.strerror)))

    for name, folders, files in os.walk(folder, onerror=fail):
        here = Path(name)
        folders[:] = sorted(each for each in folders if enters(here / each))
        for each in tuple(folders):
            if (missed := _keep_out(here / each, top=folder)) is not None:
                folders.remove(each)
                miss(missed)
        yield from (here / each for each in sorted(files))


def _keep_out(folder: Path, *, top: Path) -> Missed | None:
    """Why a folder below `top` is not entered; None where it is, or where a link leads to what is entered anyway."""
    try:
        if folder.is_symlink():
            inside = folder.resolve().is_relative_to(top.resolve())
            return None if inside else Missed(folder, "it is a link to a folder elsewhere", elsewhere=True)
        mounted = folder.lstat().st_dev != top.stat().st_dev
    except FileNotFoundError:
        return None
    except OSError as error:
        return Missed(folder, str(error.strerror))
    return Missed(folder, "another disk is mounted there", elsewhere=True) if mounted else None


def _is_ours(folder: Path) -> bool:
    """Whether a folder of a repository is not plainly other people's, such as an environment of Python."""
    try:
        return folder.name not in _NOT_OURS and not folder.is_symlink() and not (folder / "pyvenv.cfg").exists()
    except OSError:
        return True


def _is_file(path: Path) -> bool:
    """Whether there is a file. What may not be looked at counts as one: reading it will tell."""
    try:
        return path.is_file()
    except OSError:
        return True


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_private_settings(path: Path) -> bool:
    """Whether this is where settings belong: a `.env` that nobody else can read."""
    return path.name.startswith(".env") and path.is_file() and path.stat().st_mode & 0o077 == 0


def _is_large_binary(path: Path) -> bool:
    with suppress(OSError):
        if path.stat().st_size > _LARGE_BINARY:
            with path.open("rb") as file:
                return b"\0" in file.read(8192)
    return False


def _count(paths: Collection[Path]) -> str:
    size = 0
    for path in paths:
        with suppress(OSError):
            size += path.stat().st_size
    return f"{len(paths):,} files, {size / 1_000_000:,.1f} MB"
