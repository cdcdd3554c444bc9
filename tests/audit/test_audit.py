"""The audit: a clean installation passes, and each planted fault fails its check, in a report without the secret."""

import base64
import gzip
import hashlib
import shutil
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.fernet import Fernet

from tests.audit.installation import (
    BING_KEY,
    CANARY,
    COOKIE,
    INDEXNOW_KEY,
    TOKEN,
    WEBHOOK_SECRET,
    Planted,
    copy_package,
    find_check,
    tell,
)
from tidings.audit.one_writer import check_one_writer
from tidings.audit.report import CheckBuilder, CheckName
from tidings.audit.strength import check_tokens
from tidings.core.secrets.keyring import FernetSalt
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

STRANGER = "030037af9d2e41c6b8"
SPELLINGS = {
    "clear": CANARY,
    "URL-encoded": quote(CANARY, safe=""),
    "base64": base64.b64encode(f"x{COOKIE}".encode()).decode(),
    "hexadecimal": CANARY.encode().hex(),
    "JSON": CANARY.replace("/", "\\/"),
}
FINDINGS = ("", ", URL-encoded", ", as base64", ", as hexadecimal", ", as JSON")
SECRETS = {
    "a cookie": (COOKIE, "the cookie one"),
    "a value of it": (CANARY[::-1], "the cookie one"),
    "IndexNow key": (INDEXNOW_KEY, "the IndexNow key of mine"),
    "Bing key": (BING_KEY, "the Bing key of mine"),
    "token of the settings": (TOKEN, "TIDINGS_TOKEN"),
    "webhook secret": (WEBHOOK_SECRET, "the webhook secret"),
    "a cookie that nobody knows": ("web_session=x", "a cookie of the name web_session"),
    "URL-encoded": ("sessdata%3D1", "a cookie of the name sessdata"),
    "a long cookie of a short name": (f"a1={STRANGER}", "a cookie of the name a1"),
    "API token": (f"tid_{'Ab3d5f7h9-_' * 4}"[:47], "a token of this API"),
}


@pytest.mark.thorough
async def test_clean_installation_passes_every_check_without_a_warning(anywhere: Planted) -> None:
    """C7, C25, C27: with sites, cookies, tokens, a log and a backup, on both databases; and it was really looked at."""
    report = await anywhere.audit()
    shown = [(check.name, check.findings, check.warnings) for check in report.checks]
    assert shown == [(name, (), ()) for name in CheckName]
    assert report.passed is True
    covered = {check.name: check.covered for check in report.checks}
    assert covered[CheckName.ENCRYPTION] == "3 encrypted values"
    assert covered[CheckName.BACKUPS].startswith("1 file,")
    assert covered[CheckName.LOGS].startswith("1 file,")
    assert covered[CheckName.DATABASE].startswith(anywhere.database.dialect)


@pytest.mark.thorough
async def test_nothing_is_changed_or_made(planted: Planted) -> None:
    """C25: no key, table, or log line; also where there is no installation at all."""
    before = {path: path.read_bytes() for path in planted.data_dir.rglob("*") if path.is_file()}
    await planted.audit()
    assert {path: path.read_bytes() for path in planted.data_dir.rglob("*") if path.is_file()} == before
    nowhere = planted.data_dir.with_name("nowhere")
    url = Secret(f"sqlite:///{nowhere}/tidings.db")
    assert (await planted.audit(data_dir=nowhere, database_url=url, master_key=None)).passed is True
    assert not nowhere.exists()


@pytest.mark.thorough
async def test_every_secret_in_a_text_column_is_found(planted: Planted) -> None:
    """C25, C23: wherever it stands in the value; the finding names table, column and row."""
    await planted.execute("CREATE TABLE stray (number INTEGER PRIMARY KEY, text TEXT)")
    for number, (secret, _) in enumerate(SECRETS.values()):
        await planted.execute(
            "INSERT INTO stray VALUES (:row, :value)", {"row": number, "value": f"see {secret} there"}
        )
    check = await planted.fail(CheckName.DATABASE, also={CheckName.DATABASE_FILES})
    wanted = {(f"stray.text, row {number}", what) for number, (_, what) in enumerate(SECRETS.values())}
    assert wanted <= set(tell(check))


