"""`tidings cookies`: the accounts that the crawl API may use. A cookie is asked for or piped in, and never an argument:
those stand in the list of processes, which every user of the machine can read."""

import json
import sys
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.table import Table

from tidings.cli.announce.announce import JsonOption
from tidings.cli.announce.report import make_console
from tidings.cli.session import fail, load_settings, open_session, run
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.write.cookies import (
    DEFAULT_DAILY_LIMIT,
    DEFAULT_PRIORITY,
    CookieError,
    CookieRecords,
    make_cookie,
)
from tidings.core.clock import to_text
from tidings.core.secrets.secret import Secret
from tidings.wiring import Installation

app = typer.Typer(help="Set up the cookies of your accounts.", no_args_is_help=True, rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(help="The cookie's name, which answers and logs show.")]

_LONGEST_INPUT: Final = 65_536
# A terminal hands on no more of one line, and drops the rest without a word.
_LONGEST_LINE: Final = 4_095


@app.command("add")
def add(
    name: NameArgument,
    platform: Annotated[str, typer.Option("--platform", help="Whose cookie it is, such as bilibili.")],
    priority: Annotated[int, typer.Option("--priority", help="The highest is used first.")] = DEFAULT_PRIORITY,
    daily_limit: Annotated[
        int, typer.Option("--daily-limit", help="The most uses in one UTC day; each search and each note is a use.")
    ] = DEFAULT_DAILY_LIMIT,
) -> None:
    """Store a cookie, encrypted. It is asked for without showing it, or read from standard input. One of the same name
    is replaced."""
    settings = load_settings()
    try:
        new = make_cookie(name, platform=platform, secret=_ask_cookie(), priority=priority, daily_limit=daily_limit)
    except CookieError as error:
        fail(str(error))

    async def work() -> bool:
        async with open_session(settings) as installation:
            installation.redactor.add(new.secret)
            try:
                return await open_records(installation).add(new)
            except CookieError as error:
                fail(str(error))

    typer.echo(f"{'Replaced' if run(work) else 'Stored'} {name}.")


@app.command("list")
def list_cookies(as_json: JsonOption = False) -> None:
    """Show all cookies and how they stand; the cookies themselves are not shown."""
    settings = load_settings()

    async def work() -> list[Cookie]:
        async with open_session(settings) as installation:
            return await open_records(installation).list_all()

    found = run(work)
    if as_json:
        typer.echo(json.dumps({"cookies": [_describe(cookie) for cookie in found]}, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "platform", "status", "priority", "used today", "errors", "cooling until"):
        table.add_column(title)
    for cookie in found:
        table.add_row(*_make_row(cookie))
    make_console().print(table)


@app.command("enable")
def enable(name: NameArgument) -> None:
    """Put a cookie back to work that is cooling, invalid or banned; its errors are forgotten."""
    settings = load_settings()

    async def work() -> bool:
        async with open_session(settings) as installation:
            return await open_records(installation).enable(name)

    _require_found(run(work), name)
    typer.echo(f"Enabled {name}.")


@app.command("remove")
def remove(name: NameArgument) -> None:
    """Delete a cookie."""
    settings = load_settings()

    async def work() -> bool:
        async with open_session(settings) as installation:
            return await open_records(installation).remove(name)

    _require_found(run(work), name)
    typer.echo(f"Removed {name}.")


def open_records(installation: Installation) -> CookieRecords:
    """The cookies of this installation."""
    return CookieRecords(installation.database, keys=installation.keys, clock=installation.clock)


def _ask_cookie() -> Secret:
    if not sys.stdin.isatty():
        # What is no text breaks a rule further on, and not the reading, whose error would carry it.
        return Secret(sys.stdin.buffer.read(_LONGEST_INPUT).decode("utf-8", "replace"))
    given: str = typer.prompt("Cookie (not shown)", hide_input=True, err=True)
    if len(given) >= _LONGEST_LINE:
        fail("the terminal has cut the cookie off; put it in a file, and add it with: tidings cookies add … < FILE")
    return Secret(given)


def _require_found(found: bool, name: str) -> None:
    if not found:
        fail(f"there is no cookie {name!r}; `tidings cookies list` shows them")


def _describe(cookie: Cookie) -> dict[str, Any]:
    state = cookie.state
    return {
        "name": cookie.name,
        "platform": cookie.platform,
        "status": state.status.value,
        "priority": cookie.priority,
        "dailyUsed": state.daily_used,
        "dailyLimit": cookie.daily_limit,
        "consecutiveErrors": state.consecutive_errors,
        "totalErrors": state.total_errors,
        "coolingUntil": None if state.cooling_until is None else to_text(state.cooling_until),
        "lastUsedAt": None if cookie.last_used_at is None else to_text(cookie.last_used_at),
        "createdAt": to_text(cookie.created_at),
        "updatedAt": to_text(cookie.updated_at),
    }


def _make_row(cookie: Cookie) -> tuple[str, ...]:
    state = cookie.state
    return (
        escape(cookie.name),
        escape(cookie.platform),
        state.status.value,
        str(cookie.priority),
        f"{state.daily_used:,} of {cookie.daily_limit:,}",
        f"{state.consecutive_errors:,} in a row, {state.total_errors:,} in all",
        "-" if state.cooling_until is None else f"{state.cooling_until:%Y-%m-%d %H:%M} UTC",
    )
