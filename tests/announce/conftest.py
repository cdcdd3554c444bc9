"""The stages of the end-to-end tests, and what they log."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.announce.stage import Events, Stage, StageMaker
from tests.conftest import Bench, BenchMaker
from tidings.announce.site.site import make_site
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite


@pytest.fixture
def events() -> Iterator[Events]:
    """Every event that is logged during the test, with its level as `log_level`."""
    with capture_logs() as captured:
        yield captured


@pytest.fixture
async def open_stage(make_bench: BenchMaker) -> AsyncIterator[StageMaker]:
    async with AsyncExitStack() as stack:

        async def start_engines(count: int) -> list[SandboxEngine]:
            names = ("alpha", "beta", "gamma")[:count]
            return [await stack.enter_async_context(SandboxEngine(name)) for name in names]

        async def open_one(
            web: SandboxSite | None = None,
            *,
            engines: int | Sequence[SandboxEngine] = 1,
            bench: Bench | None = None,
            sitemaps: Sequence[str] | None = None,
            backups: Sequence[str] = (),
            key_path: str | None = None,
            **settings: Any,
        ) -> Stage:
            served = await stack.enter_async_context(web or SandboxSite(pages=20, per_sitemap=10))
            asked = await start_engines(engines) if isinstance(engines, int) else engines
            used = bench or make_bench()
            site = make_site(
                sitemap_urls=[served.origin + path for path in sitemaps or ()] or [served.sitemap_url],
                backup_sitemap_urls=[served.origin + path for path in backups],
                key=served.key,
                key_location=key_path and served.origin + key_path,
                engines=[engine.endpoint for engine in asked],
                **settings,
            )
            return Stage(used, served, asked, await used.store(site))

        yield open_one
