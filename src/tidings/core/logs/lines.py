"""How one log event becomes text: its values made safe, rendered for people or as JSON, and the whole redacted at the
end. Where lines go, and who may write them, is in `logger`.

Values are redacted one by one first, because the end of a header's value is known only there. The rendered line is
redacted again as the last step, for secrets in any other place.
"""

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tidings.core.secrets.escapes import escape_controls, escape_controls_in_block, escape_controls_in_json
from tidings.core.secrets.patterns import redact_field
from tidings.core.secrets.redaction import Redactor

_DEEPEST: Final = 6
# A known secret is never as short as this.
_SHORT: Final = 5
_FIRST: Final = ("timestamp", "level", "logger", "event", "request_id")
# Written by this package alone; the last step looks at them like at everything else.
_OWN: Final = frozenset({"timestamp", "level"})
_BLOCKS: Final = ("exception", "stack")
_NEEDS_QUOTES: Final = frozenset(" \t=\"'")


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


def build_line_processors(*, format: LogFormat, redactor: Redactor, colors: bool) -> list[Processor]:  # noqa: A002 - the setting's name
    """From an event with all its fields to one redacted text."""

    def clean_event(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        ordered = {key: event[key] for key in (*_FIRST, *event) if key in event}
        return {
            _clean_key(key, redactor): value if key in _OWN else _clean_field(key, value, redactor)
            for key, value in ordered.items()
        }

    def redact_line(logger: WrappedLogger, method: str, line: EventDict) -> str:
        return redactor.redact(str(line))

    render = _render_json if format is LogFormat.JSON else _build_console_renderer(colors=colors)
    return [structlog.processors.format_exc_info, clean_event, render, redact_line]


def _clean_key(key: object, redactor: Redactor) -> str:
    text = str(key) if isinstance(key, str) else _show_object(key)
    return redactor.redact(text) if len(text) > _SHORT else text


def _clean_field(name: object, value: object, redactor: Redactor, depth: int = 0) -> Any:
    if isinstance(value, str | bytes) and isinstance(name, str):
        text = str(value) if isinstance(value, str) else _show_object(value)
        return redactor.redact(redact_field(name, text))
    return _clean_value(value, redactor, depth)


def _clean_value(value: object, redactor: Redactor, depth: int) -> Any:
    """The value as plain strings, numbers, lists and dicts, without secrets."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return redactor.redact(str(value))
    if isinstance(value, int | float):
        return _clean_number(value, redactor)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {_clean_key(key, redactor): _clean_field(key, each, redactor, depth + 1) for key, each in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [_clean_value(each, redactor, depth + 1) for each in value]
    return redactor.redact(_show_object(value))


def _clean_number(value: float, redactor: Redactor) -> float | str:
    """The number itself; as text when JSON has no such number, or when its digits are a secret."""
    text = str(value)
    redacted = redactor.redact(text) if len(text) > _SHORT else text
    return value if redacted == text and math.isfinite(value) else redacted


def _show_object(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a value that cannot show itself must not cost the line
        return f"<{type(value).__name__} without repr: {type(error).__name__}>"


def _render_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    return escape_controls_in_json(json.dumps(event, ensure_ascii=False, default=_show_object))


class _Shown(str):
    """Text that the console renderer prints without adding quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _build_console_renderer(*, colors: bool) -> Processor:
    render = structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False)

    def render_console(logger: WrappedLogger, method: str, event: EventDict) -> str:
        shown = {escape_controls(key): _show_on_console(key, value) for key, value in event.items()}
        return render(logger, method, shown)

    return render_console


def _show_on_console(key: str, value: object) -> str:
    if key in _BLOCKS:
        # The indent keeps a newline inside an exception's message from passing for a line of the log.
        return "\n".join("    " + line for line in escape_controls_in_block(str(value)).split("\n"))
    if key in _FIRST and isinstance(value, str):
        return escape_controls(value)
    if isinstance(value, str) and value.isprintable() and value and not _NEEDS_QUOTES & set(value):
        return _Shown(value)
    return _Shown(repr(value))
