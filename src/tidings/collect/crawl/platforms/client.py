"""One request to a platform's API and what its answer is at first sight: it waits its turn, carries the cookie, and
turns broken connections, statuses and bodies that are no JSON into CrawlError. What the codes inside an answer mean
is the platform's own business, and so are the few statuses that only it uses.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tidings.collect.crawl.platforms.protocol import PlatformTools
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.net.client import Answer, AnswerTooLargeError, FetchError, FetchTimeoutError, NetworkError
from tidings.core.net.redirects import REDIRECTS
from tidings.core.secrets.secret import Secret

LONGEST_ANSWER: Final = 4 * 1024 * 1024

_COOKIE: Final = re.compile(r"[\x20-\x7e]+")
_LARGEST_CODE: Final = 10**12
_WINDOW_BITS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a status or a code of a platform means."""

    code: ErrorCode
    message: str
    blames_cookie: bool = False
    captcha: bool = False

    def as_error(self, *, platform: str, sign: str) -> CrawlError:
        message = f"{platform}: {self.message} ({sign})"
        return CrawlError(self.code, message, blames_cookie=self.blames_cookie, captcha=self.captcha)


def blame_cookie(message: str, *, captcha: bool = False) -> Meaning:
    return Meaning(ErrorCode.COOKIE_INVALID, message, blames_cookie=True, captcha=captcha)


def blame_platform(message: str) -> Meaning:
    return Meaning(ErrorCode.PLATFORM_ERROR, message)


def blame_input(message: str) -> Meaning:
    return Meaning(ErrorCode.INVALID_INPUT, message)


SOFT_BLOCK: Final = blame_cookie(
    "a soft block: the account is asked for a captcha, which a person must solve", captcha=True
)
NOT_UNDERSTOOD: Final = blame_platform("the answer is not what is known of it")

_STATUSES: Final[Mapping[int, Meaning]] = MappingProxyType(
    {
        400: blame_input("the request was refused as wrong"),
        401: blame_cookie("the session is not accepted"),
        403: blame_cookie("access is refused to this session"),
        412: blame_platform("requests from this address are blocked for now"),
        429: blame_platform("asked too often"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformClient:
    """The way to one platform. `statuses` are the ones that mean something special there. A platform that needs no
    cookie is sent none, and blames none."""

    tools: PlatformTools
    platform: str
    base_url: str
    needs_cookie: bool = True
    statuses: Mapping[int, Meaning] = field(default_factory=dict)

    async def ask(
        self,
        path: str,
        *,
        cookie: Secret | None = None,
        query: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer, where its status is 200. A body makes it a POST of JSON. Redirects are never followed: they
        would carry the cookie away. Raises CrawlError."""
        url = f"{self.base_url}{path}{'?' if query else ''}{query}"
        sent = {"Accept": "application/json", **(headers or {})}
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
            raise judge_failure(error) from None
        self._check_status(answer)
        return answer

    def read_object(self, answer: Answer) -> dict[str, Any]:
        """The JSON object of an answer. Raises CrawlError; an empty body is how some platforms block softly."""
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

    def refuse(self, meaning: Meaning, sign: object) -> CrawlError:
        """The error to raise. `sign` is the fact itself, such as `HTTP 461` or `code -101`."""
        if meaning.blames_cookie and not self.needs_cookie:
            meaning = blame_platform(meaning.message)
        return meaning.as_error(platform=self.platform, sign=str(sign))

    def _check_status(self, answer: Answer) -> None:
        if answer.status == 200:
            return
        raise self.refuse(self._find_meaning(answer.status), f"HTTP {answer.status}")

    def _find_meaning(self, status: int) -> Meaning:
        if known := self.statuses.get(status) or _STATUSES.get(status):
            return known
        if status in REDIRECTS:
            return blame_platform("it redirects elsewhere, which is not followed")
        return blame_platform("the service has trouble" if status >= 500 else "the request was refused")


def check_cookie(cookie: Secret | None, *, platform: str) -> str:
    """A cookie as its header carries it. Raises CrawlError where there is none, or one that is no header."""
    if cookie is None or not cookie:
        raise CrawlError(ErrorCode.COOKIE_EXHAUSTED, f"{platform}: nothing can be asked without a cookie")
    text = cookie.reveal().strip()
    if not _COOKIE.fullmatch(text):
        raise blame_cookie("the cookie is not a line of ASCII").as_error(platform=platform, sign="nothing was sent")
    return text


def read_cookies(header: str) -> dict[str, str]:
    """The single cookies in a header, by name."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def judge_failure(error: FetchError, *, refused: ErrorCode = ErrorCode.PLATFORM_ERROR) -> CrawlError:
    """What a fetch without an answer means. Its message names no query and no header. `refused` is for an address that
    the guard lets nobody fetch: an operator's mistake, or the caller's where the caller names the address."""
    if isinstance(error, FetchTimeoutError):
        return CrawlError(ErrorCode.TIMEOUT_ERROR, str(error))
    if isinstance(error, NetworkError):
        return CrawlError(ErrorCode.NETWORK_ERROR, str(error))
    if isinstance(error, AnswerTooLargeError):
        return CrawlError(ErrorCode.PLATFORM_ERROR, str(error))
    return CrawlError(refused, str(error))


def decode_body(answer: Answer, *, platform: str, limit: int = LONGEST_ANSWER) -> bytes:
    """The body without its Content-Encoding: some servers compress although they were asked not to."""
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
    """A code as a message may show it. Only a number: a piece of text could be one of the cookie, which nobody would
    recognise once it is cut."""
    return str(code) if isinstance(code, int) and abs(code) < _LARGEST_CODE else "of another kind"


def pick(document: object, *path: str | int) -> Any:
    """What lies at a path of names and places in a JSON document; None where the path breaks off."""
    for step in path:
        if isinstance(step, int):
            document = document[step] if isinstance(document, list) and len(document) > step else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def pick_objects(document: object, *path: str | int) -> list[dict[str, Any]]:
    """The objects in the list at a path; what is no object is left out."""
    found = pick(document, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
