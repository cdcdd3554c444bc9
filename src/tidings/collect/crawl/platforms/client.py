"""The client for a platform's JSON API: it waits for the pace, sends the cookie, and turns network errors, HTTP
statuses and bodies that are not JSON into CrawlError. Each platform maps its own codes and special statuses.
"""

import json
import re
import zlib
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from tidings.collect.crawl.platforms.protocol import PlatformTools
from tidings.collect.errors import LONGEST_RETRY_AFTER, CrawlError, ErrorCode
from tidings.core.clock import Clock
from tidings.core.net.client import Answer, AnswerTooLargeError, FetchError, FetchTimeoutError, NetworkError
from tidings.core.net.redirects import REDIRECTS
from tidings.core.net.retry import parse_retry_after
from tidings.core.secrets.secret import Secret

LONGEST_ANSWER: Final = 4 * 1024 * 1024

_COOKIE: Final = re.compile(r"[\x20-\x7e]+")
_LARGEST_CODE: Final = 10**12
_WINDOW_BITS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}


# The User-Agent of the browser that the cookie of the present request came from.
session_user_agent: ContextVar[str | None] = ContextVar("session_user_agent", default=None)


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a platform's status or code."""

    code: ErrorCode
    message: str
    captcha: bool = False
    blocked: bool = False

    def as_error(self, *, platform: str, sign: str, retry_after: timedelta | None = None) -> CrawlError:
        message = f"{platform}: {self.message} ({sign})"
        return CrawlError(self.code, message, captcha=self.captcha, blocked=self.blocked, retry_after=retry_after)


def blame_cookie(message: str, *, captcha: bool = False) -> Meaning:
    return Meaning(ErrorCode.COOKIE_INVALID, message, captcha=captcha)


def blame_platform(message: str) -> Meaning:
    return Meaning(ErrorCode.PLATFORM_ERROR, message)


def blame_address(message: str) -> Meaning:
    """The platform blocks this machine for now: neither the note nor the cookie is at fault."""
    return Meaning(ErrorCode.PLATFORM_ERROR, message, blocked=True)


def blame_input(message: str) -> Meaning:
    return Meaning(ErrorCode.INVALID_INPUT, message)


SOFT_BLOCK: Final = blame_cookie(
    "a soft block: the platform asks the account for a captcha, which a person must solve", captcha=True
)
NOT_UNDERSTOOD: Final = blame_platform("the answer has an unknown format")
BLOCKED: Final = blame_address("the platform blocks requests from this address for now")
TOO_OFTEN: Final = blame_address("the platform says that requests come too often")

