"""`tidings serve`: the API and the scheduler, until Ctrl-C or SIGTERM."""

from typing import Annotated

import typer

from tidings.cli.session import Exit, load_settings, open_session, run, stop_on_signals
from tidings.core.alerts import AppriseDestination
from tidings.core.secrets.scopes import Scope
from tidings.core.stop import Stop
from tidings.wiring import Installation, open_crawler


def serve(
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen on. [TIDINGS_HOST, 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="The port; 0: any free one. [TIDINGS_PORT, 8080]", min=0, max=65_535)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log to the file alone.")] = False,
) -> None:
    """Run the service: HTTP API and scheduler. Ctrl-C or SIGTERM ends it in good order within ten seconds."""
    settings = load_settings()

    async def work() -> Exit:
        # Loaded here, not above: every other command would pay for it in memory and time.
        from tidings.web.service import Service

        async with open_session(settings, verbose=not quiet) as installation:
            await prepare(installation)
            stop = Stop(clock=installation.clock)
            async with open_crawler(installation) as crawler:
                with stop_on_signals(stop):
                    await Service(installation, crawler=crawler, stop=stop).run(
                        host=settings.host if host is None else host,
                        port=settings.port if port is None else port,
                        on_listening=_tell,
                    )
        return Exit.DONE

    raise typer.Exit(run(work))


async def prepare(installation: Installation) -> None:
    """What a start needs once: the environment's site, destinations that can be used, and a token."""
    for destination in installation.destinations:
        if isinstance(destination, AppriseDestination):
            destination.check()
    await installation.store_own_site()
    if Scope.ADMIN not in installation.settings.tokens and (token := await installation.tokens.ensure_admin()):
        installation.redactor.add(token)
        typer.echo(f"Your token, shown this once (TIDINGS_TOKEN sets one of your own): {token.reveal()}")


def _tell(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"Tidings listens on http://{shown}:{port} (the API is described at /docs)")
