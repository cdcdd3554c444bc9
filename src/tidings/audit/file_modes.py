"""Checks who besides the owner can read the files of an installation."""

import stat
from collections.abc import Collection
from pathlib import Path

from tidings.audit.data_files import DataFiles
from tidings.audit.report import Check, CheckBuilder, CheckName


def check_modes(data_dir: Path, files: DataFiles, *, backups: Collection[Path], check: CheckBuilder) -> Check:
    """The data directory and each file must belong to the owner alone. A group that may list the folder is a hint."""
    if data_dir.is_dir():
        _check_folder(data_dir, check)
    paths = dict.fromkeys((*files.database, *files.keys, *files.logs, *files.others, *backups))
    for path in paths:
        _check_file(path, check)
    return check.build(CheckName.FILE_MODES, f"{data_dir} and {len(paths):,} files")


def _check_folder(folder: Path, check: CheckBuilder) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o027:
        check.find(folder, f"its mode is {mode:04o}: others can enter it, or a group can change files in it")
    elif mode & 0o050:
        check.warn(folder, f"its mode is {mode:04o}: a group can read it")


def _check_file(path: Path, check: CheckBuilder) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        check.find(path, f"its mode cannot be read ({error.strerror})")
        return
    if mode & 0o077:
        check.find(path, f"its mode is {mode:04o}: others than its owner have access")
