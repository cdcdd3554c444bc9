"""The quota of a channel that tells its limit: when its word counts, for which day, and how a request without an answer
is charged."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.announce.stage import Events, pick_events
from tests.fakes import FakeClock
from tidings.announce.channels.protocols.baidu import BAIDU_KIND
from tidings.announce.channels.protocols.bing import BING_KIND
from tidings.announce.channels.quota.quota import Quota, QuotaTerms, read_limit
from tidings.core.db.database import Database

BAIDU, BING = BAIDU_KIND, BING_KIND
LIMIT = 10
DAY = timedelta(days=1)


class Till:
    """The quota of a site, as one process sees it; each change is a transaction."""

    def __init__(
        self, database: Database, clock: FakeClock, *, terms: QuotaTerms = BAIDU, site: int = 1, asked: bool = False
    ) -> None:
        day = terms.find_day(clock.now())
        self._database = database
        self.quota = Quota(database, terms=terms, site=site, day=day, limit=LIMIT, clock=clock, asked=asked)

    async def do(self, change: str, *values: int, **options: Any) -> Any:
        async with self._database.write() as connection:
            return await getattr(self.quota, change)(connection, *values, **options)

    async def describe(self) -> tuple[int, int, bool]:
        """The limit, what was used of it, and whether the channel named the limit of this day."""
        state = await self.quota.read()
        return state.limit, state.used, state.learned


@pytest.fixture
def till(database: Database, clock: FakeClock) -> Till:
    return Till(database, clock)


async def test_the_first_request_of_a_day_carries_one_page_and_its_answer_counts(till: Till, events: Events) -> None:
    """A42: nobody knows more before; what remains by the answer is then granted, and no page more."""
    assert await till.do("reserve", 5) == 1
    assert await till.describe() == (LIMIT, 1, False)
    await till.do("confirm", 1, remaining=6)
    assert await till.describe() == (7, 1, True)
    [said] = pick_events(events, "baidu.quota_learned", log_level="info")
    assert (said["site_number"], said["day"], said["used"], said["quota"]) == (1, str(till.quota.day), 1, 7)
    assert await till.do("reserve", 50) == 6
    await till.do("confirm", 6, remaining=0)
    assert await till.describe() == (7, 7, True)
    # The same number is no news.
    assert len(pick_events(events, "baidu.quota_learned")) == 1


async def test_an_answer_counts_only_if_no_other_request_was_under_way(database: Database, clock: FakeClock) -> None:
    """A42: else nobody knows whether the other's pages are in what remains."""
    first, second = Till(database, clock), Till(database, clock)
    assert (await first.do("reserve", 1), await second.do("reserve", 1)) == (1, 1)
    for till in (first, second):
        await till.do("confirm", 1, remaining=99)
    assert await first.describe() == (LIMIT, 2, False)
    # Both have their answers, so the next one is alone again.
    assert await second.do("reserve", 1) == 1
    await first.do("confirm", 0, remaining=50)
    assert await first.describe() == (LIMIT, 3, False)
    await second.do("confirm", 1, remaining=4)
    assert await second.describe() == (7, 3, True)


async def test_an_answer_does_not_count_while_one_of_two_others_is_under_way(
    database: Database, clock: FakeClock
) -> None:
    """A42: two requests began and one has ended: the third is not alone."""
    first, second, third = (Till(database, clock) for _ in range(3))
    assert [await till.do("reserve", 1) for till in (first, second)] == [1, 1]
    await first.do("confirm", 1)
    assert await third.do("reserve", 1) == 1
    await third.do("confirm", 1, remaining=99)
    assert await third.describe() == (LIMIT, 3, False)


@pytest.mark.parametrize("change", ["keep", "release"])
async def test_a_request_that_has_ended_is_under_way_no_more(till: Till, change: str) -> None:
    """A29, A42: without an answer its page stays charged; refused it costs nothing. The next answer counts."""
    assert await till.do("reserve", 1) == 1
    await till.do(change, 1)
    used = 1 if change == "keep" else 0
    assert await till.describe() == (LIMIT, used, False)
    assert await till.do("reserve", 1) == 1
    await till.do("confirm", 1, remaining=3)
    assert await till.describe() == (used + 4, used + 1, True)


