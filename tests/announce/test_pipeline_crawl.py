"""From every kind of sitemap, good and bad, to what the engines are sent."""

import gzip
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.announce.stage import Events, StageMaker, list_sent, pick_events, write_index, write_urlset
from tests.conftest import BenchMaker
from tidings.announce.site.site import SubmitMethod
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind

pytestmark = pytest.mark.one_database

CHILD = "/sitemaps/2.xml"
NOT_THERE = Fault(status=404, path=CHILD)
SERVER_ERROR = Fault(status=500, path=CHILD)
RESET = Fault(FaultKind.RESET, path=CHILD)
BROKEN_OFF = Fault(FaultKind.TRUNCATE, path=CHILD)
HTML = "<!DOCTYPE html><html><body>Not found</body></html>"
DOCTYPE = "<!DOCTYPE urlset [<!ENTITY a 'b'>]>"


EXTENSIONS = (
    '<image:image xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><image:loc>{url}.jpg</image:loc>'
    '</image:image><xhtml:link xmlns:xhtml="http://www.w3.org/1999/xhtml" rel="alternate" href="{url}zh"/>'
)
FORMS: dict[str, Callable[[list[str]], str | bytes]] = {
    "/packed.xml.gz": lambda urls: gzip.compress(write_urlset(urls).encode()),
    "/extended.xml": lambda urls: write_urlset(urls).replace("</url>", EXTENSIONS.format(url=urls[0]) + "</url>"),
    "/feed.xml": lambda urls: '<rss version="2.0"><channel>{}</channel></rss>'.format(
        "".join(f"<item><link>{url}</link></item>" for url in urls)
    ),
    "/sitemap.txt": "\n".join,
}


@pytest.mark.parametrize("path", ["/sitemap.xml", "/robots.txt", *FORMS])
async def test_every_form_of_sitemap_is_announced_page_by_page(open_stage: StageMaker, path: str) -> None:
    """A5, A8: each page once, and nothing that is not a page (images, alternates, the sitemaps themselves)."""
    stage = await open_stage(SandboxSite(pages=35, per_sitemap=10), sitemaps=[path])
    if path in FORMS:
        stage.web.serve(path, FORMS[path](list(stage.web.urls())))
    report = await stage.announce()
    assert (report.status, report.total, report.submitted, report.errors) == (ExecutionStatus.SUCCEEDED, 35, 35, [])
    assert sorted(list_sent(stage.engines[0])) == sorted(stage.web.urls())


async def test_an_index_of_indexes_is_read_three_levels_deep_and_no_deeper(open_stage: StageMaker) -> None:
    """A5, A6: what is too deep is named in the report, and the rest is sent."""
    stage = await open_stage(sitemaps=["/0.xml"])
    web = stage.web
    for depth in range(4):
        web.serve(f"/{depth}.xml", write_index([f"{web.origin}/{depth + 1}.xml", f"{web.origin}/pages{depth + 1}.xml"]))
        web.serve(f"/pages{depth + 1}.xml", write_urlset([f"{web.origin}/at/{depth + 1}"]))
    report = await stage.announce()
    assert sorted(list_sent(stage.engines[0])) == [f"{web.origin}/at/{depth}" for depth in (1, 2, 3)]
    assert (report.status, len(report.errors)) == (ExecutionStatus.PARTIAL, 1)
    assert report.errors[0].startswith(f"{web.origin}/3.xml ")
    assert "/4.xml" not in [request.path for request in web.requests]


async def test_an_index_that_names_itself_or_its_parent_is_read_once(open_stage: StageMaker) -> None:
    """A5: no cycles, and no fault either."""
    stage = await open_stage(sitemaps=["/a.xml"])
    web = stage.web
    names = [f"{web.origin}/{name}.xml" for name in ("a", "b", "pages")]
    web.serve("/a.xml", write_index(names))
    web.serve("/b.xml", write_index(names))
    web.serve("/pages.xml", write_urlset([f"{web.origin}/p"]))
    report = await stage.announce()
    assert (report.status, report.total, report.files) == (ExecutionStatus.SUCCEEDED, 1, 3)
    asked = [request.path for request in web.requests if request.path.endswith(".xml")]
    assert sorted(asked) == ["/a.xml", "/b.xml", "/pages.xml"]


