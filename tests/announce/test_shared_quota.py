"""A quota that the sites of one Google Cloud project share: what each of them, and the list of all, sees of others."""

import json
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import FromClause, select

from tests.conftest import Bench, BenchMaker
from tests.fakes import FakeClock
from tidings.announce.channels.google.indexing import GOOGLE_KIND
from tidings.announce.channels.protocols.bing import BING_KIND
from tidings.announce.channels.quota.quota import Quota, QuotaState, QuotaTerms
from tidings.announce.channels.quota.site_columns import join_quota, read_quota
from tidings.announce.site.google_settings import GoogleSettings
from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import sites

KINDS = (GOOGLE_KIND, BING_KIND)
LIMIT = 10
DAY = date(2026, 11, 15)


class Fleet:
    """Sites of the project `shop`, and one of another project."""

    def __init__(self, bench: Bench, clock: FakeClock) -> None:
        self.stored: dict[str, Site] = {}
        self._bench = bench
        self._clock = clock

    async def add(self, name: str, *, project: str) -> None:
        account = {"client_email": f"a@{project}.iam.gserviceaccount.com", "private_key": "-----BEGIN"}
        key = json.dumps(account | {"project_id": project, "token_uri": "https://oauth2.googleapis.com/token"})
        settings = GoogleSettings.make(key=key, daily_quota=LIMIT)
        url = f"https://{name}.example/sitemap.xml"
        self.stored[name] = await self._bench.store(make_site(sitemap_urls=[url], key="0" * 32, google=settings))

    def open(self, name: str, *, terms: QuotaTerms = GOOGLE_KIND, day: date = DAY) -> Quota:
        site = self.stored[name]
        project = site.google.quota_project if terms.shared else None
        return Quota(
            self._bench.database,
            terms=terms,
            site=site.number,
            day=day,
            limit=LIMIT,
            clock=self._clock,
            project=project,
        )

    async def reserve(self, name: str, count: int, *, terms: QuotaTerms = GOOGLE_KIND, day: date = DAY) -> int:
        async with self._bench.database.write() as connection:
            return await self.open(name, terms=terms, day=day).reserve(connection, count)

    async def close(self, name: str) -> None:
        async with self._bench.database.write() as connection:
            await self.open(name).close(connection, reserved=0)

    async def read(self) -> dict[str, tuple[int, bool]]:
        """What each site sees by itself: used URLs, and whether the channel takes nothing more."""
        states = {name: await self.open(name).read() for name in self.stored}
        return {name: (state.used, state.full) for name, state in states.items()}

    async def list(self) -> dict[str, list[tuple[int, bool]]]:
        """The same in one statement over all sites: of Google, and of Bing."""
        tables: FromClause = sites
        columns: list[Any] = [sites.c.number]
        for kind in KINDS:
            tables, found = join_quota(tables, kind, day=DAY.isoformat())
            columns += found
        async with self._bench.database.read() as connection:
            rows = (await connection.execute(select(*columns).select_from(tables))).all()
        names = {site.number: name for name, site in self.stored.items()}
        return {names[row.number]: [_describe(read_quota(row, kind, {}, day=DAY)) for kind in KINDS] for row in rows}


def _describe(state: QuotaState) -> tuple[int, bool]:
    return state.used, state.full


@pytest.fixture
async def fleet(make_bench: BenchMaker, clock: FakeClock) -> Fleet:
    made = Fleet(make_bench(clock=clock), clock)
    for name, project in (("first", "shop"), ("second", "shop"), ("idle", "shop"), ("apart", "elsewhere")):
        await made.add(name, project=project)
    return made


async def test_each_site_of_a_project_counts_what_the_others_used_today(fleet: Fleet) -> None:
    """A28, A43: of this channel and day, whether the site has used anything itself or not."""
    assert [await fleet.reserve(name, count) for name, count in (("first", 3), ("second", 2), ("apart", 1))] == [
        3,
        2,
        1,
    ]
    await fleet.reserve("first", 7, terms=BING_KIND)
    await fleet.reserve("second", 4, day=DAY - timedelta(days=1))
    seen = {"first": (5, False), "second": (5, False), "idle": (5, False), "apart": (1, False)}
    assert await fleet.read() == seen
    nothing, sent = (0, False), (7, False)
    assert await fleet.list() == {name: [seen[name], sent if name == "first" else nothing] for name in seen}
    assert [await fleet.reserve(name, 9) for name in ("idle", "second", "apart")] == [5, 0, 9]


async def test_a_project_that_is_full_is_full_for_all_its_sites(fleet: Fleet) -> None:
    """A31, A43: Google said so to one of them; another project goes on."""
    await fleet.reserve("second", 2)
    await fleet.close("first")
    seen = {"first": (2, True), "second": (2, True), "idle": (2, True), "apart": (0, False)}
    assert await fleet.read() == seen
    assert await fleet.list() == {name: [state, (0, False)] for name, state in seen.items()}
    assert [await fleet.reserve(name, 1) for name in ("second", "idle", "apart")] == [0, 0, 1]
