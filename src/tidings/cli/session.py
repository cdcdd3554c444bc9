"""A command at work: its settings, event loop and installation, its answer, and the errors that it can foresee.

Modules of commands import at their top only what declares arguments. A command imports the rest when it runs, so that
`--help`, shell completion and usage errors load neither SQLAlchemy nor aiohttp.
"""

import asyncio
import dataclasses
import functools
import inspect
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn

import typer

from tidings.cli.language import say, say_rule, speak, translate
from tidings.cli.output import escape, print_json, print_table, show
from tidings.core.heap import load_quickly, spare_the_collector
from tidings.core.secrets.escapes import escape_controls

if TYPE_CHECKING:
    from tidings.announce.site.site import Site
    from tidings.core.clock import Clock
    from tidings.core.db.database import Database
    from tidings.core.stop import Stop
    from tidings.settings.settings import Settings
    from tidings.wiring.installation import Installation

# The most time that a command takes for alerts at its end.
ALERT_PATIENCE = timedelta(seconds=20)
# The time that a process which serves or works has to end in good order. All of its end has ten seconds.
GOOD_ORDER = timedelta(seconds=9.2)
_SHORT_CLEAN_UP = 0.5
_CLEAN_UP = 5.0


class Exit(IntEnum):
    """Exit codes: everything done, something failed, bad input.

    A file that cannot be read is bad input; one that cannot be written is something that failed.
    """

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2


class Session(AsyncExitStack):
    """What a command may open, and how it answers. The installation is closed when the command ends."""

    def __init__(self, *, as_json: bool = False) -> None:
        super().__init__()
        # Whether the answer is for a program.
        self.as_json = as_json
        # What is left if the command fails. None: all that was saved before, as for most commands.
        self.outcome: str | None = None
        # Whether the log goes to the terminal too.
        self.verbose = False

    @property
    def is_watched(self) -> bool:
        """Whether a person watches standard error, and nothing but progress is shown there."""
        return sys.stderr.isatty() and not (self.as_json or self.verbose)

    def answer(self, document: object, text: str, /, **values: object) -> None:
        """The document for a program, or the text for a person."""
        if self.as_json:
            print_json(document)
        else:
            show(say(text, **values))

    def answer_table(
        self, document: object, titles: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = ""
    ) -> None:
        """The document for a program, or for a person a table, or a line if it would be empty."""
        if self.as_json:
            print_json(document)
        elif rows or not empty:
            print_table([[escape(cell) for cell in row] for row in rows], *titles)
        else:
            show(empty)

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

        settings, redactor, self.verbose = settings or self.settings, Redactor(), verbose
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
            path = installation.made_key
            show("Created a master key in {path}. Keep a copy of it in another place.", path=path, err=True)
        return installation

    async def open_database(self) -> "Database":
        """The database as it is; its tables are not brought up to date."""
        from tidings.core.db.database import open_database
        from tidings.storage import find_database_url
        from tidings.wiring.opening import load_tables

        load_tables()
        database = open_database(find_database_url(self.settings))
        self.push_async_callback(database.close)
        return database

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


# An async function that Typer makes a command of.
Work = Callable[Concatenate[Session, ...], Coroutine[Any, Any, Exit | None]]


