"""Baidu's protocol: how a push request looks, and what an answer means.

A request is plain text, one URL a line. A success says how many were taken, which were not, and how many Baidu still
takes today (`remain`); there is no other way to learn the quota. The status of an error is in the body, so the HTTP
status counts only if the body has none. The token is in the URL, so no URL of a request is ever shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

from tidings.announce.channels.answer import (
    LONGEST_ANSWER,
    ChannelRequest,
    Outcome,
    Verdict,
    clean_detail,
    make_outcome,
)
from tidings.announce.channels.channel import SendingLimits
from tidings.announce.channels.quota.api import (
    CLOSED_AT_ONCE,
    ChannelApi,
    hide_secrets,
    make_advice,
    read_document,
)
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BaiduSettings
from tidings.announce.site.site import Site
from tidings.core.net.client import Answer

# Baidu documents plain http; https works for some (BAIDU_API_BASE).
DEFAULT_BAIDU_BASE = "http://data.zz.baidu.com"
MOST_URLS = 2_000
# Midnight of Baidu's day.
BEIJING = timezone(timedelta(hours=8))
BAIDU_KIND = RankedKind(
    Channel.BAIDU,
    "Baidu",
    zone=BEIJING,
    learns=True,
    fields=BaiduSettings.fields,
    pick=lambda site: site.baidu,
    limits=SendingLimits(
        batch_size=MOST_URLS,
        urls_per_request=MOST_URLS,
        # Baidu names the URLs that it does not take: nothing is halved.
        most_split_requests=1,
        # A request without a valid answer may cost quota in vain.
        failures_until_closed=CLOSED_AT_ONCE | {Verdict.THROTTLED: 1, Verdict.UNVERIFIED: 1, Verdict.REFUSED: 1},
    ),
    # Baidu answers "token is not valid" also to a site that pushes too often.
    refusal_may_pass=True,
)

NOT_SAME_SITE = "not_same_site: Baidu says that this URL does not belong to the site"
NOT_VALID = "not_valid: Baidu says that this is not a valid URL"

_REFUSED_LISTS = {"not_same_site": NOT_SAME_SITE, "not_valid": NOT_VALID}
# The messages of Baidu's errors.
_MESSAGES = {
    "over quota": Verdict.QUOTA_FULL,
    "site error": Verdict.FORBIDDEN,
    "site init fail": Verdict.UNVERIFIED,
    "token is not valid": Verdict.FORBIDDEN,
    "internal error": Verdict.UNAVAILABLE,
}
_STATUSES = {401: Verdict.FORBIDDEN, 429: Verdict.RATE_LIMITED}
_ADVICE = make_advice("Baidu", midnight="UTC+8", setting="BAIDU_API_BASE") | {
    Verdict.FORBIDDEN: "Check baiduToken and baiduSite: the site must be verified at Baidu under exactly this name.",
    Verdict.UNVERIFIED: "Baidu has not finished verifying the site; it is sent again next time.",
}
REJECTED_ADVICE = "Compare the URLs with baiduSite: scheme, www. and port must be as they were verified at Baidu."


@dataclass(frozen=True, slots=True)
class BaiduApi(ChannelApi):
    """Baidu's API for pushing URLs."""

    base: str = DEFAULT_BAIDU_BASE

    def build_request(self, site: Site, urls: Sequence[str]) -> ChannelRequest:
        name = quote(site.baidu.site or site.origin, safe=":/")
        address = f"{self.base}/urls?site={name}&token={quote(site.baidu.require_key().reveal(), safe='')}"
        return ChannelRequest("POST", address, "\n".join(urls).encode(), content_type="text/plain")

    async def submit(self, site: Site, request: ChannelRequest, *, count: int) -> Outcome:
        """Send one batch and judge the answer; a lost connection is judged too. Nothing is retried here."""
        sent = request.body or b""
        # The answer may repeat every URL of the request.
        answer = await self.send(request, advice=_ADVICE, longest=LONGEST_ANSWER + len(sent))
        if isinstance(answer, Outcome):
            return answer
        shown = hide_secrets(answer, site.baidu.require_key())
        return judge_answer(shown, sent=sent.decode().split("\n"), now=self.clock.now())


def judge_answer(answer: Answer, *, sent: Sequence[str], now: datetime) -> Outcome:
    """Classify Baidu's answer to these URLs."""
    document = read_document(answer.body)
    if answer.status == 200 and document is not None and "error" not in document:
        return _judge_success(answer, document, sent=sent)
    code, message = None, clean_detail(answer.body.decode(errors="replace")) or None
    if document is not None and "error" in document:
        code = clean_detail(str(document["error"]))
        message = clean_detail(str(document.get("message", ""))) or None
    verdict = _classify(int(code) if code and code.isdigit() and len(code) == 3 else answer.status, message, code)
    words = (code and f"error {code}", message)
    return make_outcome(answer, verdict, *words, advice=_ADVICE[verdict], now=now, code=code, message=message)


def _judge_success(answer: Answer, document: Mapping[str, Any], *, sent: Sequence[str]) -> Outcome:
    """The outcome of a request that Baidu accepted, at least in part."""
    success, remaining = _read_count(document.get("success")), _read_count(document.get("remain"))
    rejected = _read_rejected(document, sent)
    verdict, reason = Verdict.ACCEPTED, f"HTTP {answer.status}"
    if success is None:
        verdict, reason = Verdict.REFUSED, f"HTTP {answer.status}, but not with a number of taken URLs"
    elif success < len(sent) - len(rejected):
        verdict = Verdict.REFUSED
        reason = f"Baidu took {success} of {len(sent)} URLs and does not say which"
    return Outcome(
        verdict,
        reason,
        REJECTED_ADVICE if rejected else _ADVICE[verdict],
        status=answer.status,
        remaining=remaining,
        rejected=rejected if verdict is Verdict.ACCEPTED else {},
        elapsed=answer.elapsed,
    )


def _classify(status: int, message: str | None, code: str | None) -> Verdict:
    # A proxy's page may contain anything, so only an answer in Baidu's form counts.
    words = (message or "").lower() if code is not None else ""
    for known, verdict in _MESSAGES.items():
        if known in words:
            return verdict
    if status >= 500:
        return Verdict.UNAVAILABLE
    # A 401 without Baidu's message comes from a proxy.
    return _STATUSES.get(status, Verdict.REFUSED) if code is not None or status == 429 else Verdict.REFUSED


def _read_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000_000 else None


def _read_rejected(document: Mapping[str, Any], sent: Sequence[str]) -> dict[str, str]:
    """The URLs of the request that Baidu names as not taken, each with the reason."""
    asked = set(sent)
    found: dict[str, str] = {}
    for name, reason in _REFUSED_LISTS.items():
        listed = document.get(name)
        for url in listed if isinstance(listed, list) else ():
            if isinstance(url, str) and url in asked:
                found[url] = reason
    return found
