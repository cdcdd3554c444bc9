"""`tidings cookies`: the accounts that the crawl API may use.

A cookie is asked for or piped in. It is never an argument: every user of the machine can read the list of processes.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidings.cli.collect.run import require_platform
from tidings.cli.language import say, say_word, translate
from tidings.cli.options import make_group
from tidings.cli.output import escape, format_time, print_json, print_table, show
from tidings.cli.session import Exit, Session, answering, command, fail
from tidings.core.clock import to_text
from tidings.core.secrets.secret import Secret

if TYPE_CHECKING:
    from tidings.collect.crawl.cookies.table import Cookie
    from tidings.collect.crawl.session_check import CookieCheck
    from tidings.collect.write.cookies import NewCookie

app = make_group("Store the cookies of your accounts.")

NameArgument = Annotated[str, typer.Argument(help="The cookie's name in answers and logs.")]

_LONGEST_INPUT: Final = 65_536
# The most characters of a line that a terminal passes on; it drops the rest silently.
_LONGEST_LINE: Final = 4_095


@app.command("add")
@command
async def add(
    session: Session,
    name: NameArgument,
    platform: Annotated[str, typer.Option("--platform", help="The cookie's platform, such as bilibili.")],
    priority: Annotated[int | None, typer.Option("--priority", help="The highest is used first. [0]")] = None,
    daily_limit: Annotated[
        int | None,
        typer.Option("--daily-limit", help="The most uses a UTC day; a search or a note is a use. [500]"),
    ] = None,
    user_agent: Annotated[
        str | None,
        typer.Option("--user-agent", help="The browser that it came from; a request copied as cURL names it itself."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Read it from this file instead.", exists=True, dir_okay=False)
    ] = None,
) -> None:
    """Store a cookie, encrypted. It is asked for, or read from a file or standard input.

    It may be a Cookie header, a cookies.txt file, or a request that the browser copied as cURL (bash or cmd). A cookie
    of the same name is replaced.
    """
    from tidings.collect.pasted_cookie import CookieError
    from tidings.collect.write.cookies import DEFAULT_DAILY_LIMIT, DEFAULT_PRIORITY, make_cookie

    require_platform(platform)
    try:
        new = make_cookie(
            name,
            platform=platform,
            secret=_ask_cookie(file),
            user_agent=user_agent,
            priority=DEFAULT_PRIORITY if priority is None else priority,
            daily_limit=DEFAULT_DAILY_LIMIT if daily_limit is None else daily_limit,
        )
        installation = await session.open()
        installation.redactor.add(new.secret)
        is_replaced = await installation.collect.cookies.add(new)
    except CookieError as error:
        fail(translate(str(error)))
    typer.echo(say("Replaced {name}.", name=name) if is_replaced else say("Stored {name}.", name=name))
    _explain_stored(new)


@app.command("set")
@command
async def change(
    session: Session,
    name: NameArgument,
    priority: Annotated[int | None, typer.Option("--priority", help="The highest is used first.")] = None,
    daily_limit: Annotated[int | None, typer.Option("--daily-limit", help="The most uses a UTC day.")] = None,
) -> None:
    """Change priority or daily limit without entering the cookie again."""
    from tidings.collect.pasted_cookie import CookieError

    if priority is None and daily_limit is None:
        fail("give --priority or --daily-limit")
    installation = await session.open()
    try:
        _require_found(
            await installation.collect.cookies.change(name, priority=priority, daily_limit=daily_limit), name
        )
    except CookieError as error:
        fail(translate(str(error)))
    show("Changed {name}.", name=name)


@app.command("check")
@answering
async def check(session: Session, name: NameArgument) -> Exit:
    """Ask the platform who is logged in with a cookie. It reads no note and counts as no use.

    Exit code 0: logged in. 1: logged out, or the platform did not answer. 2: bad input.
    """
    from tidings.collect.errors import CrawlError
    from tidings.core.secrets.master_key import KeyRingError
    from tidings.wiring.crawl import open_crawler

    installation = await session.open()
    stored = next((cookie for cookie in await installation.collect.cookies.list_all() if cookie.name == name), None)
    _require_found(stored is not None, name)
    try:
        async with open_crawler(installation) as crawler:
            found = await crawler.check_cookie(name)
    except (CrawlError, KeyRingError) as error:
        fail(translate(str(error)), code=Exit.FAILED)
    assert found is not None and stored is not None  # noqa: S101, PT018 - it was there a moment ago
    session.answer(_describe_check(found, stored), _write_check(found, stored))
    return Exit.DONE if found.is_usable else Exit.FAILED


@app.command("list")
@answering
async def list_cookies(session: Session) -> None:
    """List all cookies and their status, never their values."""
    installation = await session.open()
    found = await installation.collect.cookies.list_all()
    if session.as_json:
        from tidings.web.models.collect import CookiesAnswer

        print_json(CookiesAnswer.describe(cookies=found).to_json())
        return
    print_table(
        [_make_row(cookie) for cookie in found],
        *(say("name"), say("platform"), say("status"), say("priority"), say("used today"), say("errors")),
        *(say("cooling until"), say("ends")),
    )


@app.command("enable")
@command
async def enable(session: Session, name: NameArgument) -> None:
    """Make a cooling, invalid or banned cookie active again. Its error counts become 0."""
    installation = await session.open()
    _require_found(await installation.collect.cookies.enable(name), name)
    show("Enabled {name}.", name=name)


@app.command("remove")
@command
async def remove(session: Session, name: NameArgument) -> None:
    """Delete a cookie."""
    installation = await session.open()
    _require_found(await installation.collect.cookies.remove(name), name)
    show("Removed {name}.", name=name)


def _explain_stored(new: "NewCookie") -> None:
    """The properties of the cookie, and possible mistakes."""
    from tidings.collect.pasted_cookie import list_missing

    if missing := list_missing(new.platform, new.secret):
        warning = say(
            "Warning: it has no {names}, so {platform} will take it for a stranger's.",
            names=", ".join(missing),
            platform=new.platform,
        )
        typer.echo(warning, err=True)
    if new.user_agent is None:
        show(
            "Its browser is not known: paste a request that was copied as cURL, or name the browser with --user-agent.",
            err=True,
        )
    if new.expires_at is not None:
        show("It ends on {time} at the latest.", time=format_time(new.expires_at))
    show("`tidings cookies check {name}` asks {platform} whether it works.", name=new.name, platform=new.platform)


def _write_check(found: "CookieCheck", stored: "Cookie") -> str:
    if found.session is None:
        reason = translate(found.error.message) if found.error else say("no answer")
        return say("{platform} did not say: {reason}.", platform=found.platform, reason=reason)
    if not found.session.is_logged_in:
        return say(
            "Logged out. Log in to {platform} with a browser, then `tidings cookies add {name} --platform {platform}`.",
            platform=found.platform,
            name=found.name,
        )
    session = found.session
    # Weibo returns only the number of the account.
    account = session.account_name or session.account_id
    if session.account_name and session.account_id:
        account += f" ({session.account_id})"
    until, renewal = "", ""
    if stored.expires_at is not None:
        until = say(", until {time} at the latest", time=format_time(stored.expires_at))
    if session.wants_renewal:
        renewal = say(" The platform would renew the session now: store a new cookie soon.")
    shown = escape(account) or say("an account")
    return say("Logged in as {account}{until}.{renewal}", account=shown, until=until, renewal=renewal)


def _describe_check(found: "CookieCheck", stored: "Cookie") -> dict[str, Any]:
    return {
        "name": found.name,
        "platform": found.platform,
        "loggedIn": None if found.session is None else found.session.is_logged_in,
        "accountId": "" if found.session is None else found.session.account_id,
        "accountName": "" if found.session is None else found.session.account_name,
        "wantsRenewal": False if found.session is None else found.session.wants_renewal,
        "expiresAt": None if stored.expires_at is None else to_text(stored.expires_at),
        "error": None if found.error is None else {"code": found.error.code.value, "message": found.error.message},
    }


def _ask_cookie(file: Path | None) -> Secret:
    if file is not None:
        return Secret(file.read_bytes()[:_LONGEST_INPUT].decode("utf-8", "replace"))
    if not sys.stdin.isatty():
        # Invalid bytes break a rule later. A decoding error here would contain the cookie.
        return Secret(sys.stdin.buffer.read(_LONGEST_INPUT).decode("utf-8", "replace"))
    given: str = typer.prompt(say("Cookie (not shown)"), hide_input=True, err=True)
    if len(given) >= _LONGEST_LINE:
        fail("the terminal cut the cookie off; put it into a file, and run: tidings cookies add … < FILE")
    return Secret(given)


def _require_found(found: bool, name: str) -> None:
    if not found:
        fail("there is no cookie {name!r}; `tidings cookies list` shows the cookies", name=name)


def _make_row(cookie: "Cookie") -> tuple[str, ...]:
    state = cookie.state
    return (
        escape(cookie.name),
        escape(cookie.platform),
        say_word(state.status.value),
        str(cookie.priority),
        say("{used} of {limit}", used=state.daily_used, limit=cookie.daily_limit),
        _describe_errors(state.consecutive_errors, state.total_errors),
        format_time(state.cooling_until),
        format_time(cookie.expires_at),
    )


def _describe_errors(row: int, total: int) -> str:
    return say("{row} in a row, {total} in all", row=row, total=total) if total else "-"
