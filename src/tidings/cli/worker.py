"""`tidings worker` and `tidings workers`: take jobs of a PostgreSQL installation, and see who does."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import say
from tidings.cli.options import QuietOption
from tidings.cli.output import format_time, show
from tidings.cli.session import GOOD_ORDER, Session, answering, command, fail, stop_on_signals
from tidings.core.file_limit import raise_file_limit
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.settings.settings import Settings


@command
async def worker(
    session: Session,
    queue: Annotated[
        list[str] | None, typer.Option("--queue", help="A queue to take jobs from: announce, collect. [both]")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Take jobs of a PostgreSQL installation.

    Run it beside `tidings serve`, on as many machines as you like. Ctrl-C or SIGTERM ends it in good order within ten
    seconds.
    """
    from tidings.wiring.crawl import open_crawler
    from tidings.worker import QUEUES, Worker

    settings = session.settings
    if unknown := set(queue or ()) - set(QUEUES):
        fail("there is no queue {name!r}; choose from {queues}", name=unknown.pop(), queues=", ".join(QUEUES))
    require_shared(settings)
    session.warn_of_mirror()
    raise_file_limit()
    installation = await session.open(verbose=not quiet, migrate=False, check_secrets=True)
    async with open_crawler(installation) as crawler:
        with stop_on_signals(Stop(clock=installation.clock), within=GOOD_ORDER) as stop:
            show("This worker takes jobs of {queues}", queues=", ".join(queue or QUEUES))
            await Worker(installation, crawler=crawler, queues=queue or QUEUES).run(stop)


def require_shared(settings: "Settings") -> None:
    """End the command unless all settings that the machines must share are set."""
    from tidings.storage import find_database_url

    if find_database_url(settings).startswith("sqlite"):
        fail(
            "a worker needs PostgreSQL: set TIDINGS_DATABASE_URL to the database of `tidings serve`. On SQLite, "
            "`tidings serve` does the work itself"
        )
    if settings.master_key is None:
        fail(
            "a worker needs COOKIE_MASTER_KEY: without it, this machine would make a key of its own, which opens "
            "nothing that the others have stored. `master.key` in the data directory of `tidings serve` has it"
        )
    if settings.webhook_url is not None and settings.webhook_secret is None:
        fail(
            "a worker needs TIDINGS_WEBHOOK_SECRET, because TIDINGS_WEBHOOK_URL is set: without it, each machine "
            "would sign with a secret of its own. `webhook.secret` in the data directory of `tidings serve` has it"
        )


@answering
async def workers(session: Session) -> None:
    """Show who takes jobs, and how much waits."""
    from tidings.web.models.workers import WorkersAnswer

    installation = await session.open()
    found = await installation.dispatcher.list_workers()
    queues = await installation.dispatcher.list_queues()
    session.answer_table(
        WorkersAnswer.describe(workers=found, queues=queues).to_json(),
        (say("worker"), say("release"), say("queues"), say("jobs"), say("seen at"), ""),
        [
            (
                each.name,
                each.release,
                ", ".join(each.queues),
                f"{each.jobs}/{each.places}",
                format_time(each.seen_at),
                say("dead") if each.dead else "",
            )
            for each in found
        ],
        empty=say("No worker takes jobs."),
    )
    for state in () if session.as_json else queues:
        if state.waiting:
            show(
                "{queue}: {count} {count:job waits|jobs wait}, the oldest for {seconds} s",
                queue=state.queue,
                count=state.waiting,
                seconds=f"{state.oldest.total_seconds():.0f}",
            )
