"""The Bing channel: how a request of the Webmaster API looks, what an answer means, and the daily quota around it.

Errors come in two families: Bing really sends HTTP 400 with a number and a message; its documentation speaks of 401,
403, 429 and `ERROR_…`. Both are understood. The number alone never decides, because 2 stands for several things; the
message does, or a telling status. The API key is in the URL, so no URL of a request is ever shown.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict, clean_text, exchange, shorten_text
from tidings.announce.channels.channel import Reservation
from tidings.announce.channels.indexnow import encode_component
from tidings.announce.channels.key_cooldowns import KeyRests
from tidings.announce.channels.quota import Quota, log_exhausted
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Engine, Site, find_origin
from tidings.core.clock import Clock, to_text
from tidings.core.logs.logger import get_logger
from tidings.core.net.client import Answer, FetchError, GuardedClient, NetworkError
from tidings.core.net.retry import parse_retry_after
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

DEFAULT_BASE = "https://ssl.bing.com/webmaster/api.svc/json"
# The engine's name in the outbox and in summaries.
BING = Engine(endpoint="bing", host="bing")
MOST_URLS = 100
LONGEST_REQUEST = 8_192
KEY_REST = timedelta(hours=1)

_REMAINING = re.compile(r"quota remaining for today\s*:\s*(\d{1,9})")
_CONSTANTS = re.compile(r"error_[a-z_]+")
_EXCEEDED = re.compile(r"exceeded\b.*\bquota|error_quota_exceeded")

_log = get_logger(__name__)

_ADVICE = {
    Verdict.ACCEPTED: "",
    Verdict.BAD_URLS: "Check that the URL belongs to the site as Bing knows it.",
    Verdict.FORBIDDEN: "Check the key in Bing Webmaster Tools and that the site is in that account; then set it here.",
    Verdict.QUOTA_FULL: "Nothing to do: the rest follows when the quota is new, at midnight UTC.",
    Verdict.QUOTA_REMAINING: "Something else uses the same quota; set bingDailyQuota to what is meant for Tidings.",
    Verdict.RATE_LIMITED: "Bing is asked too often; it is sent again next time.",
    Verdict.THROTTLED: "Nothing to do: the key rests for an hour, on all its sites.",
    Verdict.UNAVAILABLE: "Bing has trouble; what failed is sent again next time.",
    Verdict.UNCERTAIN: "Bing may have taken it; it is sent again next time, and stays counted against the quota.",
    Verdict.REFUSED: "Look at the reason; where it is not Bing's own answer, check BING_API_BASE.",
}

# Words in ErrorCode and Message, which say what the number does not.
_WORDS = {
    "error_invalid_api_key": Verdict.FORBIDDEN,
    "invalidapikey": Verdict.FORBIDDEN,
    "notauthorized": Verdict.FORBIDDEN,
    "throttleuser": Verdict.THROTTLED,
    "throttlehost": Verdict.THROTTLED,
    "throttleip": Verdict.THROTTLED,
    "error_invalid_url": Verdict.BAD_URLS,
    "invalidurl": Verdict.BAD_URLS,
}
_STATUSES = {401: Verdict.FORBIDDEN, 403: Verdict.QUOTA_FULL, 429: Verdict.RATE_LIMITED}


# A next batch would meet the same answer. One refusal may be about the batch, two in a row are not.
_FAILURES_UNTIL_CLOSED = {
    Verdict.RATE_LIMITED: 1,
    Verdict.UNAVAILABLE: 1,
    Verdict.UNCERTAIN: 1,
    Verdict.QUOTA_FULL: 1,
    Verdict.THROTTLED: 1,
    Verdict.FORBIDDEN: 1,
    Verdict.REFUSED: 2,
}


@dataclass(frozen=True, slots=True)
class BingApi:
    """Bing's Webmaster API."""

    client: GuardedClient
    clock: Clock
    # Its address, without a slash at the end.
    base: str = DEFAULT_BASE

    @property
    def host(self) -> str:
        """The host that requests are paced by."""
        return find_origin(self.base).partition("://")[2]

    def build_request(self, site: Site, urls: Sequence[str]) -> ChannelRequest:
        body = json.dumps({"siteUrl": site.origin, "urlList": list(urls)}, ensure_ascii=False).encode()
        return ChannelRequest("POST", self._make_url("SubmitUrlbatch", site), body)

    async def submit(self, site: Site, request: ChannelRequest) -> Outcome:
        """Send one batch and judge the answer; a lost connection is judged too. Nothing is retried here."""
        outcome, _ = await self._send(request, site)
        return outcome

    async def ask_quota(self, site: Site) -> "AskedQuota | Outcome":
        """Bing's own numbers of the quota, or the answer that came instead."""
        url = self._make_url("GetUrlSubmissionQuota", site, siteUrl=site.origin)
        outcome, text = await self._send(ChannelRequest("GET", url), site)
        if not outcome.accepted:
            return outcome
        try:
            found = json.loads(text)["d"]
            daily, monthly = int(found["DailyQuota"]), int(found["MonthlyQuota"])
            if daily < 0 or monthly < 0:
                raise ValueError
            return AskedQuota(daily=daily, monthly=monthly)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return _judge(Verdict.REFUSED, "HTTP 200, but not with a quota", status=200, elapsed=outcome.elapsed)

    def _make_url(self, name: str, site: Site, **query: str) -> str:
        values = {**query, "apikey": site.bing.require_key().reveal()}
        return f"{self.base}/{name}?" + "&".join(f"{field}={encode_component(text)}" for field, text in values.items())

    async def _send(self, request: ChannelRequest, site: Site) -> tuple[Outcome, str]:
        started = self.clock.monotonic()
        try:
            answer = await exchange(request, client=self.client, clock=self.clock, url_limit=LONGEST_REQUEST)
        except FetchError as error:
            return _judge_failure(error, elapsed=timedelta(seconds=self.clock.monotonic() - started)), ""
        text = answer.body.decode(errors="replace")
        return judge_answer(_hide_key(answer, site.bing.require_key()), now=self.clock.now()), text


