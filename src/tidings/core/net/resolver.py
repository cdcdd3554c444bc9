"""Resolves names and checks their addresses. aiohttp connects to exactly these, which prevents DNS rebinding."""

import socket
from collections.abc import Collection, Sequence

from aiohttp.abc import AbstractResolver, ResolveResult

from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import HostPort, Network, is_allowed_address, parse_address

_log = get_logger(__name__)


class ForbiddenAddressError(Exception):
    """A name has an address that is not allowed."""


class GuardedResolver(AbstractResolver):
    """Asks the real resolver, and returns its answer if every address is allowed.

    Names in `allow_hosts`, with their port, may have any address.
    """

    def __init__(
        self, inner: AbstractResolver, *, allow_networks: Sequence[Network], allow_hosts: Collection[HostPort] = ()
    ) -> None:
        self._inner = inner
        self._allow_networks = allow_networks
        self._allow_hosts = allow_hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if not found:
            raise OSError(socket.EAI_NONAME, "no address")
        if (host, port) in self._allow_hosts:
            return found
        for entry in found:
            address = parse_address(entry["host"])
            if address is None or not is_allowed_address(address, allow_networks=self._allow_networks):
                # Only the operator sees the address: a caller that names a host must not learn inner addresses.
                _log.warning("address.refused", host=host, address=entry["host"])
                raise ForbiddenAddressError("its address is not public, and TIDINGS_ALLOW_NETWORKS does not allow it")
        return found

    async def close(self) -> None:
        """Do nothing: the inner resolver belongs to its creator."""
