"""The channels with a daily quota. A new one is a module with its protocol, and a line here."""

from dataclasses import dataclass

from tidings.announce.channels.google.access import DEFAULT_GOOGLE_BASE
from tidings.announce.channels.google.indexing import GOOGLE_KIND
from tidings.announce.channels.protocols.baidu import BAIDU_KIND, DEFAULT_BAIDU_BASE
from tidings.announce.channels.protocols.bing import BING_KIND, DEFAULT_BASE
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Site


@dataclass(frozen=True, slots=True)
class ApiBases:
    """The addresses of the channels' services, without a slash at the end."""

    bing: str = DEFAULT_BASE
    baidu: str = DEFAULT_BAIDU_BASE
    google: str = DEFAULT_GOOGLE_BASE


RANKED_KINDS = (BING_KIND, BAIDU_KIND, GOOGLE_KIND)

_KINDS = {kind.channel: kind for kind in RANKED_KINDS}


def find_kind(channel: Channel) -> RankedKind:
    """The kind of a channel with a quota. Raises KeyError for IndexNow."""
    return _KINDS[channel]


def list_enabled(site: Site) -> list[RankedKind]:
    """The channels with a quota that the site has switched on."""
    return [kind for kind in RANKED_KINDS if kind.pick(site).enabled]


def identify_key(site: Site, channel: Channel) -> str:
    """Identifies the key that a lasting refusal concerns; another key of the channel has another value."""
    return site.key.fingerprint if channel is Channel.INDEXNOW else find_kind(channel).pick(site).identity
