"""Bing's Webmaster API: how a request looks and what an answer means. When to send and what to do about a failure is
decided in `bing_delivery`.

Errors come in two families: what Bing really sends is HTTP 400 with a number and a message, what is written about it
is 401, 403, 429 and `ERROR_…`. Both are understood. The number alone never decides, because 2 stands for several
things; the message does, or a telling status. The API key is in the URL, so no URL of a request is ever shown.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from tidings.announce.channels.indexnow import encode_component
from tidings.announce.site.site import Engine, Site, find_origin
from tidings.core.clock import Clock
from tidings.core.net.addresses import escape_text
from tidings.core.net.client import Answer, FetchError, GuardedClient, NetworkError
from tidings.core.net.retry import parse_retry_after
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

DEFAULT_BASE = "https://ssl.bing.com/webmaster/api.svc/json"
# What rows of the record and lines of a summary call it.
BING = Engine(endpoint="bing", host="bing")
MOST_URLS = 100
REQUEST_TIMEOUT = timedelta(seconds=30)
LONGEST_REQUEST = 8_192
LONGEST_ANSWER = 65_536

_JSON = {"Content-Type": "application/json; charset=utf-8"}
_LONGEST_DETAIL = 300
_REMAINING = re.compile(r"quota remaining for today\s*:\s*(\d{1,9})")
_CONSTANTS = re.compile(r"error_[a-z_]+")
_EXCEEDED = re.compile(r"exceeded\b.*\bquota|error_quota_exceeded")


class Verdict(StrEnum):
    """What Bing's answer means for the URLs in the request."""

    ACCEPTED = "accepted"
    INVALID_URL = "invalid URL"
    BAD_KEY = "key refused"
    QUOTA_FULL = "quota exceeded"
    QUOTA_REMAINING = "less quota than sent"
    RATE_LIMITED = "rate limited"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    UNCERTAIN = "no answer"
    REFUSED = "refused"


_ADVICE = {
    Verdict.ACCEPTED: "",
    Verdict.INVALID_URL: "Check that the URL belongs to the site as Bing knows it.",
    Verdict.BAD_KEY: "Check the key in Bing Webmaster Tools and that the site is in that account; then set it here.",
    Verdict.QUOTA_FULL: "Nothing to do: the rest follows when the quota is new, at midnight UTC.",
    Verdict.QUOTA_REMAINING: "Something else uses the same quota; set bingDailyQuota to what is meant for Tidings.",
    Verdict.RATE_LIMITED: "Bing is asked too often; it is sent again next time.",
    Verdict.THROTTLED: "Nothing to do: the key rests for an hour, on all its sites.",
    Verdict.UNAVAILABLE: "Bing has trouble; what failed is sent again next time.",
    Verdict.UNCERTAIN: "Bing may have taken it; it is sent again next time, and stays counted against the quota.",
    Verdict.REFUSED: "Look at the reason; where it is not Bing's own answer, check BING_API_BASE.",
}

# Words in ErrorCode and Message, which tell what the number does not.
_WORDS = {
    "error_invalid_api_key": Verdict.BAD_KEY,
    "invalidapikey": Verdict.BAD_KEY,
    "notauthorized": Verdict.BAD_KEY,
    "throttleuser": Verdict.THROTTLED,
    "throttlehost": Verdict.THROTTLED,
    "throttleip": Verdict.THROTTLED,
    "error_invalid_url": Verdict.INVALID_URL,
    "invalidurl": Verdict.INVALID_URL,
}
_STATUSES = {401: Verdict.BAD_KEY, 403: Verdict.QUOTA_FULL, 429: Verdict.RATE_LIMITED}


@dataclass(frozen=True, slots=True)
class BingOutcome:
    """An answer, judged. `reason` is for the record; `remaining` is what Bing said remains of today's quota."""

    verdict: Verdict
    reason: str
    status: int | None = None
    code: str | None = None
    message: str | None = None
    remaining: int | None = None
    elapsed: timedelta = timedelta()
    retry_after: timedelta | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPTED

    @property
    def advice(self) -> str:
        """What a person should do about it."""
        return _ADVICE[self.verdict]


