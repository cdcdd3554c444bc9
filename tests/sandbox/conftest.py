"""What the sandbox's tests share: a plain aiohttp client, a site and an engine."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield session


@pytest.fixture
async def site() -> AsyncIterator[SandboxSite]:
    async with SandboxSite(pages=25, per_sitemap=10) as running:
        yield running


@pytest.fixture
async def engine() -> AsyncIterator[SandboxEngine]:
    async with SandboxEngine("alpha") as running:
        yield running