@pytest.mark.thorough
async def test_secret_in_bytes_in_text_or_in_an_unknown_table_is_found(anywhere: Planted) -> None:
    """C25: all columns of all tables, on both databases; a row that is named after a cookie is named redacted."""
    also = {CheckName.DATABASE_FILES} if anywhere.database.dialect == "sqlite" else ()
    kind = "BLOB" if anywhere.database.dialect == "sqlite" else "BYTEA"
    await anywhere.execute("UPDATE sites SET origin = :value", {"value": f"see {COOKIE} there"})
    await anywhere.execute(f"CREATE TABLE stray (name TEXT PRIMARY KEY, content {kind})")
    await anywhere.execute("INSERT INTO stray VALUES ('x', :value)", {"value": b"\xff" + COOKIE.encode()})
    await anywhere.execute("INSERT INTO stray VALUES (:value, NULL)", {"value": f"web_session={STRANGER}"})
    check = await anywhere.fail(CheckName.DATABASE, also=also)
    assert ("sites.origin, row 1", "the cookie one") in tell(check)
    assert ("stray.content, row x", "the cookie one") in tell(check)
    assert ("stray.name, row web_session=***REDACTED***", "a cookie of the name web_session") in tell(check)


@pytest.mark.thorough
async def test_note_that_mentions_a_cookie_passes_unless_it_is_ours(anywhere: Planted, tmp_path: Path) -> None:
    """C25: a collected text is not our secret, in the database, in its file and in a backup; our cookie in it is."""
    note = await anywhere.add_note(f"my web_session={STRANGER} was stolen, SESSDATA=1 too")
    backup = await anywhere.back_up(tmp_path / "note.backup")
    assert (await anywhere.audit(backups=[backup])).passed
    await anywhere.execute("UPDATE tbl_source SET content = :value WHERE id = :id", {"value": COOKIE, "id": note})
    also = {CheckName.DATABASE_FILES} if anywhere.database.dialect == "sqlite" else ()
    check = await anywhere.fail(CheckName.DATABASE, also=also)
    assert tell(check) == [(f"tbl_source.content, row {note}", "the cookie one")]


@pytest.mark.thorough
async def test_secret_that_is_left_in_the_wal_alone_is_found_in_every_spelling(planted: Planted) -> None:
    """C25: it was deleted at once, so SQL no longer shows it, but the bytes are still on the disk."""
    path = Path(str(planted.database.url.database))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    for spelled in SPELLINGS.values():
        connection.execute("UPDATE sites SET origin = ?", (spelled,))
    connection.execute("UPDATE sites SET origin = 'api'")
    check = await planted.fail(CheckName.DATABASE_FILES)
    connection.close()
    assert {where.partition(", byte")[0] for where, _ in tell(check)} == {f"{path}-wal"}
    assert {what for _, what in tell(check)} == {f"the cookie one{named}" for named in FINDINGS}


@pytest.mark.parametrize("file", ["tidings.log", "tidings.log.5", "tidings.log.2.gz"])
async def test_every_secret_in_a_log_is_found_with_its_line(planted: Planted, file: str) -> None:
    """C25, C23: also in a rotated log, and in one that somebody packed."""
    content = "".join(f'{{"event": "{secret}"}}\n' for secret, _ in SECRETS.values()).encode()
    path = planted.write(file, gzip.compress(content) if file.endswith(".gz") else content)
    found = set(tell(await planted.fail(CheckName.LOGS)))
    assert {(f"{path}, line {line}", what) for line, (_, what) in enumerate(SECRETS.values(), start=1)} <= found


@pytest.mark.thorough
async def test_secret_in_a_log_is_found_in_every_spelling(planted: Planted) -> None:
    """C25."""
    path = planted.write("tidings.log", "".join(f"before {spelled} after\n" for spelled in SPELLINGS.values()))
    found = tell(await planted.fail(CheckName.LOGS))
    assert {where for where, _ in found} == {f"{path}, line {line + 1}" for line in range(len(SPELLINGS))}
    assert {what.partition(",")[0] for _, what in found} == {"the cookie one"}


@pytest.mark.thorough
async def test_master_key_in_a_log_is_found(planted: Planted) -> None:
    """C25."""
    assert planted.subject.master_key is not None
    path = planted.write("tidings.log", f"key {planted.subject.master_key.reveal()}\n")
    assert tell(await planted.fail(CheckName.LOGS)) == [(f"{path}, line 1", "a master key")]


