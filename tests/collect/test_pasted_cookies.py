"""Cookies as people have them: a header, a cookies.txt file, a request copied as cURL for bash or cmd. The check that
asks a platform who is logged in talks to the sandbox."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.announce.bing_stage import MORNING
from tests.collect.runner_stage import RunnerStage, open_runner
from tests.fakes import StageClock
from tidings.collect.pasted_cookie import CookieError
from tidings.collect.write.cookies import make_cookie
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, SandboxBilibili
from tidings.sandbox.media.platform import SandboxMedia
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, SandboxWeibo
from tidings.sandbox.media.xiaohongshu import DEMO_XIAOHONGSHU_COOKIE, SandboxXiaohongshu

pytestmark = pytest.mark.one_database

AGENT = 'Mozilla/5.0 (Windows NT 10.0; Win64; x64; "quoted") AppleWebKit/537.36'
SESSION = "SESSDATA=sandbox12%2C1800000000%2Ccd34%2A11; bili_jct=0f!1; buvid3=AB-CD^EF%22"
BASH = f"""curl 'https://api.bilibili.com/x/web-interface/nav' \\
  -H 'accept: */*' \\
  -H $'cookie: {SESSION.replace("!", chr(92) + "u0021")}' \\
  -H 'user-agent: {AGENT}' \\
  --compressed
