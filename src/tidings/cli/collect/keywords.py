"""`tidings collect keywords`: the keywords that are watched."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.collect.run import require_platform
from tidings.cli.language import say, translate
from tidings.cli.options import PlatformArgument, make_group
from tidings.cli.output import escape, format_time, is_wide, print_json, print_table, show
from tidings.cli.session import Session, answering, command, fail

if TYPE_CHECKING:
    from tidings.collect.write.keywords import Keyword, RefreshPlan

app = make_group("Watch keywords on platforms.")

KeywordArgument = Annotated[str, typer.Argument(help="The words to search for.")]


@app.command("add")
@command
async def add(
    session: Session,
    platform: PlatformArgument,
    keyword: KeywordArgument,
    pages: Annotated[
        int | None, typer.Option("--pages", help="The pages of results to read, 1 to 20. [1, for a new keyword]")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only notes of this day or later, where the platform can.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only notes before this day.")] = None,
    refresh: Annotated[
        str | None, typer.Option("--refresh", help="Read its notes again this often, such as 1d; `off` ends it.")
    ] = None,
    period: Annotated[
        str | None, typer.Option("--for", help="How long after a note was collected. [7d, with --refresh]")
    ] = None,
    comments: Annotated[
        int | None, typer.Option("--comments", help="Collect this many comments of each note, 0 to 1000; 0 ends it.")
    ] = None,
) -> None:
    """Watch a keyword on a platform, or an author: author:ID.

    A period is a part of the keyword, as since:2026-01-01 until:2026-02-01. A keyword that is watched already keeps its
    pages, refresh and comments unless they are given, and is resumed if it was paused.
    """
    from tidings.collect.errors import CrawlError
    from tidings.wiring.crawl import make_keyword_checks, open_crawler

    require_platform(platform)
    days = [f"{name}:{_read_day(name, day)}" for name, day in (("since", since), ("until", until)) if day]
    keyword = " ".join([keyword, *days])
    installation = await session.open()
    try:
        async with open_crawler(installation) as crawler:
            checks = make_keyword_checks(installation, crawler=crawler)
            checks.check(platform, keyword, comments=comments)
            is_new = await installation.collect.keywords.add(
                platform, keyword, pages=pages, refresh=_read_plan(refresh, period), comments=comments
            )
            overload = await checks.find_overload(platform)
    except CrawlError as error:
        fail(translate(error.message))
    named = {"keyword": keyword.strip(), "platform": platform}
    typer.echo(
        say("Watching {keyword} on {platform}.", **named)
        if is_new
        else say("Still watching {keyword} on {platform}.", **named)
    )
    if overload is not None:
        warning = say(
            "Warning: searching {platform} needs {needed} uses a day, and its cookies allow {allowed}. Watch fewer "
            "keywords or pages, raise DISCOVER_INTERVAL_MINUTES, or `tidings cookies set NAME --daily-limit N`.",
            platform=platform,
            needed=overload.needed,
            allowed=overload.allowed,
        )
        typer.echo(warning, err=True)


def _read_day(name: str, text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        fail("--{name} must be a day such as 2026-01-01", name=name)


def _read_plan(refresh: str | None, period: str | None) -> "RefreshPlan | None":
    from tidings.collect.write.keywords import NO_REFRESH, parse_refresh

    if refresh is None:
        if period is not None:
            fail("--for needs --refresh")
        return None
    return NO_REFRESH if refresh == "off" else parse_refresh(refresh, period)


@app.command("list")
@answering
async def list_keywords(session: Session) -> None:
    """List the watched keywords and the result of their last search."""
    installation = await session.open()
    found = await installation.collect.keywords.list_all()
    if session.as_json:
        from tidings.web.models.collect import KeywordsAnswer

        print_json(KeywordsAnswer.describe(keywords=found).to_json())
        return
    wishes = {
        say("refresh"): [str(keyword.refresh or "") for keyword in found],
        say("comments"): [f"{keyword.comments:,}" if keyword.comments else "" for keyword in found],
    }
    # A terminal of 80 columns has no room for columns that say nothing, nor for the last search beside all others.
    kept = {title: cells for title, cells in wishes.items() if any(cells)}
    searched = [format_time(keyword.last_run_at, missing=say("never")) for keyword in found]
    last = {say("last search"): searched} if is_wide() or not kept else {}
    rows = [
        _make_row(keyword, [cells[at] for cells in kept.values()], [cells[at] for cells in last.values()])
        for at, keyword in enumerate(found)
    ]
    titles = (say("platform"), say("keyword"), say("pages"), *kept, say("state"), *last)
    print_table(rows, *titles, say("found"), say("new"), say("problem"))


@app.command("remove")
@command
async def remove(session: Session, platform: PlatformArgument, keyword: KeywordArgument) -> None:
    """Stop watching a keyword. Its candidates stay, and are collected."""
    _check_keyword(keyword)
    installation = await session.open()
    _require_found(await installation.collect.keywords.remove(platform, keyword), platform, keyword)
    show("Removed {keyword} on {platform}.", keyword=keyword.strip(), platform=platform)


@app.command("pause")
@command
async def pause(session: Session, platform: PlatformArgument, keyword: KeywordArgument) -> None:
    """Keep a keyword, but do not search for it."""
    await _set_enabled(session, platform, keyword, enabled=False)
    show("Paused {keyword} on {platform}.", keyword=keyword.strip(), platform=platform)


@app.command("resume")
@command
async def resume(session: Session, platform: PlatformArgument, keyword: KeywordArgument) -> None:
    """Search for a paused keyword again."""
    await _set_enabled(session, platform, keyword, enabled=True)
    show("Resumed {keyword} on {platform}.", keyword=keyword.strip(), platform=platform)


async def _set_enabled(session: Session, platform: str, keyword: str, *, enabled: bool) -> None:
    _check_keyword(keyword)
    installation = await session.open()
    _require_found(
        await installation.collect.keywords.set_enabled(platform, keyword, enabled=enabled), platform, keyword
    )


def _check_keyword(keyword: str) -> None:
    from tidings.collect.crawl.platforms.protocol import check_search
    from tidings.collect.errors import CrawlError

    try:
        check_search(keyword, page=1)
    except CrawlError as error:
        fail(translate(error.message))


def _require_found(found: bool, platform: str, keyword: str) -> None:
    if not found:
        message = say(
            "{keyword!r} is not watched on {platform}; `tidings collect keywords list` shows the keywords",
            keyword=keyword.strip(),
            platform=platform,
        )
        fail(message)


def _make_row(keyword: "Keyword", wishes: Sequence[str], searched: Sequence[str]) -> tuple[str, ...]:
    """`wishes` and `searched`: the cells of the columns that are not always shown."""
    return (
        escape(keyword.platform),
        escape(keyword.keyword),
        str(keyword.pages),
        *wishes,
        say("watched") if keyword.enabled else f"[yellow]{say('paused')}[/]",
        *searched,
        "-" if keyword.last_found is None else f"{keyword.last_found:,}",
        "-" if keyword.last_created is None else f"{keyword.last_created:,}",
        f"[red]{keyword.last_error_code}[/]" if keyword.last_error_code else "",
    )
