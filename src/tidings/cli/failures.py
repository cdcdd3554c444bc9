"""What a command says about an error that ended it: one line for a person. Loaded only when there is one."""

import asyncio
import errno
import sqlite3
import traceback
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from tidings.announce.channels.enabled_channels import ChannelDisabledError
from tidings.announce.site.errors import SiteError
from tidings.cli.language import label, say, say_rule, translate
from tidings.cli.session import Exit
from tidings.core.alerts.events import DestinationError
from tidings.core.backup.file import BackupError
from tidings.core.db.database import DatabaseUrlError
from tidings.core.db.revisions import NewerDatabaseError, OlderDatabaseError, TooOldDatabaseError
from tidings.core.db.sqlite_file import is_damaged
from tidings.core.executions import AlreadyRunningError, ExecutionError
from tidings.core.logs.logger import get_logger, is_logging_configured
from tidings.core.secrets.keyring import DecryptionError, UnknownKeyError
from tidings.core.secrets.master_key import KeyFileError, KeyRingError
from tidings.storage import DataDirectoryError


def explain(error: BaseException, *, outcome: str | None) -> tuple[str, Exit]:
    """One line for a person, and the exit code. An unexpected error is logged with all its details."""
    message = translate(str(error))
    match error:
        case SiteError():
            return say_rule(error.field, error.rule), Exit.BAD_INPUT
        case NewerDatabaseError() | OlderDatabaseError() | TooOldDatabaseError():
            return message, Exit.BAD_INPUT
        case BackupError() | ChannelDisabledError() | DataDirectoryError() | KeyFileError():
            return message, Exit.BAD_INPUT
        case DecryptionError() | UnknownKeyError():
            advice = say("put the master key that encrypted it back into COOKIE_MASTER_KEY or master.key")
            return join_clauses(label("COOKIE_MASTER_KEY", message), advice), Exit.BAD_INPUT
        case KeyRingError():
            return label("COOKIE_MASTER_KEY", message), Exit.BAD_INPUT
        case DatabaseUrlError():
            return label("TIDINGS_DATABASE_URL", message), Exit.BAD_INPUT
        case DestinationError():
            return label(say("TIDINGS_ALERT_URLS or TIDINGS_WEBHOOK_URL"), message), Exit.BAD_INPUT
        case AlreadyRunningError():
            return join_clauses(message, say("try again when it has ended")), Exit.FAILED
        case ExecutionError():
            return message, Exit.FAILED
        case _:
            return _explain_failure(error, outcome=outcome), Exit.FAILED


def _explain_failure(error: BaseException, *, outcome: str | None) -> str:
    """What stopped the work, what was kept, and if possible what to do."""
    kept = outcome or say("everything saved before is kept, and the next execution continues from there")
    match error:
        # SQLite's own errors come from opening the file.
        case DBAPIError() | sqlite3.Error():
            return _explain_database_error(error, kept=kept)
        case OSError(errno=errno.EADDRINUSE):
            advice = say("choose another with --port, or end the program that uses it")
            return join_clauses(describe_system_error(error), advice)
        case PermissionError():
            # It may be about a port, or before any execution.
            kept = outcome or say("what was saved before is kept")
            return join_clauses(describe_system_error(error), say("run this as a user that may do it"), kept)
        case OSError():
            return join_clauses(describe_system_error(error), kept)
        case asyncio.CancelledError():
            return join_clauses(say("stopped at once"), kept)
        case _:
            return _explain_unexpected(error, kept=kept)


def _explain_unexpected(error: BaseException, *, kept: str) -> str:
    name = type(error).__name__
    if is_logging_configured():
        get_logger(__name__).error("command.failed", exc_info=error)
        return join_clauses(say("unexpected error, {name}; the log has the details", name=name), kept)
    # There is no log yet. The error's message is not shown, because it is not redacted.
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return say("unexpected error, {name}, at {where}; nothing was changed", name=name, where=where)


def join_clauses(*clauses: str) -> str:
    """Clauses of one sentence, with the semicolon of the chosen language between them."""
    return say("; ").join(clauses)


def _explain_database_error(error: Any, *, kept: str) -> str:
    """The driver's own words, and what was kept; of a damaged file, what to do. The statement's values may hold
    secrets."""
    original = getattr(error, "orig", error)
    # Further lines of PostgreSQL's driver ask what this line answers.
    reason = str(original).partition("\n")[0]
    described = say("the database does not work ({reason})", reason=translate(" ".join(reason.split())))
    if is_damaged(error):
        advice = say("its file is damaged: move tidings.db away and run `tidings restore` with your last backup")
        return join_clauses(described, advice)
    return join_clauses(described, kept)


def describe_system_error(error: OSError) -> str:
    """The system's words, and the file or address if it is known."""
    reason = translate(str(error.strerror or error))
    return say("{reason} ({place})", reason=reason, place=error.filename) if error.filename else reason
