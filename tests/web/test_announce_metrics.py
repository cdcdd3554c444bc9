"""Metrics of announce as Prometheus reads them: what they count, the rules of their names, and the alert rules."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.web.api_stage import BING_KEY, ApiStage, open_api
from tidings.announce.channels.answer import Outcome, Verdict
from tidings.announce.channels.channel import RequestAnswered
from tidings.announce.channels.google.indexing import GOOGLE_KIND
from tidings.announce.channels.quota.ranked import open_quota
from tidings.announce.execution.report import Report
from tidings.announce.execution_metrics import ExecutionMetrics
from tidings.announce.site.site import Engine
from tidings.core.clock import SystemClock
from tidings.sandbox.wire.faults import Fault
from tidings.web.announce_metrics import MOST_ENGINES

ACCOUNT = json.dumps(
    {
        "client_email": "a@shop.iam.gserviceaccount.com",
        "private_key": "-----BEGIN PRIVATE KEY-----",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
)
RULES = Path(__file__).parents[2] / "deploy" / "alerts.yaml"
NAME = re.compile(r"(tidings|process|python)(_[a-z0-9]+)+")
# Prometheus' base units are seconds and bytes; a type has no place in a name.
UNFIT = re.compile(r"_(ms|milliseconds|minutes|hours|days|kilobytes|megabytes|percent|gauge|counter|histogram)(_|$)")


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with open_api(database_url, tmp_path, pages=20, max_retries=0) as stage:
        yield stage


async def scrape(api: ApiStage) -> dict[str, Metric]:
    answer = await api.ask("GET", "/metrics")
    assert answer.status == 200
    return {family.name: family for family in text_string_to_metric_families(answer.body.decode())}


def pick(families: dict[str, Metric], family: str, sample: str = "", **labels: str) -> float | None:
    """The value of the only sample with these labels; None where there is none."""
    found = [
        each.value
        for each in families[family].samples
        if each.name == family + sample and labels.items() <= each.labels.items()
    ]
    assert len(found) <= 1, found
    return found[0] if found else None


@pytest.mark.thorough
async def test_executions_are_counted_by_channel_engine_and_reason(api: ApiStage) -> None:
    """A45: read, due, accepted and failed pages, requests with their times, quota, backlog and its age; every process
    reads the same numbers, since they are in the database."""
    await api.add_site(id="shop", bingEnabled=True, bingApiKey=BING_KEY, bingDailyQuota=15)
    api.engine.misbehave(Fault(status=503))
    await api.run()
    failed = await scrape(api)
    host = api.engine.host
    of_engine = {"channel": "indexnow", "engine": host}
    assert pick(failed, "tidings_announce_pages_failed", "_total", reason="unavailable", **of_engine) == 20
    assert pick(failed, "tidings_announce_requests", "_total", outcome="unavailable", **of_engine) == 1
    assert pick(failed, "tidings_announce_backlog_pages", channel="indexnow") == 20
    assert pick(failed, "tidings_announce_oldest_delivery_age_seconds", channel="indexnow") is not None
    api.engine.recover()
    await api.run()
    families = await scrape(api)
    assert pick(families, "tidings_announce_executions", "_total", status="succeeded") == 1
    assert pick(families, "tidings_announce_executions", "_total", status="partial") == 1
    assert pick(families, "tidings_announce_pages_read", "_total") == 40
    assert pick(families, "tidings_announce_pages_due", "_total", channel="indexnow") == 40
    assert pick(families, "tidings_announce_pages_accepted", "_total", **of_engine) == 20
    assert pick(families, "tidings_announce_pages_accepted", "_total", channel="bing", engine="bing") == 15
    assert pick(families, "tidings_announce_request_duration_seconds", "_count", **of_engine) == 2
    assert pick(families, "tidings_announce_request_duration_seconds", "_bucket", le="+Inf", **of_engine) == 2
    assert pick(families, "tidings_announce_execution_duration_seconds", "_count") == 2
    assert pick(families, "tidings_announce_quota_used", channel="bing") == 15
    assert pick(families, "tidings_announce_quota_left", channel="bing") == 0
    assert pick(families, "tidings_announce_quota_left", channel="baidu") == 0
    assert pick(families, "tidings_announce_quota_backlog_pages", channel="bing") == 5
    assert pick(families, "tidings_announce_quota_unused_pages", channel="bing") == 0
    assert (await api.ask("PUT", "/api/sites/shop", {"bingDailyQuota": 18})).status == 200
    raised = await scrape(api)
    assert pick(raised, "tidings_announce_quota_left", channel="bing") == 3
    assert pick(raised, "tidings_announce_quota_unused_pages", channel="bing") == 3
    await api.run()
    assert pick(await scrape(api), "tidings_announce_quota_backlog_pages", channel="bing") == 2
    assert pick(families, "tidings_announce_backlog_pages", channel="indexnow") == 0
    assert pick(families, "tidings_announce_oldest_delivery_age_seconds", channel="indexnow") == 0


async def test_a_quota_that_sites_share_is_shown_to_each_and_counted_once(api: ApiStage) -> None:
    """A43, A45: what one site of a Cloud project used is missing in the status and the overview of the other."""
    google = {"googleCredentials": ACCOUNT, "googleIndexing": "jobPosting"}
    for name, limit in (("shop", 9), ("blog", 10)):
        await api.add_site(id=name, googleDailyQuota=limit, **google)
    installation = api.installation
    shop = await installation.sites.find("shop")
    assert shop is not None
    async with installation.database.write() as connection:
        quota = open_quota(shop, GOOGLE_KIND, database=installation.database, clock=installation.clock)
        assert await quota.reserve(connection, 4) == 4
    for name, left in (("shop", 5), ("blog", 6)):
        status = (await api.ask("GET", f"/status?site={name}")).json["google"]
        assert (status["todayQuotaUsed"], status["todayQuotaRemaining"]) == (4, left)
    rows = (await api.ask("GET", "/api/overview")).json["sites"]
    assert {row["id"]: row["quotas"]["google"]["used"] for row in rows} == {"shop": 4, "blog": 4}
    families = await scrape(api)
    assert pick(families, "tidings_announce_quota_used", channel="google") == 4
    assert pick(families, "tidings_announce_quota_left", channel="google") == 6


@pytest.mark.thorough
@pytest.mark.one_database
async def test_names_follow_prometheus_and_labels_are_bounded(api: ApiStage) -> None:
    """A45: base units, `_total` for counters, help for each; a hundred engines are thirty series and one for the
    rest. A timeout counts as one."""
    database, metrics = api.installation.database, ExecutionMetrics()
    for number in range(100):
        outcome = Outcome(Verdict.UNAVAILABLE, "no answer", timed_out=True)
        engine = Engine(f"https://e{number}.example/indexnow", f"e{number}.example")
        metrics.record(RequestAnswered(engine, outcome, SystemClock().now()))
    async with database.write() as connection:
        await metrics.save(connection, Report("shop"), database=database)
    families = await scrape(api)
    for name, family in families.items():
        assert NAME.fullmatch(name), name
        assert not UNFIT.search(name), name
        assert family.documentation.endswith("."), name
        assert family.type in ("counter", "gauge", "histogram", "info"), name
        if family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples), name
        else:
            assert not name.endswith(("_total", "_count", "_sum", "_bucket")), name
    timeouts = families["tidings_announce_timeouts"].samples
    assert len(timeouts) == MOST_ENGINES + 1
    assert sum(sample.value for sample in timeouts) == 100


@pytest.mark.one_database
async def test_an_execution_whose_end_failed_counts_once(api: ApiStage) -> None:
    """A45: the second attempt to end it adds what the first one could not save."""
    database, metrics = api.installation.database, ExecutionMetrics()

    async def end(*, fails: bool) -> None:
        async with database.write() as connection:
            await metrics.save(connection, Report("shop", total=5), database=database)
            if fails:
                raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await end(fails=True)
    await end(fails=False)
    assert pick(await scrape(api), "tidings_announce_pages_read", "_total") == 5


@pytest.mark.thorough
@pytest.mark.one_database
async def test_every_alert_rule_asks_for_a_metric_that_the_service_has(api: ApiStage) -> None:
    """A45: a rule on a name that nobody exposes would never fire."""
    exposed = set()
    for name, family in (await scrape(api)).items():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        exposed |= {name + suffix for suffix in suffixes}
    text = RULES.read_text()
    expressions = re.findall(r"expr: (?:>\n((?: {10}.*\n)+)|(.*)\n)", text)
    asked = {name for found in expressions for name in re.findall(r"tidings_\w+", "".join(found))}
    assert len(expressions) == text.count("- alert: ") > 10
    assert asked <= exposed, asked - exposed
