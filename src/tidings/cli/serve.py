"""`tidings serve`: the API and the work, until Ctrl-C or SIGTERM."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.language import translate
from tidings.cli.options import QuietOption
from tidings.cli.output import show
from tidings.cli.session import GOOD_ORDER, Session, command, fail, stop_on_signals
from tidings.core.heap import load_quickly, return_freed_memory
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.settings.settings import Settings
    from tidings.wiring.installation import Installation


@command
async def serve(
    session: Session,
    host: Annotated[str | None, typer.Option("--host", help="The address. [TIDINGS_HOST, 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="The port; 0: any free one. [TIDINGS_PORT, 8080]", min=0, max=65_535)
    ] = None,
    no_work: Annotated[
        bool, typer.Option("--no-work", help="Only answer; `tidings worker` does the work. Needs PostgreSQL.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Run the service: HTTP API, dashboard, schedule and work.

    Ctrl-C or SIGTERM ends it in good order within ten seconds.
    """
    with load_quickly():
        from tidings.web.service import Service
        from tidings.wiring.crawl import open_crawler
        from tidings.worker import QUEUES

    settings = session.settings
    refuse_weak_tokens(settings)
    session.warn_of_mirror()
    installation = await session.open(verbose=not quiet, check_secrets=True)
    if no_work and installation.database.dialect == "sqlite":
        fail("--no-work needs PostgreSQL (TIDINGS_DATABASE_URL): on SQLite no other process takes the work")
    await prepare(installation)
    async with open_crawler(installation) as crawler:
        with stop_on_signals(Stop(clock=installation.clock), within=GOOD_ORDER) as stop:
            queues = () if no_work else QUEUES
            await Service(installation, crawler=crawler, stop=stop, queues=queues).run(
                host=settings.host if host is None else host,
                port=settings.port if port is None else port,
                on_listening=_end_start,
            )


def refuse_weak_tokens(settings: "Settings") -> None:
    """End the command if a token of the settings can be guessed."""
    from tidings.core.secrets.token_strength import find_token_weakness
    from tidings.settings.settings import TOKEN_VARIABLES

    for scope, token in settings.tokens.items():
        if weakness := find_token_weakness(token.reveal()):
            fail(
                "{name} is weak: {weakness}; make a good one with: tidings keys new",
                name=TOKEN_VARIABLES[scope],
                weakness=translate(weakness),
            )


async def prepare(installation: "Installation") -> None:
    """Prepare a first start: check the destinations, store the environment's site, make an admin token."""
    from tidings.core.alerts.messengers import AppriseDestination

    for destination in installation.destinations:
        if isinstance(destination, AppriseDestination):
            destination.check()
    await installation.store_own_site()
    if Scope.ADMIN not in installation.settings.tokens and (token := await installation.tokens.ensure_admin()):
        installation.redactor.add(token)
        await _hand_over(installation, token)


async def _hand_over(installation: "Installation", token: Secret) -> None:
    """Store the first admin token in the data directory. If that fails, revoke the token."""
    from tidings.core.secrets.tokens import FIRST_NAME
    from tidings.storage import store_first_token

    try:
        path = store_first_token(installation.settings, token)
    except BaseException:
        await installation.tokens.revoke(Scope.ADMIN, name=FIRST_NAME)
        raise
    show("Your admin token is in {path}, which only this user can read.", path=path)


def _end_start(host: str, port: int) -> None:
    """The service is up: show its address."""
    return_freed_memory()
    shown = f"[{host}]" if ":" in host else host
    show("Tidings listens on {address} (the API is described at /docs)", address=f"http://{shown}:{port}")
