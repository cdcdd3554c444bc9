"""From a sitemap's entries to this site's own pages: what is dropped and why, their hashes, and how many they are."""

import random
import tracemalloc
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby

import pytest
from xxhash import xxh3_64_intdigest

from tidings.announce.due.hashes import DistinctCount
from tidings.announce.due.pages import Dropped, Listing, Page, PageFilter, Pages, encode_unfit, hash_urls
from tidings.announce.site.site import Site, make_site
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.net.addresses import UrlError, parse_url

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
PLAIN = b"https://example.com/plain"


def make(host: str = "example.com", *, folder: str = "/") -> Site:
    return make_site(
        sitemap_urls=[f"https://{host}/sitemap.xml"],
        key="c0ffee00c0ffee00",
        key_location=f"https://{host}{folder}key.txt",
    )


def read(site: Site, *urls: bytes) -> tuple[list[bytes], Dropped]:
    """What the filter keeps and drops of one block."""
    found = PageFilter(site)
    return found.read([(url, b"2026") for url in urls]).urls, found.dropped


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://example.com/", None),
        ("https://example.com/a/b.html?id=1&x=%20y+z", None),
        ("http://example.com/a", None),
        ("https://example.com", "https://example.com/"),
        ("https://example.com?id=1", "https://example.com/?id=1"),
        ("HTTPS://EXAMPLE.com/A", "https://example.com/A"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:80/a", "http://example.com/a"),
        ("https://example.com/a#part", "https://example.com/a"),
        ("https://example.com/grüße/饼干?q=é", "https://example.com/gr%C3%BC%C3%9Fe/%E9%A5%BC%E5%B9%B2?q=%C3%A9"),
        ("https://example.com/gr%C3%BCße", "https://example.com/gr%C3%BC%C3%9Fe"),
        ("https://example.com/@user:1/https://evil.example/", None),
    ],
)
def test_a_page_of_this_host_is_kept(url: str, kept: str | None) -> None:
    """A7: as an engine can take it, with what is not ASCII percent-encoded; alone or in a block of plain ones."""
    expected = (kept or url).encode()
    assert read(make(), url.encode()) == ([expected], Dropped())
    assert read(make(), PLAIN, url.encode(), PLAIN) == ([PLAIN, expected, PLAIN], Dropped())


@pytest.mark.parametrize(
    ("reason", "url"),
    [
        ("foreign_host", b"https://evil.example/a"),
        ("foreign_host", b"https://www.example.com/a"),
        ("foreign_host", b"https://example.com.evil.example/a"),
        ("foreign_host", b"https://notexample.com/a"),
        ("foreign_host", b"https://example.com:8443/a"),
        ("foreign_host", b"http://example.com:443/a"),
        ("foreign_host", b"https://example.com./a"),
        ("foreign_host", b"https://evil.example/?https://example.com/"),
        ("foreign_host", "https://exаmple.com/cyrillic".encode()),
        ("invalid", b"https://user@example.com/a"),
        ("invalid", b"https://user:pass@example.com/a"),
        ("invalid", b"https://example.com@evil.example/a"),
        ("invalid", b"https://example.com\\@evil.example/a"),
        ("invalid", b"ftp://example.com/a"),
        ("invalid", b"//example.com/a"),
        ("invalid", b"/a"),
        ("invalid", b""),
        ("invalid", b"https://exa mple.com/white-space-in-the-host"),
        ("invalid", b"https://example.com/tab\there"),
        ("invalid", b"https://example.com/null\0here"),
        ("invalid", b"https://example.com/not-utf-8-\xff"),
        ("invalid", b"https://example.com:99999/a"),
        ("invalid", b"https:///a"),
        ("invalid", b"javascript:alert(1)"),
        ("invalid", b"https://example.com/" + "长".encode() * 2_048),
    ],
)
def test_what_is_not_this_hosts_page_is_dropped_and_counted(reason: str, url: bytes) -> None:
    """A7: by reason, and the pages around it are kept."""
    assert read(make(), url) == ([], Dropped(**{reason: 1}))
    kept, dropped = read(make(), PLAIN, url, PLAIN, url)
    assert (kept, dropped, dropped.total) == ([PLAIN, PLAIN], Dropped(**{reason: 2}), 2)


