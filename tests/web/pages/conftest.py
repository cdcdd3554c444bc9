"""What tests of the dashboard stand on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.web.api_stage import ApiStage, open_api
from tests.web.pages.browser import Browser


@pytest.fixture
async def api(sqlite_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    """One database is enough: what the pages read, the tests of the API read from both."""
    async with open_api(sqlite_url, tmp_path) as opened:
        yield opened


@pytest.fixture
async def browser(api: ApiStage) -> Browser:
    opened = Browser(api)
    await opened.sign_in()
    return opened
