"""Data of another user is refused, whoever runs Tidings. Root proves it for root and for an ordinary user."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.processes import FORKED
from tidings.cli.main import make_app
from tidings.core.secrets.master_key import KeyFileError, is_trusted_owner, load_or_create_key_file, new_master_key
from tidings.storage import DataDirectoryError, prepare_data_dir

ME = os.geteuid()
SOMEBODY, SOMEBODY_ELSE = 65_533, 65_534
# Who runs Tidings, and who owns its data. Without root's rights nobody can become or own for somebody else.
CASES = [(ME, ME)] if ME else [(user, owner) for user in (0, SOMEBODY) for owner in (0, SOMEBODY, SOMEBODY_ELSE)]


def start_as(user: int, folder: Path) -> list[str]:
    """The complaints of a start, in a process that never gets its rights back."""
    # From within, the user need not pass the folders above.
    os.chdir(folder)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    return start()


def start() -> list[str]:
    """The complaints of a start in this folder."""
    complaints = []
    for use in (lambda: prepare_data_dir(Path("data")), lambda: load_or_create_key_file(Path("data/master.key"))):
        try:
            use()
        except (DataDirectoryError, KeyFileError) as error:
            complaints.append(str(error))
    return complaints


@pytest.mark.parametrize(("user", "owner"), CASES)
def test_data_of_another_user_is_refused_whoever_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, owner: int
) -> None:
    """C7: that user could read and replace it. Root's own is trusted, as far as it can be read."""
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o755)
    (data_dir / "master.key").touch(mode=0o600)
    (data_dir / "master.key").write_text(new_master_key())
    if ME == 0:
        os.chown(data_dir / "master.key", owner, owner)
        os.chown(data_dir, owner, owner)
    tmp_path.chmod(0o755)
    if user == ME:
        monkeypatch.chdir(tmp_path)
        complaints = start()
    else:
        with FORKED.Pool(1) as pool:
            complaints = pool.apply(start_as, (user, tmp_path))
    refused = [f"belongs to another user (uid {owner})" in complaint for complaint in complaints]
    if owner == user:
        assert complaints == []
    elif owner == 0:
        assert refused == [False]
        assert "cannot be read (Permission denied)" in complaints[0]
    elif user == 0:
        assert refused == [True, True]
        advice = "if nobody else read it: chown 0 data/master.key; else make a new key"
        assert complaints[1] == f"the key file data/master.key belongs to another user (uid {owner}); {advice}"
    else:
        # The key file of another is not even opened.
        assert refused == [True, False]
        assert "cannot be read (Permission denied)" in complaints[1]


def test_only_own_files_and_those_of_root_are_trusted() -> None:
    """C7: the rule itself, for any user who runs the tests."""
    assert is_trusted_owner(ME)
    assert is_trusted_owner(0)
    assert not is_trusted_owner(ME + 1)


def run_status_as(user: int, folder: Path) -> tuple[int, str]:
    """The exit code and the complaint of a command, in a process that never gets its rights back."""
    os.chdir(folder)
    if user != ME:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    ended = CliRunner().invoke(make_app(), ["status"], env={"TIDINGS_DATA_DIR": "data"})
    return ended.exit_code, ended.stderr


def test_a_command_of_a_user_who_may_not_write_says_what_to_do(tmp_path: Path) -> None:
    """A25: what was not allowed, and what to do. The same holds for a port below 1024."""
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "tidings.log").touch()
    (tmp_path / "data" / "tidings.log").chmod(0)
    tmp_path.chmod(0o755)
    with FORKED.Pool(1) as pool:
        code, complaint = pool.apply(run_status_as, (ME or SOMEBODY, tmp_path))
    advice = "run this as a user that may do it; what was saved before is kept"
    assert (code, complaint) == (1, f"tidings: Permission denied ({tmp_path}/data/tidings.log); {advice}\n")