@dataclass(frozen=True, slots=True)
class AskedQuota:
    """Bing's numbers of a site's quota. Reports differ on whether they are totals or what remains."""

    # URLs a day.
    daily: int
    # URLs a month.
    monthly: int


@dataclass(frozen=True, slots=True)
class BingChannel:
    """Bing for one site in one execution, as the sender sees it: reserve quota, send, settle.

    A crash between the two leaves the quota charged and the pages in the outbox: the count may be too high, never too
    low, and nothing is lost.
    """

    site: Site
    api: BingApi
    quota: Quota
    rests: KeyRests
    # Begins a transaction that only the running execution can write in.
    transaction: Callable[[], AbstractAsyncContextManager[AsyncConnection]]

    channel = Channel.BING
    engine = BING
    has_quota = True
    batch_size = MOST_URLS
    # Bing does not say which URL it dislikes: a batch is halved until it is found, but not without end.
    most_split_requests = 60
    slows_down = False

    @property
    def host(self) -> str:
        return self.api.host

    @property
    def failures_until_closed(self) -> Mapping[Verdict, int]:
        return _FAILURES_UNTIL_CLOSED

    def count_per_request(self, pages: int) -> int:
        return MOST_URLS

    def build_request(self, urls: Sequence[str]) -> ChannelRequest:
        return self.api.build_request(self.site, urls)

    async def submit(self, request: ChannelRequest, *, count: int) -> Outcome:
        outcome = await self.api.submit(self.site, request)
        if outcome.verdict is Verdict.QUOTA_REMAINING and (outcome.remaining or 0) >= count:
            # Bing has room for all of them and refuses them all the same: asking again would never end.
            return replace(outcome, verdict=Verdict.REFUSED, advice=_ADVICE[Verdict.REFUSED])
        return outcome

    async def reserve(self, count: int, *, least: int) -> Reservation:
        """Reserve quota for up to `count` pages, at least `least`; none once the key rests or the day is full."""
        rest = await self.rests.find(self.site.bing.require_key(), now=self.api.clock.now())
        if rest is not None:
            return Reservation(0, f"the key rests until {to_text(rest.until)}: {rest.reason}")
        async with self.transaction() as connection:
            granted = await self.quota.reserve(connection, count)
            if 0 < granted < least:
                await self.quota.release(connection, granted)
                granted = 0
        if not granted:
            log_exhausted(self.site, self.quota)
        return Reservation(granted)

    async def release(self, count: int) -> None:
        """Give back a reservation that was not used."""
        async with self.transaction() as connection:
            await self.quota.release(connection, count)

    async def settle(self, connection: AsyncConnection, outcome: Outcome, *, count: int) -> None:
        """Settle a reservation by Bing's answer."""
        match outcome.verdict:
            case Verdict.ACCEPTED:
                await self.quota.confirm(connection)
            case Verdict.UNCERTAIN:
                # Bing may have counted it.
                pass
            case Verdict.QUOTA_REMAINING:
                await self.quota.correct(connection, remaining=outcome.remaining or 0, reserved=count)
            case Verdict.QUOTA_FULL:
                await self.quota.close(connection, reserved=count)
            case _:
                await self.quota.release(connection, count)
        if outcome.verdict is Verdict.THROTTLED:
            await self._rest_key(connection, outcome)

    async def _rest_key(self, connection: AsyncConnection, outcome: Outcome) -> None:
        until = self.api.clock.now() + KEY_REST
        key = self.site.bing.require_key()
        await self.rests.begin(connection, key, until=until, reason=outcome.reason)
        _log.warning("bing.key_rests", site=self.site.id, key=key.hint, until=to_text(until), reason=outcome.reason)


