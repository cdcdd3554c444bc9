"""The base of the media platforms: sessions that can end, cookies that are checked and never recorded, a library of
posts, and faults that match one keyword or note.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from tidings.sandbox.media.posts import PostLibrary
from tidings.sandbox.wire.stand_in import MASK, Now, StandIn, read_utc

_COOKIE_VALUE = re.compile(r"=[^;]*")


@dataclass(frozen=True, slots=True)
class PlatformRequest:
    """A request to a platform."""

    method: str
    path: str
    raw_query: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    cookies: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    # The keyword or note that it asks for. Faults can match it.
    about: str = ""

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.about,) if self.about else ()

    @property
    def fields(self) -> Mapping[str, object]:
        return {"about": self.about} if self.about else {}


class SandboxMedia(StandIn[PlatformRequest]):
    """A platform that knows its accounts by the value of one cookie, `session_cookie`.

    `sessions`: the values that it knows; by default the one of the platform's demo cookie.
    """

    platform: str
    session_cookie: str
    demo_session: str

    def __init__(
        self,
        *,
        sessions: Iterable[str] | None = None,
        library: PostLibrary | None = None,
        now: Now = read_utc,
    ) -> None:
        super().__init__(self.platform, now=now)
        self.library = library or PostLibrary()
        self._sessions = {self.demo_session} if sessions is None else set(sessions)
        self._ended: set[str] = set()

    def log_out(self, session: str) -> None:
        """End a session: it is unknown from now on."""
        self._sessions.discard(session)

    def log_out_all(self) -> None:
        """End every session, as a platform does that asks all accounts to log in again."""
        self._ended |= self._sessions
        self._sessions = set()

    def log_in_again(self) -> None:
        """Know the sessions again that `log_out_all` ended."""
        self._sessions |= self._ended
        self._ended = set()

    def is_logged_in(self, question: PlatformRequest) -> bool:
        return question.cookies.get(self.session_cookie) in self._sessions

    def read_request(self, request: web.BaseRequest, body: bytes) -> PlatformRequest:
        split = urlsplit(request.raw_path)
        query = dict(parse_qsl(split.query, keep_blank_values=True))
        return PlatformRequest(
            method=request.method,
            path=split.path,
            raw_query=split.query,
            query=query,
            headers=request.headers,
            cookies=read_cookies(request.headers.get("Cookie", "")),
            body=body,
            about=self.read_subject(split.path, query, body),
        )

    @abstractmethod
    def read_subject(self, path: str, query: Mapping[str, str], body: bytes) -> str:
        """The keyword or note that a request asks for."""

    def mask_header(self, name: str, value: str) -> str:
        return mask_cookies(value) if name.lower() == "cookie" else value


def read_cookies(header: str) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in header.split(";") if "=" in pair)
    return {name.strip(): value.strip() for name, value in pairs}


def mask_cookies(header: str) -> str:
    """A cookie header with its names alone."""
    return _COOKIE_VALUE.sub(f"={MASK}", header)


def format_count(count: int) -> str:
    """A count as Chinese platforms show it, in units of ten thousand."""
    return str(count) if count < 10_000 else f"{count / 10_000:.1f}万"
