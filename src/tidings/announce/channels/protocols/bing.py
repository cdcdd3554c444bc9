"""Bing's protocol: how a request of the Webmaster API looks, and what an answer means.

Errors come in two families: Bing really sends HTTP 400 with a number and a message; its documentation speaks of 401,
403, 429 and `ERROR_…`. This module reads both. The number alone never decides, because 2 means several things; the
message or a clear status does. The API key is in the URL, so no URL of a request is ever shown.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict, clean_detail, make_outcome
from tidings.announce.channels.channel import SendingLimits
from tidings.announce.channels.protocols.indexnow import encode_component
from tidings.announce.channels.quota.api import (
    CLOSED_AT_ONCE,
    ChannelApi,
    hide_secrets,
    make_advice,
    read_document,
)
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import Site
from tidings.core.net.client import Answer

DEFAULT_BASE = "https://ssl.bing.com/webmaster/api.svc/json"
MOST_URLS = 100
BING_KIND = RankedKind(
    Channel.BING,
    "Bing",
    fields=BingSettings.fields,
    pick=lambda site: site.bing,
    limits=SendingLimits(
        batch_size=MOST_URLS,
        urls_per_request=MOST_URLS,
        # Bing does not say which URL is bad, so a batch is halved until it is found, up to a limit.
        most_split_requests=60,
        # One refusal may concern the batch, but not two in a row.
        failures_until_closed=CLOSED_AT_ONCE | {Verdict.THROTTLED: 1, Verdict.REFUSED: 2},
    ),
)

_REMAINING = re.compile(r"quota remaining for today\s*:\s*(\d{1,9})")
_CONSTANTS = re.compile(r"error_[a-z_]+")
_EXCEEDED = re.compile(r"exceeded\b.*\bquota\b(?:\s*:\s*(?P<total>\d{1,9}))?|error_quota_exceeded")

_ADVICE = make_advice("Bing", midnight="UTC", setting="BING_API_BASE") | {
    Verdict.BAD_URLS: "Check that the URL belongs to the site as Bing knows it.",
    Verdict.FORBIDDEN: "Check the key and its account in Bing Webmaster Tools; then enter it in the site's settings.",
    Verdict.QUOTA_REMAINING: "Something else uses the same quota; set bingDailyQuota to what is meant for Tidings.",
    Verdict.THROTTLED: "Nothing to do: the key rests for an hour, on all its sites.",
}

# Words in ErrorCode and Message that classify an error.
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


# Bing allows no site more than this a day.
MOST_ASKED = 10_000


@dataclass(frozen=True, slots=True)
class BingApi(ChannelApi):
    """Bing's Webmaster API."""

    base: str = DEFAULT_BASE

    def build_request(self, site: Site, urls: Sequence[str]) -> ChannelRequest:
        body = json.dumps({"siteUrl": site.origin, "urlList": list(urls)}, ensure_ascii=False).encode()
        return ChannelRequest("POST", self._make_url("SubmitUrlbatch", site), body)

    async def submit(self, site: Site, request: ChannelRequest, *, count: int) -> Outcome:
        """Send one batch and judge the answer; a lost connection is judged too. Nothing is retried here."""
        outcome, _ = await self._send(request, site)
        if outcome.verdict is Verdict.QUOTA_REMAINING and (outcome.remaining or 0) >= count:
            # Bing reports enough quota and refuses all the same: retries would never end.
            return replace(outcome, verdict=Verdict.REFUSED, advice=_ADVICE[Verdict.REFUSED])
        return outcome

    async def ask_quota(self, site: Site) -> "AskedQuota | Outcome":
        """Bing's own numbers of the quota, or the outcome of a failed request."""
        url = self._make_url("GetUrlSubmissionQuota", site, siteUrl=site.origin)
        outcome, body = await self._send(ChannelRequest("GET", url), site)
        if not outcome.accepted:
            return outcome
        try:
            found = json.loads(body)["d"]
            daily, monthly = int(found["DailyQuota"]), int(found["MonthlyQuota"])
            if daily < 0 or monthly < 0:
                raise ValueError
            return AskedQuota(daily=daily, monthly=monthly)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            reason, advice = "HTTP 200, but not with a quota", _ADVICE[Verdict.REFUSED]
            return Outcome(Verdict.REFUSED, reason, advice, status=200, elapsed=outcome.elapsed)

    async def ask_limit(self, site: Site) -> int | None:
        """Bing's own quota of this day, in URLs. None if it did not answer."""
        asked = await self.ask_quota(site)
        return min(asked.daily, MOST_ASKED) if isinstance(asked, AskedQuota) else None

    def _make_url(self, name: str, site: Site, **query: str) -> str:
        values = {**query, "apikey": site.bing.require_key().reveal()}
        return f"{self.base}/{name}?" + "&".join(f"{field}={encode_component(text)}" for field, text in values.items())

    async def _send(self, request: ChannelRequest, site: Site) -> tuple[Outcome, bytes]:
        answer = await self.send(request, advice=_ADVICE)
        if isinstance(answer, Outcome):
            return answer, b""
        shown = hide_secrets(answer, site.bing.require_key())
        return judge_answer(shown, now=self.clock.now()), shown.body


@dataclass(frozen=True, slots=True)
class AskedQuota:
    """Bing's numbers of a site's quota. Reports differ on whether they are totals or what remains."""

    # URLs a day.
    daily: int
    # URLs a month.
    monthly: int


def judge_answer(answer: Answer, *, now: datetime) -> Outcome:
    """Classify Bing's answer."""
    code, message = _read_error(answer.body)
    if answer.status == 200 and code in (None, "0"):
        # The body of a success holds no error.
        code = message = None
    words = f"{code or ''} {message or ''}".strip().lower()
    if code is None:
        # Not Bing's form: a proxy's page may contain anything, so only Bing's constants count.
        words = " ".join(_CONSTANTS.findall(words))
    verdict, numbers = _classify(answer.status, words)
    parts = () if verdict is Verdict.ACCEPTED else (code and f"ErrorCode {code}", message)
    return make_outcome(
        answer, verdict, *parts, advice=_ADVICE[verdict], now=now, code=code, message=message, **numbers
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
    """ErrorCode and Message, if the body has them; else the start of the body as the message."""
    document = read_document(body)
    if document is None:
        return None, clean_detail(body.decode(errors="replace")) or None
    code, message = (
        None if value is None else clean_detail(str(value)) for value in map(document.get, ("ErrorCode", "Message"))
    )
    return code, message
