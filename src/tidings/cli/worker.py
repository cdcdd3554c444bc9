"""`tidings worker` and `tidings workers`: take jobs of a PostgreSQL installation, and see who does."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import say
from tidings.cli.options import JsonOption
from tidings.cli.output import escape, format_time, print_json, print_table
from tidings.cli.session import Session, command, fail, stop_on_signals
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.settings.settings import Settings


@command
async def worker(
    session: Session,
    queue: Annotated[
        list[str] | None, typer.Option("--queue", help="A queue to take jobs from: announce, collect. [both]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log to the file only.")] = False,
) -> None:
    """Take jobs of a PostgreSQL installation.

    Run it beside `tidings serve`, on as many machines as you like. Ctrl-C or SIGTERM ends it in good order within ten
    seconds.
    """
    from tidings.wiring.crawl import open_crawler
    from tidings.worker import QUEUES, Worker

    settings = session.settings
    if unknown := set(queue or ()) - set(QUEUES):
        fail(say("there is no queue {name!r}; choose from {queues}", name=unknown.pop(), queues=", ".join(QUEUES)))
    require_shared(settings)
    session.warn_of_mirror()
    installation = await session.open(verbose=not quiet, migrate=False, check_secrets=True)
    stop = Stop(clock=installation.clock)
    async with open_crawler(installation) as crawler:
        with stop_on_signals(stop):
            typer.echo(say("This worker takes jobs of {queues}", queues=", ".join(queue or QUEUES)))
            await Worker(installation, crawler=crawler, queues=queue or QUEUES).run(stop)


def require_shared(settings: "Settings") -> None:
    """End the command unless all settings that the machines must share are set."""
    from tidings.storage import find_database_url

    if find_database_url(settings).startswith("sqlite"):
        fail(
            say(
                "a worker needs PostgreSQL: set TIDINGS_DATABASE_URL to the database of `tidings serve`. On SQLite, "
                "`tidings serve` does the work itself"
            )
        )
    if settings.master_key is None:
        fail(
            say(
                "a worker needs COOKIE_MASTER_KEY: without it, this machine would make a key of its own, which opens "
                "nothing that the others have stored. `master.key` in the data directory of `tidings serve` has it"
            )
        )
    if settings.webhook_url is not None and settings.webhook_secret is None:
        fail(
            say(
                "a worker needs TIDINGS_WEBHOOK_SECRET, because TIDINGS_WEBHOOK_URL is set: without it, each machine "
                "would sign with a secret of its own. `webhook.secret` in the data directory of `tidings serve` has it"
            )
        )


@command
async def workers(session: Session, as_json: JsonOption = False) -> None:
    """Show who takes jobs, and how much waits."""
    installation = await session.open()
    found = await installation.dispatcher.list_workers()
    queues = await installation.dispatcher.list_queues()
    if as_json:
        from tidings.web.models.workers import WorkersAnswer

        print_json(WorkersAnswer.describe(workers=found, queues=queues).to_json())
        return
    rows = [
        (
            escape(each.name),
            each.release,
            ", ".join(each.queues),
            f"{each.jobs}/{each.places}",
            format_time(each.seen_at),
            say("dead") if each.dead else "",
        )
        for each in found
    ]
    if rows:
        print_table(rows, say("worker"), say("release"), say("queues"), say("jobs"), say("seen at"), "")
    else:
        typer.echo(say("No worker takes jobs."))
    for state in queues:
        if state.waiting:
            age = f"{state.oldest.total_seconds():.0f}"
            waits = {"queue": state.queue, "count": f"{state.waiting:,}", "seconds": age}
            typer.echo(say("{queue}: {count} {count:job waits|jobs wait}, the oldest for {seconds} s", **waits))
