"""The list of commands."""

import typer

from tidings import __version__
from tidings.cli import audit, backup, demo, keys, sandbox, serve, tokens
from tidings.cli.announce import announce, ledger, pause, sites, status
from tidings.cli.collect import cookies
from tidings.cli.collect import run as collect
from tidings.core.heap import return_large_blocks

app = typer.Typer(
    name="tidings",
    help="Gathers content and announces it: tells the search engines what is new or changed on your sites.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("announce")(announce.announce)
app.command("check")(announce.check)
app.command("run")(announce.run_site)
app.command("status")(status.show_status)
app.command("serve")(serve.serve)
app.command("pause")(pause.pause)
app.command("resume")(pause.resume)
app.command("audit")(audit.audit)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("demo")(demo.demo)
app.command("sandbox")(sandbox.sandbox)
app.add_typer(sites.app, name="sites")
app.add_typer(keys.app, name="keys")
app.add_typer(tokens.app, name="tokens")
app.add_typer(cookies.app, name="cookies")
app.add_typer(collect.app, name="collect")
app.add_typer(ledger.database_app, name="database")
app.add_typer(ledger.ledger_app, name="ledger")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidings {__version__}")
        raise typer.Exit


@app.callback()
def tidings(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_print_version, is_eager=True),
) -> None:
    """Gathers content and announces it: tells the search engines what is new or changed on your sites.

    Settings come from the environment; the data lives in TIDINGS_DATA_DIR (./tidings-data).
    """


def main() -> None:
    """The `tidings` command."""
    return_large_blocks()
    app()
