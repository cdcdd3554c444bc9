"""The commands of the service: pause and resume, tokens, sites with Bing, run, check and status with Bing, and undo on
one channel; each as a process of its own, with its JSON."""

import asyncio
import os
import pty
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

import pytest
from typer.testing import CliRunner

from tests.cli.terminal import LONGEST_RUN, SCRIPT, Ended, Terminal, end, make_sandbox
from tidings.announce.schedule.table import Schedules, ScheduleState
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.document import describe_site
from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.cli.main import make_app
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import prepare_database
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.tokens import Tokens
from tidings.sandbox.engines.bing import SandboxBing, refuse_exceeded
from tidings.sandbox.engines.indexnow import FORBIDDEN, SandboxEngine
from tidings.sandbox.site.site import SandboxSite

ADDRESS = "https://site.example/sitemap.xml"
INDEXNOW_KEY = "an-indexnow-key-0123"
BING_KEY = "b1a2c3d4e5f60718293a4b5c6d7e8f90"
MASK = "****...****"
# Whatever day it is when a test runs over midnight, Bing counts for one.
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Shop:
    """A stored site `shop` of five pages, its engine and Bing."""

    terminal: Terminal
    engine: SandboxEngine
    bing: SandboxBing

    async def run(self, *options: str) -> Ended:
        return await self.terminal.run("run", "shop", "--json", *options)

    @property
    def sent(self) -> tuple[int, int]:
        """How many URLs the engine and Bing took, repeated ones too."""
        return self.engine.accepted.total(), self.bing.accepted.total()


@asynccontextmanager
async def open_data(terminal: Terminal) -> AsyncIterator[Database]:
    """The database that the terminal's commands work on."""
    terminal.data_dir.mkdir(mode=0o700, exist_ok=True)
    database = open_database(f"sqlite:///{terminal.data_dir / 'tidings.db'}")
    try:
        # It writes: after a clean end, SQLite has no log that a reader could open.
        await prepare_database(database)
        yield database
    finally:
        await database.close()


async def store(terminal: Terminal, site: Site) -> Site:
    """What `sites add` does, without the time that a process takes."""
    clock = SystemClock()
    async with open_data(terminal) as database:
        keys, planner = KeyRing.parse(terminal.variables["COOKIE_MASTER_KEY"]), Schedules(database, clock=clock)
        return await SiteRecords(database, keys=keys, clock=clock, planner=planner).save(site, origin=Origin.API)


@pytest.fixture
async def stored(terminal: Terminal) -> Site:
    """The site `site.example`, which nothing is ever sent for."""
    return await store(terminal, make_site(sitemap_urls=[ADDRESS], key=INDEXNOW_KEY))


@asynccontextmanager
async def open_shop(
    terminal: Terminal, *, bing_key: str | None = BING_KEY, quota: int = 100, limit: int = 100, remaining: bool = True
) -> AsyncIterator[Shop]:
    """`quota` is Bing's own, `limit` the one that is configured."""
    bing = SandboxBing(keys={BING_KEY: []}, daily_quota=quota, now=lambda: NOON, reports_remaining=remaining)
    web, engine = SandboxSite(pages=5), SandboxEngine("alpha")
    async with web, engine, bing:
        bing.add_site(web.origin, key=BING_KEY)
        terminal.variables["BING_API_BASE"] = bing.address
        site = make_site(
            site_id="shop",
            sitemap_urls=[web.sitemap_url],
            key=web.key,
            engines=[engine.endpoint],
            bing=BingSettings.make(enabled=bing_key is not None, key=bing_key, daily_quota=limit),
        )
        await store(terminal, site)
        yield Shop(terminal, engine, bing)


async def read_schedule(terminal: Terminal, site: Site) -> ScheduleState:
    async with open_data(terminal) as database:
        return await Schedules(database, clock=SystemClock()).read(site.number)


async def find_grants(terminal: Terminal, *tokens: str) -> list[Grant | None]:
    async with open_data(terminal) as database:
        return [await Tokens(database, clock=SystemClock()).find(token) for token in tokens]


