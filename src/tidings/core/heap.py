"""Keeps the process small, its start quick and its pauses short."""

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE = 1024 * 1024
# The collector runs after this many new objects. Python's default of 700 is reached within one request.
_MOST_NEW_OBJECTS = 10_000
# OpenSSL's variable for the file of all certificates.
_CERTIFICATES = "SSL_CERT_FILE"


def prepare_heap() -> None:
    """Set up the heap before anything else: one for all threads, large blocks outside of it, and rare garbage
    collections.

    glibc maps blocks of 1 MiB and more by themselves, so that freeing one frees its memory. By default it raises that
    limit each time such a block is freed, up to 32 MiB, and keeps the memory between blocks in use: about 6 MB after a
    first run over 400,000 pages. A heap for each of SQLite's threads costs a re-scan 3 MB. Other C libraries are left
    as they are.
    """
    gc.set_threshold(_MOST_NEW_OBJECTS)
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_ARENA_MAX, 1)


@contextmanager
def load_quickly() -> Iterator[None]:
    """While modules load, collect no garbage and read no certificates. Each takes about a tenth of a short command.

    Modules leave hardly any garbage. When imported, aiohttp reads all certificates of the machine twice, which also
    takes 2 MB. `GuardedClient` reads them when it needs them.
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
    """Exclude the objects of the start from garbage collection, because they stay. A collection delays requests whose
    turn has come.
    """
    gc.freeze()


def return_freed_memory() -> None:
    """Return the memory that the start of a service has freed to the system: about 3 MB. Works with glibc only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
