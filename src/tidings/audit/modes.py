"""Who can read the files of an installation besides its owner. Their contents are not looked at here."""

import stat
from collections.abc import Collection
from pathlib import Path

from tidings.audit.places import DataFiles
from tidings.audit.report import Check, CheckName, Notes


def check_modes(data_dir: Path, files: DataFiles, *, backups: Collection[Path], notes: Notes) -> Check:
    """The data directory is its owner's (a group that may only look is a warning), and so is every file."""
    if data_dir.is_dir():
        _check_folder(data_dir, notes)
    paths = dict.fromkeys((*files.database, *files.keys, *files.logs, *files.others, *backups))
    for path in paths:
        _check_file(path, notes)
    return notes.close(CheckName.FILE_MODES, f"{data_dir} and {len(paths):,} files")


def _check_folder(folder: Path, notes: Notes) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o027:
        notes.find(folder, f"its mode is {mode:04o}: others can enter it, or a group can change what is in it")
    elif mode & 0o050:
        notes.warn(folder, f"its mode is {mode:04o}: a group can look into it")


def _check_file(path: Path, notes: Notes) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        notes.find(path, f"its mode cannot be told ({error.strerror})")
        return
    if mode & 0o077:
        notes.find(path, f"its mode is {mode:04o}: it is not its owner's alone")
