"""The command `tidings demo`: six steps that explain themselves, in a folder of their own."""

import shutil
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.output import make_console
from tidings.cli.session import Exit, Session, command, fail

if TYPE_CHECKING:
    from rich.console import Console

    from tidings.settings import Settings


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
    from tidings.cli.demo.announce import open_sandbox, show_announcing
    from tidings.cli.demo.collect import open_platforms, show_collecting

    settings = _make_settings(session.settings)
    _clear(settings.data_dir)
    console = make_console()
    async with (
        open_sandbox(settings, pages=pages) as (with_bing, sandbox),
        open_platforms(with_bing) as (complete, platforms),
    ):
        installation = await session.open(complete)
        announced = await show_announcing(installation, sandbox, console=console)
        collected = await show_collecting(installation, platforms, console=console)
        _print_next_steps(settings.data_dir, console=console)
        if not once:
            from tidings.cli.demo.dashboard import show_dashboard

            await show_dashboard(installation, sandbox, platforms, console=console)
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


def _clear(data_dir: Path) -> None:
    """Begin with an empty folder. Only a folder that the demo has made is removed."""
    mark = data_dir / "made-by-tidings-demo"
    if data_dir.exists():
        if not mark.exists():
            fail(f"{data_dir} is not the demo's own folder; set TIDINGS_DATA_DIR to another place")
        shutil.rmtree(data_dir)
    data_dir.mkdir(parents=True, mode=0o700)
    mark.touch()


def _print_next_steps(data_dir: Path, *, console: "Console") -> None:
    console.print(f"\nData and log are in [bold]{data_dir.absolute()}[/].\n")
    console.print("For your own site:")
    console.print(
        "  [bold]tidings keys new --indexnow[/]   makes a key; put it into a file KEY.txt at the root of the site"
    )
    console.print("  [bold]tidings check https://example.com/sitemap.xml --key KEY[/]")
    console.print("  [bold]tidings announce https://example.com/sitemap.xml --key KEY[/]")
    console.print("For your own keywords:")
    console.print("  [bold]tidings cookies add mine --platform bilibili[/]   asks for your account's cookie, unseen")
    console.print("  [bold]tidings collect keywords add bilibili KEYWORD[/]")
    console.print("  [bold]tidings serve[/]   does all of this by itself, every day")
    console.print("(If `make` made the environment, the command is .venv/bin/tidings.)")
