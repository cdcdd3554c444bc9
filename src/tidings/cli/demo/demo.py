"""The command `tidings demo`: six steps that explain themselves, in a folder of their own."""

import fcntl
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import say
from tidings.cli.output import make_console
from tidings.cli.session import Exit, Session, command, fail

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.settings.settings import Settings


@command
async def demo(
    session: Session,
    pages: Annotated[int, typer.Option(help="The number of pages of the demo's site.", min=3_100)] = 4_000,
    once: Annotated[bool, typer.Option("--once", help="End after the six steps, without the dashboard.")] = False,
) -> Exit:
    """Try the whole job on this machine, with a made-up site.

    Announces a site to two engines and to Bing, and collects notes from two platforms. One engine and one platform have
    a bad day. Then serves the dashboard until Ctrl-C. Nothing leaves this machine.
    """
    settings = _make_settings(session.settings)
    with _own_folder(settings.data_dir):
        return await _play(session, settings, pages=pages, once=once)


async def _play(session: Session, settings: "Settings", *, pages: int, once: bool) -> Exit:
    """The six steps, and the dashboard unless `once`."""
    from tidings.cli.demo.announce import open_sandbox, show_announcing
    from tidings.cli.demo.collect import open_platforms, show_collecting, store_cookies
    from tidings.cli.demo.month import DemoClock, live_through_month
    from tidings.cli.demo.neighbours import open_neighbours

    console, clock = make_console(), DemoClock()
    async with (
        open_sandbox(settings, pages=pages, clock=clock) as (with_bing, sandbox),
        open_neighbours(with_bing, sandbox, clock=clock) as (with_baidu, neighbours),
        open_platforms(with_baidu, clock=clock) as (complete, platforms),
    ):
        installation = await session.open(complete, clock=clock)
        await store_cookies(installation)
        if not once:
            month = say("First a month passes for four further sites of the dashboard: ten seconds or so.")
            console.print(month, end="\n\n")
            await live_through_month(installation, neighbours, platforms, clock=clock)
        announced = await show_announcing(installation, sandbox, console=console)
        collected = await show_collecting(installation, platforms, console=console)
        _print_next_steps(settings.data_dir, console=console)
        if not once:
            from tidings.cli.demo.dashboard import show_dashboard

            await show_dashboard(installation, sandbox, neighbours, platforms, console=console)
    return Exit.DONE if announced and collected else Exit.FAILED


def _make_settings(settings: "Settings") -> "Settings":
    """The environment's settings with a folder apart, this machine only, short waits, and no wait for changes."""
    return replace(
        settings,
        data_dir=settings.data_dir / "demo",
        database_url=None,
        allow_networks=(ip_network("127.0.0.0/8"),),
        retry_scale=0.2,
        resubmit_gap=timedelta(0),
    )


@contextmanager
def _own_folder(data_dir: Path) -> Iterator[None]:
    """Begin with an empty folder. Only a folder that the demo has made is removed, and not while a demo uses it."""
    from tidings.storage import prepare_data_dir

    mark = data_dir / "made-by-tidings-demo"
    if data_dir.exists() and not mark.exists():
        fail("{folder} is not the demo's own folder; set TIDINGS_DATA_DIR to another place", folder=data_dir)
    prepare_data_dir(data_dir)
    with mark.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            running = say(
                "a demo is running in {folder}; end it with Ctrl-C, or set TIDINGS_DATA_DIR to another place",
                folder=data_dir,
            )
            fail(running)
        for path in data_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != mark:
                path.unlink()
        yield


def _print_next_steps(data_dir: Path, *, console: "Console") -> None:
    console.print()
    console.print(say("Data and log are in [bold]{folder}[/].", folder=data_dir.absolute()), end="\n\n")
    console.print(say("For your own site:"))
    _show_command(console, "keys new --indexnow", say("makes a key; KEY.txt goes to the site's root"))
    _show_command(console, "check https://example.com/sitemap.xml --key KEY")
    _show_command(console, "announce https://example.com/sitemap.xml --key KEY")
    console.print(say("For your own keywords:"))
    _show_command(console, "cookies add mine --platform bilibili", say("asks for your cookie"))
    _show_command(console, "collect keywords add bilibili KEYWORD")
    _show_command(console, "serve", say("does all of this by itself, every day"))


def _show_command(console: "Console", arguments: str, *remark: str) -> None:
    """A command as it can be typed: `make demo` calls .venv/bin/tidings, which is not in the PATH."""
    name = sys.argv[0] if "/" in sys.argv[0] and not sys.argv[0].startswith("/") else "tidings"
    console.print(f"  [bold]{name} {arguments}[/]", *(f"  {each}" for each in remark), soft_wrap=True)
