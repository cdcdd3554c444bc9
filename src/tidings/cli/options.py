"""Options and arguments that several commands have."""

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show the log on standard error.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="Your IndexNow key. [INDEXNOW_API_KEY]")]
KeyLocationOption = Annotated[
    str | None, typer.Option("--key-location", help="URL of the key file. [/KEY.txt on the host]")
]
SiteArgument = Annotated[str, typer.Argument(help="The site's id.")]
PlatformArgument = Annotated[str, typer.Argument(help="A platform, such as bilibili.")]
PlatformOption = Annotated[str | None, typer.Option("--platform", help="Only this platform, such as bilibili.")]


def make_group(help_text: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None)
