"""A command at work: its settings, event loop and installation, and errors as one line instead of a traceback.

Modules of commands import at their top only what declares arguments. A command imports the rest when it runs, so that
`--help`, shell completion and usage errors load neither SQLAlchemy nor aiohttp.
"""

import asyncio
import dataclasses
import errno
import functools
import inspect
import os
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

import typer

from tidings.cli.language import label, say, say_rule, speak, translate
from tidings.core.heap import load_quickly, spare_the_collector
from tidings.core.secrets.escapes import escape_controls

if TYPE_CHECKING:
    from tidings.announce.site.site import Site
    from tidings.core.clock import Clock
    from tidings.core.stop import Stop
    from tidings.settings.settings import Settings
    from tidings.wiring.installation import Installation

Parameters = ParamSpec("Parameters")

# The most time that a command takes for alerts at its end.
ALERT_PATIENCE = timedelta(seconds=20)


class Exit(IntEnum):
    """Exit codes: everything done, something failed, bad input.

    A file that cannot be read is bad input; one that cannot be written is something that failed.
    """

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2


class Session(AsyncExitStack):
    """What a command may open. The installation is closed when the command ends."""

    @functools.cached_property
    def settings(self) -> "Settings":
        """The environment's settings. A bad value ends the command; an unknown variable is named in a warning."""
        with load_quickly():
            from tidings.settings.settings import read_settings
            from tidings.settings.variables import SettingError

        try:
            settings = read_settings(os.environ)
        except SettingError as error:
            fail(say_rule(error.name, error.rule))
        speak(settings.language)
        for warning in settings.warnings:
            warn(warning)
        return settings

    def warn_of_mirror(self) -> None:
        """Warn if Feishu is set up halfway, so that nothing is mirrored."""
        if self.settings.mirror_warning is not None:
            warn(self.settings.mirror_warning)

    async def open(
        self,
        settings: "Settings | None" = None,
        *,
        verbose: bool = False,
        migrate: bool = True,
        check_secrets: bool = False,
        leaves_nothing: bool = False,
        clock: "Clock | None" = None,
    ) -> "Installation":
        """The installation of these settings (by default the environment's).

        Its log goes to the data directory and, if `verbose`, to the terminal too. Unless `migrate`, it waits until
        another process has brought the tables up to date. With `check_secrets`, a master key is refused if it cannot
        decrypt the secrets that other machines stored. With `leaves_nothing`, a missing installation is not created:
        the command works in a temporary folder. `clock`: the system's by default.
        """
        with load_quickly():
            from tidings.core.logs.logger import bind_request_id, configure_logging, log_uncaught_exceptions
            from tidings.core.secrets.redaction import Redactor
            from tidings.storage import prepare_data_dir
            from tidings.wiring.opening import check_stored_secrets, open_installation

        settings, redactor = settings or self.settings, Redactor()
        wanted = settings.data_dir
        if leaves_nothing:
            settings = await self._find_passing(settings)
        bind_request_id()
        prepare_data_dir(settings.data_dir)
        configure_logging(
            format=settings.log_format,
            level="info",
            quiet=not verbose,
            redactor=redactor,
            file=settings.data_dir / "tidings.log",
        )
        log_uncaught_exceptions()
        installation = await self.enter_async_context(
            open_installation(settings, redactor=redactor, clock=clock, migrate=migrate)
        )
        spare_the_collector()
        if check_secrets and (installation.made_key is not None or installation.database.dialect == "postgresql"):
            await check_stored_secrets(installation)
        if installation.made_key is not None and settings.data_dir == wanted:
            made = say(
                "Created a master key in {path}. Keep a copy of it in another place.", path=installation.made_key
            )
            typer.echo(made, err=True)
        return installation

    async def _find_passing(self, settings: "Settings") -> "Settings":
        """The same settings, with a temporary folder if there is no such installation."""
        from tidings.storage import has_tables

        is_there = settings.data_dir.exists()
        if not await has_tables(settings):
            is_there, settings = False, dataclasses.replace(settings, database_url=None)
        if is_there:
            return settings
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="tidings-"))
        return dataclasses.replace(settings, data_dir=Path(folder))


