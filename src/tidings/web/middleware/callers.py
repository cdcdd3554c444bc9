"""The caller's address, and a limit on wrong tokens per address. `auth` checks the tokens."""

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import IPv6Address, ip_network
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope as Connection

from tidings.core.clock import Clock
from tidings.core.net.addresses import Address, Network, parse_address

WRONG_TRIES: Final = 10
WINDOW: Final = timedelta(minutes=1)
MOST_ADDRESSES: Final = 10_000

_UNKNOWN: Final = "unknown"
_ONE_SUBSCRIBER: Final = 64


class WrongTries:
    """Counts wrong tokens per address in the last minute. Memory is bounded: it forgets the least recent address."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> int | None:
        """Count one. Returns the seconds to wait if there were too many before; this one is then not counted."""
        tries = self._tries.setdefault(address, deque(maxlen=WRONG_TRIES))
        self._tries.move_to_end(address)
        if len(self._tries) > MOST_ADDRESSES:
            self._tries.popitem(last=False)
        wait = self.find_wait(address)
        if wait is None:
            tries.append(self._clock.monotonic())
        return wait

    def find_wait(self, address: str) -> int | None:
        """The seconds to wait if there were too many wrong tries already. Counts nothing."""
        tries = self._tries.get(address, deque[float]())
        left = tries[0] + WINDOW.total_seconds() - self._clock.monotonic() if len(tries) == WRONG_TRIES else 0
        return math.ceil(left) if left > 0 else None

    def __len__(self) -> int:
        return len(self._tries)


def find_caller(connection: Connection, *, trusted_proxies: Sequence[Network] = ()) -> str:
    """The caller's address; of IPv6 its /64, because one subscriber has all of it.

    Reads `X-Forwarded-For` from its end, as far as every proxy is trusted: an untrusted proxy can write anything.
    """
    peer = connection.get("client")
    address = parse_address(peer[0]) if peer else None
    if address is None:
        return _UNKNOWN
    forwarded = Headers(scope=connection).getlist("x-forwarded-for")
    for text in reversed(",".join(forwarded).split(",")):
        before = parse_address(text.strip())
        if before is None or not _is_trusted(address, trusted_proxies):
            break
        address = before
    return _name_subscriber(_unmap(address))


def is_secure(connection: Connection, *, trusted_proxies: Sequence[Network] = ()) -> bool:
    """Whether the browser uses https, to us or to a trusted proxy."""
    if connection.get("scheme") == "https":
        return True
    peer = connection.get("client")
    address = parse_address(peer[0]) if peer else None
    forwarded = Headers(scope=connection).getlist("x-forwarded-proto")
    return forwarded == ["https"] and address is not None and _is_trusted(address, trusted_proxies)


def _is_trusted(address: Address, proxies: Sequence[Network]) -> bool:
    return any(_unmap(address) in network for network in proxies)


def _unmap(address: Address) -> Address:
    """A socket for both families shows an IPv4 peer as ::ffff:1.2.3.4."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _name_subscriber(address: Address) -> str:
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(ip_network((int(address), _ONE_SUBSCRIBER), strict=False))
