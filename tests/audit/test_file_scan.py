"""Files of any size and packing: secrets in gzip, zip and tar are found, and other packings are reported."""

import base64
import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tidings.audit.file_scan import UnpackLimits, scan_file
from tidings.audit.foreign_text import FOREIGN_COLUMNS
from tidings.audit.report import Check, CheckBuilder, CheckName
from tidings.audit.secret_finder import KnownSecret, Patterns, SecretFinder, looks_random
from tidings.core.db.database import metadata
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

STRANGER = "040069b1c2d3e4f5a6b7"
SECRET = b"kanarienvogel-7f3b9c"
CONTENT = b"first\nsee " + SECRET + b"\n" + b"and so on\n" * 50
MEGABYTE = 1024 * 1024
OVERLAP = 64 * 1024

Pack = Callable[[bytes], bytes]


def pack_zip(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("before.txt", "nothing")
        archive.writestr("zipped", content)
    return packed.getvalue()


def pack_members(members: Mapping[str, bytes], *, style: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=style) as archive:
        for name, body in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


def pack_tar(content: bytes) -> bytes:
    return pack_members({"before.txt": b"nothing", "member": content, "after.txt": b"nothing"})


PACKS: dict[str, Pack] = {"gzip": gzip.compress, "zip": pack_zip, "tar": pack_tar}
NAMES = {"zip": " (zipped)", "tar": " (member)"}


def pack(content: bytes, *ways: str) -> bytes:
    """Packed in these ways, the innermost first."""
    for way in ways:
        content = PACKS[way](content)
    return content


def scan(
    path: Path, content: bytes, *, limits: UnpackLimits | None = None, patterns: Patterns = Patterns.STRICT
) -> Check:
    path.write_bytes(content)
    check = CheckBuilder(Redactor())
    finder = SecretFinder([KnownSecret("it", Secret(SECRET.decode()))])
    scan_file(path, finder, patterns=patterns, check=check, report=check.find, limits=limits or UnpackLimits())
    return check.build(CheckName.BACKUPS, "")


def tell(check: Check) -> list[tuple[str, str]]:
    return [(each.where, each.what) for each in check.findings]


@pytest.mark.parametrize(
    "ways",
    [
        ("gzip",),
        ("zip",),
        ("tar",),
        ("tar", "gzip"),
        ("gzip", "zip"),
        ("zip", "gzip"),
        ("zip", "zip"),
        ("gzip", "tar", "gzip", "zip"),
        ("zip", "tar"),
        ("gzip",) * 8,
    ],
    ids="-".join,
)
def test_secret_in_packings_within_one_another_is_found_with_its_place(tmp_path: Path, ways: Sequence[str]) -> None:
    """C25: gzip, zip and tar, in any order."""
    path = tmp_path / "x.backup"
    found = tell(scan(path, pack(CONTENT, *ways)))
    if ways[0] == "tar":
        # A plain member is found in the archive itself, with its line there.
        assert {(where.partition(", line")[0], what) for where, what in found} == {(str(path), "it")}
    else:
        named = "".join(NAMES.get(way, "") for way in reversed(ways))
        assert found == [(f"{path}{named}, line 2", "it")]


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_style_of_tar_is_searched_beyond_its_end_and_with_its_names(tmp_path: Path, style: int) -> None:
    """C25: long names, an archive that was appended, and a name that is the secret."""
    path = tmp_path / "x.tar"
    name = "/".join(["a-long-folder"] * (15 if style != tarfile.USTAR_FORMAT else 8))
    packed = pack_members({name: gzip.compress(CONTENT)}, style=style)
    for content in (packed, pack_members({"a": b"nothing"}) + packed):
        assert tell(scan(path, content)) == [(f"{path} ({name}), line 2", "it")]
    assert {what for _, what in tell(scan(path, pack_members({SECRET.decode(): b""}, style=style)))} == {"it"}


UNREADABLE = {
    "bzip2": bz2.compress(CONTENT),
    "xz": lzma.compress(CONTENT),
    "lzma": lzma.compress(CONTENT, format=lzma.FORMAT_ALONE),
    "zlib": zlib.compress(CONTENT),
    "pg_restore": b"PGDMP\x01\x0e\x00\x04\x08\x01\x01\x01" + zlib.compress(CONTENT),
    "lz4": b"\x04\x22\x4d\x18",
    "zstd or lz4": b"\x50\x2a\x4d\x18",
    "compress": b"\x1f\x9d\x90",
    "zstd": b"\x28\xb5\x2f\xfd",
    "7-Zip": b"7z\xbc\xaf\x27\x1c",
    "RAR": b"Rar!\x1a\x07",
    "lzip": b"LZIP\x01",
    "lzop": b"\x89LZO\x00\r\n\x1a\n",
}


@pytest.mark.parametrize(("packing", "content"), UNREADABLE.items(), ids=UNREADABLE)
def test_packing_that_is_not_opened_does_not_pass(tmp_path: Path, packing: str, content: bytes) -> None:
    """C25: alone or inside another one, with what to do."""
    for outer in (None, "gzip", "zip", "tar"):
        ((where, what),) = tell(scan(tmp_path / "x", content if outer is None else pack(content, outer)))
        assert where == f"{tmp_path / 'x'}{NAMES.get(outer or '', '')}"
        assert (packing in what, "first" in what) == (True, True)


def test_member_that_cannot_be_opened_does_not_hide_the_others(tmp_path: Path) -> None:
    """C25: damaged, packed in an unknown way, with a password; the audit reports it and searches the others."""
    whole = gzip.compress(random.Random(0).randbytes(2_000))
    damaged = whole[:500] + bytes(9) + whole[509:]
    members = {"damaged.gz": damaged, "closed.zst": b"\x28\xb5\x2f\xfd", "good.gz": gzip.compress(CONTENT)}
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    locked = bytearray(zipped.getvalue())
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    path = tmp_path / "x"
    for content in (zipped.getvalue(), pack_members(members), bytes(locked)):
        found = dict(tell(scan(path, content)))
        assert set(found) == {f"{path} (damaged.gz)", f"{path} (closed.zst)", f"{path} (good.gz), line 2"}
        assert "zstd" in found[f"{path} (closed.zst)"]


def test_damaged_file_is_searched_up_to_the_damage(tmp_path: Path) -> None:
    """C25: a damaged file does not pass; one that is merely cut off gets a warning."""
    packed = gzip.compress(CONTENT + random.Random(0).randbytes(2 * MEGABYTE))
    cut = scan(tmp_path / "x", packed[:-9])
    assert [what for _, what in tell(cut)] == ["it"]
    assert len(cut.warnings) == 1
    broken = tell(scan(tmp_path / "x", packed[:-MEGABYTE] + bytes(MEGABYTE)))
    assert [what == "it" or "cannot be opened" in what for _, what in broken] == [True, True]
    archive = pack_tar(gzip.compress(CONTENT))
    broken = tell(scan(tmp_path / "x", archive[: archive.index(b"after.txt") + 100]))
    assert "it" in [what for _, what in broken]


ORDINARY = {
    "text like zlib": b"x^2 + y^2 = z^2\n" * 200,
    "numbers": b"".join(number.to_bytes(8, "little") for number in range(1, 2_000)),
    "zeros": bytes(5_000),
    "mark of zip": b"a zip file begins with PK and ends with PK\x05\x06\n" * 20,
    "nothing": b"",
}


@pytest.mark.parametrize("content", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_bytes_are_no_false_alarm(tmp_path: Path, content: bytes) -> None:
    """C25."""
    clean = scan(tmp_path / "x", content)
    assert (tell(clean), list(clean.warnings)) == ([], [])
    assert {what for _, what in tell(scan(tmp_path / "x", content + CONTENT))} == {"it"}


def test_file_that_goes_beyond_a_limit_does_not_pass(tmp_path: Path) -> None:
    """C25: too many layers, a zip file inside another packing that is too large, a file that unpacks without end."""
    path = tmp_path / "x"
    three = UnpackLimits(layers=3)
    assert {what for _, what in tell(scan(path, pack(CONTENT, "gzip", "zip", "zip"), limits=three))} == {"it"}
    ((_, what),) = tell(scan(path, pack(CONTENT, "gzip", "zip", "zip", "zip"), limits=three))
    assert "more than 3 times" in what
    zipped = pack_zip(CONTENT)
    assert tell(scan(path, gzip.compress(zipped), limits=UnpackLimits(in_memory=len(zipped))))[0][1] == "it"
    ((_, what),) = tell(scan(path, gzip.compress(zipped), limits=UnpackLimits(in_memory=len(zipped) - 1)))
    assert f"more than {len(zipped) - 1:,} bytes" in what
    ((_, what),) = tell(scan(path, gzip.compress(bytes(9 * MEGABYTE)), limits=UnpackLimits(total=5 * MEGABYTE)))
    assert "unpacks to more than 5,242,880 bytes" in what


def test_damage_of_any_kind_ends_in_a_report(tmp_path: Path) -> None:
    """C25: 200 packed files with random faults; none ends in a traceback."""
    for seed in range(200):
        chance = random.Random(seed)
        content = CONTENT
        for way in chance.choices(list(PACKS), k=3):
            broken = bytearray(PACKS[way](content))
            del broken[chance.randrange(len(broken) // 2, len(broken) + 1) :]
            for _ in range(chance.randrange(4)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            content = bytes(broken)
        assert scan(tmp_path / "x", content).name is CheckName.BACKUPS


def test_secret_across_the_edge_of_two_pieces_is_found_once_with_its_line(tmp_path: Path) -> None:
    """C25: around each edge of the pieces in which a file is searched."""
    for edge in (2 * MEGABYTE - OVERLAP, 2 * MEGABYTE):
        for position in (edge - len(SECRET), edge - 1, edge):
            found = tell(scan(tmp_path / "x", b"\n" * position + SECRET + b"\n" * (2 * MEGABYTE + 99 - position)))
            assert found == [(f"{tmp_path / 'x'}, line {position + 1:,}", "it")]


@pytest.mark.thorough
def test_large_file_and_many_secrets_need_little_memory(tmp_path: Path) -> None:
    """C25: 12 MB, a thousand secrets."""
    path = tmp_path / "large.db"
    with path.open("wb") as file:
        file.truncate(12 * MEGABYTE)
        file.seek(11 * MEGABYTE)
        file.write(SECRET)
    secrets = [KnownSecret("another", Secret(f"{number:06}-{'abcdefghij'[number % 10] * 20}")) for number in range(999)]
    finder = SecretFinder([*secrets, KnownSecret("it", Secret(SECRET.decode()))])
    check = CheckBuilder(Redactor())
    tracemalloc.start()
    scan_file(path, finder, patterns=Patterns.REALISTIC, check=check, report=check.find, lines=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tell(check.build(CheckName.LOGS, "")) == [(f"{path}, byte {11 * MEGABYTE:,}", "it")]
    assert peak < 8 * MEGABYTE


def make_backup(title: str, origin: str) -> bytes:
    lines: list[object] = [
        {"tidings": "backup", "tables": {"tbl_source": ["id", "title"], "sites": ["number", "origin", "bing_key"]}},
        {"table": "tbl_source", "rows": 1},
        [1, title],
        {"table": "sites", "rows": 1},
        [1, origin, {"base64": base64.b64encode(origin.encode()).decode()}],
    ]
    return "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()


def test_text_of_others_in_a_backup_is_searched_for_known_secrets_alone(tmp_path: Path) -> None:
    """C25: a note that mentions a cookie is no secret of ours, unless it mentions ours."""
    path = tmp_path / "x"
    assert scan(path, gzip.compress(make_backup(f"my web_session={STRANGER}", "api"))).passed
    assert tell(scan(path, make_backup(f"看 {SECRET.decode()}", "api"))) == [(f"{path}, line 3", "it")]
    ours = tell(scan(path, make_backup("a title", f"web_session={STRANGER}")))
    assert ours == [(f"{path}, line 5", "a cookie of the name web_session")]


def test_columns_with_text_of_others_are_columns_of_the_tables() -> None:
    """C25: a column that was renamed would be searched by the wrong rule."""
    tables = {table.name: {column.name for column in table.c} for table in metadata.tables.values()}
    assert {name: columns - tables.get(name, set()) for name, columns in FOREIGN_COLUMNS.items()} == {
        name: set() for name in FOREIGN_COLUMNS
    }


@pytest.mark.parametrize(
    ("value", "random"),
    [
        (b"040069b1c2d3e4f5a6b7", True),
        (b"a-long-value-of-words", False),
        (b"0000000000000000000a", False),
        (b"12345678901234567890", False),
        (b"040069tidings-sandbox-web-session-9d2f", False),
    ],
)
def test_only_a_value_that_could_be_real_looks_random(value: bytes, random: bool) -> None:
    """C25: examples in texts are no findings."""
    assert looks_random(value) is random
