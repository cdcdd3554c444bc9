"""All sites at a glance: conditions, order, search, filter and pages, on both databases."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.stage import open_stage
from tidings.announce.ledger.ledger import Channel
from tidings.announce.overview import SiteCondition, SiteOrder, find_summary, list_sites
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import ANNOUNCE, CORRECTION, Site, make_site
from tidings.core.executions import ExecutionStatus
from tidings.wiring.installation import Installation

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
# The host is its condition; the number keeps the order by name apart from the order by urgency.
SITES = {
    "a-paused.example": None,
    "b-ok.example": ExecutionStatus.SUCCEEDED,
    "c-new.example": None,
    "d-running.example": ExecutionStatus.SUCCEEDED,
    "e-partial.example": ExecutionStatus.PARTIAL,
    "f-overdue.example": ExecutionStatus.SUCCEEDED,
    "g-broken.example": ExecutionStatus.TIMEOUT,
    "h-cut-off.example": ExecutionStatus.INTERRUPTED,
}


async def add_site(installation: Installation, host: str, *, status: ExecutionStatus | None) -> Site:
    site = make_site(
        sitemap_urls=[f"https://{host}/sitemap.xml"],
        key="0123456789abcdef",
        schedule="30 12 * * *" if "overdue" in host else "0 0 * * *",
        bing=BingSettings.make(enabled=True, key="bing-key-0123", daily_quota=40),
    )
    stored = await installation.sites.add(site)
    assert stored is not None
    if status is not None:
        await run(installation, stored, status=status)
    return stored


async def run(installation: Installation, site: Site, *, status: ExecutionStatus) -> None:
    """An execution that ended: by its holder, or by a person while it waited for a worker."""
    if status is ExecutionStatus.INTERRUPTED:
        requests = installation.requests
        async with installation.database.write() as connection:
            execution = await requests.reserve(connection, site.workflow_name, kind=ANNOUNCE, request={})
        await requests.request_stop(execution.public_id)
    else:
        execution = await installation.executions.acquire(site.workflow_name, kind=ANNOUNCE)
        await installation.executions.finish(execution, status, result={"errors": [f"because of {site.id}"]})


@pytest.fixture
async def installation(database_url: str, tmp_path: Path) -> AsyncIterator[Installation]:
    clock = FakeClock(NOON)
    async with open_stage(database_url, tmp_path, clock=clock) as opened:
        sites = {host: await add_site(opened, host, status=status) for host, status in SITES.items()}
        await opened.schedules.pause(sites["a-paused.example"].number)
        running = sites["d-running.example"]
        await opened.executions.acquire(running.workflow_name, kind=ANNOUNCE)
        # A correction says nothing of how the site is announced.
        broken = await opened.executions.acquire(sites["g-broken.example"].workflow_name, kind=CORRECTION)
        await opened.executions.finish(broken, ExecutionStatus.SUCCEEDED)
        clock.advance(timedelta(hours=1))
        yield opened


async def test_every_condition_is_shown_and_the_urgent_ones_come_first(installation: Installation) -> None:
    page = await list_sites(installation.database, clock=installation.clock)
    assert [(site.id.partition(".")[0], site.condition.value) for site in page.sites] == [
        ("g-broken", "broken"),
        ("f-overdue", "overdue"),
        ("e-partial", "partial"),
        ("h-cut-off", "partial"),
        ("d-running", "running"),
        ("c-new", "new"),
        ("b-ok", "ok"),
        ("a-paused", "paused"),
    ]
    assert (page.total, page.found, page.attention) == (8, 8, 4)
    assert [site.reason for site in page.sites[:4]] == [
        "because of g-broken.example",
        "because of f-overdue.example",
        "because of e-partial.example",
        "somebody stopped it",
    ]
    assert page.sites[0].quotas[Channel.BING].limit == 40
    assert page.sites[-1].paused
    assert page.sites[-1].next_at is None
    assert page.sites[4].running_id is not None


@pytest.mark.parametrize(
    ("search", "conditions", "order", "shown"),
    [
        ("", (), SiteOrder.NAME, "abcdefgh"),
        ("", (), SiteOrder.LAST_RUN, "hgfedbac"),
        ("N.EXAMPLE", (), SiteOrder.NAME, "g"),
        ("-O", (), SiteOrder.NAME, "bfh"),
        ("%", (), SiteOrder.NAME, ""),
        ("", (SiteCondition.PARTIAL, SiteCondition.BROKEN), SiteOrder.URGENT, "geh"),
        ("cut", (SiteCondition.PARTIAL,), SiteOrder.URGENT, "h"),
        ("cut", (SiteCondition.OK,), SiteOrder.URGENT, ""),
    ],
)
async def test_sites_are_searched_filtered_and_sorted(
    installation: Installation, search: str, conditions: tuple[SiteCondition, ...], order: SiteOrder, shown: str
) -> None:
    """The counts of conditions are those of all sites, no matter what is searched for."""
    page = await list_sites(
        installation.database, clock=installation.clock, search=search, conditions=conditions, order=order
    )
    assert "".join(site.id[0] for site in page.sites) == shown
    assert (page.found, page.total) == (len(shown), 8)


async def test_pages_hold_every_site_once(installation: Installation) -> None:
    seen = []
    for offset in range(0, 9, 3):
        page = await list_sites(installation.database, clock=installation.clock, offset=offset, limit=3)
        seen += [site.id for site in page.sites]
        assert page.found == 8
    assert sorted(seen) == sorted(SITES)


async def test_one_site_is_reported_as_in_the_list(installation: Installation) -> None:
    page = await list_sites(installation.database, clock=installation.clock)
    for site in page.sites:
        assert await find_summary(installation.database, site.number, clock=installation.clock) == site
    await installation.sites.remove("b-ok.example")
    removed = next(site for site in page.sites if site.id == "b-ok.example")
    assert await find_summary(installation.database, removed.number, clock=installation.clock) is None
