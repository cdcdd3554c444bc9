"""Bilibili: search for videos, list those of an author, read one and its comments, over the web client's API. All
requests but that for a video are signed (`wbi`). The keys for it are fetched with the caller's cookie and kept for an
hour; after a refused signature they are fetched again.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from types import MappingProxyType
from typing import Any, Final

from tidings.collect.comments import Comment
from tidings.collect.crawl.platforms import fields
from tidings.collect.crawl.platforms.client import (
    BLOCKED,
    NOT_UNDERSTOOD,
    SOFT_BLOCK,
    TOO_OFTEN,
    PlatformClient,
    blame_cookie,
    blame_input,
    blame_platform,
    decode_body,
)
from tidings.collect.crawl.platforms.protocol import (
    CommentPage,
    Hit,
    NoteReference,
    PlatformTools,
    SearchPage,
    SearchPeriod,
    SessionInfo,
    check_search,
)
from tidings.collect.crawl.platforms.wbi import WbiKey
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import (
    Author,
    Counts,
    Note,
    NoteKind,
)
from tidings.core.secrets.secret import Secret

DEFAULT_BASE: Final = "https://api.bilibili.com"
_PASSPORT: Final = "https://passport.bilibili.com"
_PAGE: Final = "https://www.bilibili.com"
_SPACE: Final = "https://space.bilibili.com"
PAGE_SIZE: Final = 20
AUTHOR_PAGE_SIZE: Final = 30
_SEARCH: Final = "/x/web-interface/wbi/search/type"
_AUTHOR: Final = "/x/space/wbi/arc/search"
_VIEW: Final = "/x/web-interface/view"
_COMMENTS: Final = "/x/v2/reply/wbi/main"
# With these codes Bilibili refuses a bad signature, so the next try needs new keys.
_PLAIN_REFUSALS: Final = frozenset({_AUTHOR, _COMMENTS})

_MOST_PAGES: Final = 50
_CHINA: Final = timezone(timedelta(hours=8))
# Any time of publication: from before the platform existed until far in the future.
_FIRST_SECOND: Final = 1
_LAST_SECOND: Final = 4_102_416_000
_KEY_LIFETIME: Final = timedelta(hours=1)
# A year, in seconds. A longer duration is an error of the platform.
_LONGEST_SECONDS: Final = 365 * 86_400
_BVID: Final = re.compile(r"BV[0-9A-Za-z]{10}")
_MID: Final = re.compile(r"[1-9][0-9]{0,18}")
_AID: Final = re.compile(r"av([1-9][0-9]{0,18})", re.IGNORECASE)
# A cursor of comments: the video's number, and the platform's own cursor.
_CURSOR: Final = re.compile(r"([1-9][0-9]{0,18}) (\S{1,4000})")
_COMMENTS_CLOSED: Final = 12002
_CODES: Final = MappingProxyType(
    {
        -101: blame_cookie("the account is not logged in"),
        -102: blame_cookie("the account is banned"),
        -352: SOFT_BLOCK,
        -400: blame_input("the request was refused as wrong"),
        -403: blame_platform("access is refused"),
        -404: blame_input("there is no such video"),
        -401: SOFT_BLOCK,
        -412: BLOCKED,
        -503: blame_platform("the service is overloaded"),
        -509: TOO_OFTEN,
        -799: TOO_OFTEN,
        12009: blame_input("the video has no comments of this kind"),
        62002: blame_input("the video is not visible"),
        62004: blame_input("the video is under review"),
        62012: blame_input("only its author can see the video"),
    }
)


@dataclass(frozen=True, slots=True)
class _HeldKey:
    key: WbiKey
    until: datetime


class Bilibili:
    """See `Platform`."""

    name = "bilibili"
    needs_cookie = True

    def __init__(self, tools: PlatformTools) -> None:
        base = tools.base_url or DEFAULT_BASE
        self._client = PlatformClient(tools=tools, platform=self.name, base_url=base, page=_PAGE, codes=_CODES)
        self._passport = replace(self._client, base_url=tools.base_url or _PASSPORT)
        self._clock = tools.clock
        self._held: _HeldKey | None = None
        self._fetching = asyncio.Lock()

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        return await self.search_period(keyword, period=SearchPeriod(), page=page, cookie=cookie)

    async def search_period(
        self, keyword: str, *, period: SearchPeriod, page: int, cookie: Secret | None
    ) -> SearchPage:
        asked = check_search(keyword, page=page, most_pages=_MOST_PAGES)
        parameters = {"search_type": "video", "keyword": asked, "page": str(page), "page_size": str(PAGE_SIZE)}
        parameters |= _name_period(period)
        return _read_page(await self._ask_signed(_SEARCH, parameters, cookie=cookie), page=page)

    async def list_notes(self, author_id: str, *, page: int, cookie: Secret | None) -> SearchPage:
        if not _MID.fullmatch(author_id):
            raise CrawlError(ErrorCode.INVALID_INPUT, "the id of a Bilibili author is a number")
        parameters = {"mid": author_id, "pn": str(page), "ps": str(AUTHOR_PAGE_SIZE), "order": "pubdate", "tid": "0"}
        space = replace(self._client, page=f"{_SPACE}/{author_id}")
        return _read_author_page(await self._ask_signed(_AUTHOR, parameters, cookie=cookie, client=space), page=page)

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        data = await self._ask(_VIEW, query=_name_video(reference.note_id), cookie=cookie)
        self._check_block(data)
        note = _read_note(data)
        if note is None or not _is_named(reference.note_id, bvid=note.note_id, aid=fields.text(data, "aid")):
            raise self._client.refuse(NOT_UNDERSTOOD, "it describes another video")
        return note

    async def list_comments(self, reference: NoteReference, *, cursor: str, cookie: Secret | None) -> CommentPage:
        number, offset = await self._find_place(reference, cursor, cookie=cookie)
        asked = {"oid": number, "type": "1", "mode": "3", "pagination_str": json.dumps({"offset": offset})}
        data = await self._ask_signed(_COMMENTS, asked, cookie=cookie, nothing=_COMMENTS_CLOSED)
        following = fields.text(data, "cursor", "pagination_reply", "next_offset")
        is_end = fields.pick(data, "cursor", "is_end") is not False or following in ("", offset)
        # The first page lists pinned comments twice, and a later page may repeat them.
        found = {comment.comment_id: comment for comment in _find_comments(data)}
        return CommentPage(comments=tuple(found.values()), cursor=None if is_end else f"{number} {following}")

    async def _find_place(self, reference: NoteReference, cursor: str, *, cookie: Secret | None) -> tuple[str, str]:
        """The number of the video, by which comments are requested, and the platform's cursor."""
        if place := _CURSOR.fullmatch(cursor):
            return place[1], place[2]
        if cursor:
            raise CrawlError(ErrorCode.INVALID_INPUT, "the cursor is not one of Bilibili's comments")
        if number := _AID.fullmatch(reference.note_id):
            return number[1], ""
        data = await self._ask(_VIEW, query=_name_video(reference.note_id), cookie=cookie)
        self._check_block(data)
        found = fields.text(data, "aid")
        if not found.isdecimal() or fields.text(data, "bvid") != reference.note_id:
            raise self._client.refuse(NOT_UNDERSTOOD, "it describes another video")
        return found, ""

    async def check_session(self, cookie: Secret) -> SessionInfo:
        answer = self._client.read_object(await self._client.ask("/x/web-interface/nav", cookie=cookie))
        data = answer.get("data")
        if fields.pick(data, "isLogin") is not True:
            if answer.get("code") in (0, -101):
                return SessionInfo(is_logged_in=False)
            raise self._client.refuse_code(answer.get("code"))
        return SessionInfo(
            is_logged_in=True,
            account_id=fields.text(data, "mid"),
            account_name=fields.text(data, "uname"),
            wants_renewal=await self._wants_renewal(cookie),
        )

    async def _wants_renewal(self, cookie: Secret) -> bool:
        """Whether the web page would renew the session now; False if the platform does not say."""
        try:
            answer = await self._passport.ask("/x/passport-login/web/cookie/info", cookie=cookie)
            return fields.pick(self._passport.read_object(answer), "data", "refresh") is True
        except CrawlError:
            return False

    async def _ask_signed(
        self,
        path: str,
        parameters: dict[str, str],
        *,
        cookie: Secret | None,
        client: PlatformClient | None = None,
        nothing: int | None = None,
    ) -> dict[str, Any]:
        """The data of a successful answer to a signed request. The code `nothing` counts as success without data."""
        key = await self._find_key(cookie)
        query = key.sign(parameters, at=self._clock.now())
        try:
            data = await self._ask(path, query=query, cookie=cookie, client=client, nothing=nothing)
        except CrawlError:
            self._held = None if path in _PLAIN_REFUSALS else self._held
            raise
        if "v_voucher" in data:
            # The keys change daily. If a new fetch returns the same keys, the platform refuses the account.
            fresh = await self._find_key(cookie, instead_of=key)
            if fresh != key:
                query = fresh.sign(parameters, at=self._clock.now())
                data = await self._ask(path, query=query, cookie=cookie, client=client)
        self._check_block(data)
        return data

    async def _ask(
        self,
        path: str,
        *,
        query: str,
        cookie: Secret | None,
        client: PlatformClient | None = None,
        nothing: int | None = None,
    ) -> dict[str, Any]:
        """The data of a successful answer. Raises CrawlError."""
        answer = await (client or self._client).ask(path, query=query, cookie=cookie)
        if decode_body(answer, platform=self.name).lstrip().startswith(b"<"):
            raise self._client.refuse(BLOCKED, "a page instead of JSON")
        document = self._client.read_object(answer)
        code, data = document.get("code"), document.get("data")
        if nothing is not None and code == nothing:
            return {"code": nothing}
        if code != 0:
            raise self._client.refuse_code(code)
        return self._client.check_data(data)

    def _check_block(self, data: dict[str, Any]) -> None:
        if "v_voucher" in data:
            raise self._client.refuse(SOFT_BLOCK, "v_voucher")

    async def _find_key(self, cookie: Secret | None, *, instead_of: WbiKey | None = None) -> WbiKey:
        """The cached key, or a new one if it is old or was refused (`instead_of`)."""
        async with self._fetching:
            held = self._held
            if held is not None and held.key != instead_of and self._clock.now() < held.until:
                return held.key
            key = await self._fetch_key(cookie)
            self._held = _HeldKey(key, self._clock.now() + _KEY_LIFETIME)
            return key

    async def _fetch_key(self, cookie: Secret | None) -> WbiKey:
        data = await self._ask("/x/web-interface/nav", query="", cookie=cookie)
        self._check_block(data)
        if data.get("isLogin") is not True:
            raise self._client.refuse(_CODES[-101], "isLogin false")
        images = (fields.text(data, "wbi_img", name) for name in ("img_url", "sub_url"))
        key = WbiKey.from_images(*images)
        if key is None:
            raise self._client.refuse(NOT_UNDERSTOOD, "there are no keys to sign with")
        return key