@pytest.mark.parametrize("fault", [NOT_THERE, SERVER_ERROR, RESET, BROKEN_OFF], ids=["404", "500", "reset", "half"])
async def test_a_child_that_cannot_be_fetched_loses_only_its_own_pages(open_stage: StageMaker, fault: Fault) -> None:
    """A6: the others are sent, the execution is partial, and the error names the child; later it is caught up."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10))
    web, engine = stage.web, stage.engines[0]
    web.misbehave(fault)
    report = await stage.announce()
    others = [web.url(number) for number in (*range(1, 11), *range(21, 31))]
    assert sorted(list_sent(engine)) == others
    assert (report.status, report.total, len(report.errors)) == (ExecutionStatus.PARTIAL, 20, 1)
    assert f"{web.origin}{CHILD}" in report.errors[0]
    web.recover()
    second = await stage.announce()
    assert (second.status, second.submitted) == (ExecutionStatus.SUCCEEDED, 10)
    assert dict(engine.accepted) == dict.fromkeys(web.urls(), 1)


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (410, 1), (500, 4), (429, 4)])
async def test_only_what_may_get_better_is_fetched_again(open_stage: StageMaker, status: int, attempts: int) -> None:
    """A6: three retries for trouble that passes, none for an answer that stays as it is."""
    stage = await open_stage()
    stage.web.misbehave(Fault(status=status, path=CHILD))
    await stage.announce()
    assert len([request for request in stage.web.requests if request.path == CHILD]) == attempts


async def test_a_file_that_broke_off_once_is_begun_again_and_counted_once(open_stage: StageMaker) -> None:
    """A6: what came before the connection was lost does not count twice, nor is it sent twice."""
    stage = await open_stage(SandboxSite(pages=3000, per_sitemap=None))
    stage.web.misbehave(Fault(FaultKind.TRUNCATE, path="/sitemap.xml", times=1))
    report = await stage.announce()
    assert (report.status, report.total, report.new, report.submitted) == (ExecutionStatus.SUCCEEDED, 3000, 3000, 3000)
    assert dict(stage.engines[0].accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.parametrize("kind", ["doctype", "truncated gzip", "html", "not xml"])
async def test_a_refused_child_gives_none_of_its_pages_and_loses_none_that_are_known(
    open_stage: StageMaker, kind: str
) -> None:
    """A7: not even the pages that stand before the fault are used; those in the ledger stay there."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10), announce_removed=True)
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    fresh = write_urlset([f"{web.origin}/fresh/{number}" for number in range(1_000)])
    bodies: dict[str, str | bytes] = {
        "doctype": fresh.replace("<urlset", f"{DOCTYPE}<urlset"),
        "truncated gzip": gzip.compress(fresh.encode())[:-20],
        "html": HTML,
        "not xml": "Sorry, the database is down.",
    }
    web.serve(CHILD, bodies[kind])
    web.serve("/sitemap.xml", write_index([f"{web.origin}{CHILD}", f"{web.origin}/more.xml"]))
    web.serve("/more.xml", write_urlset([f"{web.origin}/more"]))
    before = len(engine.requests)
    report = await stage.announce()
    assert list_sent(engine, since=before) == [f"{web.origin}/more"]
    assert (report.status, report.total, len(report.errors)) == (ExecutionStatus.PARTIAL, 1, 1)
    assert f"{web.origin}{CHILD}" in report.errors[0]
    assert await stage.find_entered(list(web.urls())) == set(web.urls())
    web.restore(CHILD)
    web.restore("/sitemap.xml")
    await stage.announce()
    assert [engine.accepted[url] for url in web.urls()] == [1] * 30


