"""Errors of a fetch, and messages for aiohttp's exceptions.

    FetchError
    ├── RefusedError            a rule was broken, the message says which; trying again cannot help
    │   └── PrivateAddressError the address is not public, and TIDINGS_ALLOW_NETWORKS does not allow it
    ├── NetworkError            name, connection, TLS, reset; `sent` is False if no connection was ever established
    │   └── FetchTimeoutError   the time was up
    └── AnswerTooLargeError     the body is longer than the caller's limit

Messages are one line and show a URL as scheme://host/path, because keys travel in queries.
"""

import os
import ssl
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from tidings.core.net.addresses import Url, escape_text
from tidings.core.net.resolver import ForbiddenAddressError


class FetchError(Exception):
    """A fetch without a usable answer. The message is `URL failed: reason`, in our own words."""

    verb = "failed"

    def __init__(self, url: Url | str, reason: str) -> None:
        # Without the URL, for callers that must not show it.
        self.reason = escape_text(reason)
        super().__init__(escape_text(f"{url} {self.verb}: {reason}"))


class RefusedError(FetchError):
    """The request or its target breaks a rule of this client; the reason names the rule."""

    verb = "refused"


class PrivateAddressError(RefusedError):
    """The address is not public, and no setting allows it."""


class NetworkError(FetchError):
    """The exchange failed. `sent` tells whether the request may have reached the server."""

    def __init__(self, url: Url | str, reason: str, *, sent: bool) -> None:
        super().__init__(url, reason)
        self.sent = sent


class FetchTimeoutError(NetworkError):
    """The time limit ended before the whole answer arrived."""


class AnswerTooLargeError(FetchError):
    """The body is longer than the caller's limit."""


class UnansweredError(Exception):
    """The connection ended before an answer."""


class EndlessHeadError(Exception):
    """The server sent interim answers or headers without an end."""


class EndlessOverheadError(Exception):
    """The server sent sizes or extensions of chunks without an end."""


FAILURES: Final = (
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    ValueError,
    ForbiddenAddressError,
    UnansweredError,
    EndlessHeadError,
    EndlessOverheadError,
)


def explain_failure(failure: BaseException) -> str:
    """Say what broke in our own words: aiohttp's messages quote the URL, and servers' bytes."""
    match failure:
        case UnansweredError():
            return "the server closed the connection without an answer"
        case EndlessHeadError():
            return "the answer does not begin: its head has no end"
        case EndlessOverheadError():
            return "the answer goes on without a body"
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as error):
            return f"the certificate is not valid: {error.verify_message}"
        case aiohttp.ClientConnectorSSLError(os_error=error):
            return f"no TLS connection: {getattr(error, 'reason', None) or 'handshake failed'}"
        case aiohttp.ClientConnectorDNSError(os_error=error):
            return f"the name cannot be resolved: {error.strerror or 'lookup failed'}"
        case aiohttp.ClientConnectorError(os_error=error):
            return f"no connection: {os.strerror(error.errno) if error.errno else 'connect failed'}"
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return "the answer is not valid HTTP"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
        case _:
            return "the connection was lost"
