"""Structured logs: one way for our own events and for those of every library, to the terminal and to a file. This
module decides where lines go and which loggers write. `lines` says what a line looks like, `redaction` what must not be
in it.

Usage: `log = get_logger(__name__)`, then `log.info("batch.sent", site=…, urls=100, ms=84)`.
"""

import logging
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from tidings.core.logs.lines import LogFormat, build_line_processors
from tidings.core.logs.log_file import PrivateFileHandler, report_lost_line
from tidings.core.logs.request_id import NO_REQUEST, bind_request_id, current_request_id, request_id_scope
from tidings.core.secrets.redaction import Redactor

__all__ = [
    "LogFormat",
    "bind_request_id",
    "configure_logging",
    "current_request_id",
    "get_logger",
    "is_logging_configured",
    "log_uncaught_exceptions",
    "request_id_scope",
]

LEVELS: Final = ("debug", "info", "warning", "error", "critical")

_OURS: Final = "tidings"


def get_logger(name: str) -> BoundLogger:
    """A logger of Tidings. A name outside `tidings` is put under it, so that Tidings' level applies."""
    return structlog.stdlib.get_logger(name if _is_ours(name) else f"{_OURS}.{name}")


def configure_logging(
    *,
    format: LogFormat,  # noqa: A002 - the setting's name
    level: str,
    redactor: Redactor,
    stream: TextIO | None = None,
    file: Path | None = None,
    colors: bool | None = None,
    quiet: bool = False,
) -> None:
    """Sends every log line of the process through one chain to the stream (default: stderr) and, as JSON, to the file.

    With `quiet`, nothing goes to the stream: a command that shows its own progress keeps its log in the file alone.

    It removes the handlers of every other logger, because they would bypass the redactor. Libraries log from WARNING,
    or from DEBUG with the level `debug`. Raises ValueError for an unknown level and OSError when the file cannot be
    opened. A second call replaces the first configuration.
    """
    threshold = _read_level(level)
    handlers: list[logging.Handler] = []
    if not quiet:
        target = stream if stream is not None else sys.stderr
        colored = target.isatty() if colors is None else colors
        handlers.append(_LineHandler(target))
        handlers[-1].setFormatter(_build_formatter(format, redactor, colors=colored))
    if file is not None:
        handlers.append(PrivateFileHandler(file))
        handlers[-1].setFormatter(_build_formatter(LogFormat.JSON, redactor, colors=False))
    _install_handlers(handlers, threshold=threshold)
    logging.captureWarnings(True)
    _configure_structlog()


def is_logging_configured() -> bool:
    """Whether `configure_logging` was called."""
    return any(isinstance(handler, _LineHandler | PrivateFileHandler) for handler in logging.getLogger().handlers)


def _read_level(name: str) -> int:
    if name.lower() not in LEVELS:
        raise ValueError(f"unknown log level {name!r}: it is one of {', '.join(LEVELS)}")
    return logging.getLevelNamesMapping()[name.upper()]


def _install_handlers(handlers: list[logging.Handler], *, threshold: int) -> None:
    foreign = threshold if threshold <= logging.DEBUG else max(threshold, logging.WARNING)
    for logger in _list_loggers():
        _remove_handlers(logger)
    root = logging.getLogger()
    root.setLevel(foreign)
    logging.getLogger(_OURS).setLevel(threshold)
    for handler in handlers:
        # A library may have set a level of its own, so the root's is not enough.
        handler.addFilter(lambda record: record.levelno >= (threshold if _is_ours(record.name) else foreign))
        root.addHandler(handler)


def _is_ours(name: str) -> bool:
    return name == _OURS or name.startswith(f"{_OURS}.")


def _list_loggers() -> list[logging.Logger]:
    named = [each for each in list(logging.root.manager.loggerDict.values()) if isinstance(each, logging.Logger)]
    return [logging.getLogger(), *named]


def _remove_handlers(logger: logging.Logger) -> None:
    for handler in [each for each in logger.handlers if not isinstance(each, logging.NullHandler)]:
        logger.removeHandler(handler)
        if isinstance(handler, _LineHandler | PrivateFileHandler):
            handler.close()
    logger.propagate = True


def _configure_structlog() -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_describe_event(),
            structlog.processors.StackInfoRenderer(),
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Modules create their loggers when they are imported, before this; a cached one would keep the old
        # configuration.
        cache_logger_on_first_use=False,
    )


def _describe_event() -> list[Processor]:
    """Add the fields of every event, also of libraries' events."""
    return [
        _fill_in_arguments,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_request_id,
    ]


def _fill_in_arguments(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """`log.info("took %d s", 3)`. Arguments that do not fit are shown beside the message; logging never raises."""
    arguments = event.pop("positional_args", ())
    if not arguments:
        return event
    try:
        event["event"] = event["event"] % arguments
    except Exception:  # noqa: BLE001 - an argument's own __str__ may raise anything
        event["arguments"] = arguments
    return event


def _take_stack(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """A library's record comes with its stack as text already."""
    if stack := event.pop("stack_info", None):
        event["stack"] = stack
    return event


def _add_request_id(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event.setdefault("request_id", current_request_id() or NO_REQUEST)
    return event


def _build_formatter(format: LogFormat, redactor: Redactor, *, colors: bool) -> logging.Formatter:  # noqa: A002
    return _LineFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *_describe_event(), _take_stack],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            *build_line_processors(format=format, redactor=redactor, colors=colors),
        ],
    )


class _LineFormatter(ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        try:
            return super().format(record)
        except Exception as error:  # noqa: BLE001 - the line is lost, the program is not
            # logging's own report of such a failure prints the arguments in clear.
            note = f"a log record of {record.name} could not be rendered: {type(error).__name__}"
            return super().format(
                logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, note, (), None)
            )


class _LineHandler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        report_lost_line(record)


def log_uncaught_exceptions() -> None:
    """Log uncaught exceptions of the process and its threads. Python itself would print them without redaction."""
    log = get_logger("uncaught")

    def log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            log.critical("uncaught exception", exc_info=(kind, error, trace))

    def log_in_thread(event: threading.ExceptHookArgs) -> None:
        if event.exc_value is not None and not issubclass(event.exc_type, SystemExit):
            log_uncaught(event.exc_type, event.exc_value, event.exc_traceback)

    def log_unraisable(event: "sys.UnraisableHookArgs") -> None:
        log.error("exception ignored", exc_info=event.exc_value)

    sys.excepthook = log_uncaught
    threading.excepthook = log_in_thread
    sys.unraisablehook = log_unraisable


# Until configure_logging is called nothing is written: structlog's own default would print every field in clear.
logging.getLogger(_OURS).addHandler(logging.NullHandler())
_configure_structlog()
