"""Archives within archives: what lies in any of them is found, and what cannot be looked into is told."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tidings.audit.archives import Bounds
from tidings.audit.report import Check, CheckName, Notes
from tidings.audit.streams import scan_file
from tidings.audit.traces import KnownSecret, TraceFinder
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

SECRET = b"kanarienvogel-7f3b9c"
# Long enough to be worth packing: what is not, xz leaves in clear.
CONTENT = b"first\nsee " + SECRET + b"\n" + b"and so on\n" * 50
MEGABYTE = 1024 * 1024

Pack = Callable[[bytes], bytes]


def pack_zip(content: bytes, *, name: str = "zipped", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("before.txt", "nothing")
        archive.writestr(name, content)
    return packed.getvalue()


def pack_tar(content: bytes, *, name: str = "member", style: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=style) as archive:
        for each, body in (("before.txt", b"nothing"), (name, content), ("after.txt", b"nothing")):
            member = tarfile.TarInfo(each)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


PACKS: dict[str, Pack] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda content: lzma.compress(content, format=lzma.FORMAT_ALONE),
    "zlib": zlib.compress,
    "zip": pack_zip,
    "tar": pack_tar,
}
NAMES = {"zip": " (zipped)", "tar": " (member)"}


def pack(content: bytes, *ways: str) -> bytes:
    """Packed in these ways, the innermost first."""
    for way in ways:
        content = PACKS[way](content)
    return content


def scan(path: Path, content: bytes, *, bounds: Bounds | None = None) -> Check:
    path.write_bytes(content)
    notes = Notes(Redactor())
    finder = TraceFinder([KnownSecret("it", Secret(SECRET.decode()))])
    scan_file(path, finder, strict=True, notes=notes, report=notes.find, bounds=bounds or Bounds())
    return notes.close(CheckName.BACKUPS, "")


def tell(check: Check) -> list[tuple[str, str]]:
    return [(each.where, each.what) for each in check.findings]


@pytest.mark.parametrize("inner", PACKS)
@pytest.mark.parametrize("outer", PACKS)
def test_secret_in_an_archive_within_an_archive_is_found(tmp_path: Path, inner: str, outer: str) -> None:
    """C25: each kind within each, with the way to it."""
    path = tmp_path / "x.backup"
    content = pack(CONTENT, inner, outer)
    outside = f"{path}{NAMES.get(outer, '')}"
    if inner != "tar":
        assert tell(scan(path, content)) == [(f"{outside}{NAMES.get(inner, '')}, line 2", "it")]
        return
    # What is not packed in a tar archive is told by its line in the archive, and in each archive around it.
    around = {outside, str(path)} if outer == "tar" else {outside}
    assert {(where.partition(", line")[0], what) for where, what in tell(scan(path, content))} == {
        (each, "it") for each in around
    }


@pytest.mark.parametrize("outer", ["gzip", "xz", "zlib", "zip", None])
@pytest.mark.parametrize(
    "before", [b"#!/bin/sh\nexec unzip $0\n", b"PK\x07\x08", b"PK00", pack_zip(b"nothing"), b"\0" * 3 * MEGABYTE]
)
def test_zip_file_behind_something_else_is_looked_into(tmp_path: Path, before: bytes, outer: str | None) -> None:
    """C25: one that unpacks itself, one that was to go on several disks, one behind another."""
    path = tmp_path / "x.backup"
    content = before + pack_zip(CONTENT)
    found = tell(scan(path, content if outer is None else pack(content, outer)))
    assert found == [(f"{path}{NAMES.get(outer or '', '')} (zipped), line 2", "it")]


def test_what_stands_before_a_zip_file_is_looked_into_too(tmp_path: Path) -> None:
    """C25: as it is, and unpacked."""
    path, after = tmp_path / "x", pack_zip(b"nothing")
    assert tell(scan(path, CONTENT + after)) == [(f"{path}, line 2", "it")]
    assert tell(scan(path, pack_zip(CONTENT) + after + after)) == [(f"{path} (zipped), line 2", "it")]


def test_zip_file_behind_something_else_in_a_tar_archive_is_told(tmp_path: Path) -> None:
    """C25: it is past when its end is seen."""
    path = tmp_path / "x.tar"
    ((where, what),) = tell(scan(path, pack_tar(b"#!/bin/sh\n" + pack_zip(CONTENT))))
    assert (where, "unpack it first" in what) == (f"{path} (member)", True)


@pytest.mark.parametrize("way", ["lzma", "zlib"])
@pytest.mark.parametrize(
    "content", [SECRET, CONTENT, b"\0" * MEGABYTE + SECRET, random.Random(0).randbytes(9_000) + SECRET]
)
def test_packing_with_a_short_mark_is_known_by_what_comes_out(tmp_path: Path, way: str, content: bytes) -> None:
    """C25: however short or long, and with nothing in it that could be packed."""
    assert [what for _, what in tell(scan(tmp_path / "x", pack(content, way)))] == ["it"]


@pytest.mark.parametrize("way", ["bzip2", "xz", "lzma", "zlib"])
def test_what_follows_something_packed_is_looked_into_or_told(tmp_path: Path, way: str) -> None:
    """C25: a second part, as `cat` makes it, also after a filled block; and something else."""
    path, first = tmp_path / "x", pack(b"nothing\n" * 100, way)
    assert [what for _, what in tell(scan(path, first + pack(CONTENT, way)))] == ["it"]
    assert [what for _, what in tell(scan(path, first + bytes(1_000) + pack(CONTENT, way)))] == ["it"]
    assert scan(path, first + bytes(1_000)).passed
    ((where, what),) = tell(scan(path, first + gzip.compress(CONTENT)))
    assert (where, "cannot be looked into" in what) == (str(path), True)


@pytest.mark.parametrize("way", ["gzip", "bzip2", "xz", "lzma", "zlib"])
def test_what_comes_before_a_damage_is_looked_at(tmp_path: Path, way: str) -> None:
    """C25: a damage is told, and one that breaks off is a warning."""
    path, chance = tmp_path / "x", random.Random(0)
    packed = pack(CONTENT + chance.randbytes(2 * MEGABYTE), way)
    cut = scan(path, packed[:-9])
    assert [what for _, what in tell(cut)] == ["it"]
    assert len(cut.warnings) == 1
    broken = tell(scan(path, packed[:-MEGABYTE] + bytes(MEGABYTE)))
    assert [what == "it" or "cannot be looked into" in what for _, what in broken] == [True, True]


@pytest.mark.parametrize(
    ("start", "rule"),
    [
        (b"PGDMP\x01\x0e\x00\x04\x08\x01\x01\x01", "pg_restore"),
        (b"PGDMP\x01\x10\x00\x04\x08\x01\x03", "pg_restore"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"\x02\x21\x4c\x18", "lz4"),
        (b"\x50\x2a\x4d\x18", "lz4"),
        (b"\x1f\x9d\x90", "compress"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
        (b"Rar!\x1a\x07", "RAR"),
        (b"LZIP\x01", "lzip"),
        (b"\x89LZO\x00\r\n\x1a\n", "lzop"),
    ],
)
@pytest.mark.parametrize("outer", [*PACKS, None])
def test_what_python_cannot_read_is_told_with_what_to_do(
    tmp_path: Path, start: bytes, rule: str, outer: str | None
) -> None:
    """C25: alone, and within whatever can be read."""
    content = start + zlib.compress(CONTENT)
    ((where, what),) = tell(scan(tmp_path / "x", content if outer is None else pack(content, outer)))
    assert where == f"{tmp_path / 'x'}{NAMES.get(outer or '', '')}"
    assert (rule in what, "first" in what) == (True, True)


@pytest.mark.parametrize("kind", [b"\x03", b"\x05"])
def test_contents_of_a_dump_of_postgresql_alone_are_looked_at(tmp_path: Path, kind: bytes) -> None:
    """C25: `toc.dat` of a dump as a folder or a tar archive is not packed; the rows beside it are, with gzip."""
    start = b"PGDMP\x01\x0e\x00\x04\x08" + kind + bytes(30)
    assert scan(tmp_path / "toc.dat", start).passed
    assert [what for _, what in tell(scan(tmp_path / "toc.dat", start + CONTENT))] == ["it"]


ORDINARY = {
    "text like zlib": b"x^2 + y^2 = z^2\n" * 200,
    "mark of zlib": b"\x78\x9c" + b"measured\n" * 200,
    "numbers": b"".join(number.to_bytes(8, "little") for number in range(1, 2_000)),
    "zeros": bytes(5_000),
    "mark of lzma": b"\x5d\0\0\x80\0" + b"\xff" * 8 + b"\0" + random.Random(0).randbytes(2_000),
    "mark of zip": b"a zip file ends with PK\x05\x06 and a few numbers, and begins with PK\n" * 20,
    "nothing": b"",
    "empty zip file": b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("content", ORDINARY.values(), ids=ORDINARY)
@pytest.mark.parametrize("outer", ["gzip", "tar", None])
def test_ordinary_bytes_are_no_false_alarm(tmp_path: Path, content: bytes, outer: str | None) -> None:
    """C25: they are looked at as they are, and nothing else is said of them."""
    path = tmp_path / "x"
    clean = scan(path, content if outer is None else pack(content, outer))
    assert (tell(clean), list(clean.warnings)) == ([], [])
    found = scan(path, content + CONTENT if outer is None else pack(content + CONTENT, outer))
    assert ({what for _, what in tell(found)}, list(found.warnings)) == ({"it"}, [])


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_after_a_short_mark_are_no_false_alarm(tmp_path: Path, seed: int) -> None:
    """C25: encrypted files and pictures begin with anything."""
    chance = random.Random(seed)
    for start in (b"\x78\x9c", b"\x78\x01", b"\x78\xda", b"\x5d\0\0\x80\0" + b"\xff" * 8 + b"\0"):
        check = scan(tmp_path / "x", start + chance.randbytes(2_000) + SECRET)
        assert [what for _, what in tell(check)] == ["it"]


@pytest.mark.parametrize(
    "ways",
    [
        ("gzip", "tar", "gzip", "zip"),
        ("zip", "tar", "xz", "tar"),
        ("gzip", "zip", "zip", "zip"),
        ("gzip",) * 8,
        ("bzip2", "tar", "tar", "tar", "gzip"),
    ],
    ids="-".join,
)
def test_secret_many_layers_down_is_found(tmp_path: Path, ways: Sequence[str]) -> None:
    """C25: as people pack what others have packed."""
    path = tmp_path / "x.backup"
    named = "".join(NAMES.get(way, "") for way in reversed(ways))
    assert tell(scan(path, pack(CONTENT, *ways))) == [(f"{path}{named}, line 2", "it")]


@pytest.mark.parametrize("way", ["gzip", "zip", "tar"])
def test_what_is_too_deep_is_told(tmp_path: Path, way: str) -> None:
    """C25: as deep as the bound it is found; one layer more, it does not pass."""
    bounds = Bounds(layers=3)
    ways = ("gzip", *(way,) * 2)
    assert {what for _, what in tell(scan(tmp_path / "x", pack(CONTENT, *ways), bounds=bounds))} == {"it"}
    ((where, what),) = tell(scan(tmp_path / "x", pack(CONTENT, *ways, way), bounds=bounds))
    assert (where, "more than 3 times over" in what) == (f"{tmp_path / 'x'}{NAMES.get(way, '') * 3}", True)


@pytest.mark.parametrize(("inner", "outer"), [("zip", "zip"), ("zip", "gzip"), ("gzip", "tar"), ("tar", "tar")])
def test_what_is_too_large_to_be_in_memory_is_told(tmp_path: Path, inner: str, outer: str) -> None:
    """C25: one byte less is looked into."""
    packed = pack(CONTENT + random.Random(0).randbytes(10_000), inner)
    size, path = len(packed), tmp_path / "x"
    found = tell(scan(path, pack(packed, outer), bounds=Bounds(in_memory=size)))
    assert {what for _, what in found} == {"it"}
    refused = tell(scan(path, pack(packed, outer), bounds=Bounds(in_memory=size - 1)))
    troubles = [(where, what) for where, what in refused if what != "it"]
    assert [(where, f"more than {size - 1:,} bytes" in what) for where, what in troubles] == [
        (f"{path}{NAMES.get(outer, '')}", True)
    ]


def test_what_unpacks_without_end_is_told_and_given_up(tmp_path: Path) -> None:
    """C25: the bound is for the whole file, whatever number of members it has."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number in range(20):
            archive.writestr(f"{number:02}.gz", gzip.compress(bytes(MEGABYTE)))
    found = tell(scan(tmp_path / "x", packed.getvalue(), bounds=Bounds(in_all=5 * MEGABYTE)))
    assert [where for where, _ in found] == [f"{tmp_path / 'x'} ({number:02}.gz)" for number in range(5, 20)]
    assert {what for _, what in found} == {"it cannot be looked into (the file unpacks to more than 5,242,880 bytes)"}