def _name_period(period: SearchPeriod) -> dict[str, str]:
    """The parameters of a period: its first and last second, for days in China's time zone. Bilibili needs both."""
    if period == SearchPeriod():
        return {}
    begin = _FIRST_SECOND if period.since is None else _find_midnight(period.since)
    end = _LAST_SECOND if period.until is None else _find_midnight(period.until) - 1
    return {"pubtime_begin_s": str(begin), "pubtime_end_s": str(end)}


def _find_midnight(day: date) -> int:
    return int(datetime.combine(day, time(), tzinfo=_CHINA).timestamp())


def _name_video(note_id: str) -> str:
    if _BVID.fullmatch(note_id):
        return f"bvid={note_id}"
    if number := _AID.fullmatch(note_id):
        return f"aid={number[1]}"
    raise CrawlError(ErrorCode.INVALID_INPUT, "a Bilibili video id is BV and 10 letters or digits, or av and a number")


def _is_named(note_id: str, *, bvid: str, aid: str) -> bool:
    return note_id == bvid or note_id.lower() == f"av{aid}"


def _read_page(data: dict[str, Any], *, page: int) -> SearchPage:
    found = [_read_hit(item) for item in fields.objects(data, "result") if item.get("type") == "video"]
    return SearchPage(
        hits=tuple(hit for hit in found if hit is not None),
        page=page,
        has_more=page < min(fields.count(data, "numPages") or 0, _MOST_PAGES),
        total=fields.count(data, "numResults"),
    )


