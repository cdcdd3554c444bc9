"""The crawl API without HTTP: search, one or many notes in full, the comments of a note. It leases a cookie for each
request if the platform needs one, enforces the time limit, and returns every error in the envelope.

It only reads. The answer reports the use of a cookie (`cookie_used`, the error's code and `captcha`), and the workflow,
which alone writes, records it. It retries nothing: the workflow decides about retries.
"""

import asyncio
import functools
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from sqlalchemy.exc import SQLAlchemyError

from tidings.collect.crawl.cookies.pool import CookiePool, LeasedCookie
from tidings.collect.crawl.envelope import (
    BatchEnvelope,
    BatchItem,
    Envelope,
    ErrorInfo,
    Meta,
    make_database_error,
    make_error,
    wrap_data,
    wrap_error,
    wrap_items,
)
from tidings.collect.crawl.platforms.client import session_user_agent
from tidings.collect.crawl.platforms.pace import current_turns
from tidings.collect.crawl.platforms.protocol import (
    CommentPage,
    NoteReference,
    Platform,
    SearchPage,
    check_search,
    check_wishes,
    find_notes,
    read_comments,
)
from tidings.collect.crawl.request_trace import RequestTrace, explain_timeout
from tidings.collect.crawl.session_check import CookieCheck, check_session
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Author, Note
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import current_request_id, request_id_scope
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

MOST_ITEMS: Final = 50

_CUT_OFF: Final = make_error(ErrorCode.TIMEOUT_ERROR, "the request was cancelled before there was an answer")
_INTERNAL: Final = "the server failed on this request; its log has the cause, under the request id"

_log = get_logger(__name__)


async def _close_nothing() -> None:
    """There is nothing to release."""


