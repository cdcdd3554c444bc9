"""What a page costs: at most ten queries and 100 kB, however many sites there are. Time is in `benchmarks.dashboard`.

The lists are longer than a page here, every chart has 30 days, and names are as long as a host may be.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert

from tests.announce.test_site_documents import ACCOUNT
from tests.web.api_stage import BING_KEY, ApiStage, open_api
from tests.web.pages.browser import Browser
from tests.web.pages.test_notes_pages import NOTE, read_comments
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import daily_stats
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import make_site
from tidings.collect.comments import Comment
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.wire.faults import Fault

MOST_QUERIES = 10
MOST_BYTES = 100_000
SITES = 30


@contextmanager
def record_queries() -> Iterator[list[str]]:
    """The statements of every database within the block."""
    seen: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            seen.append(" ".join(statement.split())[:100])

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", record)


async def fill(api: ApiStage) -> list[str]:
    """More sites than a page holds, with 30 days of both channels and executions; returns the paths of all pages."""
    installation = api.installation
    today = installation.clock.now().astimezone(UTC).date()
    api.engine.misbehave(Fault(status=422, body="this URL is not welcome here", matching="/0000003/"))
    own = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    await api.run(site=own)
    # Google's sitemaps are a further part of a site's page.
    answer = await api.ask("PUT", f"/api/sites/{own.replace(':', '%3A')}", {"googleCredentials": ACCOUNT})
    assert answer.status == 200
    for number in range(SITES):
        host = f"{'long-name-' * 5}{number:02}.{'department-' * 5}example.com"
        bing = BingSettings.make(enabled=True, key="bing-key-0123456789")
        site = make_site(sitemap_urls=[f"https://{host}/sitemap.xml"], key="0123456789abcdef", bing=bing)
        await installation.sites.add(site)
        for _ in range(2):
            execution = await installation.executions.acquire(site.workflow_name, kind="announce")
            result = {"errors": ["the engine said: " + "no " * 60], "submitted": 12_345, "new": 99_999, "failed": 10}
            await installation.executions.finish(execution, ExecutionStatus.PARTIAL, result=result)
    rows = [
        {
            "day": (today - timedelta(days=day)).isoformat(),
            "site": site.number,
            "channel": channel.value,
            "total": 1_000 + day * 37,
            "successful": 990 + day * 31,
        }
        for site in await installation.sites.list_all()
        for day in range(1, 30)
        for channel in (Channel.INDEXNOW, Channel.BING)
    ]
    async with installation.database.write() as connection:
        await connection.execute(insert(daily_stats), rows)
    for number in range(40):
        await installation.collect.keywords.add("bilibili", f"咖啡 {number}")
    comments = [Comment(comment_id=f"c{number}", text="一条评论。" * 40) for number in range(60)]
    await read_comments(installation, NOTE, *comments)
    [execution] = (await api.read(f"/api/sites/{own}/executions"))["executions"]
    page = f"/sites/{own.replace(':', '%3A')}"
    parts = ("", "/executions", f"/executions/{execution['executionId']}", "/failed", "/settings")
    return [
        *("/", "/?q=long&state=attention&sort=last", "/sites", "/sites?from=25&sort=name", "/sites/new", "/alerts"),
        *("/keywords", "/candidates", "/cookies", "/executions", "/workers", "/notes", "/settings", "/docs"),
        "/notes/bilibili/BV1",
        *(page + part for part in parts),
        f"{page}/lookup?url={api.web.url(3)}",
        f"{page}/forget/confirm?since=2026-11-15T10:00:00Z",
    ]


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with open_api(database_url, tmp_path) as opened:
        yield opened


@pytest.mark.thorough
async def test_every_page_is_small_and_asks_little(api: ApiStage) -> None:
    paths, browser = await fill(api), Browser(api)
    await browser.sign_in()
    costs = {}
    for path in paths:
        with record_queries() as queries:
            answer = await browser.get(path)
        assert answer.status == 200, (path, answer.text[:300])
        costs[path] = (len(queries), len(answer.body), queries)
    assert {path: cost[2] for path, cost in costs.items() if cost[0] > MOST_QUERIES} == {}
    assert {path: cost[1] for path, cost in costs.items() if cost[1] >= MOST_BYTES} == {}
    assert max(size for _, size, _ in costs.values()) > MOST_BYTES / 2