def _read_author_page(data: dict[str, Any], *, page: int) -> SearchPage:
    found = [_read_hit(item) for item in fields.objects(data, "list", "vlist")]
    total = fields.count(data, "page", "count")
    return SearchPage(
        hits=tuple(hit for hit in found if hit is not None),
        page=page,
        has_more=page * AUTHOR_PAGE_SIZE < (total or 0),
        total=total,
    )


def _read_hit(item: dict[str, Any]) -> Hit | None:
    bvid = fields.text(item, "bvid")
    if not _BVID.fullmatch(bvid):
        return None
    return Hit(platform=Bilibili.name, note_id=bvid, url=_locate(bvid), title=fields.html(item, "title"))


def _read_note(data: dict[str, Any]) -> Note | None:
    bvid = fields.text(data, "bvid")
    if not _BVID.fullmatch(bvid):
        return None
    cover, seconds = fields.text(data, "pic"), fields.count(data, "duration")
    return Note(
        platform=Bilibili.name,
        note_id=bvid,
        url=_locate(bvid),
        kind=NoteKind.VIDEO,
        title=fields.text(data, "title"),
        text=fields.text(data, "desc"),
        author=Author(author_id=fields.text(data, "owner", "mid"), name=fields.text(data, "owner", "name")),
        published_at=fields.timestamp(data, "pubdate") or fields.timestamp(data, "ctime"),
        counts=_read_counts(data.get("stat")),
        images=(_complete_url(cover),) if cover else (),
        duration=None if seconds is None or seconds > _LONGEST_SECONDS else timedelta(seconds=seconds),
    )


