"""`tidings cookies` as people run it: the cookie comes from standard input or a terminal that does not show it, and
never leaves again."""

import asyncio
import os
import pty
import sqlite3

import pytest

from tests.cli.terminal import SCRIPT, Terminal

CANARY = "040069b1kanarienvogel7f3b9c"
COOKIE = f"web_session={CANARY}; a1=1"
ADD = ("cookies", "add", "mine", "--platform", "xiaohongshu")


@pytest.mark.thorough
async def test_a_cookie_is_added_listed_enabled_and_removed(terminal: Terminal) -> None:
    """C7, C9: from the pipe to the table; no command shows it, and neither do the log and the data directory."""
    added = await terminal.pipe(*ADD, "--priority", "3", "--daily-limit", "50", given=f"{COOKIE}\n")
    again = await terminal.pipe(*ADD, given=f"Cookie: {COOKIE}")
    listed, document = await asyncio.gather(terminal.run("cookies", "list"), terminal.run("cookies", "list", "--json"))
    with sqlite3.connect(terminal.data_dir / "tidings.db") as connection:
        connection.execute("UPDATE tbl_cookie SET status = 'banned', total_errors = 4")
    connection.close()
    banned = await terminal.run("cookies", "list", "--json")
    enabled = await terminal.run("cookies", "enable", "mine")
    after = await terminal.run("cookies", "list", "--json")
    removed = await terminal.run("cookies", "remove", "mine")
    gone = [await terminal.run("cookies", verb, "mine") for verb in ("enable", "remove")]
    assert [(each.code, each.out.splitlines()[0]) for each in (added, again, enabled, removed)] == [
        (0, "Stored mine."),
        (0, "Replaced mine."),
        (0, "Enabled mine."),
        (0, "Removed mine."),
    ]
    row = " ".join(listed.out.splitlines()[1].split())
    assert row == "mine xiaohongshu active 0 0 of 500 - - -"
    (cookie,) = document.document["cookies"]
    assert (cookie["name"], cookie["status"], cookie["dailyLimit"]) == ("mine", "active", 500)
    statuses = [each.document["cookies"][0]["status"] for each in (banned, after)]
    assert statuses == ["banned", "active"]
    assert [(each.code, "there is no cookie 'mine'" in each.complaint) for each in gone] == [(2, True)] * 2
    shown = "".join(each.out + each.err for each in (added, again, listed, document, enabled, removed))
    files = await asyncio.to_thread(
        lambda: b"".join(p.read_bytes() for p in terminal.data_dir.rglob("*") if p.is_file())
    )
    assert CANARY not in shown
    assert CANARY.encode() not in files
    assert b"cookie.stored" in files


@pytest.mark.thorough
async def test_a_broken_row_is_listed_and_can_be_removed(terminal: Terminal) -> None:
    """C9: no matter what another program wrote into the table, beside the cookies that are whole."""
    await terminal.pipe(*ADD, given=COOKIE.encode())
    await terminal.pipe("cookies", "add", "other", "--platform", "weibo", given="SUB=1")
    with sqlite3.connect(terminal.data_dir / "tidings.db") as connection:
        connection.execute("UPDATE tbl_cookie SET used_on = 'never', daily_limit = 'many' WHERE cookie_name = 'mine'")
    connection.close()
    shown, document = [await terminal.run("cookies", "list", *more) for more in ((), ("--json",))]
    removed = await terminal.run("cookies", "remove", "mine")
    left = await terminal.run("cookies", "list", "--json")
    assert [line.split()[:3] for line in shown.out.splitlines()[1:]] == [
        ["mine", "xiaohongshu", "unreadable"],
        ["other", "weibo", "active"],
    ]
    assert [(each["name"], each["status"]) for each in document.document["cookies"]] == [
        ("mine", "unreadable"),
        ("other", "active"),
    ]
    assert (removed.out, [each["name"] for each in left.document["cookies"]]) == ("Removed mine.\n", ["other"])


