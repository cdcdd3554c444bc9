"""The channels that a site has switched on, and those of them that an execution is for."""

from typing import Final

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.quota.kinds import find_kind, list_enabled
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Site

# What switches a channel on: the settings of a site, by their names in its document.
_NEEDS: Final = {
    Channel.INDEXNOW: "it needs indexnowKey",
    Channel.BING: "it needs bingApiKey",
    Channel.BAIDU: "it needs baiduToken",
    Channel.GOOGLE: "sitemaps need googleCredentials, and pages googleIndexing as well",
}


class ChannelDisabledError(ValueError):
    """An execution for one channel was asked for, and the site does not have it."""

    def __init__(self, channel: Channel) -> None:
        message = f"{find_kind(channel).title} submission is not enabled for this site"
        super().__init__(f"{message}; {_NEEDS[channel]}")
        self.channel = channel


def list_page_channels(site: Site) -> frozenset[Channel]:
    """The channels that get pages of this site."""
    return frozenset({Channel.INDEXNOW, *(kind.channel for kind in list_enabled(site))})


def choose_channels(site: Site, choice: ChannelChoice, *, given: bool = False) -> frozenset[Channel]:
    """The channels of an execution of this site. Raises ChannelDisabledError.

    `given`: the execution is for given pages, so no sitemap is submitted to Google.
    """
    enabled = list_page_channels(site)
    if site.google.key is not None and not given:
        enabled |= {Channel.GOOGLE}
    if choice is ChannelChoice.ALL:
        return enabled
    channel = Channel[choice.name]
    if channel not in enabled:
        raise ChannelDisabledError(channel)
    return frozenset({channel})