async def test_a_site_is_paused_and_resumed_and_each_says_whether_it_changed_anything(
    terminal: Terminal, stored: Site
) -> None:
    """A41: one command each, also the second time, and a schedule that obeys."""
    said, states = [], []
    for words in (["resume"], ["pause"], ["pause", "--json"], ["resume", "--json"]):
        ended = await terminal.run(words[0], "site.example", *words[1:])
        assert (ended.code, ended.err) == (0, "")
        said.append(ended.out if len(words) == 1 else ended.document)
        states.append((await read_schedule(terminal, stored)).paused)
    assert said == [
        "site.example was not paused.\n",
        "site.example is paused.\n",
        {"site": "site.example", "paused": True, "changed": False},
        {"site": "site.example", "paused": False, "changed": True, "freed": 0},
    ]
    assert states == [False, True, True, False]


async def test_a_site_without_a_schedule_is_not_called_scheduled(terminal: Terminal) -> None:
    """A38: one that was only announced by hand, until `sites set` configures it; a disabled one is off, too."""
    async with make_sandbox(pages=1) as sandbox:
        name, engine = sandbox.site.host, sandbox.engines[0].endpoint
        await terminal.run("announce", sandbox.site.sitemap_url, "--key", sandbox.site.key, "--engine", engine)
        await terminal.run("sites", "add", ADDRESS, "--key", INDEXNOW_KEY, "--id", "shop")
        await terminal.run("sites", "set", "shop", "--disable")
        words = (["sites", "list"], ["status", name])
        listed, status = await run_together(terminal, *words)
        assert [line.split()[-1] for line in listed.out.splitlines()[1:]] == ["off", "off"]
        assert f"\nnot scheduled; `tidings sites set {name} --enable` schedules it" in status.out
        await terminal.run("sites", "set", name, "--enable")
        listed, status = await run_together(terminal, *words)
        assert [line.split()[-1] for line in listed.out.splitlines()[1:]] == ["*", "off"]
        assert "\nscheduled; due at" in status.out


async def test_status_shows_the_sites_of_a_group_or_those_that_need_attention(terminal: Terminal) -> None:
    """A41: with many sites, a line says which need somebody, and why; the last line counts the others."""
    async with open_shop(terminal, bing_key=None) as shop:
        await terminal.run("sites", "add", ADDRESS, "--key", INDEXNOW_KEY, "--id", "quiet", "--group", "news")
        nothing = await terminal.run("status", "--attention")
        shop.engine.misbehave(FORBIDDEN)
        await shop.run()
        urgent, as_json, news, both, quiet = await run_together(
            terminal,
            ["status", "--attention"],
            ["status", "--attention", "--json"],
            ["status", "--group", "news"],
            ["status", "shop", "--attention"],
            ["status", "--attention", "--group", "news"],
        )
        assert nothing.out == "No site needs attention.\n2 of 2 sites left out.\n"
        titles, line, left_out = urgent.out.splitlines()
        assert titles.split() == ["site", "condition", "started", "reason"]
        assert re.match("shop +broken .*403", line)
        assert left_out == "1 of 2 sites left out."
        (found,) = as_json.document["attention"]
        assert (found["site"], found["condition"]) == ("shop", "broken")
        assert [each["site"] for each in as_json.document["executions"]] == ["shop"]
        assert news.out == "Nothing has run yet.\n1 of 2 sites left out.\n"
        assert (both.code, "not both" in both.err) == (2, True)
        assert quiet.out == "No site needs attention.\n2 of 2 sites left out.\n"


async def test_an_unknown_group_is_refused_and_the_groups_are_named(terminal: Terminal) -> None:
    """A41: a typing error must not look like a group without sites."""
    nobody = await terminal.run("sites", "list", "--group", "nwes")
    await terminal.run("sites", "add", ADDRESS, "--key", INDEXNOW_KEY, "--group", "news")
    chinese = {"TIDINGS_LANGUAGE": "zh"}
    made, *refused = await run_together(
        terminal,
        ["tokens", "new", "viewer", "--group", "nwes"],
        ["status", "--group", "nwes"],
        ["status", "--group", "nwes", "--attention"],
        ["sites", "list", "--group", "nwes", "--json"],
        ["sites", "export", "--group", "nwes"],
    )
    translated = await terminal.run("status", "--group", "nwes", **chinese)
    known = await terminal.run("sites", "list", "--group", "news", "--json")
    assert (nobody.code, nobody.err) == (2, "tidings: there is no group 'nwes'; no site is in a group\n")
    for each in refused:
        assert (each.code, each.out) == (2, "")
        assert each.err == "tidings: there is no group 'nwes'; the groups are news\n"
    assert (translated.code, translated.err) == (2, "tidings: 没有分组 'nwes'；现有分组：news\n")
    assert [site["group"] for site in known.document["sites"]] == ["news"]
    # A token may be made before its sites.
    assert (made.code, made.err) == (0, "tidings: warning: no site is in the group 'nwes' yet\n")