@pytest.mark.thorough
@pytest.mark.parametrize("secret", [COOKIE, f"web_session={STRANGER}"], ids=["known", "unknown"])
@pytest.mark.parametrize("column", ["origin", "bing_key"])
async def test_secret_in_a_backup_is_found(planted: Planted, column: str, secret: str) -> None:
    """C25: in a text or binary column of the database when the backup was made; the backup or its folder is named."""
    value = secret if column == "origin" else secret.encode()
    await planted.execute(f"UPDATE sites SET {column} = :value", {"value": value})
    folder = planted.data_dir.with_name("backups")
    folder.mkdir()
    path = await planted.back_up(folder / "kept.backup")
    for named in (path, folder):
        found = find_check(await planted.audit(backups=[named]), CheckName.BACKUPS)
        assert {where.partition(",")[0] for where, _ in tell(found)} == {str(path)}
        assert {what for _, what in tell(found)} & {"the cookie one", "a cookie of the name web_session"}


@pytest.mark.thorough
async def test_no_folder_of_the_data_directory_or_of_backups_is_passed_over(planted: Planted) -> None:
    """C25: only a repository has folders of other people."""
    backups = planted.data_dir.with_name("backups")
    names = (".git", ".venv", "venv", "node_modules", "__pycache__", "environment")
    folders = [place / name for place in (planted.data_dir, backups) for name in names]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "pyvenv.cfg").touch(mode=0o600)
        (folder / "kept.sql").touch(mode=0o600)
        (folder / "kept.sql").write_text(COOKIE)
    found = tell(await planted.fail(CheckName.BACKUPS, backups=[backups]))
    assert {where.partition(",")[0] for where, _ in found} == {str(folder / "kept.sql") for folder in folders}


def pack_zip(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside.sql", content)


def pack_gzip_in_zip(path: Path, content: bytes) -> None:
    pack_zip(path, gzip.compress(content))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "pack"),
    [
        pytest.param("dump.sql", Path.write_bytes, id="plain"),
        pytest.param("dump.sql.gz", lambda path, content: path.write_bytes(gzip.compress(content)), id="gzip"),
        pytest.param("dump.zip", pack_zip, id="zip"),
        pytest.param("dumps.zip", pack_gzip_in_zip, id="gzip in zip"),
        pytest.param("x.backup", lambda path, content: path.write_bytes(gzip.compress(content)[:-9]), id="cut off"),
    ],
)
async def test_secret_in_any_file_of_the_data_directory_is_found(
    planted: Planted, name: str, pack: Callable[[Path, bytes], object]
) -> None:
    """C25: made by any program, and packed in any way."""
    path = planted.write(name, b"")
    pack(path, f"INSERT\n{COOKIE}\n".encode())
    found = tell(await planted.fail(CheckName.BACKUPS))
    assert [what for where, what in found if where.startswith(str(path)) and where.endswith("line 2")]


async def test_backup_that_cannot_be_looked_into_does_not_pass(planted: Planted) -> None:
    """C25: damaged, packed in a way that is not known, or not there."""
    whole = (planted.data_dir / "nightly.backup").read_bytes()
    damaged = planted.write("damaged.backup", whole[:200] + b"\0\0\0\0" + whole[204:])
    closed = planted.write("closed.zst", b"\x28\xb5\x2f\xfd rest")
    missing = planted.data_dir / "missing.backup"
    found = dict(tell(await planted.fail(CheckName.BACKUPS, backups=[missing])))
    assert {str(damaged), str(closed), str(missing)} == set(found)
    assert "zstd" in found[str(closed)]


def run_git(folder: Path, *words: str) -> None:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com", *words]
    subprocess.run(command, check=True, capture_output=True)


async def test_secret_in_the_working_folder_is_found(planted: Planted) -> None:
    """C25: of unknown cookies, those that look real."""
    path = planted.subject.repository / "deep" / "settings.py"
    path.parent.mkdir()
    path.write_text("".join(f"value = '{secret}'\n" for secret, _ in SECRETS.values()))
    found = set(tell(await planted.fail(CheckName.REPOSITORY)))
    for line, (secret, what) in enumerate(SECRETS.values(), start=1):
        assert ((f"{path}, line {line}", what) in found) is (len(secret) >= 16)


