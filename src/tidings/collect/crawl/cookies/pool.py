"""The cookie pool: leases cookies, each to one request at a time. It only reads the database; uses and errors since the
last read are added in memory (`usage`).

A set of names prevents two leases of one cookie in a process. Between processes on PostgreSQL an advisory lock does
this: it needs no write access and ends with its transaction, so a killed process leaves nothing locked. Processes that
share a SQLite file do not see each other's leases.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from tidings.collect.crawl.cookies.states import CookieOutcome, CookieRules, CookieStatus, settle_state
from tidings.collect.crawl.cookies.table import Cookie, open_cookie, read_cookies
from tidings.collect.crawl.cookies.usage import CookieUsage, judge_code
from tidings.collect.crawl.platforms.shared_turns import number_lock
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.clock import Clock
from tidings.core.db.database import ReadableDatabase
from tidings.core.logs.logger import get_logger
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

# Seconds between two tries for a cookie that another process holds, because no signal reports its release.
_ASK_AGAIN: Final = 0.05
# Connections kept free for reading while leases hold the others.
_SPARE: Final = 3

log = get_logger(__name__)


@dataclass(slots=True)
class LeasedCookie:
    """A cookie that no other request can use until the lease ends. An answer may show its name."""

    name: str
    secret: Secret
    # The User-Agent of the browser that it came from.
    user_agent: str | None = None
    # The borrower sets it if it sent nothing: then the lease does not count as a use.
    is_unused: bool = False


@dataclass(eq=False)
class CookiePool:
    """Leases the cookies of all platforms.

    A cookie can be leased while it is active and under its daily limit. The highest priority comes first, then the
    least used. The redactor learns every cookie before it is leased.
    """

    database: ReadableDatabase
    _: KW_ONLY
    keys: KeyRing
    clock: Clock
    redactor: Redactor
    rules: CookieRules = field(default_factory=CookieRules)
    # How long a lease waits while all usable cookies are busy.
    patience: timedelta = timedelta(seconds=5)
    # The table is read again after this time.
    reread_after: timedelta = timedelta(seconds=1)
    _cookies: list[Cookie] = field(default_factory=list, init=False)
    _usage: dict[str, CookieUsage] = field(default_factory=dict, init=False)
    _reads: int = field(default=0, init=False)
    _read_at: float = field(default=0.0, init=False)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _held: set[str] = field(default_factory=set, init=False)
    _held_elsewhere: dict[str, float] = field(default_factory=dict, init=False)
    _freed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _places: asyncio.Semaphore = field(init=False)
    _opened: dict[bytes, Secret] = field(default_factory=dict, init=False, repr=False)
    _unreadable: set[bytes] = field(default_factory=set, init=False)
    _broken: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(max(1, self.database.most_readers - _SPARE))

    @asynccontextmanager
    async def lease(self, platform: str, *, exclude: Collection[str] = ()) -> AsyncIterator[LeasedCookie]:
        """Lease the best cookie of this platform for one request. `exclude` names cookies that were refused for it.

        Raises CrawlError: COOKIE_EXHAUSTED if no cookie can be used, TIMEOUT_ERROR if all usable ones stay busy for
        longer than `patience`. A CrawlError from the block that blames the cookie counts against it, and a captcha
        makes it cool at once.
        """
        async with AsyncExitStack() as stack:
            cookie, secret = await self._take(platform, exclude=exclude, stack=stack)
            outcome = CookieOutcome.UNRELATED
            leased = LeasedCookie(cookie.name, secret, cookie.user_agent)
            try:
                yield leased
                outcome = CookieOutcome.SUCCESS
            except CrawlError as error:
                outcome = judge_code(error.code, captcha=error.captcha)
                raise
            finally:
                if leased.is_unused:
                    self._usage[cookie.name].take_back()
                else:
                    self._usage[cookie.name].record(outcome, at=self.clock.now())

    async def open_named(self, name: str) -> tuple[Cookie, Secret] | None:
        """A cookie of any status and its value; None if there is none of this name. Raises KeyRingError."""
        async with self.database.read() as connection:
            found = next((cookie for cookie in await read_cookies(connection) if cookie.name == name), None)
        if found is None:
            return None
        secret = open_cookie(found, keys=self.keys)
        self.redactor.add(secret)
        return found, secret

    async def _take(self, platform: str, *, exclude: Collection[str], stack: AsyncExitStack) -> tuple[Cookie, Secret]:
        try:
            async with asyncio.timeout(self.patience.total_seconds()) as limit:
                return await self._wait_for_one(platform, exclude=exclude, stack=stack)
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"every cookie for {platform} is in use; nothing was asked of the platform"
            raise CrawlError(ErrorCode.TIMEOUT_ERROR, message) from None

    async def _wait_for_one(
        self, platform: str, *, exclude: Collection[str], stack: AsyncExitStack
    ) -> tuple[Cookie, Secret]:
        seen = self._reads
        while True:
            freed = self._freed
            if self._is_stale():
                await self._read(after=self._reads)
            if cookie := self._choose(platform, exclude=exclude):
                secret = self._open(cookie)
                if secret is not None and await self._hold(cookie, stack=stack):
                    return cookie, secret
            elif self._has_suitable(platform, exclude=exclude):
                await self._wait(freed)
            elif self._reads == seen:
                # A cookie may have been added since the last read.
                await self._read(after=seen)
            else:
                raise CrawlError(ErrorCode.COOKIE_EXHAUSTED, self._explain(platform, exclude=exclude))

    def _choose(self, platform: str, *, exclude: Collection[str]) -> Cookie | None:
        """The best free cookie that can be used. Sorting first keeps the costly check to as few cookies as possible."""
        now, instant = self.clock.now(), asyncio.get_running_loop().time()
        self._held_elsewhere = {name: until for name, until in self._held_elsewhere.items() if until > instant}
        free = [
            cookie
            for cookie in self._cookies
            if cookie.platform == platform and cookie.name not in self._held and cookie.name not in self._held_elsewhere
        ]
        free.sort(key=lambda each: (-each.priority, self._usage[each.name].estimate(at=now), each.name))
        return next((cookie for cookie in free if self._find_obstacle(cookie, exclude=exclude) is None), None)

    def _has_suitable(self, platform: str, *, exclude: Collection[str]) -> bool:
        """Whether a cookie can be used, even if it is leased now."""
        return any(
            cookie.platform == platform and self._find_obstacle(cookie, exclude=exclude) is None
            for cookie in self._cookies
        )

    def _find_obstacle(self, cookie: Cookie, *, exclude: Collection[str]) -> str | None:
        """Why a cookie cannot be used, in one or two words; None if it can."""
        now, usage = self.clock.now(), self._usage[cookie.name]
        if cookie.name in exclude:
            return "excluded"
        for status in (settle_state(cookie.state, at=now).status, usage.find_status(at=now)):
            if status is not CookieStatus.ACTIVE:
                return status.value
        if usage.estimate(at=now) >= cookie.daily_limit:
            return "at the daily limit"
        return "unreadable" if cookie.ciphertext in self._unreadable else None

    def _explain(self, platform: str, *, exclude: Collection[str]) -> str:
        mine = [cookie for cookie in self._cookies if cookie.platform == platform]
        reasons = Counter(self._find_obstacle(cookie, exclude=exclude) for cookie in mine)
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        return f"no cookie for {platform} can be used: {counts or 'there is none'}"

    async def _wait(self, freed: asyncio.Event) -> None:
        """Wait until this process releases a cookie, or until it is time to ask other processes or the table again."""
        longest = _ASK_AGAIN if self._held_elsewhere else max(_ASK_AGAIN, self.reread_after.total_seconds())
        try:
            async with asyncio.timeout(longest):
                await freed.wait()
        except TimeoutError:
            return

    async def _hold(self, cookie: Cookie, *, stack: AsyncExitStack) -> bool:
        """Hold a cookie until the stack closes. Returns False if another process holds it."""
        # No await between the choice and this line, so no other task can have taken it.
        self._held.add(cookie.name)
        async with AsyncExitStack() as attempt:
            attempt.callback(self._release, cookie.name)
            if not await attempt.enter_async_context(self._lock(cookie.name)):
                self._held_elsewhere[cookie.name] = asyncio.get_running_loop().time() + _ASK_AGAIN
                return False
            self._held_elsewhere.pop(cookie.name, None)
            self._usage[cookie.name].count(at=self.clock.now())
            stack.push_async_exit(attempt.pop_all())
            return True

    def _release(self, name: str) -> None:
        self._held.discard(name)
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    @asynccontextmanager
    async def _lock(self, name: str) -> AsyncIterator[bool]:
        """Yields whether this process holds the cookie's lock. If so, no other process gets it during the block."""
        if self.database.dialect == "sqlite":
            yield True
            return
        taken, failure = False, None
        try:
            async with self._places, self.database.read() as connection:
                statement = select(func.pg_try_advisory_xact_lock(number_lock(f"lease:{name}")))
                taken = bool((await connection.execute(statement)).scalar_one())
                try:
                    yield taken
                except BaseException as error:
                    failure = error
                    raise
        except DBAPIError:
            if not taken:
                raise
            # The connection broke during the lease, which says nothing about the request itself.
            log.warning("cookie.lock_lost", cookie_name=name)
            if failure is not None:
                raise failure from None

    def _open(self, cookie: Cookie) -> Secret | None:
        """The decrypted cookie; None if it cannot be decrypted. The others stay usable."""
        if secret := self._opened.get(cookie.ciphertext):
            return secret
        try:
            secret = open_cookie(cookie, keys=self.keys)
        except KeyRingError as error:
            self._unreadable.add(cookie.ciphertext)
            log.error("cookie.unreadable", cookie_name=cookie.name, reason=str(error))
            return None
        self.redactor.add(secret)
        self._opened[cookie.ciphertext] = secret
        return secret

    def _is_stale(self) -> bool:
        age = self.clock.monotonic() - self._read_at
        return self._reads == 0 or age >= self.reread_after.total_seconds()

    async def _read(self, *, after: int) -> None:
        """Read the table, unless another task has read it since read number `after`."""
        async with self._reading:
            if self._reads > after:
                return
            async with self.database.read() as connection:
                self._cookies = await read_cookies(connection)
            self._log_broken()
            now = self.clock.now()
            for cookie in self._cookies:
                usage = self._usage.setdefault(cookie.name, CookieUsage.begin(cookie, at=now, rules=self.rules))
                if cookie.name not in self._broken:
                    usage.read(cookie, at=now)
            stored = {cookie.ciphertext for cookie in self._cookies}
            self._opened = {blob: secret for blob, secret in self._opened.items() if blob in stored}
            self._unreadable &= stored
            self._reads += 1
            self._read_at = self.clock.monotonic()

    def _log_broken(self) -> None:
        """Log each broken row once."""
        broken = {cookie.name for cookie in self._cookies if cookie.state.status is CookieStatus.UNREADABLE}
        for name in sorted(broken - self._broken):
            log.error("cookie.unreadable", cookie_name=name, reason="a value in its row is broken")
        self._broken = broken