"""
BASH_B = f"curl --cookie='{SESSION}' -A '{AGENT}' https://api.bilibili.com/"
BASH_SHORT = f"curl 'https://api.bilibili.com/' -b '{SESSION}' -H 'User-Agent: {AGENT}'"


def _write_cmd(*arguments: str) -> str:
    """A command as Chrome copies it for cmd."""

    def escape(text: str) -> str:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-:=+~'/.,?;()*`"
        text = "".join(letter if letter in plain else f"^{letter}" for letter in text)
        for letter in "0123456789ABCDEFabcdef":
            text = text.replace(f"%{letter}", f"%^{letter}")
        return f'^"{text}^"'

    return "curl " + " ^\r\n  ".join(each if each.startswith("-") else escape(each) for each in arguments)


CMD = _write_cmd("https://api.bilibili.com/x", "-H", f"cookie: {SESSION}", "-H", f"user-agent: {AGENT}")
FILE = "\n".join(
    [
        "# Netscape HTTP Cookie File",
        "",
        "\t".join((".bilibili.com", "TRUE", "/", "TRUE", "1790000000", "buvid3", "AB")),
        "\t".join(("#HttpOnly_.bilibili.com", "TRUE", "/", "TRUE", "1800000000", "SESSDATA", "ab12")),
        "\t".join((".example.org", "TRUE", "/", "FALSE", "0", "other", "secret")),
    ]
)
END = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pasted", "header", "agent", "end"),
    [
        pytest.param(SESSION, SESSION, None, END, id="header"),
        pytest.param(f"Cookie: {SESSION}\r\n", SESSION, None, END, id="header with its name"),
        pytest.param(BASH, SESSION, AGENT, END, id="bash"),
        pytest.param(BASH_B, SESSION, AGENT, END, id="bash with options"),
        pytest.param(BASH_SHORT, SESSION, AGENT, END, id="bash with -b"),
        pytest.param(CMD, SESSION, AGENT, END, id="cmd"),
        pytest.param(FILE, "buvid3=AB; SESSDATA=ab12", None, END, id="cookies.txt"),
        pytest.param("SESSDATA=short", "SESSDATA=short", None, None, id="nothing tells the end"),
    ],
)
def test_a_cookie_is_read_as_the_browser_gives_it(
    pasted: str, header: str, agent: str | None, end: datetime | None
) -> None:
    """C31: every form gives the same header, its browser and its end."""
    new = make_cookie("one", platform="bilibili", secret=Secret(pasted))
    assert (new.secret.reveal(), new.user_agent, new.expires_at) == (header, agent, end)


def test_a_given_browser_wins_and_weibo_tells_its_end_too() -> None:
    """C31: --user-agent, and the end in ALF."""
    new = make_cookie("one", platform="weibo", secret=Secret("SUB=a; ALF=1800000000"), user_agent="Firefox")
    assert (new.user_agent, new.expires_at) == ("Firefox", END)


@pytest.mark.parametrize(
    ("pasted", "rule"),
    [
        pytest.param("curl 'https://example.org/' -H 'accept: canary'", "carries no cookie", id="no cookie"),
        pytest.param("curl 'https://example.org/ canary", "cut off", id="cut off"),
        pytest.param("\t".join((".example.org", "TRUE", "/", "TRUE", "0", "a", "canary")), "no cookies of", id="file"),
        pytest.param("canary", "name=value", id="no pair"),
        pytest.param("a=canary\x07", "printable", id="control"),
    ],
)
def test_what_is_no_cookie_is_refused_and_never_repeated(pasted: str, rule: str) -> None:
    """C31, C7: the message names the rule."""
    with pytest.raises(CookieError, match=rule) as raised:
        make_cookie("one", platform="bilibili", secret=Secret(pasted))
    assert "canary" not in str(raised.value)


async def test_a_check_says_who_is_logged_in_and_requests_name_browser_and_page(
    database_url: str, keys: KeyRing, process_lock: ProcessLock
) -> None:
    """C31: for three platforms, against the sandbox; an ended session is called so. No use is counted."""
    pages = {
        "bilibili": "https://www.bilibili.com",
        "weibo": "https://m.weibo.cn",
        "xiaohongshu": "https://www.xiaohongshu.com",
    }
    given = {"bilibili": DEMO_BILIBILI_COOKIE, "weibo": DEMO_WEIBO_COOKIE, "xiaohongshu": DEMO_XIAOHONGSHU_COOKIE}
    async with SandboxBilibili() as bilibili, SandboxWeibo() as weibo, SandboxXiaohongshu() as xiaohongshu:
        services = {"bilibili": bilibili, "weibo": weibo, "xiaohongshu": xiaohongshu}
        origins = {name: service.origin for name, service in services.items()}
        clock = StageClock(datetime.now(UTC))
        async with open_runner(
            database_url, clock=clock, keys=keys, process_lock=process_lock, crawl={"base_urls": origins}
        ) as stage:
            bilibili.wants_renewal = True
            for name, service in services.items():
                secret = Secret(given[name])
                await stage.cookies.add(make_cookie(name, platform=name, secret=secret, user_agent="Firefox/1"))
                await stage.cookies.add(make_cookie(f"{name}-old", platform=name, secret=_break(secret, service)))
                good, bad = await stage.crawler.check_cookie(name), await stage.crawler.check_cookie(f"{name}-old")
                assert good is not None
                assert good.session is not None, good
                assert (good.session.is_logged_in, good.session.wants_renewal) == (True, name == "bilibili")
                assert good.session.account_id
                assert bad is not None
                assert bad.session is not None, bad
                assert not bad.session.is_logged_in
                headers = service.requests[0].headers
                assert headers["User-Agent"] == "Firefox/1"
                assert (headers["Origin"], headers["Referer"]) == (pages[name], f"{pages[name]}/")
            assert {cookie.state.daily_used for cookie in await stage.cookies.list_all()} == {0}
            assert await stage.crawler.check_cookie("nobody") is None


def _break(secret: Secret, service: SandboxMedia) -> Secret:
    """The same cookie of a session that nobody knows."""
    pairs = dict(pair.strip().split("=", 1) for pair in secret.reveal().split(";"))
    pairs[service.session_cookie] = "another"
    return Secret("; ".join(f"{name}={value}" for name, value in pairs.items()))


async def test_a_cookie_that_ends_is_replaced_in_time(
    database_url: str, keys: KeyRing, process_lock: ProcessLock
) -> None:
    """C31: an alert three days before, and none after the new cookie is stored. Limits change without the cookie."""
    clock = StageClock(MORNING)
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as stage:
        await _store(stage, end=MORNING + timedelta(days=4))
        await stage.monitor.check()
        assert await stage.list_notified() == []
        clock.advance(timedelta(days=1, seconds=1))
        await stage.monitor.check()
        assert await stage.list_notified() == [("alert.fired", "cookie_ending", "one")]
        await _store(stage, end=MORNING + timedelta(days=90))
        await stage.monitor.check()
        assert (await stage.list_notified())[1:] == [("alert.resolved", "cookie_ending", "one")]
        assert await stage.cookies.change("one", priority=5, daily_limit=7)
        cookie = await stage.find_cookie("one")
        assert (cookie.priority, cookie.daily_limit, cookie.user_agent) == (5, 7, "Firefox")
        assert not await stage.cookies.change("two", priority=5)
        with pytest.raises(CookieError):
            await stage.cookies.change("one", daily_limit=0)


async def _store(stage: RunnerStage, *, end: datetime) -> None:
    secret = Secret(f"SUB=a-long-session; ALF={int(end.timestamp())}")
    await stage.cookies.add(make_cookie("one", platform="weibo", secret=secret, user_agent="Firefox"))