@dataclass(frozen=True, slots=True)
class BingApi:
    """The way to Bing. `base` is its address without a slash at the end."""

    client: GuardedClient
    clock: Clock
    base: str = DEFAULT_BASE

    @property
    def host(self) -> str:
        """What requests are paced by."""
        return find_origin(self.base).partition("://")[2]

    async def submit(self, site: Site, urls: Sequence[str]) -> BingOutcome:
        """Send one batch and judge the answer; a lost connection is judged too. Nothing is retried here."""
        body = json.dumps({"siteUrl": site.origin, "urlList": list(urls)}, ensure_ascii=False).encode()
        return await self._call("POST", "SubmitUrlbatch", site, body=body)

    async def ask_quota(self, site: Site) -> "AskedQuota | BingOutcome":
        """What Bing itself says of the quota, or the answer that came instead."""
        outcome, text = await self._exchange("GET", "GetUrlSubmissionQuota", site, query={"siteUrl": site.origin})
        if not outcome.accepted:
            return outcome
        try:
            told = json.loads(text)["d"]
            daily, monthly = int(told["DailyQuota"]), int(told["MonthlyQuota"])
            if daily < 0 or monthly < 0:
                raise ValueError
            return AskedQuota(daily=daily, monthly=monthly)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return replace(outcome, verdict=Verdict.REFUSED, reason="HTTP 200, but not with a quota")

    async def _call(self, method: str, name: str, site: Site, *, body: bytes) -> BingOutcome:
        outcome, _ = await self._exchange(method, name, site, body=body)
        return outcome

    async def _exchange(
        self, method: str, name: str, site: Site, *, query: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[BingOutcome, str]:
        key = site.bing.require_key()
        values = {**(query or {}), "apikey": key.reveal()}
        url = f"{self.base}/{name}?" + "&".join(f"{field}={encode_component(text)}" for field, text in values.items())
        started = self.clock.monotonic()
        try:
            async with self.client.stream(
                method,
                url,
                headers=_JSON if body else {},
                body=body,
                timeout=REQUEST_TIMEOUT,
                url_limit=LONGEST_REQUEST,
            ) as stream:
                raw = await stream.read_start(LONGEST_ANSWER)
                elapsed = timedelta(seconds=self.clock.monotonic() - started)
                answer = Answer(status=stream.status, url=stream.url, elapsed=elapsed, headers=stream.headers, body=raw)
        except FetchError as error:
            return _judge_failure(error, elapsed=timedelta(seconds=self.clock.monotonic() - started)), ""
        return judge_answer(_hide_key(answer, key), now=self.clock.now()), answer.body.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class AskedQuota:
    """What Bing says of a site's quota. Whether that is the total or what remains, reports differ."""

    daily: int
    monthly: int


def judge_answer(answer: Answer, *, now: datetime) -> BingOutcome:
    """What this answer means."""
    code, message = _read_error(answer.body)
    if answer.status == 200 and code in (None, "0"):
        # Whatever stands in the body of a success, it is no error.
        code = message = None
    words = f"{code or ''} {message or ''}".strip().lower()
    if code is None:
        # Not Bing's own form: a page of a proxy may say anything, so only its constants count.
        words = " ".join(_CONSTANTS.findall(words))
    verdict, remaining = _classify(answer.status, words)
    told = ": ".join(part for part in (code and f"ErrorCode {code}", message) if part)
    return BingOutcome(
        verdict=verdict,
        reason=f"HTTP {answer.status}" + (f": {told}" if told and verdict is not Verdict.ACCEPTED else ""),
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
    if told := _REMAINING.search(words):
        remaining = int(told[1])
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


def _judge_failure(error: FetchError, *, elapsed: timedelta) -> BingOutcome:
    # Without the address: only the path of it would be shown, but nothing of it helps either.
    reason = error.reason
    if not isinstance(error, NetworkError):
        return BingOutcome(Verdict.REFUSED, reason, elapsed=elapsed)
    if error.sent:
        return BingOutcome(Verdict.UNCERTAIN, f"no answer: {reason}", elapsed=elapsed)
    return BingOutcome(Verdict.UNAVAILABLE, reason, elapsed=elapsed)


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
    return escape_text(" ".join(text.split()))[:_LONGEST_DETAIL]


def _hide_key(answer: Answer, key: Secret) -> Answer:
    """An answer may repeat the key, and the reason is stored and shown."""
    text = Redactor([key]).redact(answer.body.decode(errors="replace"))
    return replace(answer, body=text.encode())
