"""Google: sitemaps in Search Console, signing in, and the Indexing API as a channel with a quota."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.announce.channel_stage import ChannelStage
from tests.announce.stage import Events, pick_events, read_json
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.enabled_channels import ChannelDisabledError, choose_channels
from tidings.announce.channels.google.indexing import GOOGLE_KIND
from tidings.announce.channels.google.submissions import SitemapSubmission, SitemapSubmissions
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.channels.quota.ranked import open_quota
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.google_settings import GoogleSettings, IndexedContent
from tidings.announce.site.site import Site, make_site
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.engines import google as faults
from tidings.sandbox.engines.google import SandboxGoogle
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind

MORNING = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
FAILED, PARTIAL, SUCCEEDED = ExecutionStatus.FAILED, ExecutionStatus.PARTIAL, ExecutionStatus.SUCCEEDED
JOBS = IndexedContent.JOB_POSTING
TOKEN_URI = "https://oauth2.googleapis.com/token"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleStage(ChannelStage):
    """A stored site with credentials of Google, and everything it is announced to."""

    channel = Channel.GOOGLE

    google: SandboxGoogle

    async def list_sitemaps(self) -> list[SitemapSubmission]:
        return await SitemapSubmissions(self.bench.database, site=self.site.number).list()

    async def change(self, **settings: Any) -> "GoogleStage":
        changed = replace(self.site, google=replace(self.site.google, **settings))
        return replace(self, site=await self.bench.store(changed))

    def count(self, method: str) -> int:
        """Requests about sitemaps."""
        return sum(request.method == method and "/sitemaps/" in request.path for request in self.google.requests)

    def list_published(self) -> list[str]:
        return [request.urls[0] for request in self.google.requests if request.path == faults.PUBLISH_PATH]


@asynccontextmanager
async def open_google_stage(
    make_bench: BenchMaker,
    *,
    pages: int = 5,
    quota: int = 200,
    now: datetime = MORNING,
    content: IndexedContent | None = None,
) -> AsyncIterator[GoogleStage]:
    clock, web = StageClock(now), SandboxSite(pages=pages)
    google = SandboxGoogle(now=clock.now)
    async with web, SandboxEngine("alpha") as engine, google:
        google.add_property(f"{web.origin}/")
        bench = make_bench(clock=clock, retry_scale=1, bases=ApiBases(google=google.address), resubmit_gap=timedelta(0))
        settings = GoogleSettings.make(
            enabled=content is not None, key=google.credentials, daily_quota=quota, content=content
        )
        site = make_site(sitemap_urls=[web.sitemap_url], key=web.key, engines=[engine.endpoint], google=settings)
        stored = await bench.store(site)
        yield GoogleStage(bench=bench, clock=clock, web=web, engine=engine, google=google, site=stored)


async def test_a_sitemap_is_submitted_when_it_changed_and_only_then(make_bench: BenchMaker) -> None:
    """A43: also after an execution in which Google failed; Google's word is on record each time. The Indexing API is
    off by default."""
    async with open_google_stage(make_bench) as stage:
        first = await stage.announce()
        assert (first.status, stage.count("PUT"), stage.count("GET")) == (SUCCEEDED, 1, 1)
        stage.google.findings[stage.web.sitemap_url] = {"warnings": "2", "errors": "1", "isPending": True}
        again = await stage.announce()
        assert (again.status, stage.count("PUT"), stage.count("GET")) == (SUCCEEDED, 1, 2)
        assert read_json(again)["googleSitemaps"][0]["errors"] == 1
        assert any("Google found 1 errors" in warning for warning in again.warnings)
        [stored] = await stage.list_sitemaps()
        assert (stored.google.warnings, stored.google.errors, stored.google.pending) == (2, 1, True)
        stage.web.add(1)
        stage.google.misbehave(faults.BACKEND_ERROR)
        assert (await stage.announce()).status is PARTIAL
        assert (await stage.list_sitemaps())[0].submitted_at == stored.submitted_at
        stage.google.recover()
        submissions = stage.count("PUT")
        for _ in range(2):
            assert (await stage.announce()).status is SUCCEEDED
        assert stage.count("PUT") == submissions + 1
        assert list(stage.google.sitemaps) == [(f"{stage.web.origin}/", stage.web.sitemap_url)]
        assert stage.list_published() == []


async def test_another_property_or_account_is_reported_again_and_robots_names_its_sitemaps(
    make_bench: BenchMaker,
) -> None:
    """A43: `googleProperty` goes out as it is set; a robots.txt is never submitted itself."""
    async with open_google_stage(make_bench) as stage:
        await stage.announce()
        stage.google.add_property("sc-domain:example.com")
        other = await stage.change(console_property="sc-domain:example.com")
        await other.announce(channel=ChannelChoice.GOOGLE)
        robots = replace(other.site, sitemap_urls=(stage.web.robots_url,))
        await replace(other, site=await stage.bench.store(robots)).announce(channel=ChannelChoice.GOOGLE)
        assert list(stage.google.sitemaps) == [
            (f"{stage.web.origin}/", stage.web.sitemap_url),
            ("sc-domain:example.com", stage.web.sitemap_url),
        ]
        assert stage.count("PUT") == 2


def _of_sitemaps(fault: Fault) -> Fault:
    """The fault for requests about sitemaps alone: signing in works."""
    return replace(fault, matching="/sitemap.xml")


SITEMAP_ROWS = {
    "not an owner": (_of_sitemaps(faults.NOT_AN_OWNER), "sufficient permission", True),
    "API disabled": (_of_sitemaps(faults.API_DISABLED), "has not been used", True),
    "unknown property": (_of_sitemaps(faults.UNKNOWN_SITEMAP), "not found", True),
    "per minute": (_of_sitemaps(faults.QUOTA_PER_MINUTE), "per minute", False),
    "down": (_of_sitemaps(faults.BACKEND_ERROR), "unavailable", False),
    "breaks off": (Fault(FaultKind.RESET), "no answer", False),
    "bad signature": (faults.BAD_SIGNATURE, "Invalid JWT Signature", True),
    "unknown account": (faults.UNKNOWN_ACCOUNT, "account not found", True),
    "bad times": (faults.BAD_TIMES, "iat and exp", True),
    "a page of a proxy": (Fault(status=403, body="<html>no</html>"), "no", True),
    "no token": (Fault(status=200, body="{}", path=faults.TOKEN_PATH), "no access token", True),
}


@pytest.mark.parametrize("row", SITEMAP_ROWS.values(), ids=SITEMAP_ROWS)
async def test_each_answer_about_a_sitemap(
    make_bench: BenchMaker, events: Events, row: tuple[Fault, str, bool]
) -> None:
    """A27, A43: IndexNow is complete, the reason is shown, and a person is notified where one is needed; once Google is
    well again, the sitemap is submitted and the alert ends."""
    fault, says, lasting = row
    async with open_google_stage(make_bench) as stage:
        stage.google.misbehave(fault)
        report = await stage.announce()
        assert report.status is PARTIAL
        assert dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)
        [reported] = read_json(report)["googleSitemaps"]
        assert says in reported["failure"]
        assert reported["advice"]
        alerts = pick_events(events, "alert", kind="sitemap_refused", subject=f"{stage.site.id} at google")
        assert len(alerts) == lasting
        assert (await stage.announce(channel=ChannelChoice.GOOGLE)).status is FAILED
        stage.google.recover()
        again = await stage.announce(channel=ChannelChoice.GOOGLE)
        assert (again.status, [each.submitted for each in again.sitemaps]) == (SUCCEEDED, [True])
        kinds = {each.kind for each in await stage.bench.announcer.alerts.list_open()}
        assert "sitemap_refused" not in kinds
        private = json.loads(stage.google.credentials)["private_key"]
        assert private[30:60] not in json.dumps([read_json(report), read_json(again), [str(event) for event in events]])


async def test_one_claim_signs_in_for_less_than_an_hour_and_a_stale_token_is_replaced(
    make_bench: BenchMaker, events: Events
) -> None:
    """A43: a token is kept in memory, renewed before it ends, and never logged."""
    async with open_google_stage(make_bench) as stage:
        for _ in range(2):
            await stage.announce(channel=ChannelChoice.GOOGLE)
        assert stage.google.claims == 1
        stage.clock.advance(timedelta(minutes=56))
        await stage.announce(channel=ChannelChoice.GOOGLE)
        assert stage.google.claims == 2
        stage.google.expire_tokens()
        assert (await stage.announce(channel=ChannelChoice.GOOGLE)).status is SUCCEEDED
        assert stage.google.claims == 3
        assert "ya29." not in json.dumps([str(event) for event in events])


@pytest.mark.one_database
@pytest.mark.parametrize("uri", ["http://169.254.169.254/token", "https://oauth2.googleapis.com.evil.example/token"])
async def test_a_token_is_asked_for_at_googles_own_address_only(make_bench: BenchMaker, uri: str) -> None:
    """A43, A24: credentials that name another place are refused before anything is sent there."""
    async with open_google_stage(make_bench) as stage:
        account = json.loads(stage.google.credentials) | {"token_uri": uri}
        other = await stage.change(key=GoogleSettings.check_key(json.dumps(account)))
        report = await other.announce(channel=ChannelChoice.GOOGLE)
        assert (report.status, stage.google.requests) == (FAILED, [])
        assert "token_uri" in str(report.sitemaps[0].failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexingRow:
    """One answer to a page."""

    fault: Fault
    requests: int = 1
    # Quota that stays charged.
    used: int = 0
    full: bool = False
    off: bool = False
    says: str = ""
    status: ExecutionStatus = FAILED
    # Pages of the next execution, with Google well again.
    then: int = 5
    waits: list[float] = field(default_factory=list)


INDEXING_ROWS = {
    "URL not owned": IndexingRow(fault=faults.URL_NOT_OWNED, off=True, says="ownership", then=0),
    "API disabled": IndexingRow(fault=faults.API_DISABLED, off=True, says="disabled", then=0),
    "invalid URL": IndexingRow(fault=faults.INVALID_URL, requests=5, says="Invalid value"),
    "over quota": IndexingRow(fault=faults.QUOTA_PER_DAY, full=True, says="per day", status=SUCCEEDED, then=0),
    "too often": IndexingRow(fault=faults.QUOTA_PER_MINUTE, requests=4, says="per minute", waits=[60, 60, 60]),
    "down": IndexingRow(fault=faults.BACKEND_ERROR, requests=4, says="unavailable", waits=[1, 2, 4]),
    "no answer": IndexingRow(fault=Fault(FaultKind.RESET), requests=4, used=4, says="no answer", waits=[1, 2, 4]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("row", INDEXING_ROWS.values(), ids=INDEXING_ROWS)
async def test_each_answer_about_a_page(make_bench: BenchMaker, row: IndexingRow) -> None:
    """A27, A31, A43: requests, waits, quota and ledger; the sitemap is submitted all the same."""
    async with open_google_stage(make_bench, content=JOBS) as stage:
        stage.google.misbehave(replace(row.fault, path=faults.PUBLISH_PATH))
        report = await stage.announce(channel=ChannelChoice.GOOGLE)
        assert len(stage.list_published()) == row.requests
        assert [each.total_seconds() for each in stage.clock.slept if each >= timedelta(seconds=1)] == row.waits
        quota = await stage.read_quota()
        assert (quota.used, quota.full) == (row.used, row.full)
        assert await stage.find_entered() == set()
        assert row.says in read_json(report)["googleStats"]["errorMessage"]
        assert report.ranked[Channel.GOOGLE].engine.broken == row.off
        assert [each.submitted for each in report.sitemaps] == [True]
        stage.google.recover()
        before = len(stage.list_published())
        await stage.announce(channel=ChannelChoice.GOOGLE)
        assert len(stage.list_published()) - before == row.then
        assert len(await stage.find_entered()) == row.then


@pytest.mark.one_database
async def test_pages_go_one_by_one_within_the_quota_and_the_pace(make_bench: BenchMaker) -> None:
    """A26, A28, A43: 3 a day, the newest first, 380 a minute; the rest follows after midnight in California."""
    async with open_google_stage(make_bench, pages=8, quota=3, content=JOBS) as stage:
        report = await stage.announce()
        assert report.status is SUCCEEDED
        assert len(stage.list_published()) == 3
        gaps = [each.total_seconds() for each in stage.clock.slept if each < timedelta(seconds=1)]
        assert max(gaps) > 0.14
        stats = read_json(report)["googleStats"]
        assert (stats["urlCount"], stats["left"]) == (3, 5)
        assert stats["quota"]["resetsAt"] == "2025-01-16T08:00:00.000Z"
        stage.clock.advance(datetime(2025, 1, 16, 8, tzinfo=UTC) - stage.clock.now())
        await stage.announce()
        assert len(await stage.find_entered()) == 6


@pytest.mark.parametrize(
    ("at", "day"),
    [
        (datetime(2025, 1, 15, 7, 59, tzinfo=UTC), date(2025, 1, 14)),
        (datetime(2025, 1, 15, 8, 0, tzinfo=UTC), date(2025, 1, 15)),
        (datetime(2025, 7, 15, 6, 59, tzinfo=UTC), date(2025, 7, 14)),
        (datetime(2025, 7, 15, 7, 0, tzinfo=UTC), date(2025, 7, 15)),
        # The days on which the clocks change.
        (datetime(2025, 3, 9, 8, 0, tzinfo=UTC), date(2025, 3, 9)),
        (datetime(2025, 3, 10, 6, 59, tzinfo=UTC), date(2025, 3, 9)),
        (datetime(2025, 11, 2, 7, 0, tzinfo=UTC), date(2025, 11, 2)),
        (datetime(2025, 11, 3, 7, 59, tzinfo=UTC), date(2025, 11, 2)),
    ],
)
def test_the_quotas_day_is_that_of_california(at: datetime, day: date) -> None:
    """A28, A43: midnight Pacific time, in winter and in summer."""
    assert GOOGLE_KIND.find_day(at) == day


def test_pages_that_are_not_declared_are_never_sent_to_the_indexing_api() -> None:
    """A43: with credentials alone, sitemaps are submitted and no given page is taken."""
    account = {"client_email": "a@b", "private_key": "-----BEGIN", "token_uri": "https://oauth2.googleapis.com/token"}
    google = GoogleSettings.make(key=json.dumps(account))
    site = make_site(sitemap_urls=["https://example.com/sitemap.xml"], key="12345678", google=google)
    assert choose_channels(site, ChannelChoice.GOOGLE) == {Channel.GOOGLE}
    with pytest.raises(ChannelDisabledError):
        choose_channels(site, ChannelChoice.GOOGLE, given=True)


def _make_account(**others: str) -> str:
    account = {"client_email": "a@shop.iam.gserviceaccount.com", "private_key": "-----BEGIN", "token_uri": TOKEN_URI}
    return json.dumps(account | others)


@pytest.mark.parametrize(
    ("account", "project"),
    [
        (_make_account(project_id="shop-1"), "shop-1"),
        # An address names the project too, but for those that Google's own products make.
        (_make_account(), "shop"),
        (
            _make_account(client_email="12-compute@developer.gserviceaccount.com"),
            "12-compute@developer.gserviceaccount.com",
        ),
    ],
)
def test_the_project_of_an_account_is_known(account: str, project: str) -> None:
    """A43: also after the credentials were stored, which keeps no more of them than is needed."""
    settings = GoogleSettings.make(key=account)
    assert settings.quota_project == project
    assert GoogleSettings.make(key=settings.require_key().reveal()).quota_project == project


async def test_sites_of_one_project_share_the_quota_of_a_day(make_bench: BenchMaker) -> None:
    """A28, A43: Google counts by project. Another account of the project shares it too, another project does not."""
    async with open_google_stage(make_bench, pages=4, quota=6, content=JOBS) as stage:
        other = replace(stage, site=await stage.bench.store(replace(stage.site, id="other.example", number=0)))
        await stage.announce(channel=ChannelChoice.GOOGLE)
        await other.announce(channel=ChannelChoice.GOOGLE)
        assert (len(await stage.find_entered()), len(await other.find_entered())) == (4, 2)
        for each in (stage, other):
            quota = await each.read_quota()
            assert (quota.used, quota.remaining) == (6, 0)
        account = json.loads(stage.google.credentials) | {"project_id": "elsewhere"}
        apart = await other.change(key=GoogleSettings.check_key(json.dumps(account)))
        await apart.announce(channel=ChannelChoice.GOOGLE)
        assert len(await apart.find_entered()) == 4


async def test_what_google_says_to_one_site_counts_for_its_project(make_bench: BenchMaker) -> None:
    """A31, A43: where Google takes nothing more, no site of the project asks again on this day."""
    async with open_google_stage(make_bench, content=JOBS) as stage:
        other = replace(stage, site=await stage.bench.store(replace(stage.site, id="other.example", number=0)))
        stage.google.misbehave(replace(faults.QUOTA_PER_DAY, path=faults.PUBLISH_PATH))
        await stage.announce(channel=ChannelChoice.GOOGLE)
        stage.google.recover()
        asked = len(stage.list_published())
        report = await other.announce(channel=ChannelChoice.GOOGLE)
        assert (report.status, len(stage.list_published())) == (SUCCEEDED, asked)
        assert "used up" in str(report.ranked[Channel.GOOGLE].skipped)


async def test_reservations_of_one_project_never_exceed_its_quota(make_bench: BenchMaker) -> None:
    """A28, A43: eight sites reserve at once, five pages each, of a quota of twelve."""
    async with open_google_stage(make_bench, quota=12, content=JOBS) as stage:
        database = stage.bench.database
        sites = [await stage.bench.store(replace(stage.site, id=f"s{n}.example", number=0)) for n in range(8)]

        async def reserve(site: Site) -> int:
            quota = open_quota(site, GOOGLE_KIND, database=database, clock=stage.clock)
            async with database.write() as connection:
                return await quota.reserve(connection, 5)

        granted = await asyncio.gather(*(reserve(site) for site in sites))
        assert sorted(granted) == [0, 0, 0, 0, 0, 2, 5, 5]