@pytest.mark.thorough
async def test_secret_in_a_checkout_is_found_where_git_has_or_would_take_it(planted: Planted) -> None:
    """C25: tracked and new files, from any folder of it; what git ignores is not published."""
    work = planted.subject.repository
    (work / "below").mkdir()
    for name in ("tracked.py", "new.py", "ignored.py", ".env", "below/.env.local", "below/cookies.txt"):
        (work / name).write_text(f"web_session={STRANGER}\n")
        (work / name).chmod(0o600)
    (work / "below" / "cookies.txt").write_text(f"xhs.com\tTRUE\t/\tFALSE\t0\tweb_session\t{STRANGER}\n")
    (work / ".gitignore").write_text("ignored.py\n")
    run_git(work, "init", "--quiet")
    run_git(work, "add", "tracked.py", ".env")
    check = await planted.fail(CheckName.REPOSITORY, repository=work / "below")
    assert {Path(where.partition(",")[0]).name for where, _ in tell(check)} == {
        "tracked.py",
        "new.py",
        ".env",
        "cookies.txt",
    }


@pytest.mark.thorough
async def test_what_is_not_published_or_meant_to_be_is_no_finding(planted: Planted) -> None:
    """C25: environments, large binaries, private settings, and IndexNow's own key file."""
    work = planted.subject.repository
    (work / ".venv").mkdir()
    (work / "env").mkdir()
    (work / "env" / "pyvenv.cfg").touch()
    (work / "large.bin").write_bytes(bytes(1_100_000) + COOKIE.encode())
    (work / f"{INDEXNOW_KEY}.txt").write_text(INDEXNOW_KEY)
    for name in (".venv/x.py", "env/x.py", ".env"):
        (work / name).write_text(COOKIE)
        (work / name).chmod(0o600)
    assert (await planted.audit()).passed
    (work / ".env").chmod(0o644)
    assert tell(await planted.fail(CheckName.REPOSITORY))[0][0].startswith(str(work / ".env"))


async def test_the_repository_of_tidings_itself_passes(planted: Planted) -> None:
    """C25, C1: its tests and stand-ins are full of cookies that are none."""
    nowhere = planted.data_dir.with_name("nowhere")
    nothing = {"data_dir": nowhere, "database_url": Secret(f"sqlite:///{nowhere}/tidings.db"), "secrets": ()}
    report = await planted.audit(repository=Path(__file__).parents[2], master_key=None, tokens={}, **nothing)
    assert tell(find_check(report, CheckName.REPOSITORY)) == []


async def test_file_that_others_can_read_is_found(planted: Planted) -> None:
    """C25: the data directory and every file, also SQLite's, wherever that is."""
    modes = {
        "": 0o755,
        "tidings.log": 0o640,
        "webhook.secret": 0o604,
        "nightly.backup": 0o644,
        "../tidings.db": 0o644,
        "../tidings.db-wal": 0o660,
    }
    for name, mode in modes.items():
        (planted.data_dir / name).chmod(mode)
    found = dict(tell(await planted.fail(CheckName.FILE_MODES)))
    assert {where: what.partition(":")[0] for where, what in found.items()} == {
        str((planted.data_dir / name).resolve()): f"its mode is {mode:04o}" for name, mode in modes.items()
    }


async def test_data_directory_that_a_group_can_look_into_is_a_warning(planted: Planted) -> None:
    """C25: a person who made it so may have had a reason."""
    planted.data_dir.chmod(0o750)
    report = await planted.audit()
    assert report.passed
    assert [each.where for each in find_check(report, CheckName.FILE_MODES).warnings] == [str(planted.data_dir)]


@pytest.mark.thorough
async def test_named_backup_that_others_can_read_is_found(planted: Planted) -> None:
    """C25: `cp` gives it the mode of the day."""
    copied = planted.data_dir.with_name("copied.backup")
    shutil.copy(planted.data_dir / "nightly.backup", copied)
    copied.chmod(0o644)
    assert tell(await planted.fail(CheckName.FILE_MODES, backups=[copied]))[0][0] == str(copied)


