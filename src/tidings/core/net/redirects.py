"""Where a redirect leads, and which parts of the request it may carry. Pure: `client` sends and checks every hop."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidings.core.net.addresses import Url, UrlError, join_url, show_url

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

# The headers that another origin may see. An allow-list, because the secret ones cannot all be listed.
_HARMLESS_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "accept-language", "if-modified-since", "if-none-match", "user-agent"}
)


class RedirectError(ValueError):
    """The redirect breaks a rule; the message is that rule."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One request of a fetch: the first, or one that a redirect asked for."""

    method: str
    url: Url
    headers: Mapping[str, str]
    body: bytes | None


def follow_redirect(hop: Hop, *, status: int, location: str, url_limit: int) -> Hop:
    """The next hop. Raises RedirectError.

    303 becomes a GET, and so does a POST after 301 or 302. Another origin gets a GET or HEAD only, without a body and
    with harmless headers only. So a redirect from https to http is allowed: it sends nothing of the caller in clear
    text, and the site chose the URL itself.
    """
    try:
        url = join_url(hop.url, location, max_length=url_limit)
    except UrlError as error:
        raise RedirectError(f"it redirects to {show_url(location)}: {error}") from None
    if (status == 303 and hop.method != "HEAD") or (status in {301, 302} and hop.method == "POST"):
        headers = {name: value for name, value in hop.headers.items() if not name.lower().startswith("content-")}
        hop = replace(hop, method="GET", headers=headers, body=None)
    if url.origin == hop.url.origin:
        return replace(hop, url=url)
    if hop.body is not None or hop.method not in {"GET", "HEAD"}:
        raise RedirectError(f"it redirects a {hop.method} to another origin, {url}")
    headers = {name: value for name, value in hop.headers.items() if name.lower() in _HARMLESS_HEADERS}
    return replace(hop, url=url, headers=headers)
