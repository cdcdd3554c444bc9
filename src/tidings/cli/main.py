"""The list of commands. Each is in the file of its family."""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import typer

from tidings import __version__
from tidings.cli.help import UsageProblem, describe_problem, teach
from tidings.cli.language import say, speak, translate
from tidings.core.heap import prepare_heap

# Where each command or group is, in the order of the help.
COMMANDS: Final = {
    "demo": "demo.demo:demo",
    "serve": "serve:serve",
    "worker": "worker:worker",
    "workers": "worker:workers",
    "announce": "announce.announce:announce",
    "run": "announce.announce:run",
    "stop": "announce.announce:stop",
    "check": "announce.check:check",
    "status": "announce.status:status",
    "sites": "announce.site_files:app",
    "pause": "announce.pause:pause",
    "resume": "announce.pause:resume",
    "ledger": "announce.ledger:app",
    "collect": "collect.commands:app",
    "cookies": "collect.cookies:app",
    "keys": "operations.keys:app",
    "tokens": "operations.tokens:app",
    "alerts": "operations.alerts:app",
    "audit": "operations.audit:audit",
    "backup": "operations.backup:backup",
    "restore": "operations.backup:restore",
    "database": "operations.database:app",
    "sandbox": "demo.sandbox:sandbox",
}


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The application, with these commands and groups."""
    app = typer.Typer(name="tidings", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(tidings)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(f"tidings.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return teach(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidings {__version__}")
        raise typer.Exit


def tidings(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_print_version, is_eager=True),
) -> None:
    """Gathers content and announces it.

    Tells the search engines which pages of your sites are new or changed, and collects notes from media platforms.

    Settings come from the environment. Data is stored in TIDINGS_DATA_DIR (./tidings-data).
    """


def main() -> None:
    """The `tidings` command. Loads only the command that the first word names, because loading all takes long."""
    prepare_heap()
    # Help and usage errors come before the settings are read.
    speak(os.environ.get("TIDINGS_LANGUAGE", ""))
    known = COMMANDS.keys() & sys.argv[1:2]
    try:
        code = run(make_app(known or COMMANDS))
    finally:
        _flush_output()
    sys.exit(code)


def run(app: typer.Typer) -> int:
    """Run the command that the process was asked for. Returns the exit code."""
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        typer.echo(f"tidings: {say('aborted; nothing was changed')}", err=True)
        return 1
    except OSError as error:
        # Help cannot be written. A command explains its errors itself.
        typer.echo(f"tidings: {translate(error.strerror or '')}", err=True)
        return 1
    except Exception as error:
        if not isinstance(error, UsageProblem):
            raise
        typer.echo(describe_problem(error), err=True)
        return error.exit_code
    return code if isinstance(code, int) else 0


def _flush_output() -> None:
    """Write the rest of the output. It is no error if its reader has gone, as with `| head -1`; other errors were shown
    when they first occurred."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes again when it exits, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
