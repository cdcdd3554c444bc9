"""Resolves names in threads of its own, with a limit for each domain. The system's lookup cannot be cancelled: an
abandoned one blocks its thread until the system gives up, often half a minute later. In the shared thread pool a few
slow names would stop all other work. The threads are daemons, so that the process does not wait for them when it ends.
"""

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from aiohttp.abc import AbstractResolver, ResolveResult

# Enough for a hundred slow domains. A waiting thread takes 25 KB, and lives only as long as its lookup.
MOST_LOOKUPS: Final = 512
# Lookups at once under one domain: a slow name server can serve any number of names.
MOST_PER_DOMAIN: Final = 4

LookUp = Callable[..., list[Any]]


class NameResolver(AbstractResolver):
    """The system's resolver. `look_up` is `socket.getaddrinfo` or works like it."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._lookups = asyncio.Semaphore(MOST_LOOKUPS)
        self._domains: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises OSError."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[list[Any]] = loop.create_future()
        domain = self._find_domain(host)
        # The domain's limit first: a lookup that waits for it must not occupy a thread.
        await domain.acquire()
        try:
            await self._lookups.acquire()
        except BaseException:
            domain.release()
            raise

        def finish(found: list[Any] | OSError) -> None:
            # Only now, even if the caller gave up earlier: the thread was busy until now.
            self._lookups.release()
            domain.release()
            if answered.done():
                return
            if isinstance(found, OSError):
                answered.set_exception(found)
            else:
                answered.set_result(found)

        def work() -> None:
            found: list[Any] | OSError
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
        except RuntimeError as error:
            self._lookups.release()
            domain.release()
            raise OSError(errno.EAGAIN, "the system starts no further thread for a lookup") from error
        return [_read_address(host, entry) for entry in await answered if _has_no_zone(entry)]

    def _find_domain(self, host: str) -> asyncio.Semaphore:
        domain = ".".join(host.rstrip(".").split(".")[-2:])
        turn = self._domains.get(domain)
        if turn is None:
            turn = self._domains[domain] = asyncio.Semaphore(MOST_PER_DOMAIN)
        return turn

    async def close(self) -> None:
        """Do nothing: threads end by themselves."""


def _has_no_zone(entry: Any) -> bool:
    """Whether the address has no zone, unlike `fe80::1%eth0`; the guard would refuse a link-local address anyway."""
    return len(entry[4]) < 4 or not entry[4][3]


def _read_address(host: str, entry: Any) -> ResolveResult:
    family, _, proto, _, (address, port, *_) = entry
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=proto, flags=socket.AI_NUMERICHOST
    )
