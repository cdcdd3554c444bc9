"""The guarded HTTP client. Tidings fetches every URL from a site, a sitemap or a request with it. It checks every
address (with `addresses`), also those of redirects, bounds time and size, and raises the errors of `failures`. It never
decodes a body: the caller decodes `Content-Encoding`, because it knows the limits. It does not retry, with one
exception: a GET that may follow redirects is repeated if a kept connection turns out to be closed.
"""

import functools
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from io import BytesIO
from time import monotonic
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from tidings.core.net.addresses import (
    MAX_URL_LENGTH,
    Address,
    HostPort,
    Network,
    Url,
    UrlError,
    is_allowed_address,
    parse_url,
    show_url,
)
from tidings.core.net.answer_overhead import BoundedResponse
from tidings.core.net.failures import (
    AnswerTooLargeError,
    FetchError,
    FetchTimeoutError,
    NetworkError,
    PrivateAddressError,
    RefusedError,
    UnansweredError,
)
from tidings.core.net.journey import Journey, trace_connections
from tidings.core.net.names import NameResolver
from tidings.core.net.redirects import REDIRECTS, Hop, RedirectError, follow_redirect
from tidings.core.net.resolver import GuardedResolver

__all__ = [
    "Admit",
    "Answer",
    "AnswerTooLargeError",
    "FetchError",
    "FetchTimeoutError",
    "GuardedClient",
    "NetworkError",
    "PrivateAddressError",
    "RefusedError",
    "Stream",
]

MAX_REDIRECTS: Final = 5
DEFAULT_LIMIT: Final = 1024 * 1024

# Shorter than the five seconds after which common servers close an idle connection, so that few requests meet a closing
# one.
_KEEP_ALIVE: Final = timedelta(seconds=4)
# A request that waits for its name counts as a connection. With aiohttp's own limit of 100, a hundred names that hang
# would stop all others. A process runs a thousand executions at most.
_MOST_CONNECTIONS: Final = 1_024
# Bytes. With aiohttp's own 64 KiB, it stops and resumes reading at almost every look at the socket of a large file.
_READ_BUFFER: Final = 262_144
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REPEATABLE: Final = frozenset({"GET", "HEAD"})
_UNFIT_IN_HEADER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

