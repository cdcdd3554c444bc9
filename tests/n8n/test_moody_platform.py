"""The shipped workflows in a real n8n, against a platform of the tests' own that refuses cookies, limits, asks for
captchas, drips and breaks off. Every row of C15's table is seen at the platform and in the tables."""

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from tests.collect.moody_platform import Asked, Mood, MoodyPlatform, answer_json, drip, reset
from tests.n8n.driver import COLLECT, DISCOVER
from tests.n8n.stage import TOKEN, Stage
from tests.waiting import wait_until
from tidings.collect.write.keywords import Keywords
from tidings.core.clock import SystemClock

pytestmark = pytest.mark.n8n

REFUSED = answer_json({"ok": -100, "url": "https://passport.weibo.com/"})
CAPTCHA = answer_json({"ok": 0, "url": "https://m.weibo.cn/captcha"})
GONE = answer_json({"ok": 0, "msg": "微博不存在或暂无查看权限"})
BROKEN = answer_json({}, status=500)
RETRY_AFTER = 120


async def add_cookies(stage: Stage, *names: str) -> None:
    """The first one is asked first."""
    for place, name in enumerate(names):
        words = ("cookies", "add", name, "--platform", "weibo", "--priority", str(9 - place))
        ended = await stage.terminal.pipe(*words, given=f"SUB={name}; _T_WM=device")
        assert ended.code == 0, ended


async def seed(stage: Stage, *note_ids: str) -> None:
    """Candidates, as a search would have found them."""
    execution = {"execution_id": (await stage.ask("/workflow/executions", {"workflow_name": "seed"}))["execution_id"]}
    hits = [{"note_id": each, "url": f"https://m.weibo.cn/detail/{each}"} for each in note_ids]
    await stage.ask("/workflow/candidates", execution | {"platform": "weibo", "source_keyword": "bread", "hits": hits})
    await stage.ask("/workflow/executions/finish", execution)


def by_account(**moods: Mood) -> Mood:
    async def mood(asked: Asked) -> web.StreamResponse | None:
        return await moods[asked.account](asked) if asked.account in moods else None

    return mood


def by_note(moods: Mapping[str, Mood]) -> Mood:
    async def mood(asked: Asked) -> web.StreamResponse | None:
        return await moods[asked.about](asked) if asked.about in moods else None

    return mood


async def read_status(stage: Stage) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with stage.served.client.get(f"{stage.n8n.base_url}/api/collect/status", headers=headers) as answer:
        document: dict[str, Any] = await answer.json()
    return document


async def read_cookies(stage: Stage) -> dict[str, dict[str, Any]]:
    rows = await stage.read("SELECT * FROM tbl_cookie WHERE platform = 'weibo'")
    return {row["cookie_name"]: row for row in rows}


async def wait_for_alerts(stage: Stage, *kinds: str) -> None:
    """The monitor raises them at its next round, which is due at once."""
    await stage.change("UPDATE due_jobs SET next_at = 0 WHERE name = 'collect.monitor'")

    async def is_raised() -> bool:
        rows = await stage.read("SELECT kind FROM alert_conditions WHERE subject = 'weibo'")
        return {row["kind"] for row in rows} >= set(kinds)

    await wait_until(is_raised)


async def test_the_third_cookie_is_asked_third_when_two_are_refused(stage: Stage, moody: MoodyPlatform) -> None:
    """C15, COOKIE_INVALID: in a search and for notes. Nothing counts against a note, each use counts for its cookie,
    and the counts that are stored are those of the one reading."""
    await stage.change("DELETE FROM watched_keywords")
    await Keywords(stage.database, clock=SystemClock()).add("weibo", "bread")
    await add_cookies(stage, "first", "second", "good")
    moody.mood = by_account(first=REFUSED, second=REFUSED)
    assert (await stage.execute(DISCOVER)).status == "success"
    assert [each.account for each in moody.asked] == ["first", "second", "good"]
    assert (await stage.execute(COLLECT)).status == "success"
    candidates = await stage.read_candidates()
    assert {(row["status"], row["retry_count"]) for row in candidates.values()} == {("collected", 0)}
    asked = Counter((each.about, each.account) for each in moody.list_notes_asked())
    assert set(asked.values()) == {1}
    assert {account for _, account in asked} == {"first", "second", "good"}
    uses = Counter(each.account for each in moody.asked)
    assert {name: row["daily_used"] for name, row in (await read_cookies(stage)).items()} == uses
    notes = [json.loads(row["content"]) for row in await stage.read("SELECT content FROM tbl_source")]
    assert {note["note_id"]: note["counts"]["likes"] for note in notes} == dict.fromkeys(moody.note_ids, 1)