@pytest.mark.parametrize("key", ["tidings" * 8, "k1:abc", "", "a" * 64])
async def test_weak_master_key_is_found(planted: Planted, key: str) -> None:
    """C25: and the values that it should open count as lost, because they do not open."""
    check = await planted.fail(CheckName.MASTER_KEY, also={CheckName.ENCRYPTION}, master_key=Secret(key))
    assert tell(check)[0][0] == "COOKIE_MASTER_KEY"


@pytest.mark.thorough
async def test_key_beside_the_data_is_pointed_out(planted: Planted) -> None:
    """C25, design 6: a warning; one that others can read is a fault, and is still looked for."""
    assert planted.subject.master_key is not None
    path = planted.write("master.key", planted.subject.master_key.reveal() + "\n")
    report = await planted.audit(master_key=None)
    assert report.passed
    (warning,) = find_check(report, CheckName.MASTER_KEY).warnings
    assert (warning.where, "lie on one disk" in warning.what) == (str(path), True)
    path.chmod(0o644)
    planted.write("tidings.log", planted.subject.master_key.reveal())
    await planted.fail(CheckName.FILE_MODES, also={CheckName.LOGS}, master_key=None)


@pytest.mark.thorough
async def test_rows_of_a_key_that_is_not_there_are_found(anywhere: Planted) -> None:
    """C25, C22: another ring, as after a restore without its key."""
    ring = Secret(f"k9:{new_master_key()}")
    shown = tell(await anywhere.fail(CheckName.ENCRYPTION, master_key=ring))
    rule = "1 rows are encrypted with key k1, which is not in the key ring"
    assert sorted(shown) == [("sites", rule), ("tbl_cookie", rule)]


async def test_row_that_does_not_open_is_found(anywhere: Planted) -> None:
    """C25, C22: the column of encrypted cookies holds something else."""
    await anywhere.execute("UPDATE tbl_cookie SET cookie_encrypted = :value", {"value": b"\x01 what is this, then?"})
    (found,) = tell(await anywhere.fail(CheckName.ENCRYPTION))
    assert found[0] == "tbl_cookie.cookie_encrypted, row one"


async def test_row_of_an_older_key_is_pointed_out(planted: Planted) -> None:
    """C22: it can be read, and `keys rotate` was forgotten."""
    assert planted.subject.master_key is not None
    ring = Secret(f"k2:{new_master_key()},k1:{planted.subject.master_key.reveal()}")
    report = await planted.audit(master_key=ring)
    assert report.passed
    assert len(find_check(report, CheckName.ENCRYPTION).warnings) == 3


async def test_webhook_secret_that_cannot_be_read_does_not_pass(planted: Planted) -> None:
    """C25: as of root's file, audited by another user; nothing can be searched for it, and the audit goes on."""
    (path := planted.data_dir / "webhook.secret").unlink()
    # Root can read every other file.
    path.symlink_to("/proc/self/mem")
    (found,) = tell(await planted.fail(CheckName.FILE_MODES))
    assert found == (str(path), "it cannot be read (Input/output error), so nothing was searched for it")


async def test_fernet_token_of_another_program_is_opened_with_its_salt(planted: Planted) -> None:
    """C22, C25: with COOKIE_FERNET_SALT the service opens such a cookie, so the audit must not call it broken."""
    assert planted.subject.master_key is not None
    text = planted.subject.master_key.reveal().encode()
    derived = hashlib.pbkdf2_hmac("sha256", text, b"some salt", 1_000, dklen=32)
    token = Fernet(base64.urlsafe_b64encode(derived)).encrypt(COOKIE.encode())
    await planted.execute("UPDATE tbl_cookie SET cookie_encrypted = :value", {"value": token})
    await planted.fail(CheckName.ENCRYPTION)
    report = await planted.audit(fernet_salt=FernetSalt("some salt", 1_000))
    assert report.passed
    (hint,) = find_check(report, CheckName.ENCRYPTION).warnings
    assert "keys rotate" in hint.what


async def test_database_that_cannot_be_looked_into_does_not_pass(planted: Planted) -> None:
    """C25: a broken file, and a server that is not there; the password in its address is not shown."""
    broken = planted.data_dir / "broken.db"
    broken.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    broken.chmod(0o600)
    await planted.fail(CheckName.DATABASE, database_url=Secret(f"sqlite:///{broken}"))
    away = Secret(f"postgresql://tidings:{STRANGER}@127.0.0.1:1/none")
    check = await planted.fail(CheckName.DATABASE, database_url=away)
    assert STRANGER not in str(check)


