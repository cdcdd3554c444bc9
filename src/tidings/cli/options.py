"""Options and arguments that several commands have."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.session import fail

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Log to the file only.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show the log on standard error.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="Your IndexNow key. [INDEXNOW_API_KEY]")]
KeyLocationOption = Annotated[
    str | None, typer.Option("--key-location", help="URL of the key file. [/KEY.txt on the host]")
]
SiteArgument = Annotated[str, typer.Argument(help="The site's id.")]
OnlySiteArgument = Annotated[str | None, typer.Argument(help="The site's id. [the only site]")]
GroupOption = Annotated[str | None, typer.Option("--group", help="Only this group.")]
PlatformArgument = Annotated[str, typer.Argument(help="A platform, such as bilibili.")]
PlatformOption = Annotated[str | None, typer.Option("--platform", help="Only this platform, such as bilibili.")]


def make_group(help_text: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None)


def read_secret(source: str, *, prompt: str) -> str:
    """The secret in a file, or for `-` the typed or piped text. The secret itself is not accepted as an argument,
    because `ps` would show it. Each `-` of a command takes one line of the piped text.
    """
    if source == "-" and sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, err=True))
    try:
        # A prompt would read from the terminal instead of the pipe.
        given = sys.stdin.buffer.readline() if source == "-" else Path(source).read_bytes()
        secret = given.decode().strip()
    except (OSError, ValueError):
        secret = ""
    if not secret:
        # Do not repeat the argument, which may be the secret.
        fail(
            "{prompt}: give a file that holds it, or - to be asked for it; every user of this machine can read the "
            "words of a command",
            prompt=prompt,
        )
    return secret
