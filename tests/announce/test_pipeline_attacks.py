"""Hostile sitemaps through the whole pipeline: one clear line in the report, nothing of the file sent, nothing lost."""

import gzip
import resource
import zlib

import pytest

from tests.announce.stage import Stage, StageMaker, list_sent, write_index, write_urlset
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.site.site import SandboxSite

pytestmark = pytest.mark.one_database

CHILD = "/sitemaps/2.xml"
MIB = 1024 * 1024

LAUGHS = "<!DOCTYPE urlset [<!ENTITY a0 'ha'>{}]>".format(
    "".join(f"<!ENTITY a{level} '{f'&a{level - 1};' * 10}'>" for level in range(1, 10))
)
QUADRATIC = f"<!DOCTYPE urlset [<!ENTITY a '{'a' * 50_000}'>]>"
EXTERNAL = '<!DOCTYPE urlset SYSTEM "{origin}/evil.dtd">'
PARAMETER = '<!DOCTYPE urlset [<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;]>'


def write_bomb(page: str) -> bytes:
    """A gigabyte of white space after one good page, in a megabyte of gzip."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(write_urlset([page]).removesuffix("</urlset>\n").encode()) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush nothing refers back: the same bytes, repeated, stand for the same text again.
    block = packer.compress(b" " * 16 * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * 64 + packer.flush()


def write_attack(kind: str, *, origin: str) -> bytes:
    """One good page of the site's own, in a document that must not be read."""
    good = write_urlset([f"{origin}/planted"])
    doctypes = {"laughs": LAUGHS, "quadratic": QUADRATIC, "external": EXTERNAL, "parameter": PARAMETER}
    if kind in doctypes:
        return good.replace("<urlset", doctypes[kind].replace("{origin}", origin) + "<urlset").encode()
    attacks = {
        "utf-16": lambda: good.replace("UTF-8", "UTF-16").replace("<urlset", f"{LAUGHS}<urlset").encode("utf-16"),
        "bomb": lambda: write_bomb(f"{origin}/planted"),
        "gzip in gzip": lambda: gzip.compress(gzip.compress(good.encode())),
        "too large": lambda: good.encode() + b" " * 50 * MIB,
        "deep": lambda: good.replace("</urlset>", "<a>" * 100_000).encode(),
        "long tag": lambda: good.replace("</urlset>", "<a b='" + "x" * 10 * MIB).encode(),
    }
    return attacks[kind]()


REASONS = {
    "laughs": "DOCTYPE",
    "quadratic": "DOCTYPE",
    "external": "DOCTYPE",
    "parameter": "DOCTYPE",
    "utf-16": "DOCTYPE",
    "bomb": "larger than 52428800 bytes",
    "gzip in gzip": "gzip in gzip",
    "too large": "larger than 52428800 bytes",
    "deep": "nested deeper",
    "long tag": "a tag or comment of more than",
}


@pytest.fixture
async def stage(open_stage: StageMaker) -> Stage:
    """A site that has been announced once."""
    opened = await open_stage(SandboxSite(pages=30, per_sitemap=10), announce_removed=True)
    await opened.announce()
    return opened


@pytest.mark.thorough
@pytest.mark.parametrize("kind", REASONS)
async def test_an_attack_is_one_line_in_the_report_and_sends_and_loses_nothing(stage: Stage, kind: str) -> None:
    """A7: the file is refused as a whole, its known pages are neither sent again nor taken for removed."""
    web, engine = stage.web, stage.engines[0]
    asked, visited = len(engine.requests), len(web.requests)
    web.serve(CHILD, write_attack(kind, origin=web.origin))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = await stage.announce()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    assert report.status is ExecutionStatus.PARTIAL
    [error] = report.errors
    assert error.startswith(f"{web.origin}{CHILD}: ")
    assert REASONS[kind] in error
    assert error.isprintable()
    assert len(error) < 300
    assert list_sent(engine, since=asked) == []
    listed = {url.removeprefix(web.origin) for url in web.document_urls()}
    assert {request.path for request in web.requests[visited:]} <= listed
    web.restore(CHILD)
    again = await stage.announce()
    assert (again.status, again.total, again.submitted) == (ExecutionStatus.SUCCEEDED, 30, 0)
    assert dict(engine.accepted) == dict.fromkeys(web.urls(), 1)


async def test_a_url_of_ten_megabytes_is_dropped_and_counted_and_the_others_are_sent(stage: Stage) -> None:
    """A7: it is an invalid URL, not a file to be refused; it is never held, sent or logged."""
    web, engine = stage.web, stage.engines[0]
    asked = len(engine.requests)
    web.serve(CHILD, write_urlset([f"{web.origin}/{'x' * 10 * MIB}", f"{web.origin}/short"]))
    report = await stage.announce()
    assert f"{web.origin}/short" in list_sent(engine, since=asked)
    assert max(map(len, list_sent(engine))) < 2_048
    assert (report.dropped.invalid, report.errors) == (1, [])


async def test_children_on_private_addresses_are_not_asked(stage: Stage) -> None:
    """A6, A7: an index cannot make the announcer knock on doors inside; the errors name the children."""
    web = stage.web
    inside = ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/sitemap.xml", "file:///etc/passwd"]
    web.serve("/sitemap.xml", write_index([*inside, f"{web.origin}{CHILD}"]))
    report = await stage.announce()
    assert (report.status, len(report.errors), report.total) == (ExecutionStatus.PARTIAL, 3, 10)
    assert all("refused" in error for error in report.errors)
