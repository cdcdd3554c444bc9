"""The formats of markup: which root element means what, and where in it a URL and its date stand.

Here lives the table alone. Walking the elements is the work of `markup`.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from tidings.announce.sitemap.content import Kind


class Field(Enum):
    """What an element within an entry tells."""

    LOC = auto()
    HREF = auto()
    LASTMOD = auto()


@dataclass(frozen=True, slots=True)
class Shape:
    """One format. `depth` is that of an entry, the root's being 1.

    `own` are local names, which count with the prefix of their entry, so that `image:loc` is no `loc`. `foreign` are
    whole names.
    """

    kind: Kind
    entry: str
    own: dict[str, Field]
    depth: int = 2
    foreign: dict[str, Field] = field(default_factory=dict)

    def name_fields(self, prefix: str) -> dict[str, Field]:
        """Give the fields by the names that they have in an entry with this prefix."""
        return {prefix + local: meaning for local, meaning in self.own.items()} | self.foreign


_LISTED = {"loc": Field.LOC, "lastmod": Field.LASTMOD}
_DUBLIN_CORE = {"dc:date": Field.LASTMOD}

SHAPES = {
    "urlset": Shape(Kind.URLSET, "url", _LISTED),
    "sitemapindex": Shape(Kind.INDEX, "sitemap", _LISTED),
    "rss": Shape(Kind.FEED, "item", {"link": Field.LOC, "pubDate": Field.LASTMOD}, depth=3, foreign=_DUBLIN_CORE),
    "RDF": Shape(Kind.FEED, "item", {"link": Field.LOC}, foreign=_DUBLIN_CORE),
    "feed": Shape(Kind.FEED, "entry", {"link": Field.HREF, "updated": Field.LASTMOD}),
}
"""By the local name of the root element, since files without the namespace, or with a wrong one, are common."""


def split_prefix(name: str) -> tuple[str, str]:
    """Split a name into its prefix, with the colon, and its local part."""
    prefix, colon, local = name.rpartition(":")
    return prefix + colon, local