_STATUSES: Final[Mapping[int, Meaning]] = MappingProxyType(
    {
        400: blame_input("the request was refused as wrong"),
        401: blame_cookie("the session is not accepted"),
        403: blame_cookie("access is refused to this session"),
        412: BLOCKED,
        429: TOO_OFTEN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformClient:
    """The client of one platform."""

    tools: PlatformTools
    platform: str
    base_url: str
    # The platform's web page, which its requests name as Origin and Referer.
    page: str = ""
    # If False, no cookie is sent, and no error blames one.
    needs_cookie: bool = True
    # HTTP statuses with a special meaning on this platform.
    statuses: Mapping[int, Meaning] = field(default_factory=dict)
    # The codes of its JSON answers that are errors.
    codes: Mapping[int, Meaning] = field(default_factory=dict)

    async def ask(
        self,
        path: str,
        *,
        cookie: Secret | None = None,
        query: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        accept: Collection[int] = (200,),
    ) -> Answer:
        """Send a request and return the answer if its status is one of `accept`. A body makes it a POST of JSON.
        Redirects are not followed: they would take the cookie to another host. Raises CrawlError."""
        url = f"{self.base_url}{path}{'?' if query else ''}{query}"
        sent = {"Accept": "application/json", **self._name_origin(), **(headers or {})}
        if self.needs_cookie:
            sent["Cookie"] = check_cookie(cookie, platform=self.platform)
        if body is not None:
            sent["Content-Type"] = "application/json;charset=UTF-8"
        await self.tools.pace.wait_turn(self.platform, cookie=cookie if self.needs_cookie else None)
        try:
            answer = await self.tools.client.request(
                "GET" if body is None else "POST",
                url,
                headers=sent,
                body=body,
                timeout=self.tools.timeout,
                limit=LONGEST_ANSWER,
                url_limit=8_192,
            )
        except FetchError as error:
            raise judge_failure(error, platform=self.platform) from None
        if answer.status not in accept:
            retry_after = read_retry_after(answer.headers, clock=self.tools.clock)
            raise self.refuse(self._find_meaning(answer), f"HTTP {answer.status}", retry_after=retry_after)
        return answer

    def _name_origin(self) -> dict[str, str]:
        """The headers of the browser and the page that the session belongs to."""
        agent = session_user_agent.get()
        page = {"Origin": self.page, "Referer": f"{self.page}/"} if self.page else {}
        return page if agent is None else {**page, "User-Agent": agent}

    def read_object(self, answer: Answer) -> dict[str, Any]:
        """The JSON object of an answer. Raises CrawlError. An empty body is a soft block of some platforms."""
        body = decode_body(answer, platform=self.platform)
        if not body.strip():
            raise self.refuse(SOFT_BLOCK, "an empty answer")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise self.refuse(NOT_UNDERSTOOD, "it is not JSON") from None
        if not isinstance(document, dict):
            raise self.refuse(NOT_UNDERSTOOD, "it is not a JSON object")
        return document

    def refuse(self, meaning: Meaning, sign: object, *, retry_after: timedelta | None = None) -> CrawlError:
        """The error to raise. `sign` is the evidence, such as `HTTP 461` or `code -101`."""
        if meaning.code is ErrorCode.COOKIE_INVALID and not self.needs_cookie:
            meaning = blame_platform(meaning.message)
        return meaning.as_error(platform=self.platform, sign=str(sign), retry_after=retry_after)

    def refuse_code(self, code: object) -> CrawlError:
        """The error of an answer whose code is not that of success."""
        meaning = self.codes.get(code) if isinstance(code, int) else None
        return self.refuse(meaning or NOT_UNDERSTOOD, f"code {show_code(code)}")

    def check_data(self, data: object) -> dict[str, Any]:
        """The data of a successful answer. Raises CrawlError: empty data is a soft block."""
        if not isinstance(data, dict):
            raise self.refuse(NOT_UNDERSTOOD, "there is no data")
        if not data:
            raise self.refuse(SOFT_BLOCK, "empty data")
        return data

    def _find_meaning(self, answer: Answer) -> Meaning:
        status = answer.status
        if status == 403 and not answer.body.lstrip().startswith(b"{"):
            # The platform's own refusals are JSON; an HTML page comes from a proxy in front of it.
            return BLOCKED
        if known := self.statuses.get(status) or _STATUSES.get(status):
            return known
        if status in REDIRECTS:
            return blame_platform("it redirects, and redirects are not followed")
        return blame_platform("the service has an error" if status >= 500 else "the request was refused")


def read_retry_after(headers: Mapping[str, str], *, clock: Clock) -> timedelta | None:
    """The Retry-After of an answer, an hour at most."""
    asked = parse_retry_after(headers.get("Retry-After"), now=clock.now())
    return None if asked is None else min(asked, LONGEST_RETRY_AFTER)


def check_cookie(cookie: Secret | None, *, platform: str) -> str:
    """The value of the Cookie header. Raises CrawlError if it is missing or not ASCII."""
    if cookie is None or not cookie:
        raise CrawlError(ErrorCode.COOKIE_EXHAUSTED, f"{platform}: nothing can be asked without a cookie")
    text = cookie.reveal().strip()
    if not _COOKIE.fullmatch(text):
        raise blame_cookie("the cookie is not a line of ASCII").as_error(platform=platform, sign="nothing was sent")
    return text


def judge_failure(
    error: FetchError, *, platform: str | None = None, refused: ErrorCode = ErrorCode.PLATFORM_ERROR
) -> CrawlError:
    """The error of a fetch without an answer; the message holds no query and no header.

    `platform`: named instead of the address, if that is from the operator's settings. `refused`: the code for an
    address that the guard blocks, INVALID_INPUT if the caller chose the address.
    """
    message = str(error) if platform is None else f"{platform}: {error.reason}"
    if isinstance(error, FetchTimeoutError):
        return CrawlError(ErrorCode.TIMEOUT_ERROR, message)
    if isinstance(error, NetworkError):
        return CrawlError(ErrorCode.NETWORK_ERROR, message)
    if isinstance(error, AnswerTooLargeError):
        return CrawlError(ErrorCode.PLATFORM_ERROR, message)
    return CrawlError(refused, message)


def decode_body(answer: Answer, *, platform: str, limit: int = LONGEST_ANSWER) -> bytes:
    """The body without its Content-Encoding: some servers compress without being asked."""
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return answer.body
    meaning = blame_platform("the answer cannot be decompressed")
    if encoding not in _WINDOW_BITS:
        raise meaning.as_error(platform=platform, sign="an unknown encoding")
    inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        body = inflater.decompress(answer.body, limit)
    except zlib.error:
        raise meaning.as_error(platform=platform, sign="it is damaged") from None
    if not inflater.eof:
        raise meaning.as_error(platform=platform, sign="it is too long, or breaks off")
    return body


def show_code(code: object) -> str:
    """A code for a message. Only numbers are shown: a text could be a part of the cookie that no redactor knows."""
    return str(code) if isinstance(code, int) and abs(code) < _LARGEST_CODE else "of another kind"
