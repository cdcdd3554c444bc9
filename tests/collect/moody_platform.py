"""A platform of the tests' own, not of the sandbox: it speaks as Weibo and as Bilibili do, and its mood decides how it
answers. A mood gets each request and returns an answer, or None for the usual one."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs

from aiohttp import web

Mood = Callable[["Asked"], Awaitable[web.StreamResponse | None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    # The note or the keyword.
    about: str
    # The account: the value of the session cookie.
    account: str
    headers: dict[str, str]
    request: web.BaseRequest = field(repr=False)
    # When it came, in seconds of the clock that never goes back.
    at: float

    @property
    def is_search(self) -> bool:
        return "getIndex" in self.path or "search" in self.path


class MoodyPlatform:
    """Serves while it is open. `close` and `open` again keep the port, as a network does that was down."""

    def __init__(self, *, notes: int = 30) -> None:
        self.asked: list[Asked] = []
        self.mood: Mood | None = None
        self.note_ids = [f"49900000000{number:05}" for number in range(1, notes + 1)]
        # How often each note was read: its likes.
        self.likes: Counter[str] = Counter()
        self._port = 0
        self._runner: web.ServerRunner | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def list_notes_asked(self) -> list[Asked]:
        return [each for each in self.asked if not each.is_search]

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = _read(request)
        self.asked.append(asked)
        answer = None if self.mood is None else await self.mood(asked)
        return answer or web.json_response(self._describe(asked))

    def _describe(self, asked: Asked) -> dict[str, Any]:
        if asked.path == "/statuses/show":
            self.likes[asked.about] += 1
            return {"ok": 1, "data": _describe_post(asked.about, likes=self.likes[asked.about])}
        if asked.path == "/x/web-interface/view":
            return {"code": 0, "data": _describe_video(asked.about)}
        if asked.path == "/x/web-interface/nav":
            images = {name: f"https://i0.hdslb.com/bfs/wbi/{name * 4:0<32}.png" for name in ("img_url", "sub_url")}
            return {"code": 0, "data": {"isLogin": True, "wbi_img": images}}
        if asked.path == "/x/web-interface/wbi/search/type":
            hits = [{"type": "video", "bvid": name_video(number), "title": "bread"} for number in range(1, 11)]
            return {"code": 0, "data": {"result": hits, "numPages": 1, "numResults": len(hits)}}
        cards = [{"card_type": 9, "mblog": _describe_post(each, likes=0)} for each in self.note_ids]
        return {"ok": 1, "data": {"cards": cards, "cardlistInfo": {"total": len(cards)}}}


def name_video(number: int) -> str:
    return f"BV1xx4y1{number:05}"


def answer_json(document: dict[str, Any], *, status: int = 200, **headers: str) -> Mood:
    """A mood with one answer for everybody."""

    async def mood(_asked: Asked) -> web.StreamResponse:
        return web.json_response(document, status=status, headers=headers)

    return mood


async def reset(asked: Asked) -> web.StreamResponse | None:
    """A mood: the connection breaks."""
    if asked.request.transport is not None:
        asked.request.transport.abort()
    await asyncio.sleep(0)
    return None


def delay(seconds: float) -> Mood:
    """A mood: the usual answers, late."""

    async def mood(_asked: Asked) -> None:
        await asyncio.sleep(seconds)

    return mood


async def drip(asked: Asked) -> web.StreamResponse:
    """A mood: an answer that comes byte by byte, and never ends."""
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(asked.request)
    with suppress(ConnectionError):
        while True:
            await answer.write(b" ")
            await asyncio.sleep(0.1)
    return answer


def _read(request: web.BaseRequest) -> Asked:
    query = parse_qs(request.query_string)
    about = next((query[name][0] for name in ("id", "bvid", "containerid", "keyword") if name in query), "")
    cookies = dict(part.strip().partition("=")[::2] for part in request.headers.get("Cookie", "").split(";"))
    account = cookies.get("SUB") or cookies.get("SESSDATA") or ""
    return Asked(request.path, about, account, dict(request.headers), request, time.monotonic())


def _describe_post(note_id: str, *, likes: int) -> dict[str, Any]:
    return {
        "id": note_id,
        "mid": note_id,
        "text": "bread and butter",
        "created_at": "Sun Nov 15 10:00:00 +0800 2026",
        "user": {"id": 7, "screen_name": "a baker"},
        "attitudes_count": likes,
    }


def _describe_video(bvid: str) -> dict[str, Any]:
    return {"bvid": bvid, "aid": 1, "title": "bread", "desc": "bread", "owner": {"mid": 7, "name": "a baker"}}
