"""The IndexNow channel: how a request looks and what an answer means. When to send is decided in `sender`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import quote

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict, clean_detail, exchange, make_outcome
from tidings.announce.channels.channel import Reservation, SendingLimits
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Engine, Site, SubmitMethod
from tidings.core.clock import Clock
from tidings.core.net.client import Answer, FetchError, GuardedClient, NetworkError
from tidings.core.secrets.secret import Secret

ROTATE_KEY = "Rotate the key: make a new one, put its file on the site, and enter it in the site's settings."
MOST_URLS = 10_000
# A URL of 2,048 characters may be three times as long when encoded, and the key's URL is added.
LONGEST_REQUEST = 16_384

# Characters that encodeURIComponent leaves alone, beyond letters, digits and -._~
_UNENCODED = "!'()*"
# After this many failures in a row, each after all its retries, the engine counts as down. The first three verdicts
# would apply to every other request, too.
_FAILURES_UNTIL_CLOSED = {
    Verdict.UNVERIFIED: 1,
    Verdict.FORBIDDEN: 1,
    Verdict.REFUSED: 1,
    Verdict.RATE_LIMITED: 10,
    Verdict.UNAVAILABLE: 10,
}
_POST_LIMITS = SendingLimits(
    batch_size=MOST_URLS,
    urls_per_request=MOST_URLS,
    # A batch in which most URLs are bad is not halved down to the last one.
    most_split_requests=200,
    failures_until_closed=_FAILURES_UNTIL_CLOSED,
)
_GET_LIMITS = replace(_POST_LIMITS, batch_size=100, urls_per_request=1)


@dataclass(frozen=True, slots=True)
class IndexNowChannel:
    """IndexNow for one site and one engine, as the sender sees it."""

    site: Site
    engine: Engine
    client: GuardedClient
    clock: Clock

    channel = Channel.INDEXNOW

    @property
    def host(self) -> str:
        return self.engine.host

    @property
    def limits(self) -> SendingLimits:
        return find_limits(self.site)

    def build_request(self, urls: Sequence[str]) -> ChannelRequest:
        if choose_method(self.site.submit_method, count=len(urls)) is SubmitMethod.GET:
            return build_get(self.site, self.engine, urls[0])
        return build_post(self.site, self.engine, urls)

    async def submit(self, request: ChannelRequest, *, count: int) -> Outcome:
        return await submit(request, key=self.site.key, client=self.client, clock=self.clock)

    async def reserve(self, count: int, *, least: int) -> Reservation:
        return Reservation(count)

    async def release(self, count: int) -> None:
        """There is no quota."""

    async def settle(self, connection: AsyncConnection, outcome: Outcome, *, count: int) -> None:
        """There is no quota."""


def find_limits(site: Site) -> SendingLimits:
    """A batch is 100 requests by GET, one by POST."""
    return _GET_LIMITS if site.submit_method is SubmitMethod.GET else _POST_LIMITS


def choose_method(method: SubmitMethod, *, count: int) -> SubmitMethod:
    """GET or POST for this number of URLs."""
    if method is not SubmitMethod.AUTO:
        return method
    return SubmitMethod.GET if count == 1 else SubmitMethod.POST


def build_get(site: Site, engine: Engine, url: str) -> ChannelRequest:
    """One URL in the query, each value encoded as encodeURIComponent does."""
    values = {"url": url, "key": site.key.reveal(), "keyLocation": site.key_location}
    query = "&".join(f"{name}={encode_component(value)}" for name, value in values.items())
    return ChannelRequest("GET", f"{engine.endpoint}?{query}")


def build_post(site: Site, engine: Engine, urls: Sequence[str]) -> ChannelRequest:
    """Up to 10,000 URLs in a JSON body."""
    body = {"host": site.host, "key": site.key.reveal(), "keyLocation": site.key_location, "urlList": list(urls)}
    return ChannelRequest("POST", engine.endpoint, json.dumps(body, ensure_ascii=False).encode())


def encode_component(value: str) -> str:
    """Encode as JavaScript's encodeURIComponent does."""
    return quote(value, safe=_UNENCODED)


async def submit(request: ChannelRequest, *, key: Secret, client: GuardedClient, clock: Clock) -> Outcome:
    """Send one request and judge the answer; a lost connection is judged too. Nothing is retried here."""
    answer = await exchange(
        request, client=client, clock=clock, url_limit=LONGEST_REQUEST, judge_failure=_judge_failure
    )
    if isinstance(answer, Outcome):
        return answer
    # Engines repeat a refused key in their answer, which is stored and shown.
    shown = replace(answer, body=answer.body.replace(key.reveal().encode(), key.hint.encode()))
    return judge_answer(shown, now=clock.now())


def _judge_failure(error: FetchError) -> Outcome:
    if isinstance(error, NetworkError):
        return Outcome(Verdict.UNAVAILABLE, str(error), "Check that the engine can be reached.")
    return Outcome(Verdict.REFUSED, str(error), "Check the engine's address.")


def judge_answer(answer: Answer, *, now: datetime) -> Outcome:
    """Classify an engine's answer."""
    text = answer.body.decode(errors="replace")
    verdict, advice = _classify(answer.status, text)
    detail = None if verdict is Verdict.ACCEPTED else clean_detail(text)
    return make_outcome(answer, verdict, detail, advice=advice, now=now)


def _classify(status: int, detail: str) -> tuple[Verdict, str]:
    if status in (200, 202):
        return Verdict.ACCEPTED, ""
    if status == 429:
        return Verdict.RATE_LIMITED, "The engine is asked too often; a longer REQUEST_INTERVAL_MS helps."
    if status >= 500:
        return Verdict.UNAVAILABLE, "The engine has trouble; what failed is sent again next time."
    if status == 403 and "SiteVerificationNotCompleted" in detail:
        return Verdict.UNVERIFIED, "The engine has not checked the key file yet; it is sent again next time."
    if status == 403 and "UserForbiddedToAccessSite" in detail:
        return Verdict.FORBIDDEN, ROTATE_KEY
    if status in (400, 422):
        return Verdict.BAD_URLS, "Check that the URLs belong to the host and lie in the key file's folder."
    if status in (401, 403):
        return Verdict.REFUSED, "Check the key and its file: run `tidings check`."
    return Verdict.REFUSED, "Check the engine's address; this is not how an IndexNow engine answers."