def check_package(package: Path) -> list[tuple[str, str]]:
    return tell(check_one_writer(package, check=CheckBuilder(Redactor())))


def test_crawl_api_that_names_the_mirror_is_found(tmp_path: Path) -> None:
    """C1: in any file of its packages, in any case. Compiled code does not count, and other packages may name it."""
    package = copy_package(tmp_path / "package")
    (package / "collect" / "tables.py").write_text("feishu\n")
    (package / "collect" / "crawl" / "__pycache__").mkdir()
    (package / "collect" / "crawl" / "__pycache__" / "old.cpython-311.pyc").write_bytes(b"\0feishu\0")
    assert check_package(package) == []
    for name in (
        "collect/crawl/platforms/open_web/web.py",
        "collect/crawl/new.txt",
        "collect/errors.py",
        "web/models/crawler.py",
    ):
        with (package / name).open("a") as source:
            source.write("\nimport FeiShu\n")
        assert (str(package / name), "it names feishu") in check_package(package)


def test_package_that_is_not_there_does_not_pass(tmp_path: Path) -> None:
    """C1: a package that was moved away must not silently escape the check."""
    package = copy_package(tmp_path / "package")
    shutil.rmtree(package / "collect" / "crawl")
    assert [where for where, _ in check_package(package)] == [str(package / "collect" / "crawl")]


@pytest.mark.parametrize(
    ("token", "rule"),
    [
        ("9f86d081884c7d6", "fewer than 16"),
        ("aaaaaaaaaaaabbbbbbbbbbbb", "repeats"),
        ("changeme-changeme-2026", "well-known"),
        ("My_Secret-Token12345678", "well-known"),
        ("9f86d081884c7d65", None),
        ("correct-horse-battery-staple", None),
    ],
)
def test_weak_token_is_found(token: str, rule: str | None) -> None:
    """C25: too short, or easy to guess; the finding does not repeat it."""
    found = tell(check_tokens({"TIDINGS_TOKEN": Secret(token)}, check=CheckBuilder(Redactor())))
    assert [(where, rule is not None and rule in what) for where, what in found] == [("TIDINGS_TOKEN", True)] * bool(
        rule
    )
    assert token not in str(found)


async def test_one_token_for_two_scopes_is_pointed_out(planted: Planted) -> None:
    """C25: the scopes would mean nothing."""
    tokens = {"TIDINGS_TOKEN": Secret(TOKEN), "TIDINGS_METRICS_TOKEN": Secret(TOKEN)}
    report = await planted.audit(tokens=tokens)
    assert report.passed
    assert [each.where for each in find_check(report, CheckName.TOKENS).warnings] == ["TIDINGS_METRICS_TOKEN"]


@pytest.mark.thorough
async def test_many_findings_are_counted_and_not_all_listed(planted: Planted) -> None:
    """C25: a log full of them is still a report that can be read."""
    planted.write("tidings.log", "web_session=x\n" * 500)
    check = await planted.fail(CheckName.LOGS)
    assert len(check.findings) == 51
    assert check.findings[-1].what == "450 more that are not listed"


async def test_secret_in_the_name_of_a_file_is_not_reported(planted: Planted) -> None:
    """C7: `Planted.audit` looks for it in everything that is shown."""
    planted.write(f"{BING_KEY}.log", BING_KEY).chmod(0o644)
    check = await planted.fail(CheckName.LOGS, also={CheckName.FILE_MODES})
    assert tell(check) == [(f"{planted.data_dir}/***REDACTED***.log, line 1", "the Bing key of mine")]


async def test_secret_in_the_name_of_a_row_is_not_reported(planted: Planted) -> None:
    """C7: the row is named before the key that its name repeats is opened, and shown only after."""
    await planted.execute("UPDATE tbl_cookie SET cookie_name = :value", {"value": BING_KEY})
    also = {CheckName.DATABASE, CheckName.DATABASE_FILES}
    (found,) = tell(await planted.fail(CheckName.ENCRYPTION, also=also))
    assert found[0] == "tbl_cookie.cookie_encrypted, row ***REDACTED***"
