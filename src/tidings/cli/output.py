"""Terminal output that all commands share: JSON, tables, progress bars, and text that is safe to show."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from tidings.cli.language import is_chinese, say, say_word
from tidings.core.secrets.escapes import escape_controls

if TYPE_CHECKING:
    # Rich is imported when it is needed: help, completion and usage errors do not use it.
    from rich.console import Console
    from rich.table import Table

    from tidings.core.executions import ExecutionRecord

# The line width for output that is not a terminal.
_WIDE: Final = 200
# The least width that has room for columns of less importance.
_ENOUGH: Final = 110
# Colours by the value of an execution's status.
_COLOURS: Final = {
    "succeeded": "green",
    "partial": "yellow",
    "interrupted": "yellow",
    "failed": "red",
    "timeout": "red",
    "running": "cyan",
}


def print_json(document: Any, *, indent: int | None = None) -> None:
    typer.echo(json.dumps(document, ensure_ascii=False, indent=indent))


def show(text: str, /, *, err: bool = False, **values: object) -> None:
    """Print a line in the chosen language, or one that is said already."""
    typer.echo(say(text, **values), err=err)


def make_console() -> "Console":
    """A console on standard output. If that is no terminal, lines are not cut to the width of one."""
    from rich.console import Console

    class Terminal(Console):
        """Leaves the breaking of Chinese lines to the terminal: Rich breaks at spaces, which Chinese has few of."""

        def print(self, *objects: Any, **options: Any) -> None:
            is_text = all(isinstance(each, str) for each in objects)
            super().print(*objects, **{"soft_wrap": True if is_text and is_chinese() else None, **options})

    console = Terminal()
    return console if console.is_terminal else Terminal(width=_WIDE)


def is_wide() -> bool:
    """Whether a table has room for columns of less importance."""
    return make_console().width >= _ENOUGH


def make_table(*titles: str, right: Collection[str] = ()) -> "Table":
    """A plain table. `right`: the titles of columns that are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold", justify="right" if title in right else "left")
    return table


def print_table(rows: Sequence[Sequence[str]], *titles: str) -> None:
    table = make_table(*titles)
    for row in rows:
        table.add_row(*row)
    make_console().print(table)


def make_execution_table(records: "Iterable[ExecutionRecord]", *titles: str) -> "Table":
    """A row for each execution. The titles name the workflow, the items done, and the items failed."""
    name, done, failed = titles
    # The execution's number is for the log; a terminal of 80 columns has no room for it.
    last = [say("execution")] if is_wide() else []
    table = make_table(name, say("started"), say("status"), done, failed, *last)
    for record in records:
        cells = (
            escape(record.workflow_name.removeprefix("announce:")),
            f"{record.started_at:%Y-%m-%d %H:%M:%S}",
            say_word(record.status.value),
            f"{record.items_processed:,}",
            f"{record.items_failed:,}",
        )
        table.add_row(*cells, *([record.public_id] if last else ()))
    return table


def colour_status(status: str) -> str:
    """An execution's status, in markup."""
    return f"[bold {_COLOURS[status]}]{say_word(status)}[/]"


def format_time(time: datetime | None, *, missing: str = "-") -> str:
    return missing if time is None else f"{time:%Y-%m-%d %H:%M} UTC"


def escape(text: str) -> str:
    """Foreign text as it is: neither markup nor a control sequence of the terminal."""
    from rich.markup import escape as escape_markup

    return escape_markup(escape_controls(text))


@contextmanager
def show_bar(title: str, *, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error; call it with the work done and the total."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not enabled) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
