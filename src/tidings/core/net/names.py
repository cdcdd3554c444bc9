"""Resolves names in threads of its own. The system's lookup cannot be cancelled: an abandoned one blocks its thread
until the system gives up, often half a minute later. In the shared thread pool a few slow names would stop all other
work. The threads are daemons, so that the process does not wait for them when it ends.

A lookup that hangs gives its turn to another, so it delays other names by seconds at most. This has a bound: while
MOST_THREADS lookups hang, every other name waits until the system gives one up. One name each of 1,536 domains, or four
each of 384, can cause that. The threads then take 38 MB and up to three open files each, because the system's lookup
opens a socket for each name server. The numbers are for one resolver; each HTTP client has its own.
"""

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from weakref import WeakValueDictionary

from aiohttp.abc import AbstractResolver, ResolveResult

# A lookup that takes longer hangs. Almost all take less, and a longer one loses nothing.
HANGS_AFTER: Final = timedelta(seconds=2)
# Lookups at once that do not hang.
MOST_LOOKUPS: Final = 512
# All lookups at once, also those that hang: enough if each of a thousand executions waits for a name.
MOST_THREADS: Final = 1_536
# Lookups at once under one domain, also those that hang: a slow name server can serve any number of names.
MOST_PER_DOMAIN: Final = 4
# Under these, and under two letters, countries register domains: example.com.cn, example.gd.cn.
_REGISTRIES: Final = frozenset({"com", "edu", "gob", "gov", "mil", "net", "nom", "org"})

LookUp = Callable[..., list[Any]]
Found = list[Any] | OSError


class NameResolver(AbstractResolver):
    """The system's resolver. `look_up` is `socket.getaddrinfo` or works like it."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo, *, hangs_after: timedelta = HANGS_AFTER) -> None:
        self._look_up = look_up
        self._hangs_after = hangs_after
        self._turns = asyncio.Semaphore(MOST_LOOKUPS)
        self._threads = asyncio.Semaphore(MOST_THREADS)
        self._domains: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # The event loop itself keeps no reference to a task.
        self._under_way: set[asyncio.Task[Found]] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises OSError."""
        lookup = asyncio.create_task(self._take_turn(host, port, family))
        self._under_way.add(lookup)
        lookup.add_done_callback(self._under_way.discard)
        # The thread is busy until the lookup ends, even if the caller gives up earlier.
        found = await asyncio.shield(lookup)
        if isinstance(found, OSError):
            raise found
        return [_read_address(host, entry) for entry in found if _has_no_zone(entry)]

    async def _take_turn(self, host: str, port: int, family: socket.AddressFamily) -> Found:
        """Look the name up when its domain and the others leave room for it."""
        # The domain first: a lookup that waits for it must not keep others waiting.
        async with self._find_room(host), self._threads:
            async with self._turns:
                answer = self._start_thread(host, port, family)
                await asyncio.wait({answer}, timeout=self._hangs_after.total_seconds())
            return await answer

    def _start_thread(self, host: str, port: int, family: socket.AddressFamily) -> asyncio.Future[Found]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Found] = loop.create_future()

        def finish(found: Found) -> None:
            # The loop may have cancelled it at its end.
            if not answer.done():
                answer.set_result(found)

        def work() -> None:
            found: Found
            try:
                found = self._look_up(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
            except OSError as error:
                found = error
            except UnicodeError:
                found = OSError(socket.EAI_NONAME, "not a valid name")
            with suppress(RuntimeError):
                # The loop may have ended meanwhile.
                loop.call_soon_threadsafe(finish, found)

        try:
            threading.Thread(target=work, name="tidings-names", daemon=True).start()
        except RuntimeError:
            finish(OSError(errno.EAGAIN, "the system starts no further thread for a lookup"))
        return answer

    def _find_room(self, host: str) -> asyncio.Semaphore:
        """The places of the name's domain."""
        domain = _find_domain(host)
        room = self._domains.get(domain)
        if room is None:
            room = self._domains[domain] = asyncio.Semaphore(MOST_PER_DOMAIN)
        return room

    async def close(self) -> None:
        """Do nothing: threads end by themselves."""


def _find_domain(host: str) -> str:
    """The registered domain of a name, by its form. A list of all suffixes would be exact, but takes 14 MB."""
    labels = host.rstrip(".").split(".")
    registry, country = ["", *labels][-2:]
    is_suffix = len(country) == 2 and (len(registry) == 2 or registry in _REGISTRIES)
    return ".".join(labels[-3:] if is_suffix else labels[-2:])


def _has_no_zone(entry: Any) -> bool:
    """Whether the address has no zone, unlike `fe80::1%eth0`; the guard would refuse a link-local address anyway."""
    return len(entry[4]) < 4 or not entry[4][3]


def _read_address(host: str, entry: Any) -> ResolveResult:
    family, _, proto, _, (address, port, *_) = entry
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=proto, flags=socket.AI_NUMERICHOST
    )
