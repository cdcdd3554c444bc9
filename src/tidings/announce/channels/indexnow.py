"""The IndexNow protocol: how a request looks and what an answer means. When to send and what to do about a failure is
decided in `lanes`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import quote

from tidings.announce.site.site import Engine, Site, SubmitMethod
from tidings.core.clock import Clock
from tidings.core.net.addresses import escape_text
from tidings.core.net.client import Answer, FetchError, GuardedClient, NetworkError
from tidings.core.net.retry import parse_retry_after
from tidings.core.secrets.secret import Secret

ROTATE_KEY = "Rotate the key: make a new one, put its file on the site, and set it here."
MOST_URLS = 10_000
REQUEST_TIMEOUT = timedelta(seconds=30)
# A URL of 2,048 characters may be three times as long once it is encoded, and the key's address comes on top.
LONGEST_REQUEST = 16_384
LONGEST_ANSWER = 65_536

_JSON = {"Content-Type": "application/json; charset=utf-8"}
# Characters that encodeURIComponent leaves alone, beyond letters, digits and -._~
_UNENCODED = "!'()*"
_LONGEST_DETAIL = 300


class Verdict(StrEnum):
    """What an engine's answer means for the URLs in the request."""

    ACCEPTED = "accepted"
    RATE_LIMITED = "rate limited"
    UNAVAILABLE = "unavailable"
    BAD_URLS = "bad URLs"
    UNVERIFIED = "key not verified yet"
    FORBIDDEN = "key refused for good"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, judged. `reason` is for the record, `advice` says what a person should check."""

    verdict: Verdict
    reason: str
    advice: str = ""
    status: int | None = None
    elapsed: timedelta = timedelta()
    retry_after: timedelta | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPTED


@dataclass(frozen=True, slots=True)
class IndexNowRequest:
    """One request, ready to be sent."""

    method: str
    url: str = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    key: Secret | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        return _JSON if self.body is not None else {}


def choose_method(method: SubmitMethod, *, count: int) -> SubmitMethod:
    """GET or POST for so many URLs."""
    if method is not SubmitMethod.AUTO:
        return method
    return SubmitMethod.GET if count == 1 else SubmitMethod.POST


def build_get(site: Site, engine: Engine, url: str) -> IndexNowRequest:
    """One URL in the query, each value encoded as encodeURIComponent does."""
    values = {"url": url, "key": site.key.reveal(), "keyLocation": site.key_location}
    query = "&".join(f"{name}={encode_component(value)}" for name, value in values.items())
    return IndexNowRequest("GET", f"{engine.endpoint}?{query}", key=site.key)


def build_post(site: Site, engine: Engine, urls: Sequence[str]) -> IndexNowRequest:
    """Up to 10,000 URLs in a JSON body."""
    body = {"host": site.host, "key": site.key.reveal(), "keyLocation": site.key_location, "urlList": list(urls)}
    return IndexNowRequest("POST", engine.endpoint, json.dumps(body, ensure_ascii=False).encode(), key=site.key)


def encode_component(value: str) -> str:
    """What JavaScript's encodeURIComponent gives."""
    return quote(value, safe=_UNENCODED)


async def submit(request: IndexNowRequest, *, client: GuardedClient, clock: Clock) -> Outcome:
    """Send one request and judge the answer; a lost connection is judged too. Nothing is retried here."""
    started = clock.monotonic()
    try:
        async with client.stream(
            request.method,
            request.url,
            headers=request.headers,
            body=request.body,
            timeout=REQUEST_TIMEOUT,
            url_limit=LONGEST_REQUEST,
        ) as stream:
            # The status says what matters; of a long body the start is enough.
            body = await stream.read_start(LONGEST_ANSWER)
            elapsed = timedelta(seconds=clock.monotonic() - started)
            answer = Answer(status=stream.status, url=stream.url, elapsed=elapsed, headers=stream.headers, body=body)
    except NetworkError as error:
        elapsed = timedelta(seconds=clock.monotonic() - started)
        return Outcome(Verdict.UNAVAILABLE, str(error), "Check that the engine can be reached.", elapsed=elapsed)
    except FetchError as error:
        return Outcome(Verdict.REFUSED, str(error), "Check the engine's address.")
    return judge_answer(_hide_key(answer, request.key), now=clock.now())


def _hide_key(answer: Answer, key: Secret | None) -> Answer:
    """Engines repeat the key that they do not like, and the reason is stored and shown."""
    if key is None:
        return answer
    return replace(answer, body=answer.body.replace(key.reveal().encode(), key.hint.encode()))


def judge_answer(answer: Answer, *, now: datetime) -> Outcome:
    """What this answer means."""
    whole = escape_text(" ".join(answer.body.decode(errors="replace").split()))
    verdict, advice = _classify(answer.status, whole)
    detail = whole[:_LONGEST_DETAIL]
    return Outcome(
        verdict=verdict,
        reason=f"HTTP {answer.status}" + (f": {detail}" if detail and verdict is not Verdict.ACCEPTED else ""),
        advice=advice,
        status=answer.status,
        elapsed=answer.elapsed,
        retry_after=parse_retry_after(answer.headers.get("Retry-After"), now=now),
    )


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