def command(work: Work, *, answers: bool = False) -> Callable[..., None]:
    """Make a command of an async function. Typer sees its parameters without the first, the session."""
    parameters = list(inspect.signature(work).parameters.values())[1:]
    if answers:
        option = typer.Option(False, "--json", help="Print the result as JSON.")
        parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=option, annotation=bool))

    async def run(session: Session, **options: Any) -> Exit | None:
        # Read the language directly, because loading the settings takes long and a command may fail before.
        speak(os.environ.get("TIDINGS_LANGUAGE", ""))
        async with session:
            return await work(session, **options)

    def start(*, as_json: bool = False, **options: Any) -> None:
        session = Session(as_json=as_json)
        try:
            code = asyncio.run(run(session, **options))
        except (BrokenPipeError, typer.Exit, typer.Abort, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a person must see any error
            from tidings.cli.failures import explain

            message, code = explain(error, outcome=session.outcome)
            fail(message, code=code)
        raise typer.Exit(code or Exit.DONE)

    start.__name__, start.__doc__ = work.__name__, work.__doc__
    declare(start, parameters)
    return start


# A command that has `--json` too, and answers with the session.
answering = functools.partial(command, answers=True)


def declare(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> None:
    """Let Typer see these parameters instead of the function's own."""
    function.__signature__ = signature = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    function.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}


def fail(text: str, /, *, code: Exit = Exit.BAD_INPUT, **values: object) -> NoReturn:
    """Print one line that says what is wrong, and end the command. The text is `say`'s, or said already."""
    typer.echo(f"tidings: {say(text, **values)}", err=True)
    raise typer.Exit(code)


def fail_to_read(path: object, error: OSError | str) -> NoReturn:
    """End the command because this file cannot be read."""
    reason = error if isinstance(error, str) else translate(error.strerror or "")
    fail("{path} cannot be read: {reason}", path=path, reason=reason)


def fail_to_write(path: object, error: OSError) -> NoReturn:
    """End the command because this file cannot be written."""
    fail("{path} cannot be written: {reason}", path=path, reason=translate(error.strerror or ""), code=Exit.FAILED)


def warn(text: str) -> None:
    """Print a warning that another part of the program wrote."""
    typer.echo(f"tidings: {say('warning: {text}', text=escape_controls(translate(text)))}", err=True)


async def require_site(installation: "Installation", name: str | None) -> "Site":
    """The site of this id; without a name, the only one. Ends the command if there is none."""
    site = await installation.find_site(name)
    if site is None and name is None:
        fail("name a site, or set SITEMAP_URL and INDEXNOW_API_KEY; `tidings sites list` shows the sites")
    if site is None:
        fail("there is no site {name!r}; `tidings sites list` shows the sites", name=name)
    return site


async def require_group(installation: "Installation", group: str | None) -> None:
    """End the command if no site is in this group. None stands for all sites."""
    if group is None or await installation.sites.has_group(group):
        return
    if not (groups := await installation.sites.list_groups()):
        fail("there is no group {group!r}; no site is in a group", group=group)
    fail("there is no group {group!r}; the groups are {names}", group=group, names=", ".join(groups))


async def deliver_alerts(installation: "Installation") -> None:
    """Send the alerts of this command, since no service may be running. Alerts that fail are sent next time."""
    if installation.destinations:
        with suppress(TimeoutError):
            async with asyncio.timeout(ALERT_PATIENCE.total_seconds()):
                await installation.alerts.deliver()


@contextmanager
def stop_on_signals(stop: "Stop", *, within: timedelta | None = None) -> "Iterator[Stop]":
    """The first Ctrl-C or SIGTERM requests this stop; the second cancels the work at once.

    `within`: work that has not ended by then is cancelled too. Soon after a cancel the process ends in any case: the
    work may clean up for longer, as with a database that hangs.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    deadline: asyncio.TimerHandle | None = None
    asked = False

    def cancel(*, clean_up: float) -> None:
        if task is not None:
            task.cancel()
        loop.call_later(clean_up, _end_process)

    def ask(name: str) -> None:
        nonlocal asked, deadline
        if asked:
            cancel(clean_up=_CLEAN_UP)
        elif within is not None:
            deadline = loop.call_later(within.total_seconds(), lambda: cancel(clean_up=_SHORT_CLEAN_UP))
        asked = True
        stop.request_by_signal(name)

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, ask, number.name)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if deadline is not None:
            deadline.cancel()


def _end_process() -> NoReturn:
    """End this process as it is. What it did is in the database, as after a power cut."""
    from tidings.core.logs.logger import get_logger

    try:
        get_logger(__name__).error("process.cut_off")
        reason = say("stopped, because something did not end in time; the database may hang")
        kept = say("everything saved before is kept, and the next execution continues from there")
        typer.echo(f"tidings: {reason}{say('; ')}{kept}", err=True)
    finally:
        # Also if the reader of standard error has gone: Ctrl-C ends `| tee` first.
        os._exit(Exit.FAILED)
