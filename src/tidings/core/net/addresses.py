"""The rules for URLs and network addresses that may be fetched. Pure: nothing here resolves a name or opens a
connection. `parse_url` is the only parser of URLs, and `client` connects to its result. It is stricter than a browser
on purpose: if two parsers could disagree about the host, it refuses the URL instead of repairing it.
`is_allowed_address` says which addresses may be connected to.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import quote, urljoin

from yarl import URL

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
# A host in lower case, and its port.
HostPort = tuple[str, int]

MAX_URL_LENGTH: Final = 2_048

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNFIT: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_AFTER_SCHEME: Final = re.compile(r"([^/?#]*)([^?#]*)(?:\?([^#]*))?", re.DOTALL)
_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LONGEST_NAME: Final = 253
_LONGEST_SHOWN: Final = 200

# An IPv6 address must lie in here to be global unicast at all; that leaves out NAT64 (64:ff9b::/96, 64:ff9b:1::/48),
# IPv4-compatible ::/96, unique local, link and site local (fec0::/10), and multicast.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")

# `is_global` is checked too, but it allows several of these, depending on the version of Python.
_REFUSED_NETWORKS: Final[tuple[Network, ...]] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; some clouds keep their metadata service here
        "127.0.0.0/8",
        "168.63.129.16/32",  # public by number, but inside Azure it is the host's own service
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",
    )
)


class UrlError(ValueError):
    """The URL breaks a rule; the message is that rule and holds nothing of the URL."""


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that passed `parse_url`. Printing it never shows the query, which may contain keys; `text` has all of
    it."""

    scheme: str
    host: str
    port: int
    path: str
    query: str = field(default="", repr=False)
    address: Address | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def target(self) -> str:
        """Path and query, as the request line carries them."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def text(self) -> str:
        """The whole URL, query included: to be sent, not to be logged."""
        return f"{self._root}{self.target}"

    @property
    def _root(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    def __str__(self) -> str:
        return shorten(f"{self._root}{self.path}")


def parse_url(text: str, *, max_length: int = MAX_URL_LENGTH) -> Url:
    """Read an absolute http or https URL; anything doubtful raises UrlError.

    The host comes back in lower case, international names in punycode. Path and query are kept byte for byte, except
    that characters outside ASCII are percent-encoded; the fragment is dropped.
    """
    _check_characters(text, max_length=max_length)
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _DEFAULT_PORTS:
        raise UrlError("only http:// and https:// URLs are fetched")
    match = _AFTER_SCHEME.match(rest)
    authority, path, query = match.groups() if match else ("", "", "")
    if "@" in authority:
        raise UrlError("a user name or password in the URL is not allowed")
    host, port = _split_authority(authority)
    name, address = _parse_host(host)
    return Url(
        scheme=scheme,
        host=name,
        port=_DEFAULT_PORTS[scheme] if port is None else _parse_port(port),
        path=_encode(path) or "/",
        query=_encode(query or ""),
        address=address,
    )


def join_url(base: Url, reference: str, *, max_length: int = MAX_URL_LENGTH) -> Url:
    """Resolve a reference, such as a redirect's Location, and put the result through `parse_url`."""
    # Before joining: urljoin silently drops tabs and line breaks.
    _check_characters(reference, max_length=max_length)
    try:
        joined = urljoin(base.text, reference)
    except ValueError:
        raise UrlError("not a valid URL") from None
    return parse_url(joined, max_length=max_length)


def show_url(text: str) -> str:
    """Any text that should have been a URL, fit for a message: no query, no user name, no control characters."""
    try:
        return str(parse_url(text))
    except UrlError:
        pass
    start = text[:MAX_URL_LENGTH]
    if "@" in text:
        # In a malformed URL the end of the password is unknown.
        scheme, separator, _ = start.partition("://")
        return shorten(escape_text(f"{scheme}://…")) if separator and "@" not in scheme else "…"
    return shorten(escape_text(re.split(r"[?#]", start, maxsplit=1)[0]))


