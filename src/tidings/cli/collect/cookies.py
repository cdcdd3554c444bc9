"""`tidings cookies`: the accounts that the crawl API may use.

A cookie is asked for or piped in. It is never an argument: every user of the machine can read the list of processes.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidings.cli.options import JsonOption, make_group
from tidings.cli.output import escape, format_time, print_json, print_table
from tidings.cli.session import Session, command, fail
from tidings.core.clock import to_text
from tidings.core.secrets.secret import Secret

if TYPE_CHECKING:
    from tidings.collect.crawl.cookies.table import Cookie

app = make_group("Store the cookies of your accounts.")

NameArgument = Annotated[str, typer.Argument(help="The cookie's name in answers and logs.")]

_LONGEST_INPUT: Final = 65_536
# A terminal passes on no more of one line, and drops the rest silently.
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
        typer.Option("--daily-limit", help="The most uses a UTC day; a search or a note is a use. [200]"),
    ] = None,
) -> None:
    """Store a cookie, encrypted. It is asked for, or read from standard input.

    A cookie of the same name is replaced.
    """
    from tidings.collect.write.cookies import DEFAULT_DAILY_LIMIT, DEFAULT_PRIORITY, CookieError, make_cookie

    try:
        new = make_cookie(
            name,
            platform=platform,
            secret=_ask_cookie(),
            priority=DEFAULT_PRIORITY if priority is None else priority,
            daily_limit=DEFAULT_DAILY_LIMIT if daily_limit is None else daily_limit,
        )
        installation = await session.open()
        installation.redactor.add(new.secret)
        is_replaced = await installation.cookies.add(new)
    except CookieError as error:
        fail(str(error))
    typer.echo(f"{'Replaced' if is_replaced else 'Stored'} {name}.")


@app.command("list")
@command
async def list_cookies(session: Session, as_json: JsonOption = False) -> None:
    """List all cookies and their status, never their values."""
    installation = await session.open()
    found = await installation.cookies.list_all()
    if as_json:
        print_json({"cookies": [_describe(cookie) for cookie in found]})
        return
    print_table(
        [_make_row(cookie) for cookie in found],
        *("name", "platform", "status", "priority", "used today", "errors", "cooling until"),
    )


@app.command("enable")
@command
async def enable(session: Session, name: NameArgument) -> None:
    """Make a cooling, invalid or banned cookie active again. Its error counts become 0."""
    installation = await session.open()
    _require_found(await installation.cookies.enable(name), name)
    typer.echo(f"Enabled {name}.")


@app.command("remove")
@command
async def remove(session: Session, name: NameArgument) -> None:
    """Delete a cookie."""
    installation = await session.open()
    _require_found(await installation.cookies.remove(name), name)
    typer.echo(f"Removed {name}.")


def _ask_cookie() -> Secret:
    if not sys.stdin.isatty():
        # Bytes that are no text break a rule later. A decoding error here would carry the cookie.
        return Secret(sys.stdin.buffer.read(_LONGEST_INPUT).decode("utf-8", "replace"))
    given: str = typer.prompt("Cookie (not shown)", hide_input=True, err=True)
    if len(given) >= _LONGEST_LINE:
        fail("the terminal cut the cookie off; put it into a file, and run: tidings cookies add … < FILE")
    return Secret(given)


def _require_found(found: bool, name: str) -> None:
    if not found:
        fail(f"there is no cookie {name!r}; `tidings cookies list` shows the cookies")


def _describe(cookie: "Cookie") -> dict[str, Any]:
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


def _make_row(cookie: "Cookie") -> tuple[str, ...]:
    state = cookie.state
    return (
        escape(cookie.name),
        escape(cookie.platform),
        state.status.value,
        str(cookie.priority),
        f"{state.daily_used:,} of {cookie.daily_limit:,}",
        f"{state.consecutive_errors:,} in a row, {state.total_errors:,} in all",
        format_time(state.cooling_until),
    )