async def test_status_says_that_everything_is_paused(terminal: Terminal, stored: Site) -> None:
    """A26: nobody forgets a pause of everything."""
    before = await terminal.run("status")
    await terminal.run("pause")
    paused = await terminal.run("status")
    said = "Everything is paused; `tidings resume` lets it run again."
    assert (said in before.out, said in paused.out) == (False, True)


async def test_everything_is_paused_and_resumed_without_a_name(terminal: Terminal, stored: Site) -> None:
    """A41: the switch for all sites is apart from each site's own."""
    paused = await terminal.run("pause", "--json")
    state = await read_schedule(terminal, stored)
    resumed = await terminal.run("resume")
    assert (paused.document, resumed.out) == (
        {"site": None, "paused": True, "changed": True},
        "Everything runs again.\n",
    )
    assert (state.paused, state.paused_everything) == (False, True)
    assert not (await read_schedule(terminal, stored)).paused_everything


async def test_resume_tries_engines_again_that_had_refused_the_key(terminal: Terminal) -> None:
    """A22, A41: until then they are left alone."""
    async with open_shop(terminal, bing_key=None) as shop:
        shop.engine.misbehave(FORBIDDEN)
        refused = [await shop.run() for _ in range(2)]
        asked = len(shop.engine.requests)
        shop.engine.recover()
        resumed = await terminal.run("resume", "shop")
        ran = await shop.run()
        assert [each.document["status"] for each in refused] == ["failed", "failed"]
        assert asked == 1
        assert resumed.out == "shop was not paused.\n1 engine that refused its key is tried again.\n"
        assert (ran.code, shop.sent) == (0, (5, 0))


async def test_tokens_are_made_listed_replaced_and_revoked(terminal: Terminal, stored: Site) -> None:
    """Design decision 8: shown once, kept as a digest, one for each scope and name."""
    words = (["admin", "--name", "ops"], ["metrics", "--name", "prometheus"], ["site", "--site", "site.example"])
    made = [ended.out.strip() for ended in await run_together(terminal, *(["tokens", "new", *each] for each in words))]
    listed, as_json = await run_together(terminal, ["tokens", "list"], ["tokens", "list", "--json"])
    rows = [("admin", "ops"), ("metrics", "prometheus"), ("site", "site.example")]
    assert await find_grants(terminal, *made) == [
        Grant(Scope.ADMIN, "ops"),
        Grant(Scope.METRICS, "prometheus"),
        Grant(Scope.SITE, "site.example", site=stored.number),
    ]
    assert [(each["scope"], each["name"]) for each in as_json.document["tokens"]] == rows
    assert all(scope in listed.out and name in listed.out for scope, name in rows)
    assert not any(token in listed.out + as_json.out + terminal.log for token in made)
    replaced, one_more, revoked, of_site = await run_together(
        terminal,
        ["tokens", "new", "admin", "--name", "ops", "--json"],
        ["tokens", "new", "admin"],
        ["tokens", "revoke", "metrics", "--name", "prometheus"],
        ["tokens", "revoke", "site", "--site", "site.example", "--json"],
    )
    token = replaced.document.pop("token")
    assert revoked.out == "Revoked.\n"
    assert of_site.document == {"revoked": True, "scope": "site", "name": "site.example"}
    assert await find_grants(terminal, *made, token) == [None, None, None, Grant(Scope.ADMIN, "ops")]
    [beside] = await find_grants(terminal, one_more.out.strip())
    assert beside is not None
    assert beside.name.startswith("made 20")


async def run_together(terminal: Terminal, *commands: list[str]) -> list[Ended]:
    return await asyncio.gather(*(terminal.run(*words) for words in commands))