@pytest.mark.parametrize("variables", [{"REQUEST_TIMEOUT": "3", "BACKOFF_SECONDS": "60"}])
async def test_only_the_failed_notes_of_a_batch_are_asked_again_each_by_its_own_rule(
    stage: Stage, moody: MoodyPlatform
) -> None:
    """C15: PLATFORM_ERROR and TIMEOUT_ERROR twice more, INVALID_INPUT not at all, and with an alert; PARTIAL_FAIL
    repeats the failed items only."""
    broken, dripping, gone, *healthy = moody.note_ids
    await add_cookies(stage, "one", "two")
    await seed(stage, *moody.note_ids)
    moody.mood = by_note({broken: BROKEN, dripping: drip, gone: GONE})
    assert (await stage.execute(COLLECT)).status == "success"
    asked = Counter(each.about for each in moody.asked)
    assert asked == {broken: 3, dripping: 3, gone: 1} | dict.fromkeys(healthy, 1)
    states = {
        note_id: (row["status"], row["retry_count"], row["last_error_code"])
        for note_id, row in (await stage.read_candidates()).items()
    }
    assert states == {
        broken: ("pending", 1, "PLATFORM_ERROR"),
        dripping: ("pending", 1, "TIMEOUT_ERROR"),
        gone: ("failed", 1, "INVALID_INPUT"),
    } | dict.fromkeys(healthy, ("collected", 0, None))
    await wait_for_alerts(stage, "notes_skipped")


@pytest.mark.parametrize("variables", [{"BACKOFF_SECONDS": "1,2,3"}])
async def test_a_broken_connection_is_tried_three_times_more_after_growing_waits(
    stage: Stage, moody: MoodyPlatform
) -> None:
    """C15, C34: NETWORK_ERROR. Then the platform is paused, and the note is not at fault."""
    await add_cookies(stage, "one")
    await seed(stage, moody.note_ids[0])
    moody.mood = reset
    assert (await stage.execute(COLLECT)).status == "success"
    times = [each.at for each in moody.asked]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert (len(waits), all(wait >= least for wait, least in zip(waits, (1, 2, 3), strict=True))) == (3, True)
    [row] = (await stage.read_candidates()).values()
    assert (row["status"], row["retry_count"]) == ("pending", 0)
    [pause] = (await read_status(stage))["pauses"]
    assert (pause["platform"], pause["cause"]) == ("weibo", "network")


async def test_a_platform_that_limits_is_asked_once_and_left_alone(stage: Stage, moody: MoodyPlatform) -> None:
    """C15, C34: 429 with Retry-After; the next execution asks nothing, and people are notified."""
    await add_cookies(stage, "one", "two")
    await seed(stage, *moody.note_ids)
    moody.mood = answer_json({}, status=429, **{"Retry-After": str(RETRY_AFTER)})
    for _ in range(2):
        assert (await stage.execute(COLLECT)).status == "success"
    # Two cookies may have been on their way at the same time.
    assert len(moody.asked) <= 2
    [pause] = (await read_status(stage))["pauses"]
    assert (pause["platform"], pause["cause"], pause["failures"]) == ("weibo", "blocked", 1)
    states = {(row["status"], row["retry_count"]) for row in (await stage.read_candidates()).values()}
    assert states == {("pending", 0)}
    await wait_for_alerts(stage, "platform_paused")


async def test_a_captcha_cools_its_cookie_and_with_the_last_one_the_platform_pauses(
    stage: Stage, moody: MoodyPlatform
) -> None:
    """C15, C17: COOKIE_EXHAUSTED pauses and alerts; every cookie was asked once, and no note is at fault."""
    await add_cookies(stage, "one", "two", "three")
    await seed(stage, *moody.note_ids)
    moody.mood = CAPTCHA
    assert (await stage.execute(COLLECT)).status == "success"
    assert sorted(each.account for each in moody.asked) == ["one", "three", "two"]
    assert {row["status"] for row in (await read_cookies(stage)).values()} == {"cooling"}
    states = {(row["status"], row["retry_count"]) for row in (await stage.read_candidates()).values()}
    assert states == {("pending", 0)}
    [pause] = (await read_status(stage))["pauses"]
    assert (pause["platform"], pause["cause"]) == ("weibo", "captcha")
    await wait_for_alerts(stage, "no_active_cookie", "platform_paused")
