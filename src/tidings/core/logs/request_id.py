"""The id of the request, or of the piece of work, that this task is busy with. It is in every log line and in what is
written; it travels with the task's context, so nobody passes it on.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

NO_REQUEST: Final = "-"

_ACCEPTED: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: Final[ContextVar[str | None]] = ContextVar("tidings_request_id", default=None)


def current_request_id() -> str | None:
    return _current.get()


def bind_request_id(value: str | None = None) -> str:
    """Makes this the id from here on, in this task and those it starts, and returns it.

    A caller's id is taken when it has 1 to 64 of `A-Z a-z 0-9 . _ -`; otherwise, or with None, one is made.
    """
    request_id = _choose(value)
    _current.set(request_id)
    return request_id


@contextmanager
def request_id_scope(value: str | None = None) -> Iterator[str]:
    """The same for the length of a block; afterwards the id is what it was before."""
    request_id = _choose(value)
    token = _current.set(request_id)
    try:
        yield request_id
    finally:
        _current.reset(token)


def _choose(value: str | None) -> str:
    if value is not None and _ACCEPTED.fullmatch(value):
        return value
    return f"req-{secrets.token_hex(8)}"