REFUSED_TOKENS = [
    (["revoke", "crawl"], 2, "--name is needed"),
    (["revoke", "crawl", "--name", "nobody's"], 1, "there is no such token; `tidings tokens list` shows the tokens"),
    (["new", "admin", "--site", "site.example"], 2, "--site belongs to the scope site, and only to it"),
    (["new", "site"], 2, "the scope site needs --site"),
    (["new", "site", "--site", "nobody"], 2, "there is no site 'nobody'"),
]


async def test_a_token_that_cannot_be_is_refused_in_one_line(terminal: Terminal, stored: Site) -> None:
    """Design decision 8: it is said what is wrong, and nothing is made."""
    ended = await run_together(terminal, *(["tokens", *words] for words, _, _ in REFUSED_TOKENS))
    assert [each.code for each in ended] == [code for _, code, _ in REFUSED_TOKENS]
    for each, (_, _, complaint) in zip(ended, REFUSED_TOKENS, strict=True):
        assert complaint in each.complaint
    async with open_data(terminal) as database:
        assert await Tokens(database, clock=SystemClock()).list_all() == []


async def test_a_site_is_added_with_bing_and_its_keys_do_not_show(terminal: Terminal) -> None:
    """A3, A4: the key switches Bing on; the answer is what `sites show` tells, too."""
    bing = ["--bing-key", terminal.keep(BING_KEY), "--bing-quota", "500", "--bing-priority", "random"]
    added = await terminal.run("sites", "add", ADDRESS, "--key", INDEXNOW_KEY, *bing, "--json")
    listed, shown = await run_together(terminal, ["sites", "list"], ["sites", "show", "site.example"])
    expected = {"bingEnabled": True, "bingApiKey": MASK, "bingDailyQuota": 500, "bingPriority": "random"}
    assert expected.items() <= added.document["site"].items()
    assert shown.document == added.document
    assert "indexnow, bing 500 a day" in listed.out
    assert BING_KEY not in added.out + listed.out + shown.out + terminal.log


async def test_bing_can_be_switched_on_off_and_changed_later(terminal: Terminal, stored: Site) -> None:
    """A3: one setting at a time; the others stay, the key too."""
    numbers = []
    for options in (
        ["--bing-key", terminal.keep(BING_KEY)],
        ["--bing-quota", "7"],
        ["--no-bing"],
        ["--bing", "--bing-priority", "random"],
    ):
        site = (await terminal.run("sites", "set", "site.example", *options, "--json")).document["site"]
        numbers.append([site[name] for name in ("bingEnabled", "bingApiKey", "bingDailyQuota", "bingPriority")])
    changed = await terminal.run("sites", "set", "site.example", "--schedule", "5 5 * * *", "--no-bing")
    assert numbers == [
        [True, MASK, 100, "newest"],
        [True, MASK, 7, "newest"],
        [False, MASK, 7, "newest"],
        [True, MASK, 7, "random"],
    ]
    assert changed.out == "Changed site.example: schedule, bingEnabled.\n"


REFUSED_SETTINGS = [
    (["site.example", "--bing"], "bingApiKey is required when bingEnabled is true"),
    (["site.example", "--bing-quota", "501"], "bingDailyQuota: it must be a whole number from 1 to 500"),
    (["site.example", "--bing-key", "/dev/null"], "Bing API key: give a file that holds it, "),
    (["site.example", "--bing-key", BING_KEY], "Bing API key: give a file that holds it, or - to be asked for it; "),
    (["site.example", "--baidu-token", BING_KEY], "Baidu token: give a file that holds it, or - to be asked for it; "),
    (["site.example"], "nothing to change: give at least one option"),
    (["nobody", "--bing-quota", "5"], "there is no site 'nobody'"),
]


async def test_a_bad_setting_is_refused_with_its_rule_and_changes_nothing(terminal: Terminal, stored: Site) -> None:
    """A3: exit code 2 and one line that names the field."""
    ended = await run_together(terminal, *(["sites", "set", *words] for words, _ in REFUSED_SETTINGS))
    for each, (_, complaint) in zip(ended, REFUSED_SETTINGS, strict=True):
        assert (each.code, complaint in each.complaint) == (2, True), each
        assert BING_KEY not in each.complaint
    shown = await terminal.run("sites", "show", "site.example")
    assert shown.document == {"site": describe_site(stored)}