@pytest.mark.parametrize("begins", [True, False], ids=["new execution", "same execution"])
async def test_a_request_of_a_dead_execution_is_forgotten_by_the_next_one(
    database: Database, clock: FakeClock, begins: bool
) -> None:
    """A29: its page stays charged, but it is not under way for ever."""
    await Till(database, clock).do("reserve", 1)
    till = Till(database, clock)
    if begins:
        await till.do("begin")
    await till.do("reserve", 1)
    await till.do("confirm", 1, remaining=3)
    assert await till.describe() == ((5, 2, True) if begins else (LIMIT, 2, False))


async def test_an_answer_after_midnight_says_nothing_about_yesterday(till: Till, clock: FakeClock) -> None:
    """A42: the day is Baidu's, which begins at 16:00 UTC."""
    await till.do("reserve", 1)
    clock.set(datetime(2026, 11, 15, 16, 0, tzinfo=UTC))
    await till.do("confirm", 1, remaining=9)
    assert await till.describe() == (LIMIT, 1, False)


async def test_the_last_word_counts_until_the_channel_speaks_again(database: Database, clock: FakeClock) -> None:
    """A42: of this site and channel, and of no later day."""
    for remaining in (3, 29):
        till = Till(database, clock)
        await till.do("reserve", 1)
        await till.do("confirm", 1, remaining=remaining)
        clock.advance(DAY)
    today = Till(database, clock)
    assert await today.describe() == (30, 0, False)
    assert await today.do("reserve", 5) == 1
    for other in (Till(database, clock, site=2), Till(database, clock, terms=BING, asked=True)):
        assert await other.describe() == (LIMIT, 0, False)
    clock.advance(-2 * DAY)
    assert await Till(database, clock).describe() == (4, 1, True)
    assert await today.describe() == (30, 1, False)


async def test_a_channel_that_does_not_learn_keeps_to_the_setting(database: Database, clock: FakeClock) -> None:
    """A28: Bing's answers do not say what remains; a number in one changes nothing."""
    till = Till(database, clock, terms=BING)
    assert await till.do("reserve", 5) == 5
    await till.do("confirm", 5, remaining=500)
    assert await till.describe() == (LIMIT, 5, False)


async def test_a_limit_that_was_asked_for_counts_if_the_site_wants_it(
    database: Database, clock: FakeClock, events: Events
) -> None:
    """A28, A32: `auto`. For a site with a number of its own, the number counts."""
    asking = Till(database, clock, terms=BING, asked=True)
    assert await asking.describe() == (LIMIT, 0, False)
    await asking.do("learn", 250)
    assert await asking.describe() == (250, 0, True)
    assert await asking.do("reserve", 300) == 250
    assert (await Till(database, clock, terms=BING).describe())[0] == LIMIT
    [said] = pick_events(events, "bing.quota_learned", log_level="info")
    assert (said["site_number"], said["day"], said["quota"]) == (1, "2026-11-15", 250)


async def test_rejected_pages_are_not_charged(database: Database, clock: FakeClock) -> None:
    """A31: and a request of which nothing was taken is no success."""
    till = Till(database, clock, terms=BING)
    assert await till.do("reserve", 5) == 5
    await till.do("confirm", 2, rejected=2)
    state = await till.quota.read()
    assert (state.used, state.submitted_at) == (3, None)
    await till.do("confirm", 3, rejected=2)
    state = await till.quota.read()
    assert (state.used, state.submitted_at) == (1, clock.now())
    await till.do("confirm", 3, rejected=3)
    assert (await till.quota.read()).used == 0


@pytest.mark.parametrize(("total", "used"), [(None, 3), (9, 3), (10, 3), (11, 11), (40, 40)])
async def test_a_total_beyond_our_count_is_recorded_when_the_day_closes(
    database: Database, clock: FakeClock, events: Events, total: int | None, used: int
) -> None:
    """A29: somebody else used the rest; the log has what the channel says it took."""
    till = Till(database, clock, terms=BING)
    await till.do("record", 3)
    await till.do("reserve", 2)
    await till.do("close", reserved=2, total=total)
    state = await till.quota.read()
    assert (state.used, state.full, state.remaining) == (used, True, 0)
    exceeded = [(used, LIMIT)] if used > LIMIT else []
    assert [(each["used"], each["quota"]) for each in pick_events(events, "bing.quota_exceeded")] == exceeded
    # The same total again is no news.
    await till.do("close", reserved=0, total=total)
    assert [(each["used"], each["quota"]) for each in pick_events(events, "bing.quota_exceeded")] == exceeded


