"""A database that is busy or away: every route says so, and says that the same request can succeed later. Names of the
service's own workflows belong to the service."""

import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.stage import make_settings
from tests.waiting import wait_until
from tests.web.api_stage import ApiStage, open_api
from tests.web.pages.browser import Browser
from tests.web.workflow_stage import NOTE
from tidings.collect.tables import collect_tries
from tidings.core.db.database import open_database
from tidings.settings.collect import CollectSettings
from tidings.web.errors import DATABASE_ERRORS

pytestmark = pytest.mark.one_database

EXECUTION = "exec-1794873600000-0a1b2c3d"
ITEM = {
    "id": "n1",
    "success": False,
    "data": None,
    "error": {"code": "TIMEOUT_ERROR", "message": "", "retryable": True, "captcha": False},
    "cookie_used": None,
}
STAGE_ITEM = {"idempotency_key": "n1_v1", "success": True}
# A request to each kind of route that needs the database.
REQUESTS = [
    ("GET", "/status", None),
    ("GET", "/api/sites", None),
    ("GET", "/api/alerts", None),
    ("GET", "/api/stats/daily", None),
    ("GET", "/api/notes", None),
    ("GET", "/api/notes/weibo/n1/comments", None),
    ("GET", "/api/collect/status", None),
    ("GET", "/api/keywords", None),
    ("GET", "/api/candidates", None),
    ("GET", "/api/cookies", None),
    ("GET", "/workflow/keywords", None),
    ("POST", "/workflow/executions", {"workflow_name": "collect"}),
    ("POST", "/workflow/executions/heartbeat", {"execution_id": EXECUTION}),
    ("POST", "/workflow/executions/finish", {"execution_id": EXECUTION}),
    ("POST", "/workflow/candidates", {"execution_id": EXECUTION, "platform": "weibo", "source_keyword": "tea"}),
    ("POST", "/workflow/candidates/lease", {"execution_id": EXECUTION}),
    ("POST", "/workflow/candidates/settle", {"execution_id": EXECUTION, "platform": "weibo", "items": [ITEM]}),
    (
        "POST",
        "/workflow/candidates/fail",
        {"execution_id": EXECUTION, "platform": "weibo", "note_id": "n1", "code": "TIMEOUT_ERROR"},
    ),
    ("POST", "/workflow/sources", {"execution_id": EXECUTION, "platform": "weibo", "note_id": "n1", "note": NOTE}),
    ("POST", "/workflow/sources/lease", {"execution_id": EXECUTION}),
    ("POST", "/workflow/sources/settle", {"execution_id": EXECUTION, "platform": "weibo", "items": [STAGE_ITEM]}),
    ("POST", "/workflow/comments/lease", {"execution_id": EXECUTION}),
    ("POST", "/workflow/cookies/outcomes", {"execution_id": EXECUTION, "uses": []}),
    ("POST", "/workflow/recover", None),
    ("POST", "/workflow/errors", {"workflow_name": "collect", "message": "broken"}),
]


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(open_api(database_url, tmp_path))
    # A connection that could not be opened ends in a thread, which tells this event loop.
    await wait_until(_has_no_connections)


async def _has_no_connections() -> bool:
    return not any("_connection_worker_thread" in thread.name for thread in threading.enumerate())


async def _has_workers(api: ApiStage) -> bool:
    return bool(await api.installation.dispatcher.list_workers())


@pytest.mark.thorough
async def test_a_database_that_is_away_is_a_503_that_may_be_repeated(api: ApiStage, tmp_path: Path) -> None:
    """C35: at every route, with every token, and in the envelope as retryable; nothing says why in detail. A person
    gets a page that can be loaded again."""
    await wait_until(lambda: _has_workers(api))
    browser = Browser(api)
    await browser.sign_in()
    await api.installation.database.close()
    _take_away(tmp_path)
    page = await browser.get("/sites")
    assert (page.status, page.headers["retry-after"].isdigit()) == (503, True)
    assert "The database does not answer" in page.text
    assert 'href="/sites"' in page.text.partition("<main")[2]
    for method, path, document in REQUESTS:
        answer = await (api.ask(method, path, document) if document is not None else api.ask(method, path))
        assert answer.status == 503, (path, answer.text)
        assert answer.headers["retry-after"].isdigit(), path
        if path.startswith("/workflow"):
            error = answer.json["error"]
            assert (error["retryable"], error["asked"]) == (True, False), path
        else:
            assert answer.json["code"] == "database_unavailable", path


@pytest.mark.thorough
async def test_a_damaged_file_is_a_503_that_names_the_backup(api: ApiStage, tmp_path: Path) -> None:
    """C35: no fault of the service: at every route, and as a page that says what to do."""
    await wait_until(lambda: _has_workers(api))
    browser = Browser(api)
    await browser.sign_in()
    await api.installation.database.close()
    _damage(tmp_path)
    page = await browser.get("/sites")
    assert page.status == 503
    assert "The database file is damaged" in page.text
    assert "tidings restore" in page.text
    for method, target, document in REQUESTS:
        answer = await (api.ask(method, target, document) if document is not None else api.ask(method, target))
        assert answer.status == 503, (target, answer.text)
        assert "damaged" in answer.text, target


async def test_a_server_that_only_reads_after_a_failover_counts_as_away(postgres_url: str) -> None:
    """C35: PostgreSQL calls it an internal error, of a statement of SQLAlchemy and of one of the driver alike."""
    database = open_database(postgres_url)
    new = {"platform": "weibo", "code": "OK", "tries": 1}

    async def write(*, directly: bool) -> None:
        async with database.write() as connection:
            await connection.execute(text("SET TRANSACTION READ ONLY"))
            if directly:
                await database.insert_new(collect_tries).run(connection, new)
            await connection.execute(database.insert(collect_tries).values(new))

    for directly in (True, False):
        with pytest.raises(DATABASE_ERRORS):
            await write(directly=directly)
    await database.close()


def _damage(folder: Path) -> None:
    (database,) = folder.rglob("*.db")
    database.write_bytes(b"garbage\n" * 1_000)


def _take_away(folder: Path) -> None:
    (database,) = folder.rglob("*.db")
    database.rename(database.with_suffix(".away"))
    database.mkdir()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["discover", "collect:weibo", "mirror"])
async def test_names_of_the_services_own_workflows_cannot_be_taken(api: ApiStage, name: str) -> None:
    """C35: while the built-in runner uses them; a driver's own names are free."""
    refused = await api.ask("POST", "/workflow/executions", {"workflow_name": name})
    assert (refused.status, refused.json["error"]["code"]) == (422, "INVALID_INPUT")
    assert ("TIDINGS_COLLECT_RUNNER" in refused.json["error"]["message"]) == (name != "mirror")
    taken = await api.ask("POST", "/workflow/executions", {"workflow_name": "collect"})
    assert taken.json["data"]["locked"]


async def test_a_driver_may_use_these_names_if_the_runner_is_off(database_url: str, tmp_path: Path) -> None:
    """C35: n8n's workflow is called discover too."""
    assert make_settings().collect.runs
    async with open_api(database_url, tmp_path, collect=CollectSettings(runs=False)) as api:
        answer = await api.ask("POST", "/workflow/executions", {"workflow_name": "discover"})
        assert answer.json["data"]["locked"]
