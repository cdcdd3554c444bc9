"""Bing's protocol: how a request of the Webmaster API looks, and what an answer means.

Errors come in two families: Bing really sends HTTP 400 with a number and a message; its documentation speaks of 401,
403, 429 and `ERROR_…`. Both are understood. The number alone never decides, because 2 means several things; the
message does, or a telling status. The API key is in the URL, so no URL of a request is ever shown.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tidings.announce.channels.answer import (
    ChannelRequest,
    Outcome,
    Verdict,
    clean_text,
    exchange,
    hide_secret,
    judge_failure,
    shorten_text,
)
from tidings.announce.channels.protocols.indexnow import encode_component
from tidings.announce.channels.quota.quota import QuotaTerms
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import Engine, Site, find_origin
from tidings.core.clock import Clock
from tidings.core.net.client import Answer, FetchError, GuardedClient
from tidings.core.net.retry import parse_retry_after

DEFAULT_BASE = "https://ssl.bing.com/webmaster/api.svc/json"
# The engine's name in the outbox and in summaries.
BING = Engine(endpoint="bing", host="bing")
BING_KIND = RankedKind(QuotaTerms(Channel.BING, "Bing"), BING, BingSettings.fields, lambda site: site.bing)
MOST_URLS = 100
LONGEST_REQUEST = 8_192

_REMAINING = re.compile(r"quota remaining for today\s*:\s*(\d{1,9})")
_CONSTANTS = re.compile(r"error_[a-z_]+")
_EXCEEDED = re.compile(r"exceeded\b.*\bquota\b(?:\s*:\s*(?P<total>\d{1,9}))?|error_quota_exceeded")

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


# Bing allows no site more than this a day.
MOST_ASKED = 10_000


@dataclass(frozen=True, slots=True)
class BingApi:
    """Bing's Webmaster API."""

    client: GuardedClient
    clock: Clock
    # Its address, without a slash at the end.
    base: str = DEFAULT_BASE

    batch_size = urls_per_request = MOST_URLS
    # Bing does not say which URL it dislikes: a batch is halved until it is found, but not without end.
    most_split_requests = 60
    failures_until_closed = _FAILURES_UNTIL_CLOSED

    @property
    def host(self) -> str:
        """The host that requests are paced by."""
        return find_origin(self.base).partition("://")[2]

    def build_request(self, site: Site, urls: Sequence[str]) -> ChannelRequest:
        body = json.dumps({"siteUrl": site.origin, "urlList": list(urls)}, ensure_ascii=False).encode()
        return ChannelRequest("POST", self._make_url("SubmitUrlbatch", site), body)

    async def submit(self, site: Site, request: ChannelRequest, *, count: int) -> Outcome:
        """Send one batch and judge the answer; a lost connection is judged too. Nothing is retried here."""
        outcome, _ = await self._send(request, site)
        if outcome.verdict is Verdict.QUOTA_REMAINING and (outcome.remaining or 0) >= count:
            # Bing has room for all of them and refuses them all the same: asking again would never end.
            return replace(outcome, verdict=Verdict.REFUSED, advice=_ADVICE[Verdict.REFUSED])
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

    async def ask_limit(self, site: Site) -> int | None:
        """URLs of this day, by Bing's own word. None: it did not say."""
        asked = await self.ask_quota(site)
        return min(asked.daily, MOST_ASKED) if isinstance(asked, AskedQuota) else None

    def _make_url(self, name: str, site: Site, **query: str) -> str:
        values = {**query, "apikey": site.bing.require_key().reveal()}
        return f"{self.base}/{name}?" + "&".join(f"{field}={encode_component(text)}" for field, text in values.items())

    async def _send(self, request: ChannelRequest, site: Site) -> tuple[Outcome, str]:
        started = self.clock.monotonic()
        try:
            answer = await exchange(request, client=self.client, clock=self.clock, url_limit=LONGEST_REQUEST)
        except FetchError as error:
            elapsed = timedelta(seconds=self.clock.monotonic() - started)
            return judge_failure(error, advice=_ADVICE, elapsed=elapsed), ""
        text = answer.body.decode(errors="replace")
        return judge_answer(hide_secret(answer, site.bing.require_key()), now=self.clock.now()), text


@dataclass(frozen=True, slots=True)
class AskedQuota:
    """Bing's numbers of a site's quota. Reports differ on whether they are totals or what remains."""

    # URLs a day.
    daily: int
    # URLs a month.
    monthly: int


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
    verdict, numbers = _classify(answer.status, words)
    found = ": ".join(part for part in (code and f"ErrorCode {code}", message) if part)
    return _judge(
        verdict,
        f"HTTP {answer.status}" + (f": {found}" if found and verdict is not Verdict.ACCEPTED else ""),
        status=answer.status,
        code=code,
        message=message,
        **numbers,
        elapsed=answer.elapsed,
        retry_after=parse_retry_after(answer.headers.get("Retry-After"), now=now),
    )


def _classify(status: int, words: str) -> tuple[Verdict, dict[str, int]]:
    """The verdict, and the numbers of the quota that the answer names."""
    if status == 200 and not words:
        return Verdict.ACCEPTED, {}
    if found := _REMAINING.search(words):
        remaining = int(found[1])
        return Verdict.QUOTA_REMAINING if remaining else Verdict.QUOTA_FULL, {"remaining": remaining}
    if found := _EXCEEDED.search(words):
        return Verdict.QUOTA_FULL, {"total": int(found["total"])} if found["total"] else {}
    squeezed = words.replace(" ", "")
    for word, verdict in _WORDS.items():
        if word in squeezed:
            return verdict, {}
    if status >= 500:
        return Verdict.UNAVAILABLE, {}
    return _STATUSES.get(status, Verdict.REFUSED), {}


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
