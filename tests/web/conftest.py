"""The stage that the tests of the web foundation stand on."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.fakes import FakeClock
from tests.web.api_stage import ApiStage, open_api
from tests.web.stage import BUSY_ROW, FIXED, Stage, make_odd_router, make_router
from tidings.core.clock import Clock
from tidings.core.db.database import Database, open_database
from tidings.core.secrets.tokens import Tokens
from tidings.core.stop import Stop
from tidings.web.app import WebServices, create_app

StageMaker = Callable[..., Stage]


@pytest.fixture
async def small_database(sqlite_url: str) -> AsyncIterator[Database]:
    """One database is enough where the tokens are not the point."""
    opened = open_database(sqlite_url)
    yield opened
    await opened.close()


@pytest.fixture
def make_stage(small_database: Database, clock: FakeClock) -> StageMaker:
    """Builds an application with the test routes; keyword arguments change its services."""

    def make(*, clock: Clock = clock, **services: Any) -> Stage:
        stop = Stop(clock=clock)
        tokens = Tokens(small_database, clock=clock)
        given = {
            "version": "1.2.3",
            "checks": {},
            "routers": [make_router(), make_odd_router()],
            "fixed_tokens": FIXED,
            "problems": [BUSY_ROW],
        }
        app = create_app(WebServices(tokens=tokens, clock=clock, stop=stop, **{**given, **services}))
        return Stage(app=app, stop=stop, tokens=tokens)

    return make


@pytest.fixture
def stage(make_stage: StageMaker) -> Stage:
    return make_stage()


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with open_api(database_url, tmp_path) as opened:
        yield opened


@pytest.fixture
def events() -> Iterator[list[EventDict]]:
    """Every event that is logged during the test, with its level as `log_level`."""
    with capture_logs() as captured:
        yield captured