async def test_pages_before_a_fault_in_the_xml_are_sent(open_stage: StageMaker) -> None:
    """A7: malformed XML is not retried; what could be read is used, and the execution is partial."""
    stage = await open_stage(sitemaps=["/sitemap.xml"])
    web, engine = stage.web, stage.engines[0]
    good = [f"{web.origin}/good/{number}" for number in range(5)]
    spoilt = write_urlset([*good, f"{web.origin}/bad"]).replace("/bad</loc>", "/bad</log>")
    web.serve("/sitemap.xml", spoilt, headers={"ETag": '"spoilt"'})
    report = await stage.announce()
    assert sorted(list_sent(engine)) == good
    assert (report.status, len(report.errors)) == (ExecutionStatus.PARTIAL, 1)
    assert f"{web.origin}/sitemap.xml" in report.errors[0]
    assert len([request for request in web.requests if request.path == "/sitemap.xml"]) == 1
    await stage.announce()
    assert "If-None-Match" not in web.requests[-1].headers


async def test_what_is_not_the_sites_own_is_dropped_and_counted_and_never_sent(open_stage: StageMaker) -> None:
    """A7: foreign hosts, what is no URL, and what lies outside the key file's folder."""
    stage = await open_stage(SandboxSite(per_sitemap=None), key_path="/blog/the-key.txt")
    web, engine = stage.web, stage.engines[0]
    web.serve("/blog/the-key.txt", web.key)
    kept = [f"{web.origin}/blog/{number}" for number in range(3)]
    foreign = ["https://example.com/blog/1", "http://127.0.0.1:1/blog/1", "http://www.example.com/"]
    invalid = ["ftp://example.com/x", "/blog/relative", "http://user:secret@example.com/", "javascript:alert(1)"]
    outside = [f"{web.origin}/shop/1", f"{web.origin}/blogs/1", f"{web.origin}/"]
    web.serve("/sitemap.xml", write_urlset([*foreign, *kept, *invalid, *outside]))
    report = await stage.announce()
    assert sorted(list_sent(engine)) == kept
    assert set(engine.accepted) == set(kept)
    dropped = report.dropped
    assert (dropped.foreign_host, dropped.invalid, dropped.outside_key_location) == (3, 4, 3)
    assert (report.status, report.total) == (ExecutionStatus.SUCCEEDED, 3)


async def test_a_page_in_several_files_and_several_sitemaps_counts_and_is_sent_once(open_stage: StageMaker) -> None:
    """A8: one crawl, one page, however often it is listed."""
    stage = await open_stage(sitemaps=["/one.xml", "/two.xml"], submit_method=SubmitMethod.GET)
    web, engine = stage.web, stage.engines[0]
    shared, only = f"{web.origin}/shared", f"{web.origin}/only"
    web.serve("/one.xml", write_index([f"{web.origin}/a.xml", f"{web.origin}/b.xml"]))
    web.serve("/a.xml", write_urlset([shared, shared, shared]))
    web.serve("/b.xml", write_urlset([shared, only]))
    web.serve("/two.xml", write_urlset([only, shared]))
    report = await stage.announce()
    assert sorted(list_sent(engine)) == [only, shared]
    assert (report.total, report.new, report.submitted) == (2, 2, 2)


@pytest.mark.thorough
async def test_more_urls_than_the_protocol_allows_are_sent_with_a_warning(open_stage: StageMaker) -> None:
    """A7, A16: 50,001 URLs in one file; they go in batches of at most 10,000."""
    stage = await open_stage(SandboxSite(pages=50_001, per_sitemap=None), submit_method=SubmitMethod.POST)
    report = await stage.announce()
    assert (report.status, report.total, report.submitted) == (ExecutionStatus.SUCCEEDED, 50_001, 50_001)
    assert len(report.warnings) == 1
    assert "50,001 URLs" in report.warnings[0]
    batches = sorted(len(request.urls) for request in stage.engines[0].requests)
    assert batches == [1, 10_000, 10_000, 10_000, 10_000, 10_000]


