"""The addresses that the settings themselves name; requests to them need no permission of their own."""

from contextlib import suppress

from tidings.announce.site.site import parse_engines
from tidings.core.net.addresses import HostPort, UrlError, parse_url
from tidings.settings.settings import Settings


def list_own_hosts(settings: Settings) -> frozenset[HostPort]:
    """Hosts and ports of the addresses that the settings name: engines, webhook, and base URLs of services."""
    feishu = settings.collect.feishu
    urls = (
        *(engine.endpoint for engine in parse_engines(settings.engines)),
        settings.bases.bing,
        settings.bases.baidu,
        settings.bases.google,
        *settings.crawl.base_urls.values(),
        *(url.reveal() for url in (settings.webhook_url, settings.ping_url) if url is not None),
        *([] if feishu is None else [feishu.base_url]),
    )
    found = set()
    for url in urls:
        # A URL that is not valid is refused where it is used.
        with suppress(UrlError):
            parsed = parse_url(url)
            found.add((parsed.host, parsed.port))
    return frozenset(found)
