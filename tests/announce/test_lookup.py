"""Was this page announced? One page is looked up in ledger and outbox, on both databases, against the sandbox."""

from datetime import timedelta

import pytest

from tests.announce.bing_stage import MORNING, BingStage, open_bing_stage
from tests.conftest import BenchMaker
from tidings.announce.channels.enabled_channels import list_page_channels
from tidings.announce.due.rules import DueRules
from tidings.announce.ledger.corrections import requeue_failed
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.lookup import ChannelLookup, LookupRefusal, LookupRule, PageLookup, find_page
from tidings.sandbox.wire.faults import Fault

RULES = DueRules()


async def look_up(stage: BingStage, url: str) -> PageLookup:
    return await find_page(
        stage.site,
        url,
        database=stage.bench.database,
        clock=stage.clock,
        rules=RULES,
        channels=list_page_channels(stage.site),
    )


async def look_up_channels(stage: BingStage, url: str) -> dict[Channel, ChannelLookup]:
    return {each.channel: each for each in (await look_up(stage, url)).channels}


async def test_a_page_is_followed_from_new_to_expired(make_bench: BenchMaker) -> None:
    """A44: per channel, when it was accepted and by which rule it is due or not."""
    async with open_bing_stage(make_bench, quota=5) as stage:
        url = stage.web.url(1)
        rules = []
        for wait in (timedelta(0), timedelta(minutes=5), timedelta(hours=1), timedelta(days=30)):
            stage.clock.advance(wait)
            found = await look_up_channels(stage, url)
            rules.append(found[Channel.INDEXNOW].rule)
            if not wait:
                await stage.announce()
        assert rules == [LookupRule.NEW, LookupRule.TOO_SOON, LookupRule.ACCEPTED, LookupRule.EXPIRED]
        accepted = found[Channel.INDEXNOW].accepted_at
        assert accepted is not None
        assert timedelta(0) <= accepted - MORNING < timedelta(minutes=5)
        assert found[Channel.INDEXNOW].is_due


async def test_a_page_that_an_engine_refused_is_open_there_with_its_reason(make_bench: BenchMaker) -> None:
    """A13, A44: what failed is shown with engine, reason and attempts; the other channel's answer is its own."""
    async with open_bing_stage(make_bench) as stage:
        url = stage.web.url(3)
        stage.engine.misbehave(Fault(status=422, body="not welcome", matching=url))
        await stage.announce()
        found = await look_up_channels(stage, f" {url}\n")
        [delivery] = found[Channel.INDEXNOW].deliveries
        assert found[Channel.INDEXNOW].rule is LookupRule.OPEN
        assert found[Channel.INDEXNOW].accepted_at is None
        assert (delivery.engine, delivery.removed) == (stage.engine.endpoint, False)
        assert delivery.reason == "HTTP 422: not welcome"
        assert delivery.attempts >= 1
        assert (found[Channel.BING].rule, found[Channel.BING].deliveries) == (LookupRule.TOO_SOON, ())
        other = await look_up_channels(stage, stage.web.url(4))
        assert other[Channel.INDEXNOW].deliveries == ()


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        ("https://other.example/page", LookupRefusal.FOREIGN_HOST),
        ("no URL", LookupRefusal.INVALID),
        ("javascript:alert(1)", LookupRefusal.INVALID),
        ("", LookupRefusal.INVALID),
    ],
)
@pytest.mark.one_database
async def test_a_url_that_the_site_never_announces_is_refused(
    make_bench: BenchMaker, url: str, refusal: LookupRefusal
) -> None:
    """A44: the answer says why, and names no channel."""
    async with open_bing_stage(make_bench) as stage:
        assert await look_up(stage, url) == PageLookup(url, refusal)


async def test_every_failed_page_is_sent_again_at_once(make_bench: BenchMaker) -> None:
    """A36: requeue of all that failed; pages that were taken stay as they are."""
    async with open_bing_stage(make_bench) as stage:
        bad = [stage.web.url(3), stage.web.url(7)]
        for url in bad:
            stage.engine.misbehave(Fault(status=422, matching=url))
        await stage.announce()
        stage.engine.recover()
        database, executions = stage.bench.database, stage.bench.executions
        assert await requeue_failed(stage.site, database=database, executions=executions) == 2
        await stage.announce()
        assert {url: stage.engine.accepted[url] for url in bad} == dict.fromkeys(bad, 1)
        assert set(stage.engine.accepted.values()) == {1}
        assert await requeue_failed(stage.site, database=database, executions=executions) == 0