@pytest.mark.parametrize(
    ("url", "inside"),
    [
        ("https://example.com/catalog/", True),
        ("https://example.com/catalog/a?b=/c", True),
        ("http://example.com/catalog/ä", True),
        ("https://example.com/catalog", False),
        ("https://example.com/", False),
        ("https://example.com/Catalog/a", False),
        ("https://example.com/catalogue/a", False),
        ("https://example.com/other?/catalog/", False),
        ("https://example.com/other#/catalog/", False),
        ("https://example.com/other/catalog/a", False),
        ("https://example.com//catalog/a", False),
        ("https://example.com/catalog/../other", False),
        ("https://example.com/catalog/a/../../other", False),
        ("https://example.com/catalog/..", False),
    ],
)
def test_a_page_outside_the_keys_folder_is_dropped_and_counted(url: str, inside: bool) -> None:
    """A7: a key at /catalog/key.txt vouches for /catalog/… only, also where `..` leads out of it."""
    kept, dropped = read(make(folder="/catalog/"), url.encode())
    assert (len(kept), dropped) == (int(inside), Dropped(outside_key_location=int(not inside)))


@pytest.mark.parametrize(
    ("url", "announced"),
    [
        ("https://example.com/white space", "https://example.com/white%20space"),
        ('https://example.com/a"b<c>`d{e}^f|g[h]', "https://example.com/a%22b%3Cc%3E%60d%7Be%7D%5Ef|g[h]"),
        ("https://example.com/back\\slash", "https://example.com/back/slash"),
        ("https://example.com/?q=two words&x='<>\"{}|^`\\", "https://example.com/?q=two%20words&x='%3C%3E%22{}|^`%5C"),
        ("https://example.com/100%", "https://example.com/100%"),
        ("https://example.com/done%20already", "https://example.com/done%20already"),
        ("https://example.com/next\u0085line", "https://example.com/next%C2%85line"),
        ("https://example.com/a b#a b", "https://example.com/a%20b"),
    ],
)
def test_what_a_url_must_not_contain_is_encoded_as_browsers_do(url: str, announced: str) -> None:
    """A47: in path and query by WHATWG's sets, instead of dropping the page; among plain ones as well."""
    assert read(make(), PLAIN, url.encode(), PLAIN) == ([PLAIN, announced.encode(), PLAIN], Dropped())


@pytest.mark.parametrize("gap", [b"\n", b"\r\n", b"\n\n", b"\n \n", b"\r", b"\x0b"])
@pytest.mark.parametrize("around", [0, 1, 3])
def test_a_line_break_cannot_smuggle_a_foreign_url_in(gap: bytes, around: int) -> None:
    """A7: thousands are looked at joined by line breaks, so one inside a URL must not pass for two good ones."""
    own, foreign = b"https://example.com/a", b"https://evil.example/b"
    for parts in ([own, foreign], [foreign, own], [own, own], [b"", own], [own, b""], [foreign, foreign]):
        smuggled = gap.join(parts)
        block = [PLAIN] * around + [smuggled] + [PLAIN] * around
        assert read(make(), *block) == ([PLAIN] * 2 * around, Dropped(invalid=1))
    assert read(make(), own, b"", own) == ([own, own], Dropped(invalid=1))


def read_one(site: Site, url: bytes) -> bytes | str:
    """The same judgement by the reader of URLs alone: the URL, or the reason why not."""
    try:
        parsed = parse_url(encode_unfit(url.decode()))
    except (UrlError, UnicodeDecodeError):
        return "invalid"
    own = parse_url(f"{parsed.scheme}://{site.host}/")
    if parsed.origin != own.origin:
        return "foreign_host"
    return parsed.text.encode() if parsed.path.startswith(site.key_folder) else "outside_key_location"


STRANGE = [b"\n", b" ", b"#", b"\\", b"@", b":", b"\xff", "ä".encode(), b"[", b"X", b"\nhttps://a.b/"]


