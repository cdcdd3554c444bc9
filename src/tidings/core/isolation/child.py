"""The child's side: sets its limits, then answers one request after the other until its standard input ends.

A request is a JSON header (function, arguments, limits), then the body. An answer is JSON, never pickle: a parser that
a hostile page has taken over must not be able to run code in the parent. Only the standard library is imported here;
a request's function brings what it needs, and loading it does not count against the limit.
"""

import ctypes
import importlib
import json
import math
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

# The length of the next piece, in bytes.
LENGTH: Final = struct.Struct(">Q")

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
# A child that has needed this much memory ends after its answer, and a new one takes its place.
_LARGE_BYTES: Final = 256 * 1024 * 1024
_LONGEST_REASON: Final = 300


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _die_with_parent()
    memory = int(sys.argv[1])
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ctrl-C and systemd signal the whole group. The parent decides when a child ends.
        signal.signal(each, signal.SIG_IGN)
    large = False
    while not large and (header := _read_piece(requests)) is not None:
        body = _read_piece(requests) or b""
        answer = _answer(json.loads(header), body)
        large = answer.get("error") == MemoryError.__name__ or _measure_peak() > _LARGE_BYTES
        text = json.dumps(answer | {"last": large}, ensure_ascii=False).encode("utf-8", "replace")
        answers.write(LENGTH.pack(len(text)) + text)
        answers.flush()


def _answer(header: dict[str, Any], body: bytes) -> dict[str, Any]:
    try:
        function = _find(header["function"])
        _limit_time(cpu=header["cpu_seconds"], total=header["total_seconds"])
        return {"result": function(body, **header["arguments"])}
    except MemoryError:
        return {"error": MemoryError.__name__}
    except Exception as error:  # noqa: BLE001 - parsers raise anything for broken input
        return {"error": type(error).__name__, "reason": str(error)[:_LONGEST_REASON]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _find(name: str) -> Callable[..., object]:
    module, _, attribute = name.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
    return function


def _limit_time(*, cpu: float, total: float) -> None:
    """Let the kernel end this process: SIGXCPU after this much more CPU time, SIGALRM after this much elapsed time.

    Both work while C code holds the interpreter. The parent kills the child earlier, unless the parent is gone.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + cpu))
    signal.setitimer(signal.ITIMER_REAL, total)


def _limit(kind: int, most: int) -> None:
    """Set a soft limit, within the hard one. macOS does not know every limit."""
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _die_with_parent() -> None:
    """Linux kills this process when its parent ends. Elsewhere it ends at the end of its input or of its time."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _measure_peak() -> int:
    """The largest memory so far, in bytes. On Linux, `getrusage` begins with the peak of the parent."""
    with suppress(OSError, StopIteration, ValueError), Path("/proc/self/status").open(encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read_piece(stream: BinaryIO) -> bytes | None:
    """The next piece; None at the end."""
    length = stream.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    piece = stream.read(size)
    return piece if len(piece) == size else None


if __name__ == "__main__":
    main()
