"""What a platform is: two questions, search and detail, and the values that go in and out. A platform is built from
`PlatformTools` once, when it is first asked for, and then serves many questions at a time; what it keeps between them,
such as keys, it can fetch again. Whoever writes one for their own package needs this file, `notes`, `errors` and
`Secret`; `client` does the requests for those that have a JSON API.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, runtime_checkable

from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Note
from tidings.core.clock import Clock
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.secret import Secret

DEFAULT_TIMEOUT: Final = timedelta(seconds=10)
DEFAULT_SEARCH_LIMIT: Final = timedelta(seconds=30)
LONGEST_KEYWORD: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One result of a search. Xiaohongshu gives a note only to whoever has the `xsec_token` of the search."""

    platform: str
    note_id: str
    url: str
    title: str
    xsec_token: str | None = None

    @property
    def reference(self) -> "NoteReference":
        return NoteReference(note_id=self.note_id, url=self.url, xsec_token=self.xsec_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """One page of results, in the platform's order. `total` is what the platform claims, where it does."""

    hits: tuple[Hit, ...]
    page: int
    has_more: bool
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteReference:
    """Which note is meant. The URL of a hit holds all that `detail` needs, also Xiaohongshu's token."""

    note_id: str
    url: str | None = None
    xsec_token: str | None = None


class Pacing(Protocol):
    """The queue that every request waits in."""

    async def wait_turn(self, target: str, *, cookie: Secret | None = None, least: timedelta = timedelta(0)) -> None:
        """Return when a request to the target, with this cookie, may be sent. `least` is the least time to the next
        one where the target itself asks for more than is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformTools:
    """What a platform works with. `base_url` is another address than its own, for rehearsals; `timeout` bounds one
    request, whatever the other side does; `search_limit` is when a search is given up by whoever asked, so that one of
    several requests can answer with what it has before; `feeds` are the feeds that the open web is searched in."""

    client: GuardedClient
    clock: Clock
    pace: Pacing
    user_agent: str
    base_url: str | None = None
    timeout: timedelta = DEFAULT_TIMEOUT
    search_limit: timedelta = DEFAULT_SEARCH_LIMIT
    feeds: tuple[str, ...] = ()


@runtime_checkable
class Platform(Protocol):
    """A place that notes come from. Both questions raise CrawlError, and nothing else for what the platform does.

    `needs_cookie` says that neither is answered without an account's cookie. A platform that needs none gets None.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs_cookie(self) -> bool: ...

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        """The notes that fit a keyword; pages count from 1."""

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        """One note, whole."""


def check_search(keyword: str, *, page: int, most_pages: int = 100) -> str:
    """The keyword without space around it. Raises CrawlError for what no platform can be asked."""
    asked = keyword.strip()
    if not asked or len(asked) > LONGEST_KEYWORD or not asked.isprintable():
        rule = f"the keyword must have 1 to {LONGEST_KEYWORD} printable characters"
        raise CrawlError(ErrorCode.INVALID_INPUT, rule)
    if not 1 <= page <= most_pages:
        raise CrawlError(ErrorCode.INVALID_INPUT, f"the page must be from 1 to {most_pages}")
    return asked