def write_urls(chance: random.Random, host: str) -> Iterator[bytes]:
    """Half of the time plain URLs of the host alone, so that whole blocks are; otherwise now and then anything."""
    strange = chance.choice([0, 0, 0.02, 0.5])
    while True:
        scheme = chance.choice(["http", "https"])
        folder = "" if chance.random() < strange else "shop/"
        path = "".join(chance.choices("abcXYZ019/._~!$&'()*+,;=:@%-?/", k=chance.randint(0, 12)))
        url = f"{scheme}://{host}/{folder}{path}".replace("/.", "/-").encode()
        if chance.random() < strange:
            head, tail = url[: (place := chance.randrange(len(url) + 1))], url[place:]
            url = chance.choice([head + chance.choice(STRANGE) + tail, head, tail, url.upper()])
        # An empty query is dropped by the reader of URLs and kept by the quick look: both are right.
        yield url.rstrip(b"?")


@pytest.mark.parametrize("host", ["example.com", "example.com:8443", "127.0.0.1:8800", "[2001:db8::1]"])
@pytest.mark.parametrize("folder", ["/", "/shop/"])
def test_random_blocks_are_read_as_one_url_after_another_would_be(host: str, folder: str) -> None:
    """A7: the quick look at a whole block never lets through, drops or changes anything that a slow one would not."""
    chance, site = random.Random(host + folder), make(host, folder=folder)
    sizes = [chance.choice([0, 1, 2, 50]) for _ in range(300)]
    for size, urls in zip(sizes, (write_urls(chance, host) for _ in sizes), strict=True):
        pairs = [(next(urls), str(number).encode()) for number in range(size)]
        judged = [(read_one(site, url), timestamp) for url, timestamp in pairs]
        found = PageFilter(site)
        listing = found.read(pairs)
        assert list(zip(listing.urls, listing.lastmods, strict=True)) == [
            (url, timestamp) for url, timestamp in judged if isinstance(url, bytes)
        ]
        assert listing.hashes == hash_urls(listing.urls)
        reasons = [reason for reason, _ in judged if isinstance(reason, str)]
        assert found.dropped == Dropped(*map(reasons.count, ("invalid", "foreign_host", "outside_key_location")))


def test_what_was_dropped_adds_up_until_it_is_forgotten() -> None:
    """A7: over the blocks of one file; the next file begins at none."""
    found = PageFilter(make())
    for _ in range(2):
        found.read([(b"", b""), (b"https://evil.example/", b"")])
    total = Dropped(outside_key_location=1) + found.dropped
    assert (total, total.total) == (Dropped(invalid=2, foreign_host=2, outside_key_location=1), 5)
    found.forget_dropped()
    assert found.dropped == Dropped()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        # The reference's own value for nothing at all; the others as they stand in ledgers since the first release.
        ("", 0x2D06800538D394C2),
        ("https://example.com/", 5522761390303137003),
        ("https://example.com/page?id=1", -414460394293193871),
        ("https://example.com/饼干", -8012475280542929008),
    ],
)
def test_hashes_are_the_same_on_every_machine(url: str, expected: int) -> None:
    """A10: a ledger is good only as long as they do not change."""
    assert list(hash_urls([url.encode()])) == [expected]


def test_hashes_are_the_same_64_bits_with_a_sign() -> None:
    """A10: the tables' integers have one; about half of the hashes are below zero."""
    urls = [f"https://example.com/{number}".encode() for number in range(1_000)]
    hashes = hash_urls(iter(urls))
    assert [url_hash % (1 << 64) for url_hash in hashes] == [xxh3_64_intdigest(url) for url in urls]
    assert 400 < sum(url_hash < 0 for url_hash in hashes) < 600
    assert hashes.typecode == "q"
    assert hash_urls([]) == array("q")