def escape_text(text: str) -> str:
    """One line without control, format or unencodable characters, so that it cannot forge a log line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def is_public_address(address: Address) -> bool:
    """Whether it is a global unicast address of the public internet. For an IPv4-mapped one its IPv4 address counts."""
    address, scoped = _unmap(address)
    if scoped or not address.is_global or any(address in network for network in _REFUSED_NETWORKS):
        return False
    return address.version == 4 or address in _GLOBAL_UNICAST


def is_allowed_address(address: Address, *, allow_networks: Sequence[Network] = ()) -> bool:
    """Whether it may be connected to: a public address, or one in the operator's networks."""
    plain, scoped = _unmap(address)
    return is_public_address(address) or (not scoped and any(plain in network for network in allow_networks))


def parse_address(text: str) -> Address | None:
    """A canonical IP address, or None."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def parse_networks(text: str) -> tuple[Network, ...]:
    """Read `127.0.0.0/8,10.0.0.0/8`; a ValueError names the part that is no network."""
    return tuple(_parse_network(part.strip()) for part in text.split(",") if part.strip())


def _parse_network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"{escape_text(text)!r} is not a network such as 10.0.0.0/8: {error}") from None


def _unmap(address: Address) -> tuple[Address, bool]:
    """The IPv4 address of an IPv4-mapped one, and whether it had a scope id, which no public address has."""
    if isinstance(address, IPv4Address):
        return address, False
    return address.ipv4_mapped or address, address.scope_id is not None


def _check_characters(text: str, *, max_length: int) -> None:
    if len(text) > max_length:
        raise UrlError(f"longer than {max_length:,} characters")
    if not (found := _UNFIT.search(text)):
        return
    if found[0] == "\\":
        raise UrlError("a backslash is not allowed in a URL")
    if found[0] >= "\ud800":
        raise UrlError("not valid Unicode")
    raise UrlError("white space and control characters are not allowed in a URL")


def _split_authority(authority: str) -> tuple[str, str | None]:
    """Host and port; the port is None where there is no colon after the host."""
    head, bracket, tail = authority.rpartition("]")
    host, colon, port = tail.partition(":")
    return f"{head}{bracket}{host}", port if colon else None


def _parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise UrlError("the port must be a number from 1 to 65535")
    return int(text)


def _parse_host(text: str) -> tuple[str, Address | None]:
    if not text:
        raise UrlError("the host is missing")
    if text.startswith("[") and text.endswith("]"):
        address = _parse_ipv6(text[1:-1])
        return str(address), address
    name = _encode_name(text)
    if not _NAME.fullmatch(name) or len(name.rstrip(".")) > _LONGEST_NAME:
        raise UrlError("the host is not a valid name")
    # As browsers do: a host whose last label is a number is an IPv4 address.
    if _NUMBER.fullmatch(name.rstrip(".").rpartition(".")[2]):
        return name, _parse_ipv4(text)
    return name, None


def _parse_ipv6(text: str) -> IPv6Address:
    address = parse_address(text)
    if not isinstance(address, IPv6Address) or address.scope_id is not None:
        raise UrlError("the host is not a valid IPv6 address")
    return address


def _parse_ipv4(text: str) -> IPv4Address:
    address = parse_address(text)
    if not isinstance(address, IPv4Address):
        raise UrlError("the host is a number in disguise, not an address of four decimal numbers")
    return address


def _encode_name(text: str) -> str:
    if text.isascii():
        return text.lower()
    try:
        return (URL.build(scheme="http", host=text).raw_host or "").lower()
    except ValueError:
        raise UrlError("the host is not a valid international name") from None


def _encode(text: str) -> str:
    return text if text.isascii() else re.sub(r"[^\x00-\x7f]+", lambda match: quote(match[0]), text)