async def type_in(terminal: Terminal, *words: str, typed: str, piped: bool) -> Ended:
    """Run a command that asks for something: at a terminal, or with the answer piped into it."""
    leader, follower = pty.openpty()
    process = await terminal.start_reading(PIPE if piped else follower, *words)
    try:
        if piped:
            return await end(process, given=f"{typed}\n".encode())
        async with asyncio.timeout(LONGEST_RUN):
            # The blank is written once nothing is shown any more; what was typed before that is thrown away.
            asked = await process.stderr.readuntil(b"key: ")
        os.write(leader, f"{typed}\n".encode())
        ended = await end(process)
        return replace(ended, err=asked.decode() + ended.err)
    finally:
        os.close(leader)
        os.close(follower)


@pytest.mark.parametrize(
    ("words", "piped"),
    [(["add", ADDRESS, "--key", INDEXNOW_KEY], False), (["set", "site.example"], True)],
    ids=["add, typed", "set, piped"],
)
async def test_bings_key_is_asked_for_so_that_no_list_of_processes_shows_it(
    terminal: Terminal, stored: Site, words: list[str], piped: bool
) -> None:
    """A4: `--bing-key -`, at a terminal or in a script."""
    ended = await type_in(terminal, "sites", *words, "--bing-key", "-", "--json", typed=BING_KEY, piped=piped)
    assert ended.code == 0, ended
    site = ended.document["site"]
    # What is piped in is read without asking: a question would be put to the terminal, and wait there.
    assert ("Bing API key" in ended.err) == (not piped)
    assert (site["id"], site["bingEnabled"], site["bingApiKey"]) == (stored.id, True, MASK)
    assert BING_KEY not in ended.out + ended.err + terminal.log


async def test_run_goes_to_the_channels_that_are_named(terminal: Terminal) -> None:
    """A10, A35: all by default; Bing alone skips IndexNow, and the other way round."""
    async with open_shop(terminal) as shop:
        steps = []
        for channel in (["--channel", "bing"], ["--channel", "indexnow"], []):
            ended = await shop.run(*channel)
            steps.append((ended.code, ended.document["submitted"], *shop.sent))
        assert steps == [(0, 5, 0, 5), (0, 5, 5, 5), (0, 0, 5, 5)]


async def test_run_on_a_channel_that_is_off_is_bad_input(terminal: Terminal) -> None:
    """A35: in the words of the contract, and nothing is sent."""
    async with open_shop(terminal, bing_key=None) as shop:
        refused, unknown = await run_together(
            terminal, ["run", "shop", "--channel", "bing"], ["run", "shop", "--channel", "altavista"]
        )
        assert refused.code == unknown.code == 2
        assert refused.complaint == "tidings: Bing submission is not enabled for this site; it needs bingApiKey"
        assert "'all', 'indexnow', 'bing'" in unknown.err
        assert shop.sent == (0, 0)


@pytest.mark.parametrize(
    ("quota", "code", "message", "advice"),
    [
        pytest.param(100, 0, "Bing says 100 for today; 100 a day are configured", None, id="equal"),
        pytest.param(99, 1, "Bing takes only 99 today; 100 a day are configured", "Set bingDailyQuota", id="smaller"),
        pytest.param(500, 0, "Bing allows 500 today and 3,100 this month", "bingDailyQuota can be raised", id="larger"),
    ],
)
async def test_check_compares_the_quota_with_bings_own(
    terminal: Terminal, quota: int, code: int, message: str, advice: str | None
) -> None:
    """A25, A32: before anything is sent; more is a hint, less is wrong."""
    async with open_shop(terminal, quota=quota) as shop:
        shown, as_json = await run_together(terminal, ["check", "shop"], ["check", "shop", "--json"])
        finding = as_json.document["findings"][-1]
        assert (shown.code, finding["subject"], finding["good"]) == (code, "Bing", code == 0)
        assert message in finding["message"]
        assert message in shown.out
        assert (finding["advice"] or "").startswith(advice or "")
        assert (finding["advice"] is None) == (advice is None)
        assert shop.sent == (0, 0)
        assert BING_KEY not in shown.out + as_json.out + terminal.log


