"""The number of files that this process may open: sockets, files, and pipes to child processes."""

import resource
from contextlib import suppress
from typing import Final

_WANTED: Final = 65_536
# macOS refuses more, even below its hard limit.
_OPEN_MAX: Final = 10_240


def raise_file_limit() -> int:
    """Raise the number of files that this process may open, and return it.

    A process that runs many sites needs more than the usual 1,024: a lookup that hangs holds up to three files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_WANTED, _OPEN_MAX):
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                return most
    return _WANTED if soft == resource.RLIM_INFINITY else soft