def _judge(verdict: Verdict, reason: str, **details: Any) -> Outcome:
    return Outcome(verdict, reason, _ADVICE[verdict], **details)


def judge_answer(answer: Answer, *, now: datetime) -> Outcome:
    """Classify Bing's answer."""
    code, message = _read_error(answer.body)
    if answer.status == 200 and code in (None, "0"):
        # The body of a success holds no error.
        code = message = None
    words = f"{code or ''} {message or ''}".strip().lower()
    if code is None:
        # Not Bing's own form: a page of a proxy may say anything, so only its constants count.
        words = " ".join(_CONSTANTS.findall(words))
    verdict, remaining = _classify(answer.status, words)
    found = ": ".join(part for part in (code and f"ErrorCode {code}", message) if part)
    return _judge(
        verdict,
        f"HTTP {answer.status}" + (f": {found}" if found and verdict is not Verdict.ACCEPTED else ""),
        status=answer.status,
        code=code,
        message=message,
        remaining=remaining,
        elapsed=answer.elapsed,
        retry_after=parse_retry_after(answer.headers.get("Retry-After"), now=now),
    )


def _classify(status: int, words: str) -> tuple[Verdict, int | None]:
    if status == 200 and not words:
        return Verdict.ACCEPTED, None
    if found := _REMAINING.search(words):
        remaining = int(found[1])
        return (Verdict.QUOTA_REMAINING, remaining) if remaining else (Verdict.QUOTA_FULL, 0)
    if _EXCEEDED.search(words):
        return Verdict.QUOTA_FULL, None
    squeezed = words.replace(" ", "")
    for word, verdict in _WORDS.items():
        if word in squeezed:
            return verdict, None
    if status >= 500:
        return Verdict.UNAVAILABLE, None
    return _STATUSES.get(status, Verdict.REFUSED), None


def _judge_failure(error: FetchError, *, elapsed: timedelta) -> Outcome:
    # Without the address: only its path could be shown, and that helps nobody.
    if not isinstance(error, NetworkError):
        return _judge(Verdict.REFUSED, error.reason, elapsed=elapsed)
    if error.sent:
        return _judge(Verdict.UNCERTAIN, f"no answer: {error.reason}", elapsed=elapsed)
    return _judge(Verdict.UNAVAILABLE, error.reason, elapsed=elapsed)


def _read_error(body: bytes) -> tuple[str | None, str | None]:
    """ErrorCode and Message, where the body has them; else the start of what came, as the message."""
    text = body.decode(errors="replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return None, _clean(text) or None
    code, message = document.get("ErrorCode"), document.get("Message")
    return (None if code is None else _clean(str(code))), (None if message is None else _clean(str(message)))


def _clean(text: str) -> str:
    return shorten_text(clean_text(text))


def _hide_key(answer: Answer, key: Secret) -> Answer:
    """An answer may repeat the key, and the reason is stored and shown."""
    text = Redactor([key]).redact(answer.body.decode(errors="replace"))
    return replace(answer, body=text.encode())
