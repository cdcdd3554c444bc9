"""`tidings collect keywords`: what is watched."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from tidings.cli.announce.announce import JsonOption
from tidings.cli.announce.report import make_console
from tidings.cli.collect.report import escape
from tidings.cli.session import fail, load_settings, open_session, run
from tidings.collect.crawl.platforms.protocol import check_search
from tidings.collect.crawl.platforms.registry import list_platforms
from tidings.collect.errors import CrawlError
from tidings.collect.write import Keyword
from tidings.core.clock import to_text

app = typer.Typer(help="Say what is watched.", no_args_is_help=True, rich_markup_mode=None)

PlatformArgument = Annotated[str, typer.Argument(help="A platform, such as bilibili.")]
KeywordArgument = Annotated[str, typer.Argument(help="What to search for.")]


@app.command("add")
def add(
    platform: PlatformArgument,
    keyword: KeywordArgument,
    pages: Annotated[int, typer.Option("--pages", help="How many pages of results are looked at, 1 to 20.")] = 1,
) -> None:
    """Watch a keyword on a platform. One that is watched already gets this number of pages, and goes on if it was
    paused."""
    settings = load_settings()
    require_platform(platform)

    async def work() -> bool:
        async with open_session(settings) as installation:
            try:
                return await installation.keywords.add(platform, keyword, pages=pages)
            except CrawlError as error:
                fail(error.message)

    typer.echo(f"{'Watching' if run(work) else 'Still watching'} {keyword.strip()} on {platform}.")


@app.command("list")
def list_keywords(as_json: JsonOption = False) -> None:
    """Show what is watched, and how the last search for it went."""
    settings = load_settings()

    async def work() -> list[Keyword]:
        async with open_session(settings) as installation:
            return await installation.keywords.list_all()

    found = run(work)
    if as_json:
        typer.echo(json.dumps({"keywords": [_describe(keyword) for keyword in found]}, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("platform", "keyword", "pages", "state", "last search", "found", "new", "trouble"):
        table.add_column(title, overflow="fold")
    for keyword in found:
        table.add_row(*_make_row(keyword))
    make_console().print(table)


@app.command("remove")
def remove(platform: PlatformArgument, keyword: KeywordArgument) -> None:
    """Watch it no longer. What it has found stays, and is collected."""
    settings = load_settings()
    _check_keyword(keyword)

    async def work() -> bool:
        async with open_session(settings) as installation:
            return await installation.keywords.remove(platform, keyword)

    _require_found(run(work), platform, keyword)
    typer.echo(f"Removed {keyword.strip()} on {platform}.")


@app.command("pause")
def pause(platform: PlatformArgument, keyword: KeywordArgument) -> None:
    """Keep it, but do not search for it."""
    _set_enabled(platform, keyword, enabled=False)
    typer.echo(f"Paused {keyword.strip()} on {platform}.")


@app.command("resume")
def resume(platform: PlatformArgument, keyword: KeywordArgument) -> None:
    """Search for it again."""
    _set_enabled(platform, keyword, enabled=True)
    typer.echo(f"Resumed {keyword.strip()} on {platform}.")


def require_platform(platform: str) -> None:
    """End the command where there is no such platform."""
    if platform not in (names := list_platforms()):
        fail(f"there is no platform {platform!r}; there are {', '.join(names)}")


def _set_enabled(platform: str, keyword: str, *, enabled: bool) -> None:
    settings = load_settings()
    _check_keyword(keyword)

    async def work() -> bool:
        async with open_session(settings) as installation:
            return await installation.keywords.set_enabled(platform, keyword, enabled=enabled)

    _require_found(run(work), platform, keyword)


def _check_keyword(keyword: str) -> None:
    try:
        check_search(keyword, page=1)
    except CrawlError as error:
        fail(error.message)


def _require_found(found: bool, platform: str, keyword: str) -> None:
    if not found:
        fail(f"{keyword.strip()!r} is not watched on {platform}; `tidings collect keywords list` shows what is")


def _describe(keyword: Keyword) -> dict[str, Any]:
    return {
        "platform": keyword.platform,
        "keyword": keyword.keyword,
        "pages": keyword.pages,
        "enabled": keyword.enabled,
        "lastRunAt": None if keyword.last_run_at is None else to_text(keyword.last_run_at),
        "lastFound": keyword.last_found,
        "lastCreated": keyword.last_created,
        "lastErrorCode": keyword.last_error_code,
    }


def _make_row(keyword: Keyword) -> tuple[str, ...]:
    return (
        escape(keyword.platform),
        escape(keyword.keyword),
        str(keyword.pages),
        "watched" if keyword.enabled else "[yellow]paused[/]",
        "never" if keyword.last_run_at is None else f"{keyword.last_run_at:%Y-%m-%d %H:%M} UTC",
        "-" if keyword.last_found is None else f"{keyword.last_found:,}",
        "-" if keyword.last_created is None else f"{keyword.last_created:,}",
        f"[red]{keyword.last_error_code}[/]" if keyword.last_error_code else "",
    )