def command(
    work: Callable[Concatenate[Session, Parameters], Coroutine[Any, Any, Exit | None]],
) -> Callable[Parameters, None]:
    """Make a command of an async function. Typer sees its parameters without the first, the session."""

    async def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Exit | None:
        # Read the language directly, because loading the settings takes long and a command may fail before.
        speak(os.environ.get("TIDINGS_LANGUAGE", ""))
        async with Session() as session:
            return await work(session, *args, **kwargs)

    @functools.wraps(work)
    def start(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            code = asyncio.run(run(*args, **kwargs))
        except (BrokenPipeError, typer.Exit, typer.Abort, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a person must see any error
            message, code = _explain(error)
            fail(message, code=code)
        raise typer.Exit(code or Exit.DONE)

    first, *parameters = inspect.signature(work).parameters.values()
    del start.__wrapped__
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    start.__annotations__ = {name: hint for name, hint in work.__annotations__.items() if name != first.name}
    return start


def fail(message: str, *, code: Exit = Exit.BAD_INPUT) -> NoReturn:
    """Print one line that says what is wrong, and end the command."""
    typer.echo(f"tidings: {message}", err=True)
    raise typer.Exit(code)


def fail_to_read(path: object, error: OSError | str) -> NoReturn:
    """End the command because this file cannot be read."""
    reason = error if isinstance(error, str) else translate(error.strerror or "")
    fail(say("{path} cannot be read: {reason}", path=path, reason=reason))


def warn(text: str) -> None:
    """Print a warning that another part of the program wrote."""
    typer.echo(f"tidings: {say('warning: {text}', text=escape_controls(translate(text)))}", err=True)


def _explain(error: BaseException) -> tuple[str, Exit]:
    """One line for a person, and the exit code. An unexpected error is logged with all its details."""
    from tidings.announce.channels.enabled_channels import ChannelDisabledError
    from tidings.announce.site.errors import SiteError
    from tidings.core.alerts.events import DestinationError
    from tidings.core.db.database import DatabaseUrlError, NewerDatabaseError, OlderDatabaseError
    from tidings.core.executions import AlreadyRunningError, ExecutionError
    from tidings.core.secrets.keyring import DecryptionError, UnknownKeyError
    from tidings.core.secrets.master_key import KeyFileError, KeyRingError
    from tidings.storage import DataDirectoryError

    match error:
        case SiteError():
            return say_rule(error.field, error.rule), Exit.BAD_INPUT
        case (
            ChannelDisabledError() | DataDirectoryError() | NewerDatabaseError() | OlderDatabaseError() | KeyFileError()
        ):
            return translate(str(error)), Exit.BAD_INPUT
        case DecryptionError() | UnknownKeyError():
            advice = say("put the master key that encrypted it back into COOKIE_MASTER_KEY or master.key")
            return join_clauses(label("COOKIE_MASTER_KEY", translate(str(error))), advice), Exit.BAD_INPUT
        case KeyRingError():
            return label("COOKIE_MASTER_KEY", translate(str(error))), Exit.BAD_INPUT
        case DatabaseUrlError():
            return label("TIDINGS_DATABASE_URL", translate(str(error))), Exit.BAD_INPUT
        case DestinationError():
            names = say("TIDINGS_ALERT_URLS or TIDINGS_WEBHOOK_URL")
            return label(names, translate(str(error))), Exit.BAD_INPUT
        case AlreadyRunningError():
            return join_clauses(translate(str(error)), say("try again when it has ended")), Exit.FAILED
        case ExecutionError():
            return translate(str(error)), Exit.FAILED
        case _:
            return _explain_failure(error), Exit.FAILED


def _explain_failure(error: BaseException) -> str:
    """What stopped the work, what was kept, and if possible what to do."""
    from sqlalchemy.exc import DBAPIError

    match error:
        # SQLite's own errors come from opening the file.
        case DBAPIError() | sqlite3.Error():
            return join_clauses(describe_database_error(error), _say_kept())
        case OSError(errno=errno.EADDRINUSE):
            return join_clauses(
                describe_system_error(error), say("choose another with --port, or end the program that uses it")
            )
        case PermissionError():
            advice = say("run this as a user that may do it; what was saved before is kept")
            return join_clauses(describe_system_error(error), advice)
        case OSError():
            return join_clauses(describe_system_error(error), _say_kept())
        case asyncio.CancelledError():
            return join_clauses(say("stopped at once"), _say_kept())
        case _:
            return _explain_unexpected(error)


def _explain_unexpected(error: BaseException) -> str:
    from tidings.core.logs.logger import get_logger, is_logging_configured

    name = type(error).__name__
    if is_logging_configured():
        get_logger(__name__).error("command.failed", exc_info=error)
        return join_clauses(say("unexpected error, {name}; the log has the details", name=name), _say_kept())
    # There is no log yet. The error's message is not shown, because it is not redacted.
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return say("unexpected error, {name}, at {where}; nothing was changed", name=name, where=where)


def _say_kept() -> str:
    return say("everything saved before is kept, and the next execution continues from there")


def join_clauses(*clauses: str) -> str:
    """Clauses of one sentence, with the semicolon of the chosen language between them."""
    return say("; ").join(clauses)


def describe_database_error(error: Any) -> str:
    """The driver's own words, and what to do about a damaged file. The statement's values may hold secrets."""
    original = getattr(error, "orig", error)
    # Further lines of PostgreSQL's driver ask what this line answers.
    reason = str(original).partition("\n")[0]
    described = say("the database does not work ({reason})", reason=translate(" ".join(reason.split())))
    if getattr(original, "sqlite_errorcode", None) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return join_clauses(
            described, say("its file is damaged: move tidings.db away and run `tidings restore` with your last backup")
        )
    return described


def describe_system_error(error: OSError) -> str:
    """The system's words, and the file or address if it is known."""
    reason = translate(str(error.strerror or error))
    return say("{reason} ({place})", reason=reason, place=error.filename) if error.filename else reason


async def require_site(installation: "Installation", name: str | None) -> "Site":
    """The site of this id; without a name, the only one. Ends the command if there is none."""
    site = await installation.find_site(name)
    if site is None:
        if name is None:
            fail(say("name a site, or set SITEMAP_URL and INDEXNOW_API_KEY; `tidings sites list` shows the sites"))
        fail(say("there is no site {name!r}; `tidings sites list` shows the sites", name=name))
    return site


async def require_group(installation: "Installation", group: str | None) -> None:
    """End the command if no site is in this group. None stands for all sites."""
    if group is None or await installation.sites.has_group(group):
        return
    names = ", ".join(await installation.sites.list_groups())
    fail(
        say("there is no group {group!r}; the groups are {names}", group=group, names=names)
        if names
        else say("there is no group {group!r}; no site is in a group", group=group)
    )


async def deliver_alerts(installation: "Installation") -> None:
    """Send the alerts of this command, since no service may be running. Alerts that fail are sent next time."""
    if installation.destinations:
        with suppress(TimeoutError):
            async with asyncio.timeout(ALERT_PATIENCE.total_seconds()):
                await installation.alerts.deliver()


@contextmanager
def stop_on_signals(stop: "Stop") -> Iterator[None]:
    """The first Ctrl-C or SIGTERM requests a stop; the second cancels the work at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    asked = False

    def ask(name: str) -> None:
        nonlocal asked
        if asked and task is not None:
            task.cancel()
        asked = True
        stop.request_by_signal(name)

    signals: list[Any] = [signal.SIGINT, signal.SIGTERM]
    for number in signals:
        loop.add_signal_handler(number, ask, signal.Signals(number).name)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def is_watched(*quiet: bool) -> bool:
    """Whether a person watches standard error and none of these options asks for quiet."""
    return sys.stderr.isatty() and not any(quiet)