def test_member_that_cannot_be_opened_does_not_hide_the_others(tmp_path: Path) -> None:
    """C25: damaged, packed in a way that is not known, with a password; each is told, and what lies beside is found."""
    whole = gzip.compress(random.Random(0).randbytes(2_000))
    members = {"damaged.gz": whole[:500] + bytes(9) + whole[509:], "closed.zst": b"\x28\xb5\x2f\xfd", "good.gz": b""}
    members["good.gz"] = gzip.compress(CONTENT)
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive, tarfile.open(fileobj=tarred, mode="w") as tar:
        for name, body in members.items():
            archive.writestr(name, body)
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    locked = bytearray(zipped.getvalue())
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    path = tmp_path / "x"
    for content in (zipped.getvalue(), tarred.getvalue(), bytes(locked)):
        found = dict(tell(scan(path, content)))
        assert set(found) == {f"{path} (damaged.gz)", f"{path} (closed.zst)", f"{path} (good.gz), line 2"}
        assert "zstd" in found[f"{path} (closed.zst)"]


def test_tar_archive_is_read_beyond_its_end_and_with_its_names(tmp_path: Path) -> None:
    """C25: another one that was appended, one whose header is damaged, a name that is the secret; and one that breaks
    off is looked into as far as it goes, packed or not."""
    path = tmp_path / "x.tar"
    clean, packed = pack_tar(b"nothing"), pack_tar(gzip.compress(CONTENT))
    inside = [(f"{path} (member), line 2", "it")]
    assert tell(scan(path, clean + packed)) == inside
    assert tell(scan(path, clean[:512] + bytes(512) + b"\xff" * 512 + packed)) == inside
    assert [what for _, what in tell(scan(path, pack_tar(b"", name=f"{SECRET.decode()}.txt")))] == ["it"]
    cut = packed[: packed.index(gzip.compress(CONTENT)[:4]) + 512]
    assert tell(scan(path, cut)) == inside
    broken = scan(path, gzip.compress(packed + random.Random(0).randbytes(9_000))[:-2_000])
    assert tell(broken) == inside
    assert [each.what for each in broken.warnings] == ["the file is cut off; what there is of it was looked at"]


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_style_of_tar_is_known(tmp_path: Path, style: int) -> None:
    """C25: long names are kept in members of their own, which do not shift the others."""
    name = "/".join(["a-long-folder"] * (15 if style != tarfile.USTAR_FORMAT else 8))
    found = tell(scan(tmp_path / "x", pack_tar(gzip.compress(CONTENT), name=name, style=style)))
    assert [what for _, what in found] == ["it"]


def test_large_content_of_an_archive_needs_little_memory(tmp_path: Path) -> None:
    """C25: only what has to be is kept; what a tar archive says of its own headers is not believed."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 40 * MEGABYTE
    large = gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + bytes(40 * MEGABYTE) + pack_tar(gzip.compress(CONTENT)))
    content = pack_zip(large, name="large.tar.gz")
    tracemalloc.start()
    found = tell(scan(tmp_path / "x", content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(f"{tmp_path / 'x'} (large.tar.gz) (member), line 2", "it")]
    assert peak < 12 * MEGABYTE


@pytest.mark.parametrize("seed", range(60))
def test_whatever_an_archive_holds_it_is_read_or_told(tmp_path: Path, seed: int) -> None:
    """C25: bytes that went wrong in any layer end in a report and not in a traceback."""
    chance = random.Random(seed)
    content = CONTENT
    for way in chance.choices(list(PACKS), k=3):
        content = PACKS[way](content)
        broken = bytearray(content[: chance.randrange(len(content) // 2, len(content) + 1)])
        for _ in range(chance.randrange(4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        content = bytes(broken)
    assert scan(tmp_path / "x", content).name is CheckName.BACKUPS
