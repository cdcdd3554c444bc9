"""The protocol of a platform: two requests, search and detail, and their values.

A platform is built from `PlatformTools` when it is first used, and then serves many requests in parallel. A platform of
your own needs this file, `notes`, `errors` and `Secret`; `client` sends the requests of a JSON API.
"""

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, Protocol, runtime_checkable

from tidings.collect.comments import Comment
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Note
from tidings.core.clock import Clock
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.secret import Secret

DEFAULT_TIMEOUT: Final = timedelta(seconds=10)
DEFAULT_SEARCH_LIMIT: Final = timedelta(seconds=30)
LONGEST_KEYWORD: Final = 200
PLATFORM_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")

_PERIOD: Final = re.compile(r"(?<!\S)(since|until):(\d{4}-\d\d-\d\d)(?!\S)")
_AUTHOR: Final = re.compile(r"author:([0-9A-Za-z]{1,64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One result of a search."""

    platform: str
    note_id: str
    # It holds everything that `detail` needs.
    url: str
    title: str
    # Xiaohongshu's token of this search, which the detail of the note needs.
    xsec_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """One page of results."""

    # In the platform's order.
    hits: tuple[Hit, ...]
    # Counted from 1.
    page: int
    has_more: bool
    # The number of all results, if the platform states it.
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentPage:
    """One page of the comments of a note."""

    # In the platform's order. A reply follows the comment that it belongs to.
    comments: tuple[Comment, ...]
    # The cursor of the next page; None at the end. Only the platform knows its format.
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPeriod:
    """The period in which the notes of a search were published, in days of the platform's time zone."""

    # On this day or later.
    since: date | None = None
    # Before this day.
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteReference:
    """Identifies a note. The URL of a hit holds everything that `detail` needs, also Xiaohongshu's token."""

    note_id: str
    url: str | None = None
    xsec_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """Who is logged in with a cookie, as far as the platform says."""

    is_logged_in: bool
    account_id: str = ""
    account_name: str = ""
    # Whether the platform's own web page would renew the session now: it may end soon.
    wants_renewal: bool = False


class Pacing(Protocol):
    """The pace that every request waits for."""

    async def wait_turn(self, target: str, *, cookie: Secret | None = None, least: timedelta = timedelta(0)) -> None:
        """Return when a request to the target with this cookie may be sent. `least`: the interval that the target asks
        for; it applies if it is longer than the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformTools:
    """The services that a platform uses."""

    client: GuardedClient
    clock: Clock
    pace: Pacing
    user_agent: str
    # Replaces the platform's own address, for rehearsals.
    base_url: str | None = None
    # The limit of one request.
    timeout: timedelta = DEFAULT_TIMEOUT
    # The time limit of a whole search. A search of several requests returns partial results before it.
    search_limit: timedelta = DEFAULT_SEARCH_LIMIT
    # The feeds that the open web is searched in.
    feeds: tuple[str, ...] = ()


@runtime_checkable
class Platform(Protocol):
    """A source of notes. `search` and `detail` raise only CrawlError for anything that the platform does.

    `needs_cookie`: both need the cookie of an account. Otherwise `cookie` is None.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs_cookie(self) -> bool: ...

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        """One page of the notes that match a keyword, counted from 1."""

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        """One note in full."""


@runtime_checkable
class ChecksKeywords(Protocol):
    """A platform that cannot search for every keyword as it is set up; optional."""

    def check_keyword(self, keyword: str) -> None:
        """Raises CrawlError if a search for this keyword cannot work. Sends no request."""


@runtime_checkable
class ListsAuthors(Protocol):
    """A platform that can list the notes of an author; optional."""

    async def list_notes(self, author_id: str, *, page: int, cookie: Secret | None) -> SearchPage:
        """One page of an author's notes, the newest first. Raises CrawlError."""


@runtime_checkable
class SearchesPeriods(Protocol):
    """A platform that can search within a period; optional."""

    async def search_period(
        self, keyword: str, *, period: SearchPeriod, page: int, cookie: Secret | None
    ) -> SearchPage:
        """One page of the notes of this period that match a keyword. Raises CrawlError."""


@runtime_checkable
class ReadsComments(Protocol):
    """A platform that can read the comments of a note; optional."""

    async def list_comments(self, reference: NoteReference, *, cursor: str, cookie: Secret | None) -> CommentPage:
        """One page of the comments of a note. The cursor is empty, or that of the page before. Raises CrawlError."""


@runtime_checkable
class ChecksSessions(Protocol):
    """A platform that can tell who is logged in; optional."""

    async def check_session(self, cookie: Secret) -> SessionInfo:
        """Ask who is logged in, without reading a note. Raises CrawlError."""


def read_author(keyword: str) -> str | None:
    """The author's id of a keyword such as `author:7`; None for words to search for."""
    found = _AUTHOR.fullmatch(keyword.strip())
    return None if found is None else found[1]


def read_period(keyword: str) -> tuple[str, SearchPeriod | None]:
    """The words of a keyword such as `tea since:2026-01-01 until:2026-02-01`, and its period; None without one. Raises
    CrawlError for an invalid period.
    """
    days = {name: _read_day(text) for name, text in _PERIOD.findall(keyword)}
    if not days:
        return keyword, None
    words, period = " ".join(_PERIOD.sub(" ", keyword).split()), SearchPeriod(**days)
    if not words or read_author(words) is not None:
        raise CrawlError(ErrorCode.INVALID_INPUT, "a period needs words to search for")
    if period.since is not None and period.until is not None and period.since >= period.until:
        raise CrawlError(ErrorCode.INVALID_INPUT, "the period must begin before it ends")
    return words, period


async def find_notes(platform: Platform, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
    """One page of the notes that match a keyword, within its period, or that its author wrote. Raises CrawlError."""
    check_ability(platform, keyword)
    author_id, (words, period) = read_author(keyword), read_period(keyword)
    if author_id is not None and isinstance(platform, ListsAuthors):
        return await platform.list_notes(author_id, page=page, cookie=cookie)
    if period is not None and isinstance(platform, SearchesPeriods):
        return await platform.search_period(words, period=period, page=page, cookie=cookie)
    return await platform.search(keyword, page=page, cookie=cookie)


def check_wishes(platform: Platform, keyword: str, comments: int | None) -> None:
    """Raises CrawlError if this platform, as it is set up, cannot search for this keyword or read comments."""
    check_ability(platform, keyword)
    if isinstance(platform, ChecksKeywords):
        platform.check_keyword(keyword)
    if comments and not isinstance(platform, ReadsComments):
        raise CrawlError(ErrorCode.INVALID_INPUT, f"comments of {platform.name} cannot be collected")


async def read_comments(
    platform: Platform, reference: NoteReference, *, cursor: str, cookie: Secret | None
) -> CommentPage:
    """One page of the comments of a note. Raises CrawlError, also if the platform cannot do that."""
    if not isinstance(platform, ReadsComments):
        raise CrawlError(ErrorCode.INVALID_INPUT, f"comments of {platform.name} cannot be collected")
    return await platform.list_comments(reference, cursor=cursor, cookie=cookie)


def check_ability(platform: Platform, keyword: str) -> None:
    """Raises CrawlError if the keyword names an author or a period, and the platform cannot do that."""
    if read_author(keyword) is not None and not isinstance(platform, ListsAuthors):
        raise CrawlError(ErrorCode.INVALID_INPUT, f"authors of {platform.name} cannot be watched, only keywords")
    if read_period(keyword)[1] is not None and not isinstance(platform, SearchesPeriods):
        raise CrawlError(ErrorCode.INVALID_INPUT, f"{platform.name} cannot search within a period")


def _read_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CrawlError(ErrorCode.INVALID_INPUT, f"{text} is not a day such as 2026-01-31") from None


def check_search(keyword: str, *, page: int, most_pages: int = 100) -> str:
    """The keyword without surrounding space. Raises CrawlError for an invalid keyword or page."""
    asked = keyword.strip()
    if not asked or len(asked) > LONGEST_KEYWORD or not asked.isprintable():
        rule = f"the keyword must have 1 to {LONGEST_KEYWORD} printable characters"
        raise CrawlError(ErrorCode.INVALID_INPUT, rule)
    if not 1 <= page <= most_pages:
        raise CrawlError(ErrorCode.INVALID_INPUT, f"the page must be from 1 to {most_pages}")
    return asked