def _find_comments(data: dict[str, Any]) -> Iterator[Comment]:
    """Comments of the video, each followed by the replies that come with it."""
    pinned = fields.pick(data, "top", "upper")
    roots = [*([pinned] if isinstance(pinned, dict) else []), *fields.objects(data, "top_replies")]
    for root in (*roots, *fields.objects(data, "replies")):
        for item in (root, *fields.objects(root, "replies")):
            if comment := _read_comment(item, parent=None if item is root else root):
                yield comment


def _read_comment(item: dict[str, Any], *, parent: dict[str, Any] | None) -> Comment | None:
    comment_id = fields.text(item, "rpid_str") or fields.text(item, "rpid")
    if not comment_id:
        return None
    place = fields.text(item, "reply_control", "location").removeprefix("IP属地：")
    images = (fields.text(each, "img_src") for each in fields.objects(item, "content", "pictures"))
    return Comment(
        comment_id=comment_id,
        parent_id="" if parent is None else fields.text(parent, "rpid_str") or fields.text(parent, "rpid"),
        text=fields.text(item, "content", "message"),
        author=Author(author_id=fields.text(item, "member", "mid"), name=fields.text(item, "member", "uname")),
        published_at=fields.timestamp(item, "ctime"),
        likes=fields.count(item, "like"),
        replies=fields.count(item, "rcount"),
        images=tuple(_complete_url(url) for url in images if url),
        place=place,
    )


def _read_counts(stat: object) -> Counts:
    return Counts(
        views=fields.count(stat, "view"),
        likes=fields.count(stat, "like"),
        comments=fields.count(stat, "reply"),
        shares=fields.count(stat, "share"),
        favorites=fields.count(stat, "favorite"),
        coins=fields.count(stat, "coin"),
        danmaku=fields.count(stat, "danmaku"),
    )


def _complete_url(url: str) -> str:
    """The URL of an image; platforms often omit the scheme."""
    return f"https:{url}" if url.startswith("//") else url


def _locate(bvid: str) -> str:
    return f"https://www.bilibili.com/video/{bvid}"
