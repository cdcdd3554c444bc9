"""What the stand-ins of the media platforms share: accounts with sessions that can end, cookies that are checked and
never recorded, a library of posts, and faults that can be aimed at one keyword or note. What each platform answers is
in its own file."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web
from multidict import CIMultiDict

from tidings.sandbox.media.posts import PostLibrary
from tidings.sandbox.wire.listener import TimedRequest
from tidings.sandbox.wire.stand_in import StandIn

MASK = "***"

_COOKIE_VALUE = re.compile(r"=[^;]*")


@dataclass(frozen=True, slots=True)
class PlatformRequest:
    """A request to a platform. `about` is the keyword or the note it asks for, which faults can be aimed at."""

    method: str
    path: str
    raw_query: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    cookies: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    about: str = ""

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.about,) if self.about else ()

    @property
    def fields(self) -> Mapping[str, object]:
        return {"about": self.about} if self.about else {}


class SandboxMedia(StandIn[PlatformRequest]):
    """A platform whose accounts are known by the value of one cookie, `session_cookie`."""

    session_cookie: str

    def __init__(
        self,
        name: str,
        *,
        sessions: Iterable[str],
        library: PostLibrary | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        port: int = 0,
    ) -> None:
        super().__init__(name, port=port)
        self.library = library or PostLibrary()
        self._sessions = set(sessions)
        self._now = now

    def log_out(self, session: str) -> None:
        """The session is unknown from now on."""
        self._sessions.discard(session)

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
        """The keyword or the note that is asked for."""

    def _enter(self, request: TimedRequest) -> int:
        """The cookies are secrets, and must not be in the record."""
        path, _, query = request.raw_path.partition("?")
        headers = CIMultiDict(
            (name, mask_cookies(value) if name.lower() == "cookie" else value)
            for name, value in request.headers.items()
        )
        return self._log.arrive(
            at=request.at, wall=request.wall, method=request.method, path=path, query=query, headers=headers
        )


def read_cookies(header: str) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in header.split(";") if "=" in pair)
    return {name.strip(): value.strip() for name, value in pairs}


def mask_cookies(header: str) -> str:
    """The names alone."""
    return _COOKIE_VALUE.sub(f"={MASK}", header)


def format_count(count: int) -> str:
    """As Chinese platforms show it: ten thousand is a unit."""
    return str(count) if count < 10_000 else f"{count / 10_000:.1f}万"
