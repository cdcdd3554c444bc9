"""Keeps the process small, its start quick and its pauses short."""

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE = 1024 * 1024
# The collector looks at new objects once there are so many. Python's own 700 are there again within one request.
_MOST_NEW_OBJECTS = 10_000
# OpenSSL's variable for the file of all certificates.
_CERTIFICATES = "SSL_CERT_FILE"


def prepare_heap() -> None:
    """Before anything else: one heap for all threads, large blocks outside of it, and a look for garbage seldom.

    glibc maps blocks of 1 MiB and more by themselves, so that freeing one frees its memory. By itself it would raise
    that limit each time such a block is freed, up to 32 MiB, and keep what lies between the blocks still in use: about
    6 MB after a first run over 400,000 pages. A heap for each of SQLite's threads costs a re-scan 3 MB. Other C
    libraries are left as they are.
    """
    gc.set_threshold(_MOST_NEW_OBJECTS)
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_ARENA_MAX, 1)


@contextmanager
def load_quickly() -> Iterator[None]:
    """While modules load: no look for garbage, and no certificates. Each takes about a tenth of a short command.

    Modules leave hardly any garbage. aiohttp reads all certificates of the machine twice when it is imported, which
    takes 2 MB, too. `GuardedClient` reads them once it needs them.
    """
    named = os.environ.get(_CERTIFICATES)
    os.environ[_CERTIFICATES] = os.devnull
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        del os.environ[_CERTIFICATES]
        if named is not None:
            os.environ[_CERTIFICATES] = named


def spare_the_collector() -> None:
    """What is there after the start stays: the garbage collector need not look at it again.

    While it looks, a request that has its turn is not sent.
    """
    gc.freeze()


def return_freed_memory() -> None:
    """Give back to the system what the start of a service needed and freed: about 3 MB. glibc alone can do this."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