RESET_ALL = Fault(FaultKind.RESET, path="/sitemap.xml")
DOWN = Fault(status=503, path="/sitemap.xml")


@pytest.mark.parametrize("fault", [RESET_ALL, DOWN], ids=["reset", "503"])
async def test_an_unreachable_sitemap_is_tried_four_times_and_its_backup_is_read(
    make_bench: BenchMaker, open_stage: StageMaker, fault: Fault
) -> None:
    """A6: three retries, two seconds apart (here a fiftieth of that), then the backup."""
    stage = await open_stage(bench=make_bench(retry_scale=0.02), backups=["/backup.xml"])
    web = stage.web
    web.serve("/backup.xml", write_urlset([web.url(1), web.url(2)]))
    web.misbehave(fault)
    report = await stage.announce()
    tries = [request.at for request in web.requests if request.path == "/sitemap.xml"]
    assert len(tries) == 4
    assert all(later - earlier >= 0.04 for earlier, later in pairwise(tries))
    assert sorted(list_sent(stage.engines[0])) == [web.url(1), web.url(2)]
    assert f"{web.origin}/backup.xml" in report.warnings[0]


@pytest.mark.parametrize("fault", [RESET_ALL, DOWN], ids=["reset", "503"])
async def test_an_unreachable_sitemap_without_a_backup_fails_alerts_and_changes_nothing(
    open_stage: StageMaker, events: Events, fault: Fault
) -> None:
    """A6: the ledger stays as it was, nothing is taken for removed, and the next execution works."""
    stage = await open_stage(announce_removed=True)
    web, engine = stage.web, stage.engines[0]
    await stage.announce()
    asked = len(engine.requests)
    web.misbehave(fault)
    report = await stage.announce()
    assert report.status is ExecutionStatus.FAILED
    assert len(engine.requests) == asked
    [alert] = pick_events(events, "alert", kind="execution_failed")
    assert alert["log_level"] == "error"
    assert alert["subject"] == stage.site.id
    assert f"{web.origin}/sitemap.xml" in alert["reason"]
    assert alert["action"]
    assert await stage.find_entered(list(web.urls())) == set(web.urls())
    web.recover()
    [new] = web.add(1)
    after = await stage.announce()
    assert (after.status, list_sent(engine, since=asked)) == (ExecutionStatus.SUCCEEDED, [web.url(new)])


async def test_one_of_several_sitemaps_failing_harms_no_other(open_stage: StageMaker) -> None:
    """A2, A6: the backup stands in for the one that failed; the rest is read as ever."""
    stage = await open_stage(sitemaps=["/de.xml", "/fr.xml", "/en.xml"], backups=["/backup.xml"])
    web = stage.web
    for name in ("de", "en", "backup"):
        web.serve(f"/{name}.xml", write_urlset([f"{web.origin}/{name}/"]))
    report = await stage.announce()
    assert sorted(list_sent(stage.engines[0])) == [f"{web.origin}/{name}/" for name in ("backup", "de", "en")]
    assert report.status is ExecutionStatus.PARTIAL
    assert f"{web.origin}/fr.xml" in report.errors[0]


async def test_an_empty_sitemap_is_no_error_but_alerts(open_stage: StageMaker, events: Events) -> None:
    """A40: zero URLs are worth a person's look, and nothing is taken for removed because of them."""
    stage = await open_stage(announce_removed=True)
    await stage.announce()
    asked = len(stage.engines[0].requests)
    stage.web.serve("/sitemap.xml", write_urlset([]))
    report = await stage.announce()
    assert (report.total, len(stage.engines[0].requests)) == (0, asked)
    assert len(pick_events(events, "alert", kind="no_urls")) == 1