@pytest.mark.parametrize("remaining", [True, False], ids=["tells what remains", "tells the total"])
async def test_check_is_content_after_a_part_of_the_quota_was_used(terminal: Terminal, remaining: bool) -> None:
    """A32: whichever of the two Bing tells."""
    async with open_shop(terminal, remaining=remaining) as shop:
        await shop.run()
        checked = await terminal.run("check", "shop")
        assert checked.code == 0
        assert "100 a day are configured, 5 of them are used today" in checked.out


async def test_check_names_no_configured_quota_where_bing_is_asked_for_it(terminal: Terminal) -> None:
    """A25, A32: with `auto` whatever Bing allows is right."""
    async with open_shop(terminal, quota=40) as shop:
        await terminal.run("sites", "set", "shop", "--bing-quota", "auto")
        checked = await terminal.run("check", "shop")
        assert checked.code == 0
        assert "Bing allows 40 today and 3,100 this month; 0 are used today" in checked.out
        assert "configured" not in checked.out
        assert shop.sent == (0, 0)


async def test_check_says_that_bing_refuses_the_key(terminal: Terminal) -> None:
    """A32: wrong, with what to do; the key does not show."""
    async with open_shop(terminal, bing_key="a-wrong-key-9876") as shop:
        checked = await terminal.run("check", "shop", "--json")
        key_file, sitemap, bing = checked.document["findings"]
        assert checked.code == 1
        assert (key_file["good"], sitemap["good"], bing["good"]) == (True, True, False)
        assert bing["advice"]
        assert "a-wrong-key-9876" not in checked.out + terminal.log
        assert shop.sent == (0, 0)


async def test_status_shows_what_is_used_of_bings_quota_what_remains_and_when_it_is_new(terminal: Terminal) -> None:
    """A28, A33: in a line for people, and in full for scripts."""
    async with open_shop(terminal, limit=12) as shop:
        await shop.run()
        shown, as_json = await run_together(terminal, ["status", "shop"], ["status", "shop", "--json"])
        document = as_json.document
        today = datetime.now(UTC).date()
        reset = datetime.combine(today + timedelta(days=1), time(), UTC)
        assert f"Bing: 5 of 12 used today, 7 remain; new at {reset:%Y-%m-%d %H:%M} UTC." in shown.out
        last = document["bing"].pop("lastSubmission")
        assert document["bing"] == {"enabled": True, "todayQuotaUsed": 5, "todayQuotaRemaining": 7}
        assert last.startswith(f"{today}")
        assert document["bingQuota"] == {
            "day": f"{today}",
            "limit": 12,
            "used": 5,
            "remaining": 7,
            "resetsAt": f"{reset:%Y-%m-%dT%H:%M:%S}.000Z",
            "switchedOff": False,
            "reason": None,
        }


async def test_status_says_that_bing_takes_no_more_although_we_counted_less(terminal: Terminal) -> None:
    """A28, A33: other programs used up the quota; our own count stays beside Bing's answer."""
    async with open_shop(terminal, quota=3, remaining=False) as shop:
        shop.bing.misbehave(refuse_exceeded(quota=3))
        await shop.run()
        shown = await terminal.run("status", "shop")
        assert "Bing: 0 of 100 used today by our own count, but Bing takes no more today; new at " in shown.out


async def test_status_says_why_bing_is_switched_off_and_nothing_of_it_where_it_is_not_wanted(
    terminal: Terminal,
) -> None:
    """A31, A33: the reason is shown, in red for people."""
    async with open_shop(terminal, bing_key="a-wrong-key-9876") as shop:
        ran = await shop.run()
        shown, as_json = await run_together(terminal, ["status", "shop"], ["status", "shop", "--json"])
        await terminal.run("sites", "set", "shop", "--no-bing")
        without = (await terminal.run("status", "shop", "--json")).document
        assert (ran.code, ran.document["status"]) == (1, "partial")
        assert "Bing: switched off since " in shown.out
        assert as_json.document["bingQuota"]["switchedOff"] is True
        assert (without["bing"], without["bingQuota"]) == ({"enabled": False}, None)