Found = TypeVar("Found", SearchPage, Note, CommentPage)
OnItem = Callable[[int, BatchItem[Note]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlLimits:
    """How long an answer may take, with all waits for a cookie and for the pace."""

    search: timedelta = timedelta(seconds=30)
    detail: timedelta = timedelta(seconds=15)
    # The limit for all items of a batch together.
    batch: timedelta = timedelta(seconds=60)


DEFAULT_LIMITS: Final = CrawlLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedNote:
    """A note that a caller names by its id or its URL."""

    note_id: str | None = None
    url: str | None = None
    # Xiaohongshu's `xsec_token` of the search that found the note.
    xsec_token: str | None = None

    @property
    def id(self) -> str:
        return self.note_id or self.url or ""

    @property
    def reference(self) -> NoteReference:
        """The reference for the platform. Raises CrawlError if neither id nor URL is given."""
        if not self.id:
            raise CrawlError(ErrorCode.INVALID_INPUT, "a note is named by note_id or url")
        note_id = self.note_id or _read_note_id(self.url or "")
        return NoteReference(note_id=note_id, url=self.url, xsec_token=self.xsec_token)


@dataclass(frozen=True, slots=True)
class _Question(Generic[Found]):
    """One request to a platform."""

    # Raises CrawlError for invalid input, before a cookie is used for it.
    check: Callable[[], object]
    ask: Callable[[Platform, Secret | None], Awaitable[Found]]


@dataclass(frozen=True, slots=True, eq=False)
class Crawler:
    """Sends requests to platforms. Every request is answered within its limit and raises nothing."""

    # Raises CrawlError for an unknown platform.
    find_platform: Callable[[str], Platform]
    _: KW_ONLY
    # Its patience must be at least the longest limit, or items of a batch would fail while they wait for a cookie.
    pool: CookiePool
    clock: Clock
    redactor: Redactor
    limits: CrawlLimits = DEFAULT_LIMITS
    # Releases what the platforms hold. Send nothing afterwards.
    close: Callable[[], Awaitable[None]] = _close_nothing
    # For each cookie its fingerprint, and a redactor that finds it.
    _recognisers: dict[str, tuple[str, Redactor]] = field(default_factory=dict, init=False)

    def needs_cookie(self, platform: str) -> bool:
        """Whether this platform needs a cookie. Raises CrawlError if it is unknown or cannot be loaded."""
        return self.find_platform(platform).needs_cookie

    def check_keyword(self, platform: str, keyword: str, *, comments: int | None = None) -> None:
        """Raises CrawlError if this keyword cannot be searched as things are (a missing package, no feeds), or if
        comments are wanted and cannot be read."""
        check_wishes(self.find_platform(platform), keyword, comments)

    async def check_cookie(self, name: str) -> CookieCheck | None:
        """Ask the platform who is logged in with a cookie, of any status; None if there is no such cookie.

        Raises CrawlError if its platform cannot be loaded, and KeyRingError if it cannot be decrypted.
        """
        found = await self.pool.open_named(name)
        if found is None:
            return None
        cookie, secret = found
        return await check_session(
            name,
            self.find_platform(cookie.platform),
            secret,
            user_agent=cookie.user_agent,
            limit=self.limits.search,
            redactor=self.redactor,
        )

    async def search(
        self, platform: str, keyword: str, *, page: int = 1, exclude_cookies: Collection[str] = ()
    ) -> Envelope[SearchPage]:
        """One page of the notes that match a keyword, or that an author wrote (`author:ID`). `exclude_cookies` names
        cookies that must not be used."""
        question = _Question(
            check=lambda: check_search(keyword, page=page),
            ask=lambda asked, cookie: find_notes(asked, keyword, page=page, cookie=cookie),
        )
        return await self._answer("crawl.search", platform, question, limit=self.limits.search, exclude=exclude_cookies)

    async def detail(self, platform: str, note: WantedNote, *, exclude_cookies: Collection[str] = ()) -> Envelope[Note]:
        """One note in full. `exclude_cookies` names cookies that must not be used."""
        question, limit = _ask_about(note), self.limits.detail
        return await self._answer("crawl.detail", platform, question, limit=limit, exclude=exclude_cookies)

    async def comments(
        self, platform: str, note: WantedNote, *, cursor: str = "", exclude_cookies: Collection[str] = ()
    ) -> Envelope[CommentPage]:
        """One page of the comments of a note: the first, or the one that the `cursor` of the page before names."""
        question = _Question(
            check=lambda: note.reference,
            ask=lambda asked, cookie: read_comments(asked, note.reference, cursor=cursor, cookie=cookie),
        )
        # The limit of a search, because it may need several requests.
        limit = self.limits.search
        return await self._answer("crawl.comments", platform, question, limit=limit, exclude=exclude_cookies)

    async def details(
        self,
        platform: str,
        notes: Sequence[WantedNote],
        *,
        exclude_cookies: Collection[str] = (),
        on_item: OnItem | None = None,
    ) -> BatchEnvelope[Note]:
        """Many notes, as many in parallel as cookies and pace allow. Notes that are missing when the time is up are
        answered with TIMEOUT_ERROR beside the others. `exclude_cookies` names cookies that no item may use.

        `on_item` gets each answer as it arrives, with its place in `notes`. If the batch is cancelled, it also gets an
        answer for every item that already had a cookie, so that each use of a cookie is reported.
        """
        began, until = self.clock.monotonic(), asyncio.get_running_loop().time() + self.limits.batch.total_seconds()
        with request_id_scope(current_request_id()) as request_id:
            report = on_item or (lambda _place, _item: None)
            traces = [RequestTrace() for _ in notes]
            for trace in traces:
                trace.batch = traces
            # Not `gather`: when it is cancelled, it does not wait until the items have reported their cookies.
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(
                        self._answer_item(
                            platform,
                            note,
                            trace=traces[place],
                            until=until,
                            exclude=exclude_cookies,
                            report=functools.partial(report, place),
                        )
                    )
                    for place, note in enumerate(notes)
                ]
            items = [each.result() for each in asked]
            meta = Meta(request_id=request_id, latency_ms=self._measure(began), cookie_used=None)
            envelope = wrap_items(items, meta=meta)
            _log.info("crawl.batch", total=len(items), failed=envelope.summary.failed, ms=meta.latency_ms)
            return envelope

    async def _answer(
        self, event: str, platform: str, question: _Question[Found], *, limit: timedelta, exclude: Collection[str]
    ) -> Envelope[Found]:
        began, until = self.clock.monotonic(), asyncio.get_running_loop().time() + limit.total_seconds()
        with request_id_scope(current_request_id()) as request_id:
            trace = RequestTrace()
            found = await self._try(platform, question, trace=trace, until=until, exclude=exclude)
            meta = Meta(request_id=request_id, latency_ms=self._measure(began), cookie_used=trace.cookie_used)
            _log_end(event, trace, found, ms=meta.latency_ms)
            if isinstance(found, ErrorInfo):
                return wrap_error(found, meta=meta)
            return wrap_data(found, meta=meta)

    async def _answer_item(
        self,
        platform: str,
        note: WantedNote,
        *,
        trace: RequestTrace,
        until: float,
        exclude: Collection[str],
        report: Callable[[BatchItem[Note]], None],
    ) -> BatchItem[Note]:
        began = self.clock.monotonic()
        try:
            found = await self._try(platform, _ask_about(note), trace=trace, until=until, exclude=exclude)
        except asyncio.CancelledError:
            if trace.cookie_used is not None:
                report(_make_item(note, _CUT_OFF, trace))
            raise
        _log_end("crawl.item", trace, found, ms=self._measure(began))
        item = _make_item(note, found, trace)
        report(item)
        return item

    async def _try(
        self, platform: str, question: _Question[Found], *, trace: RequestTrace, until: float, exclude: Collection[str]
    ) -> Found | ErrorInfo:
        """The result, or the error. `until` is a time of the loop's clock."""
        token = current_turns.set(trace.turns)
        try:
            async with asyncio.timeout_at(until) as trace.limit:
                return await self._ask(platform, question, trace=trace, exclude=exclude)
        except CrawlError as error:
            return self._describe_error(error, trace)
        except (SQLAlchemyError, sqlite3.Error) as error:
            _log.warning("crawl.failed", platform=trace.platform, reason=type(error).__name__)
            return make_database_error()
        except Exception as error:  # noqa: BLE001 - a platform may be the user's own code, and a batch has other items
            if isinstance(error, TimeoutError) and trace.limit is not None and trace.limit.expired():
                return explain_timeout(trace)
            _log.error("crawl.failed", platform=trace.platform, exc_info=error)
            return make_error(ErrorCode.INTERNAL_ERROR, _INTERNAL)
        finally:
            current_turns.reset(token)

    def _describe_error(self, error: CrawlError, trace: RequestTrace) -> ErrorInfo:
        if error.captcha:
            _log.warning("crawl.captcha", platform=trace.platform, cookie_name=trace.cookie_used)
        return make_error(
            error.code,
            self.redactor.redact(error.message),
            captcha=error.captcha,
            blocked=error.blocked,
            asked=not trace.waits_for_cookie,
            retry_after=error.retry_after,
        )

    async def _ask(
        self, name: str, question: _Question[Found], *, trace: RequestTrace, exclude: Collection[str]
    ) -> Found:
        platform = self.find_platform(name)
        trace.platform = platform.name
        question.check()
        if not platform.needs_cookie:
            return await self._send(platform, question, None, trace=trace)
        trace.waits_for_cookie = True
        async with self.pool.lease(platform.name, exclude=exclude) as cookie:
            trace.waits_for_cookie, trace.cookie_used = False, cookie.name
            token = session_user_agent.set(cookie.user_agent)
            try:
                found = await self._send(platform, question, cookie.secret, trace=trace)
            except asyncio.CancelledError:
                if trace.turns.is_waiting and not trace.turns.taken:
                    trace.cookie_used, cookie.is_unused = None, True
                raise
            finally:
                session_user_agent.reset(token)
            if self._recognise(cookie).recognises(_write_strings(found)):
                message = f"{platform.name}: the answer repeats the cookie, so it is not passed on"
                raise CrawlError(ErrorCode.PLATFORM_ERROR, message)
            return found

    async def _send(
        self, platform: Platform, question: _Question[Found], cookie: Secret | None, *, trace: RequestTrace
    ) -> Found:
        """Send the request. If the platform blocks this machine, the waiting requests of the batch end."""
        try:
            return await question.ask(platform, cookie)
        except CrawlError as error:
            if error.blocked:
                trace.end_batch(make_error(error.code, self.redactor.redact(error.message), blocked=True))
            raise

    def _recognise(self, cookie: LeasedCookie) -> Redactor:
        """A redactor that finds this cookie or a part of it in any encoding, so that no note contains it."""
        known = self._recognisers.get(cookie.name)
        if known is None or known[0] != cookie.secret.fingerprint:
            known = self._recognisers[cookie.name] = (cookie.secret.fingerprint, Redactor([cookie.secret]))
        return known[1]

    def _measure(self, began: float) -> int:
        return round((self.clock.monotonic() - began) * 1000)


def _ask_about(note: WantedNote) -> _Question[Note]:
    return _Question(
        check=lambda: note.reference, ask=lambda platform, cookie: platform.detail(note.reference, cookie=cookie)
    )


def _make_item(note: WantedNote, found: Note | ErrorInfo, trace: RequestTrace) -> BatchItem[Note]:
    error = found if isinstance(found, ErrorInfo) else None
    return BatchItem(
        id=note.id,
        success=error is None,
        data=None if isinstance(found, ErrorInfo) else found,
        error=error,
        cookie_used=trace.cookie_used,
    )


def _read_note_id(url: str) -> str:
    """The last part of the path, which is the id on every platform with ids; without a path the URL itself."""
    try:
        parts = [part for part in urlsplit(url).path.split("/") if part]
    except ValueError:
        return url
    return parts[-1] if parts else url


def _write_strings(found: SearchPage | Note | CommentPage) -> str:
    """All text of a result, one value after the other."""
    if isinstance(found, Note):
        values = [found.note_id, found.url, found.title, found.text, *_name_author(found.author), found.place]
        values += [*found.tags, *found.images]
    elif isinstance(found, CommentPage):
        values = [found.cursor or ""]
        for each in found.comments:
            values += [each.comment_id, each.parent_id, each.text, *_name_author(each.author), each.place, *each.images]
    else:
        values = [text or "" for hit in found.hits for text in (hit.note_id, hit.url, hit.title, hit.xsec_token)]
    return "\n".join(values)


def _name_author(author: Author) -> tuple[str, str]:
    return author.author_id, author.name


def _log_end(event: str, trace: RequestTrace, found: object, *, ms: int) -> None:
    code = found.code.value if isinstance(found, ErrorInfo) else None
    log = _log.info if code is None else _log.warning
    log(event, platform=trace.platform, code=code, cookie_used=trace.cookie_used, ms=ms)
