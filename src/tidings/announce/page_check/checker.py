"""Fetches due pages before they are announced, one after the other, within a share of the time budget.

A page that answers other than 200, is `noindex`, or names another canonical URL is held back. It is stored neither in
the outbox nor in the ledger, so the next execution finds it due and checks it again. Pages that were not checked are
announced.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tidings.announce.due.pages import Pages
from tidings.announce.page_check.settings import PageCheck, PageCheckMode
from tidings.announce.page_check.signs import find_canonical_link, is_noindex_header, is_same_page
from tidings.core.clock import Clock
from tidings.core.isolation.pool import ChildError, ChildPool
from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import show_url
from tidings.core.net.client import FetchError, GuardedClient, NetworkError
from tidings.core.stop import Stop

# Between the starts of two fetches.
PAUSE: Final = timedelta(milliseconds=200)
# The part of the time budget that the check may use; the rest is for sending.
TIME_SHARE: Final = 3
# The most held-back pages that a report lists.
MOST_LISTED: Final = 100

# The minimum sample of one file, if it has that many pages.
_LEAST_SAMPLE: Final = 10
_TIMEOUT: Final = timedelta(seconds=10)
# Enough for the head of a page.
_LONGEST_HEAD: Final = 512 * 1024
_READ: Final = "tidings.announce.page_check.signs:read_page"
_HTML: Final = ("text/html", "application/xhtml+xml")
_HEADERS: Final = {"Accept": "text/html, application/xhtml+xml, */*;q=0.5", "Accept-Encoding": "identity"}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HeldPage:
    """A page that was not announced."""

    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class PagesChecked:
    """The numbers of pages since the previous result."""

    checked: int = 0
    held: Sequence[HeldPage] = ()
    # The check ended early, and why.
    ended: str | None = None


class _TooFastError(Exception):
    """The site asks for fewer requests."""


class PageChecker:
    """The check of one execution. `close` ends the process that reads HTML."""

    def __init__(
        self, settings: PageCheck, *, client: GuardedClient, clock: Clock, stop: Stop, budget: timedelta | None
    ) -> None:
        """`budget`: the rest of the execution's, of which the check has a share."""
        self._settings = settings
        self._client = client
        self._clock = clock
        self._stop = stop
        self._left = settings.limit
        self._next_at = 0.0
        self._reader = ChildPool(1)
        self._ends_at = None if budget is None else clock.monotonic() + budget.total_seconds() / TIME_SHARE
        # By hash of those that were looked at: the reason, or None for a good page.
        self._known: dict[int, str | None] = {}

    async def close(self) -> None:
        await self._reader.close()

    async def check(self, pages: Pages) -> tuple[Pages, PagesChecked]:
        """Check these pages within the limits of number and time. Returns the pages that may be announced, and the
        numbers.

        Raises StopRequestedError at a stop.
        """
        checked, ended = 0, None
        held: list[HeldPage] = []
        for at in self._choose(pages):
            if self._ends_at is not None and self._clock.monotonic() >= self._ends_at:
                ended, self._left = "its share of the time is used up", 0
                break
            url = pages.urls[at].decode()
            try:
                reason = await self._look_at(url)
            except _TooFastError as error:
                ended, self._left = str(error), 0
                break
            checked += 1
            self._left -= 1
            self._known[pages.hashes[at]] = reason
            if reason is not None:
                held.append(HeldPage(url, reason))
                _log.warning("page.held_back", page=show_url(url), reason=reason)
        good = [at for at, url_hash in enumerate(pages.hashes) if self._known.get(url_hash) is None]
        return pages if len(good) == len(pages) else pages.pick(good), PagesChecked(checked, held, ended)

    def _choose(self, pages: Pages) -> Sequence[int]:
        """The positions of the pages to check. A sample leaves a part of the limit to later files."""
        if not self._left:
            return ()
        fresh = [at for at, url_hash in enumerate(pages.hashes) if url_hash not in self._known]
        if self._settings.mode is PageCheckMode.ALL:
            return fresh[: self._left]
        return random.sample(fresh, min(len(fresh), self._left, max(_LEAST_SAMPLE, self._left // 2)))

    async def _look_at(self, url: str) -> str | None:
        """Why the page should not be announced; None if it is good, or cannot be judged."""
        wait = self._next_at - self._clock.monotonic()
        if wait > 0:
            await self._stop.sleep(timedelta(seconds=wait))
        self._next_at = self._clock.monotonic() + PAUSE.total_seconds()
        return await self._stop.wait_for(self._fetch(url))

    async def _fetch(self, url: str) -> str | None:
        try:
            async with self._client.stream("GET", url, headers=_HEADERS, timeout=_TIMEOUT) as answer:
                if answer.status == 429:
                    raise _TooFastError("the site answered 429 Too Many Requests")
                if answer.status != 200:
                    return f"it answers HTTP {answer.status}"
                values = _list_values(answer.headers)
                reason = _judge_headers(values, url=url)
                content_type = answer.headers.get("Content-Type", "")
                is_html = content_type.lower().startswith(_HTML) and "content-encoding" not in values
                if reason is not None or not is_html:
                    return reason
                body = await answer.read_start(_LONGEST_HEAD)
        except NetworkError as error:
            return f"it cannot be fetched: {error.reason}"
        except FetchError:
            # A rule of our own client, which says nothing about the page.
            return None
        return await self._judge_html(body, content_type=content_type, url=url)

    async def _judge_html(self, body: bytes, *, content_type: str, url: str) -> str | None:
        try:
            signs: dict[str, Any] = await self._reader.run(_READ, body, content_type=content_type)
        except ChildError as error:
            _log.warning("page.not_read", page=show_url(url), reason=str(error))
            return None
        if signs["noindex"]:
            return "its meta robots says noindex"
        return _judge_canonical(signs["canonical"], url=url)


def _list_values(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """Every value of each header: some are sent twice."""
    values: dict[str, list[str]] = {}
    for name, value in headers.items():
        values.setdefault(name.lower(), []).append(value)
    return values


def _judge_headers(values: Mapping[str, Sequence[str]], *, url: str) -> str | None:
    if is_noindex_header(values.get("x-robots-tag", ())):
        return "its X-Robots-Tag says noindex"
    return _judge_canonical(find_canonical_link(values.get("link", ())), url=url)


def _judge_canonical(canonical: str | None, *, url: str) -> str | None:
    try:
        if canonical is None or is_same_page(canonical, url=url):
            return None
    except ValueError:
        return None
    return f"its canonical URL is another: {show_url(canonical)}"