@pytest.mark.parametrize(("total", "used"), [(7, 1), (8, 8)])
async def test_a_total_is_measured_by_the_limit_that_the_channel_named(till: Till, total: int, used: int) -> None:
    """A29, A42: Baidu named seven pages a day; that is fewer than the setting."""
    await till.do("reserve", 1)
    await till.do("confirm", 1, remaining=6)
    await till.do("close", reserved=0, total=total)
    assert (await till.quota.read()).used == used


async def test_what_remains_is_subtracted_from_the_limit_that_was_asked_for(
    database: Database, clock: FakeClock
) -> None:
    """A29, A37: `auto`. Of fifty, three remain: somebody else used the others."""
    till = Till(database, clock, terms=BING, asked=True)
    await till.do("learn", 50)
    assert await till.do("reserve", 5) == 5
    await till.do("correct", remaining=3, reserved=5)
    assert await till.describe() == (50, 47, True)


async def test_a_limit_that_was_asked_for_is_nothing_to_a_site_with_a_number(
    database: Database, clock: FakeClock
) -> None:
    """A28: unless a quota says that it asks, the setting counts."""
    quota = Quota(database, terms=BING, site=1, day=BING.find_day(clock.now()), limit=LIMIT, clock=clock)
    async with database.write() as connection:
        await quota.learn(connection, 7)
    assert (await quota.read()).limit == LIMIT


@pytest.mark.parametrize(("asked_for", "counted"), [(0, 0), (60, 40)])
async def test_a_refusal_tells_the_limit_better_than_what_was_asked_for(
    database: Database, clock: FakeClock, events: Events, asked_for: int, counted: int
) -> None:
    """A29, A37: `auto`. Bing named its rest when it was asked, and its total when it refused: all of 100 are used."""
    till = Till(database, clock, terms=BING, asked=True)
    await till.do("learn", asked_for)
    await till.do("record", counted)
    granted = await till.do("reserve", 1)
    await till.do("close", reserved=granted, total=100)
    state = await till.quota.read()
    assert (state.used, state.limit, state.full) == (100, 100, True)
    assert pick_events(events, "bing.quota_exceeded") == []


async def test_a_page_that_was_taken_lately_is_known_over_days(database: Database, clock: FakeClock) -> None:
    """A31: a key that worked a moment ago is not refused for good. Of this site and channel."""
    till, taken_at = Till(database, clock), clock.now()
    assert not await till.quota.was_taken_since(taken_at - DAY)
    await till.do("reserve", 1)
    assert not await till.quota.was_taken_since(taken_at - DAY)
    await till.do("confirm", 1)
    clock.advance(DAY)
    later = Till(database, clock)
    assert await later.quota.was_taken_since(taken_at)
    assert not await later.quota.was_taken_since(taken_at + timedelta(milliseconds=1))
    for other in (Till(database, clock, site=2), Till(database, clock, terms=BING)):
        assert not await other.quota.was_taken_since(taken_at)


async def test_the_day_ends_at_the_channels_own_midnight(till: Till) -> None:
    """A42: before anything was sent on it, and after."""
    midnight = datetime(2026, 11, 15, 16, 0, tzinfo=UTC)
    assert (await till.quota.read()).resets_at == midnight
    await till.do("reserve", 1)
    state = await till.quota.read()
    assert (state.day, state.resets_at) == (till.quota.day, midnight)


def test_a_quota_that_is_used_up_is_logged_with_its_day(database: Database, clock: FakeClock, events: Events) -> None:
    """A28: the line says whose, of which day, and how much there was."""
    Till(database, clock).quota.log_exhausted("example.com")
    [logged] = pick_events(events, "Baidu quota exhausted, skipping", log_level="info")
    assert (logged["site"], logged["day"], logged["quota"]) == ("example.com", "2026-11-15", LIMIT)


@pytest.mark.parametrize(("allowed", "limit"), [(None, LIMIT), (0, 1), (1, 1), (2, 2), (500, 500)])
def test_a_day_without_quota_does_not_end_all_days(allowed: int | None, limit: int) -> None:
    """A42: a channel that once said "none" is asked again, with one page."""
    assert read_limit(allowed, configured=LIMIT) == limit