@pytest.mark.thorough
async def test_a_terminal_is_asked_without_showing_what_is_typed(terminal: Terminal) -> None:
    """C7: nothing of it comes back, from the question to the end."""
    code, shown = await asyncio.to_thread(type_cookie, terminal, COOKIE)
    listed = await terminal.run("cookies", "list", "--json")
    assert (code, "Cookie (not shown): " in shown, "Stored mine." in shown) == (0, True, True)
    assert CANARY not in shown
    assert [cookie["name"] for cookie in listed.document["cookies"]] == ["mine"]


@pytest.mark.thorough
async def test_a_cookie_that_the_terminal_has_cut_off_is_refused(terminal: Terminal) -> None:
    """C9: half a cookie would only fail later; the line says how to give it whole."""
    code, shown = await asyncio.to_thread(type_cookie, terminal, f"{COOKIE}; long={'x' * 5_000}")
    assert (code, "the terminal cut the cookie off" in shown) == (2, True)


def type_cookie(terminal: Terminal, cookie: str) -> tuple[int, str]:
    """Run `cookies add` on a terminal, answer its question, and return its end and all that the terminal showed."""
    process, screen = pty.fork()
    if process == 0:
        os.execve(SCRIPT, [str(SCRIPT), *ADD], terminal.variables)
    shown, typed = b"", False
    while True:
        try:
            piece = os.read(screen, 4_096)
        except OSError:
            break
        shown += piece
        if not piece:
            break
        if b"(not shown): " in shown and not typed:
            os.write(screen, f"{cookie}\n".encode())
            typed = True
    _, status = os.waitpid(process, 0)
    os.close(screen)
    return os.waitstatus_to_exitcode(status), shown.decode()


@pytest.mark.parametrize(
    ("words", "given", "rule"),
    [
        pytest.param(ADD, b"", "name=value pairs", id="nothing"),
        pytest.param(ADD, CANARY.encode(), "name=value pairs", id="no pair"),
        pytest.param(ADD, f"{COOKIE}\nx-more: {CANARY}".encode(), "one line", id="two lines"),
        pytest.param(ADD, COOKIE.encode() + b"\xff", "one line", id="no text"),
        pytest.param(("cookies", "add", "a b", "--platform", "weibo"), COOKIE.encode(), "the name", id="a bad name"),
        pytest.param((*ADD, "--daily-limit", "0"), COOKIE.encode(), "the daily limit", id="a bad limit"),
    ],
)
async def test_bad_input_ends_with_2_and_one_line_without_the_cookie(
    terminal: Terminal, words: tuple[str, ...], given: bytes, rule: str
) -> None:
    """C7: the line names the rule, and nothing is stored."""
    ended = await terminal.pipe(*words, given=given)
    assert ended.code == 2
    assert rule in ended.complaint
    assert CANARY not in ended.complaint
    assert not terminal.data_dir.exists()


async def test_a_name_of_another_platform_is_not_overwritten(terminal: Terminal) -> None:
    """C9: two accounts cannot be taken for each other."""
    await terminal.pipe(*ADD, given=COOKIE.encode())
    ended = await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given="SUB=1")
    assert (ended.code, "for xiaohongshu; remove it" in ended.complaint) == (2, True)


async def test_a_platform_that_does_not_exist_is_refused_with_the_nearest_name(terminal: Terminal) -> None:
    """C31: nothing is stored for it."""
    refused = await terminal.pipe("cookies", "add", "mine", "--platform", "bilibli", given=COOKIE)
    listed = await terminal.run("cookies", "list", "--json")
    assert (refused.code, "did you mean bilibili?" in refused.err) == (2, True)
    assert listed.document["cookies"] == []


async def test_limits_are_changed_without_the_cookie(terminal: Terminal) -> None:
    """C31: priority and daily limit, each alone or both."""
    await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given=COOKIE)
    changed = await terminal.run("cookies", "set", "mine", "--priority", "5", "--daily-limit", "7")
    nothing = await terminal.run("cookies", "set", "mine")
    (cookie,) = (await terminal.run("cookies", "list", "--json")).document["cookies"]
    assert (changed.code, nothing.code) == (0, 2)
    assert (cookie["priority"], cookie["dailyLimit"]) == (5, 7)
