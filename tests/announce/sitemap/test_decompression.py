"""gzip is undone where the bytes say so, one file and one transport coding deep, and damage is never overlooked."""

import gzip
import random
import zlib

import pytest

from tests.announce.sitemap.outcome import read_body
from tidings.announce.sitemap.reader import RefusedSitemapError, SitemapReader

LOCS = [f"https://example.com/{number}-{random.Random(number).random()}" for number in range(3_000)]
BODY = f"<urlset>{''.join(f'<url><loc>{loc}</loc></url>' for loc in LOCS)}</urlset>".encode()
PACKED = gzip.compress(BODY, mtime=0)


def deflate_bare(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(body) + stream.flush()


@pytest.mark.parametrize("size", [1, 1_000, 10_000_000])
@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (BODY, None),
        (BODY, "identity"),
        (PACKED, None),
        (PACKED, "gzip"),
        (PACKED, "X-GZIP"),
        (gzip.compress(PACKED, mtime=0), "gzip"),
        (zlib.compress(BODY), "deflate"),
        (deflate_bare(BODY), "deflate"),
        (zlib.compress(PACKED), "deflate"),
        (
            b"".join(gzip.compress(part, mtime=0) for part in (BODY[:40_000], b"", BODY[40_000:])),
            None,
        ),
        (PACKED + bytes(10_000), None),
    ],
    ids=["bare", "identity", "file", "transport", "x-gzip", "both", "zlib", "raw", "zlib and file", "members", "zeros"],
)
def test_layers_are_undone(body: bytes, coding: str | None, size: int) -> None:
    """A5: by the first bytes, not by the name; also Content-Encoding over a .gz, several members, zero padding."""
    outcome = read_body(body, size=size, content_encoding=coding)
    assert (outcome.refusal, outcome.fault) == (None, None)
    assert outcome.locs == LOCS


@pytest.mark.parametrize("size", [1, 10_000_000])
@pytest.mark.parametrize(
    ("body", "coding", "reason"),
    [
        (gzip.compress(PACKED, mtime=0), None, "gzip in gzip"),
        (gzip.compress(gzip.compress(PACKED, mtime=0)), "gzip", "gzip in gzip"),
        (gzip.compress(zlib.compress(PACKED)), None, "not a sitemap"),
        (PACKED[:-1], None, "truncated gzip"),
        (PACKED[: len(PACKED) // 2], None, "truncated gzip"),
        (PACKED[: len(PACKED) // 2], "gzip", "truncated gzip"),
        (PACKED[:2], None, "truncated gzip"),
        (PACKED + PACKED[:5], None, "truncated gzip"),
        (gzip.compress(PACKED[:-9], mtime=0), "gzip", "truncated gzip"),
        (zlib.compress(BODY)[:-1], "deflate", "truncated deflate"),
        (zlib.compress(BODY) + b"x", "deflate", "corrupt deflate"),
        (PACKED[:-8] + bytes(8), None, "corrupt gzip"),
        (PACKED[:5_000] + b"\xff\xff\xff" + PACKED[5_003:], None, "corrupt gzip"),
        (PACKED + b"<html>", None, "corrupt gzip"),
        (BODY, "gzip", "corrupt gzip"),
        (BODY, "br", "content encoding 'br' is not understood"),
        (b"", "gzip", "truncated gzip"),
        (gzip.compress(b"", mtime=0), None, "empty"),
    ],
)
def test_damaged_or_nested_gzip_is_refused(body: bytes, coding: str | None, reason: str, size: int) -> None:
    """A7: none of its URLs is used, so that no page looks removed because a download was cut short."""
    refusal = read_body(body, size=size, content_encoding=coding).refusal
    assert refusal is not None
    assert reason in refusal


def test_truncated_gzip_is_refused_even_after_a_fault() -> None:
    """A7: whether a file counts in part or not at all does not depend on where its XML breaks."""
    packed = gzip.compress(BODY.replace(b"</loc>", b"", 1))
    assert read_body(packed).fault is not None
    assert read_body(packed[:-1]).refusal == "truncated gzip"


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["bare", "gzip"])
def test_limit_holds_for_the_uncompressed_size_to_the_byte(pack: type[bytes]) -> None:
    """A5: as much as is allowed is read, one byte more is refused."""
    assert read_body(pack(BODY), limit=len(BODY)).locs == LOCS
    assert read_body(pack(BODY), limit=len(BODY) - 1).refusal == f"larger than {len(BODY) - 1} bytes"


def test_limit_is_50_mib_by_default() -> None:
    """A5: white space counts like everything else."""
    spaces = b" " * 1_048_576
    reader = SitemapReader()
    for _ in range(50):
        reader.feed(spaces)
    with pytest.raises(RefusedSitemapError, match="larger than 52428800 bytes"):
        reader.feed(b" ")


def test_stream_gives_bit_by_bit_what_feed_gives_at_once() -> None:
    """A5: what a small gzip holds need not be in memory at once."""
    reader = SitemapReader(block=10_000)
    bits = [*reader.stream(PACKED), reader.close()]
    assert [loc.decode() for pairs in bits for loc, _ in pairs] == LOCS
    assert len(bits) > 2
