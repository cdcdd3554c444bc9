"""What every command needs: settings, logs, an open installation, and errors as one line instead of a traceback."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

import typer
from sqlalchemy.exc import DBAPIError

from tidings.announce.execution.pipeline import BingDisabledError
from tidings.announce.site.site import SiteError
from tidings.core.alerts import DestinationError
from tidings.core.db.database import DatabaseUrlError, NewerDatabaseError
from tidings.core.executions import ExecutionError
from tidings.core.heap import spare_the_collector
from tidings.core.logs.logger import bind_request_id, configure_logging, get_logger, log_uncaught_exceptions
from tidings.core.secrets.master_key import KeyFileError, KeyRingError
from tidings.core.secrets.redaction import Redactor
from tidings.core.stop import Stop
from tidings.settings import SettingError, Settings, read_settings
from tidings.storage import prepare_data_dir
from tidings.wiring import Installation, open_installation

Result = TypeVar("Result")


class Exit(IntEnum):
    """Exit codes: everything done, something failed, bad input."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2


def fail(message: str, *, code: Exit = Exit.BAD_INPUT) -> NoReturn:
    """Say in one line what is wrong, and end."""
    typer.echo(f"tidings: {message}", err=True)
    raise typer.Exit(code)


def load_settings() -> Settings:
    """The environment's settings; a bad one ends the command with its rule."""
    try:
        return read_settings(os.environ)
    except SettingError as error:
        fail(str(error))


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run a command's work; what can be expected to go wrong ends it with one line."""

    async def start() -> Result:
        return await work()

    try:
        return asyncio.run(start())
    except BrokenPipeError:
        # Whoever read the output has heard enough. Python would complain once more when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.FAILED) from None
    except (typer.Exit, typer.Abort, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, a person must be told
        message, code = _explain(error)
        fail(message, code=code)


# What a person has given, and what the message is about where it does not say so itself.
_BAD_INPUT: dict[type[Exception], str] = {
    SiteError: "",
    BingDisabledError: "",
    NewerDatabaseError: "",
    KeyFileError: "",
    KeyRingError: "COOKIE_MASTER_KEY: ",
    DatabaseUrlError: "TIDINGS_DATABASE_URL: ",
    DestinationError: "TIDINGS_ALERT_URLS or TIDINGS_WEBHOOK_URL: ",
}


def _explain(error: BaseException) -> tuple[str, Exit]:
    """One line for a person, and the exit code. What nobody expected is in the log with all its details."""
    for kind, subject in _BAD_INPUT.items():
        if isinstance(error, kind):
            return f"{subject}{error}", Exit.BAD_INPUT
    match error:
        case ExecutionError():
            return str(error), Exit.FAILED
        case DBAPIError():
            # The statement's values may hold secrets, so only the driver's own words are shown.
            reason = f"the database does not work ({_join_lines(error.orig)})"
        case OSError():
            reason = f"{error.strerror or error} ({error.filename or type(error).__name__})"
        case asyncio.CancelledError():
            reason = "stopped at once"
        case _:
            get_logger(__name__).error("command.broken", exc_info=error)
            reason = f"unexpected trouble, {type(error).__name__}; the log says more"
    return f"{reason}; what was saved before is kept, and the next run goes on from there", Exit.FAILED


def _join_lines(text: object) -> str:
    return " ".join(str(text).split())


@asynccontextmanager
async def open_session(settings: Settings, *, verbose: bool = False) -> AsyncIterator[Installation]:
    """An open installation with its log: in the data directory always, on the terminal when asked for."""
    bind_request_id()
    redactor = Redactor()
    for secret in settings.secrets:
        redactor.add(secret)
    prepare_data_dir(settings.data_dir)
    configure_logging(
        format=settings.log_format,
        level="info",
        quiet=not verbose,
        redactor=redactor,
        file=settings.data_dir / "tidings.log",
    )
    log_uncaught_exceptions()
    async with open_installation(settings, redactor=redactor) as installation:
        spare_the_collector()
        if installation.made_key is not None:
            typer.echo(
                f"A master key was made in {installation.made_key}. Keep a copy of it apart from the data.", err=True
            )
        yield installation


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the work in good order; a second one ends it at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    asked = False

    def ask(name: str) -> None:
        nonlocal asked
        if asked and task is not None:
            task.cancel()
        asked = True
        stop.request(f"{name} was received")

    signals: list[Any] = [signal.SIGINT, signal.SIGTERM]
    for number in signals:
        loop.add_signal_handler(number, ask, signal.Signals(number).name)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def is_terminal() -> bool:
    return sys.stderr.isatty()