@pytest.mark.parametrize(("channel", "forgotten", "sent"), [([], 10, (10, 10)), (["bing"], 5, (5, 10))])
async def test_a_bad_execution_is_undone_on_one_channel_or_both(
    terminal: Terminal, channel: list[str], forgotten: int, sent: tuple[int, int]
) -> None:
    """A36, A41: what is forgotten is sent again by the next run, and nothing else."""
    async with open_shop(terminal) as shop:
        await shop.run()
        options = [word for name in channel for word in ("--channel", name)]
        undone = await terminal.run("ledger", "forget", "shop", "--since", "2020-01-01", *options)
        again = (await terminal.run("ledger", "forget", "shop", "--since", "2020-01-01", *options, "--json")).document
        await shop.run()
        assert undone.out == f"{forgotten} entries are forgotten; their pages are due again.\n"
        assert again == {"forgotten": 0}
        assert shop.sent == sent


async def test_a_site_is_removed_with_json(terminal: Terminal, stored: Site) -> None:
    """A2: and is gone."""
    removed = await terminal.run("sites", "remove", stored.id, "--json")
    assert removed.document == {"removed": "site.example"}
    assert (await terminal.run("sites", "list", "--json")).document == {"sites": []}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("serve", "Run the service: HTTP API, dashboard, schedule and work."),
        ("pause", "Stop the schedule of a site, or of everything."),
        ("resume", "Restart the schedule of a site, or of everything."),
        ("tokens", "Make and revoke tokens of the API."),
        ("tokens new", "Make a token and print it. It is not shown again."),
        ("tokens revoke", "Revoke a token."),
        ("tokens list", "List all tokens by scope and name."),
        ("sites add", "Store a site"),
        ("sites set", "Change some settings of a stored site. The others stay."),
        ("run", "Run a stored site, or the environment's site, now."),
        ("check", "asks Bing for its quota"),
        ("status", "its quotas"),
        ("ledger forget", "Undo a bad execution"),
    ],
)
def test_the_help_of_each_command_says_what_it_does(path: str, says: str) -> None:
    """Interfaces: as one sentence at its top, and every option but --help has words beside it."""
    result = CliRunner().invoke(make_app(), [*path.split(), "--help"])
    reported = " ".join(result.output.split())
    assert result.exit_code == 0
    assert says in reported
    assert ("--json" in reported) == (path not in ("serve", "tokens"))


async def test_shells_complete_commands_and_options(terminal: Terminal) -> None:
    """Interfaces: the script that a shell asks for, and the answers that it then gets."""
    bash = shutil.which("bash")
    assert bash is not None
    # Its own line after it keeps bash from giving way to the command: the shell is found among its ancestors.
    script = await asyncio.create_subprocess_exec(
        *(bash, "-c", f"{SCRIPT} --show-completion; exit $?"),
        env=terminal.variables,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    shown = await end(script)
    asked = {
        "tidings pau": ["pause"],
        "tidings tokens ": ["new", "revoke", "list"],
        "tidings run x --channel b": ["bing", "baidu"],
    }
    answers = await asyncio.gather(
        *(
            terminal.run(_TIDINGS_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
            for words in asked
        )
    )
    assert (shown.code, shown.err) == (0, "")
    assert "complete -o default -F _tidings_completion tidings" in shown.out
    assert [ended.out.split() for ended in answers] == list(asked.values())


@pytest.mark.parametrize(
    ("variable", "token", "rule"),
    [
        ("TIDINGS_TOKEN", "ab", "fewer than 16"),
        ("TIDINGS_CRAWL_TOKEN", "changeme-changeme-2026", "well-known"),
        ("TIDINGS_METRICS_TOKEN", "a" * 20, "repeats"),
    ],
)
async def test_the_service_does_not_start_with_a_token_that_can_be_guessed(
    terminal: Terminal, variable: str, token: str, rule: str
) -> None:
    """C25: as with a weak master key: one line that names the variable and not the token."""
    ended = await terminal.run("serve", "--port", "0", **{variable: token})
    assert ended.code == 2
    assert ended.complaint.startswith(f"tidings: {variable} is weak")
    assert (rule in ended.complaint, token in ended.complaint) == (True, False)
