"""The folder that somebody may publish: a git checkout, or any other working folder. Searches the files that git has or
would add next; without git, all files except third-party ones, such as a Python environment.
"""

import os
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidings.audit.data_files import walk_folder
from tidings.audit.file_scan import scan_file
from tidings.audit.report import Check, CheckBuilder, CheckName, count_things
from tidings.audit.secret_finder import KnownSecret, Patterns, SecretFinder

_MOST_FILES: Final = 50_000
_LARGE_BINARY: Final = 1024 * 1024
_NOT_OURS: Final = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)


def check_repository(
    folder: Path, finder: SecretFinder, *, data_dir: Path, secrets: Collection[KnownSecret], check: CheckBuilder
) -> Check:
    """Search the folder. The data directory has checks of its own and is left out."""
    root = _find_checkout(folder)
    # IndexNow requires the key in a public file of its name.
    published = {f"{secret.value.reveal()}.txt" for secret in secrets if secret.published}
    inside, count = data_dir.absolute(), 0
    try:
        for path in _list_folder(folder, data_dir=inside, check=check) if root is None else _list_checkout(root):
            if path.is_symlink() or not path.is_file() or path.name in published or inside in path.absolute().parents:
                continue
            if count == _MOST_FILES:
                check.warn(folder, f"only the first {_MOST_FILES:,} files were searched")
                break
            count += 1
            if not _is_large_binary(path):
                scan_file(path, finder, patterns=Patterns.REALISTIC, check=check, report=check.warn)
    except OSError as error:
        check.find(folder, str(error))
    kind = "of the working folder" if root is None else "of the checkout"
    return check.build(CheckName.REPOSITORY, f"{count_things(count, 'file')} {kind} {root or folder.absolute()}")


def _find_checkout(folder: Path) -> Path | None:
    try:
        answer = b"".join(_run_git(folder, "rev-parse", "--show-toplevel")).removesuffix(b"\n")
    except OSError:
        return None
    return Path(os.fsdecode(answer)) if answer else None


def _list_checkout(root: Path) -> Iterator[Path]:
    """Tracked files, and new files that are not ignored, except private settings."""
    yield from _list_names(root, "--cached")
    yield from (path for path in _list_names(root, "--others", "--exclude-standard") if not _is_private_settings(path))


def _list_folder(folder: Path, *, data_dir: Path, check: CheckBuilder) -> Iterator[Path]:
    def enters(path: Path) -> bool:
        return _is_ours(path) and path.absolute() != data_dir

    walked = walk_folder(
        folder, enters=enters, skip=lambda path, reason: check.warn(path, f"it was not searched ({reason})")
    )
    return (path for path in walked if not _is_private_settings(path))


def _list_names(root: Path, *options: str) -> Iterator[Path]:
    rest = b""
    for piece in _run_git(root, "ls-files", "-z", *options):
        *names, rest = (rest + piece).split(b"\0")
        yield from (root / os.fsdecode(name) for name in names)


def _run_git(folder: Path, *words: str) -> Iterator[bytes]:
    """The output of git, a piece at a time; nothing where git is not installed. Raises OSError where git fails."""
    git = shutil.which("git")
    if git is None or not folder.is_dir():
        return
    # A checkout's git configuration could make git start a program.
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


def _is_ours(folder: Path) -> bool:
    """Whether a folder may hold our files. A Python environment, for one, holds other people's."""
    try:
        return folder.name not in _NOT_OURS and not folder.is_symlink() and not (folder / "pyvenv.cfg").exists()
    except OSError:
        return True


def _is_private_settings(path: Path) -> bool:
    """Whether this is a `.env` file that only its owner can read: settings belong there."""
    return path.name.startswith(".env") and path.is_file() and path.stat().st_mode & 0o077 == 0


def _is_large_binary(path: Path) -> bool:
    with suppress(OSError):
        if path.stat().st_size > _LARGE_BINARY:
            with path.open("rb") as file:
                return b"\0" in file.read(8192)
    return False
