"""Keeps the process small, and its pauses short."""

import ctypes
import gc
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_LARGE = 1024 * 1024


def return_large_blocks() -> None:
    """Let glibc map blocks of 1 MiB and more by themselves, so that freeing one frees its memory.

    Other C libraries are left as they are. By itself glibc would raise that limit each time such a block is freed, up
    to 32 MiB, and keep what lies between the blocks still in use: about 6 MB after a first run over 400,000 pages.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, _LARGE)


def spare_the_collector() -> None:
    """What is there after the start stays: the garbage collector need not look at it again.

    While it looks, a request that has its turn is not sent.
    """
    gc.freeze()
