"""Checks who besides the owner has access to the files of an installation, and whether one user owns all of them."""

import os
import stat
from collections.abc import Collection
from pathlib import Path

from tidings.audit.data_files import DataFiles
from tidings.audit.report import Check, CheckBuilder, CheckName, count_things

_ROOT = 0


def check_modes(data_dir: Path, files: DataFiles, *, backups: Collection[Path], check: CheckBuilder) -> Check:
    """The data directory and each file must belong to the owner alone. A group that may list the folder is a hint.

    Files may belong to root, too. Without root's rights, the owner of the directory must be the present user.
    """
    owners = {_ROOT, os.geteuid()}
    if data_dir.is_dir():
        if os.geteuid() == _ROOT:
            owners.add(data_dir.stat().st_uid)
        _check_folder(data_dir, owners, check)
    paths = dict.fromkeys((*files.database, *files.keys, *files.logs, *files.others, *backups))
    for path in paths:
        _check_file(path, owners, check)
    return check.build(CheckName.FILE_MODES, f"{data_dir} and {count_things(len(paths), 'file')}")


def _check_folder(folder: Path, owners: Collection[int], check: CheckBuilder) -> None:
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in owners:
        check.find(folder, f"it belongs to another user (uid {status.st_uid})")
    if mode & 0o027:
        check.find(folder, f"its mode is {mode:04o}: others can enter it, or a group can change files in it")
    elif mode & 0o050:
        check.warn(folder, f"its mode is {mode:04o}: a group can read it")


def _check_file(path: Path, owners: Collection[int], check: CheckBuilder) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        check.find(path, f"its mode cannot be read ({error.strerror})")
        return
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in owners:
        check.find(path, f"it belongs to another user (uid {status.st_uid})")
    if mode & 0o077:
        check.find(path, f"its mode is {mode:04o}: others than its owner have access")
