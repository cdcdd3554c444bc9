"""The id of the request or execution that the present task works on. It is in every log line and every stored record.
It is a context variable, so no function passes it on.
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
    """Set the id of this task and of those that it starts, and return it. A caller's id is used if it has 1 to 64 of
    `A-Z a-z 0-9 . _ -`. Otherwise, or with None, a new id is made.
    """
    request_id = _choose(value)
    _current.set(request_id)
    return request_id


@contextmanager
def request_id_scope(value: str | None = None) -> Iterator[str]:
    """The same for a block; afterwards the previous id applies again."""
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
