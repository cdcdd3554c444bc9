"""The list of commands. Each is in the file of its family."""

import os
import sys

import typer

from tidings import __version__
from tidings.cli import alerts, audit, backup, database, keys, serve, tokens, worker
from tidings.cli.announce import announce, check, ledger, pause, site_files, status
from tidings.cli.collect import candidates, cookies, feishu, keywords, mirror, notes
from tidings.cli.collect import run as workflows
from tidings.cli.collect import status as collect_status
from tidings.cli.demo import demo, sandbox
from tidings.cli.options import make_group
from tidings.core.heap import prepare_heap

app = typer.Typer(name="tidings", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.command("worker")(worker.worker)
app.command("workers")(worker.workers)
app.command("announce")(announce.announce)
app.command("run")(announce.run)
app.command("stop")(announce.stop)
app.command("check")(check.check)
app.command("status")(status.status)
app.add_typer(site_files.app, name="sites")
app.command("pause")(pause.pause)
app.command("resume")(pause.resume)
app.add_typer(ledger.app, name="ledger")

collect = make_group("Gather content from media platforms.")
collect.command("run")(workflows.run)
collect.command("discover")(workflows.discover)
collect.command("recover")(workflows.recover)
collect.command("resume")(workflows.resume)
collect.command("status")(collect_status.status)
collect.command("failed")(candidates.failed)
collect.command("retry")(candidates.retry)
collect.add_typer(keywords.app, name="keywords")
collect.add_typer(notes.app, name="notes")
collect.command("mirror")(mirror.mirror)
collect.add_typer(feishu.app, name="feishu")
app.add_typer(collect, name="collect")
app.add_typer(cookies.app, name="cookies")

app.add_typer(keys.app, name="keys")
app.add_typer(tokens.app, name="tokens")
app.add_typer(alerts.app, name="alerts")
app.command("audit")(audit.audit)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.add_typer(database.app, name="database")
app.command("sandbox")(sandbox.sandbox)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidings {__version__}")
        raise typer.Exit


@app.callback()
def tidings(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_print_version, is_eager=True),
) -> None:
    """Gathers content and announces it.

    Tells the search engines which pages of your sites are new or changed, and collects notes from media platforms.

    Settings come from the environment. Data is stored in TIDINGS_DATA_DIR (./tidings-data).
    """


def main() -> None:
    """The `tidings` command."""
    prepare_heap()
    try:
        app()
    finally:
        _flush_output()


def _flush_output() -> None:
    """Write the rest of the output. It is no error if its reader has gone, as with `| head -1`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it exits, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
