"""Folders that cannot be entered: each fails the audit, unless the operator names it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.audit.installation import Planted, find_check, tell
from tidings.audit.data_files import check_backups, list_data_files
from tidings.audit.file_modes import check_modes
from tidings.audit.report import Check, CheckBuilder, CheckName
from tidings.audit.secret_finder import SecretFinder
from tidings.core.secrets.redaction import Redactor

NOBODY = 65_534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root can read everything, so for once it is nobody."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(mine)


def open_for_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From within, nobody needs to pass the folders above."""
    folder.chmod(0o755)
    monkeypatch.chdir(folder)


def look_at(data_dir: Path, named: Sequence[Path]) -> Check:
    files = list_data_files(data_dir, database=None)
    return check_backups(files, named, SecretFinder([]), check=CheckBuilder(Redactor()))


@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["not to be listed", "not to be entered"])
@pytest.mark.parametrize("place", ["data", "backups"])
def test_folder_that_cannot_be_read_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, mode: int
) -> None:
    """C25: below the data directory or a folder of backups, or that folder itself."""
    for each in ("data", "backups"):
        (tmp_path / each).mkdir(mode=0o755)
    closed = tmp_path / place / "closed"
    closed.mkdir()
    (closed / "kept.sql").write_text("nothing")
    open_for_all(tmp_path, monkeypatch)
    assert look_at(Path("data"), [Path("backups")]).passed
    closed.chmod(mode)
    with without_privileges():
        below = look_at(Path("data"), [Path("backups")])
        itself = look_at(Path("data"), [Path(place, "closed")])
    closed.chmod(0o755)
    where = str(Path(place, "closed") if mode == 0o000 else Path(place, "closed", "kept.sql"))
    for check in (below, itself):
        assert [(each, "Permission denied" in what) for each, what in tell(check)] == [(where, True)]


@pytest.mark.thorough
async def test_folder_that_cannot_be_reached_does_not_pass(planted: Planted) -> None:
    """C25: folders within folders, until the way is too long to be named."""
    folder = planted.data_dir
    handle = os.open(folder, os.O_DIRECTORY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=handle)
        inner = os.open("d" * 250, os.O_DIRECTORY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    ((where, what),) = tell(await planted.fail(CheckName.BACKUPS))
    assert where.startswith(f"{folder}/ddd")
    assert what == "it was not searched (File name too long)"


@pytest.mark.thorough
async def test_link_to_a_folder_elsewhere_does_not_pass_unless_that_is_named(planted: Planted, tmp_path: Path) -> None:
    """C25: one that leads back into the folder, such as `latest`, is nothing."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (planted.data_dir / "first").mkdir()
    (planted.data_dir / "latest").symlink_to("first")
    assert (await planted.audit()).passed
    link = planted.data_dir / "away"
    link.symlink_to(elsewhere)
    rule = "it was not searched (it is a link to a folder elsewhere; name it with --backup, too)"
    assert tell(await planted.fail(CheckName.BACKUPS)) == [(str(link), rule)]
    assert (await planted.audit(backups=[elsewhere])).passed


def test_lost_and_found_that_cannot_be_read_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C25: a data directory that is a disk has one, and it is root's."""
    (tmp_path / "data" / "lost+found").mkdir(parents=True, mode=0o000)
    (tmp_path / "data").chmod(0o755)
    open_for_all(tmp_path, monkeypatch)
    with without_privileges():
        check = look_at(Path("data"), [])
    assert check.passed


@pytest.mark.thorough
async def test_data_directory_in_the_working_folder_is_no_warning(planted: Planted) -> None:
    """C25: it has a check of its own, and may be a disk of its own."""
    report = await planted.audit(repository=planted.data_dir.parent)
    assert find_check(report, CheckName.REPOSITORY).warnings == ()


def test_file_of_another_user_is_found(tmp_path: Path) -> None:
    """C25: that user could read and replace it. Root may own files, and root may audit another user's installation."""
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    (data_dir / "tidings.log").touch(mode=0o600)
    files = list_data_files(data_dir, database=None)

    def find_owners() -> set[str]:
        check = check_modes(data_dir, files, backups=[], check=CheckBuilder(Redactor()))
        return {where for where, what in tell(check) if "another user" in what}

    assert find_owners() == set()
    # Without root's rights a file cannot be given away; the check is then that of the one user there is.
    if os.geteuid() == 0:
        os.chown(data_dir / "tidings.log", NOBODY, NOBODY)
        assert find_owners() == {str(data_dir / "tidings.log")}
        os.chown(data_dir, NOBODY, NOBODY)
        assert find_owners() == set()