def test_pages_are_picked_from_a_listing_with_their_lastmods_read() -> None:
    """A8: the latest time that a lastmod can mean; a wrong one counts as missing."""
    urls = [b"https://example.com/a", b"https://example.com/b", b"https://example.com/c"]
    listing = Listing()
    listing.extend(Listing(urls, hash_urls(urls), [b"2026-11-15", b"soon", b""]))
    at_time = parse_lastmod(b"2026-11-15")
    assert at_time is not None
    assert [(page.url[-1], page.lastmod) for page in listing.pick([0, 2])] == [
        ("a", at_time[1]),
        ("c", None),
    ]
    assert (len(listing), len(listing.pick([]))) == (3, 0)


def test_columns_of_pages_stay_together() -> None:
    """A14: gathered, cut, picked, left out or extended, each page keeps its URL, hash, lastmod and what it is for."""
    rows = [
        Page(LOWEST, "https://example.com/a", 5),
        Page(0, "https://example.com/b"),
        Page(HIGHEST, "https://example.com/c", 7),
    ]
    pages = Pages.gather(rows, removed=True)
    assert list(pages) == rows
    parts = {
        "cut": (pages.cut(1, 9), rows[1:]),
        "pick": (pages.pick([2, 0]), [rows[2], rows[0]]),
    }
    assert {name: list(part) for name, (part, _) in parts.items()} == {
        name: found for name, (_, found) in parts.items()
    }
    assert all(part.removed for part, _ in parts.values())
    head = pages.cut(0, 1)
    head.extend(pages.cut(1, 3))
    assert list(head) == list(pages) == rows


def test_pages_with_near_hashes_come_together() -> None:
    """A5, A14: each page once, and as it was; each 64th part of the range of hashes in one piece."""
    chance = random.Random(14)
    hashes = [LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST, *(chance.randint(LOWEST, HIGHEST) for _ in range(2_000))]
    rows = [Page(url_hash, f"https://example.com/{url_hash}", abs(url_hash) % 1_000) for url_hash in hashes]
    found = list(Pages.gather(rows).gather_near())
    assert sorted(found) == sorted(rows)
    parts = [part for part, _ in groupby(found, key=lambda page: page.url_hash >> 58)]
    assert len(parts) == len(set(parts)) == 64
    assert Pages.gather(rows, removed=True).gather_near().removed


@pytest.fixture
def distinct() -> Iterator[DistinctCount]:
    counted = DistinctCount()
    yield counted
    counted.close()


def add(counted: DistinctCount, hashes: Sequence[int]) -> None:
    counted.add(array("q", sorted(hashes)))


def test_different_hashes_are_counted_exactly(distinct: DistinctCount) -> None:
    """A8: a URL that occurs twice in one crawl counts once, in one block or in several; counting may go on."""
    chance = random.Random(8)
    edges = [LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]
    borders = [number * (1 << 58) + shift for number in range(-31, 32) for shift in (-1, 0, 1)]
    pool = edges + borders + [chance.randint(LOWEST, HIGHEST) for _ in range(5_000)]
    seen: set[int] = set()
    assert distinct.count() == 0
    for size in (0, 1, 7, 500, 2_000, 0, 6_000):
        block = chance.choices(pool, k=size)
        add(distinct, block)
        seen.update(block)
        assert distinct.count() == len(seen)
    add(distinct, pool)
    assert distinct.count() == len(set(pool))


@pytest.mark.parametrize("hashes", [[LOWEST], [HIGHEST], [0], [-1], [LOWEST, HIGHEST]])
def test_the_ends_of_the_range_are_counted(distinct: DistinctCount, hashes: list[int]) -> None:
    """A8: no hash falls between the buckets."""
    add(distinct, hashes)
    add(distinct, hashes)
    assert distinct.count() == len(hashes)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1_000, 10_000])
def test_counting_many_takes_little_memory(distinct: DistinctCount, size: int) -> None:
    """A5, A8: a tenth at most of what a set of them takes, in large blocks and in the small ones of a first run."""
    chance, total = random.Random(5), 300_000
    tracemalloc.start()
    for _ in range(total // size):
        add(distinct, array("q", chance.randbytes(8 * size)))
    assert distinct.count() == total
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_500_000