# Called before each request of a fetch, also before those of redirects. It may wait, or raise FetchError.
Admit = Callable[[Url], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int
    # The address of the last redirect.
    url: Url
    # From the request to the last byte.
    elapsed: timedelta
    # Names in any case.
    headers: Mapping[str, str] = field(repr=False)
    # As it came over the wire, still encoded.
    body: bytes = field(repr=False)


class Stream:
    """An answer with an unread body; valid only inside `async with client.stream(…)`."""

    def __init__(self, response: aiohttp.ClientResponse, *, journey: Journey) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self.url: Url = journey.url
        self._content = response.content
        self._journey = journey

    async def chunks(self) -> AsyncIterator[bytes]:
        """The raw bytes of the body as they come. Raises NetworkError if it breaks off."""
        while chunk := await self._read_chunk():
            yield chunk

    async def read(self, *, limit: int) -> bytes:
        """The whole body, or AnswerTooLargeError as soon as it exceeds the limit."""
        body = bytearray()
        async with self._journey.wait():
            while chunk := await self._content.readany():
                body += chunk
                if len(body) > limit:
                    raise AnswerTooLargeError(self.url, f"the answer is longer than {limit:,} bytes")
        return bytes(body)

    async def read_start(self, length: int) -> bytes:
        """The first `length` bytes of the body, or all of a shorter one."""
        body = bytearray()
        while len(body) < length and (chunk := await self._read_chunk()):
            body += chunk
        return bytes(body[:length])

    async def _read_chunk(self) -> bytes:
        async with self._journey.wait():
            return await self._content.readany()


@dataclass(slots=True, eq=False)
class GuardedClient:
    """Fetches from public addresses, and from the private networks in `allow_networks`; use it with `async with`.

    `allow_hosts` are hosts with ports from the operator's own settings, which may have any address. Never use a client
    with `allow_hosts` for URLs from a site, a page or a request.

    It uses no proxy, netrc or cookie, and asks for an uncompressed answer unless the caller's headers say otherwise.
    `tls` replaces the default TLS settings, for a private certificate authority.
    """

    _: KW_ONLY
    user_agent: str
    allow_networks: Sequence[Network] = ()
    allow_hosts: Collection[HostPort] = ()
    resolver: AbstractResolver | None = None
    connections_per_host: int = 6
    tls: ssl.SSLContext | None = None
    _session: aiohttp.ClientSession | None = field(default=None, init=False)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(
                self.resolver or NameResolver(), allow_networks=self.allow_networks, allow_hosts=self.allow_hosts
            ),
            limit=_MOST_CONNECTIONS,
            limit_per_host=self.connections_per_host,
            keepalive_timeout=_KEEP_ALIVE.total_seconds(),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self.user_agent, "Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),
            middlewares=(_send_once,),
            trace_configs=[trace_connections()],
            response_class=BoundedResponse,
            read_bufsize=_READ_BUFFER,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: timedelta,
        follow_redirects: bool = False,
        admit: Admit | None = None,
        url_limit: int = MAX_URL_LENGTH,
        before_sending: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Stream]:
        """Send one request and yield its answer, of any status, with the body unread. Raises FetchError.

        The timeout covers all waiting: name, connection, redirects and the whole body. At most five redirects are
        followed; `follow_redirect` says what they may carry. `url_limit` is the longest URL, in characters. The time
        that `admit` takes is not counted.
        `before_sending` is awaited once there is a connection, right before the bytes of each request go out.
        """
        try:
            first = parse_url(url, max_length=url_limit)
        except UrlError as error:
            raise RefusedError(show_url(url), str(error)) from None
        journey = Journey(first, timeout=timeout, url_limit=url_limit, before_sending=before_sending)
        hop = Hop(method.upper(), first, dict(headers or {}), body)
        _check_request(hop, journey=journey)
        response = await self._travel(hop, journey=journey, follow_redirects=follow_redirects, admit=admit)
        try:
            yield Stream(response, journey=journey)
        finally:
            response.release()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: timedelta,
        limit: int = DEFAULT_LIMIT,
        follow_redirects: bool = False,
        admit: Admit | None = None,
        url_limit: int = MAX_URL_LENGTH,
    ) -> Answer:
        """As `stream`, with the whole body. A body of more than `limit` bytes raises AnswerTooLargeError."""
        started = monotonic()
        async with self.stream(
            method,
            url,
            headers=headers,
            body=body,
            timeout=timeout,
            follow_redirects=follow_redirects,
            admit=admit,
            url_limit=url_limit,
        ) as stream:
            content = await stream.read(limit=limit)
        elapsed = timedelta(seconds=monotonic() - started)
        return Answer(status=stream.status, url=stream.url, elapsed=elapsed, headers=stream.headers, body=content)

    async def _travel(
        self, hop: Hop, *, journey: Journey, follow_redirects: bool, admit: Admit | None
    ) -> aiohttp.ClientResponse:
        seen = {(hop.method, hop.url)}
        for _ in range(MAX_REDIRECTS + 1):
            if admit is not None:
                await admit(hop.url)
            response = await self._send(hop, journey=journey, repeat=follow_redirects)
            location = response.headers.get("Location")
            if not follow_redirects or response.status not in REDIRECTS or location is None:
                return response
            response.release()
            try:
                hop = follow_redirect(hop, status=response.status, location=location, url_limit=journey.url_limit)
            except RedirectError as error:
                raise journey.refuse(str(error)) from None
            journey.url = hop.url
            if (hop.method, hop.url) in seen:
                raise journey.refuse("the redirects go in a circle")
            seen.add((hop.method, hop.url))
        raise journey.refuse(f"more than {MAX_REDIRECTS} redirects")

    def _allows(self, url: Url, address: Address) -> bool:
        is_own = (url.host, url.port) in self.allow_hosts
        return is_own or is_allowed_address(address, allow_networks=self.allow_networks)

    async def _send(self, hop: Hop, *, journey: Journey, repeat: bool) -> aiohttp.ClientResponse:
        address = hop.url.address
        # aiohttp does not ask its resolver about literal addresses.
        if address is not None and not self._allows(hop.url, address):
            raise PrivateAddressError(
                journey.url, f"{address} is not a public address, and TIDINGS_ALLOW_NETWORKS does not allow it"
            )
        target = _build_target(hop.url, journey=journey)
        async with journey.wait():
            # Some servers close a kept connection silently. Each repeat uses up one kept connection, so the loop ends.
            for _ in range(self.connections_per_host if repeat and hop.method in _REPEATABLE else 0):
                try:
                    return await self._exchange(hop, target, journey=journey)
                except UnansweredError:
                    if not journey.reused:
                        raise
            return await self._exchange(hop, target, journey=journey)

    async def _exchange(self, hop: Hop, target: URL, *, journey: Journey) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open: use it with `async with`")
        return await self._session.request(
            hop.method,
            target,
            headers=hop.headers,
            # aiohttp would write a large body of bytes in one piece, and warn about it.
            data=None if hop.body is None else BytesIO(hop.body),
            allow_redirects=False,
            # aiohttp's own context may have been created without certificates (`load_quickly`).
            ssl=self.tls or trust_machine() if target.scheme == "https" else True,
            trace_request_ctx=journey,
        )


@functools.cache
def trust_machine() -> ssl.SSLContext:
    """A TLS context with the certificates that this machine trusts. They are read once, for the first https URL."""
    tls = ssl.create_default_context()
    tls.set_alpn_protocols(["http/1.1"])
    return tls


def _check_request(hop: Hop, *, journey: Journey) -> None:
    if not _TOKEN.fullmatch(hop.method):
        raise journey.refuse("the method is not an HTTP token")
    for name, value in hop.headers.items():
        if not _TOKEN.fullmatch(name):
            raise journey.refuse("a header's name is not an HTTP token")
        if _UNFIT_IN_HEADER.search(value):
            raise journey.refuse(f"control characters in the header {name}")


def _build_target(url: Url, *, journey: Journey) -> URL:
    """The same URL for aiohttp, byte for byte. Raises RefusedError if yarl reads another host or path."""
    target = URL(url.text, encoded=True)
    seen = (target.scheme, target.raw_host, target.port, target.raw_path_qs)
    if seen != (*url.origin, url.target):
        raise journey.refuse("the URL can be read in two ways")
    return target


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating an unanswered GET, which may have submitted a URL."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as lost:
        raise UnansweredError from lost
