"""Weibo over the API of its mobile site: search for posts, list those of an author, read one in full and its comments.
A refused session has many answers (432, a redirect to the login, the login page, `ok: -100`); all of them blame the
cookie.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tidings.collect.comments import Comment
from tidings.collect.crawl.platforms import fields
from tidings.collect.crawl.platforms.client import (
    NOT_UNDERSTOOD,
    SOFT_BLOCK,
    TOO_OFTEN,
    PlatformClient,
    blame_cookie,
    blame_input,
    blame_platform,
    decode_body,
    show_code,
)
from tidings.collect.crawl.platforms.protocol import (
    CommentPage,
    Hit,
    NoteReference,
    PlatformTools,
    SearchPage,
    SessionInfo,
    check_search,
)
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import (
    Author,
    Counts,
    Note,
    NoteKind,
    shorten_title,
)
from tidings.collect.pasted_cookie import split_header
from tidings.core.net.client import Answer
from tidings.core.secrets.secret import Secret

DEFAULT_BASE: Final = "https://m.weibo.cn"

_POST: Final = 9
_ID: Final = re.compile(r"[0-9A-Za-z]{5,32}")
# A cursor of comments: the platform's two values, or a page number of the older list.
_CURSOR: Final = re.compile(r"([1-9][0-9]{0,30}) ([0-9]{1,3})|page ([1-9][0-9]{0,5})")
_TOPIC: Final = re.compile(r"#([^#\n]{1,60})#")
_LOGIN: Final = blame_cookie("the session is refused, log in again")
_GONE: Final = blame_input("the post does not exist, or not for this account")
_REFUSED: Final = blame_platform("the request was refused")
_STATUSES: Final = MappingProxyType({302: _LOGIN, 418: TOO_OFTEN, 432: _LOGIN})
_NOTHING_FOUND: Final = "这里还没有内容"
_ASKED_TOO_OFTEN: Final = ("请求频率过高", "请求过于频繁")
_NO_SUCH_POST: Final = "微博不存在或暂无查看权限"
_LOGIN_PAGE: Final = (b"passport.weibo", b"Sina Visitor System", "登录".encode())


class Weibo:
    """See `Platform`."""

    name = "weibo"
    needs_cookie = True

    def __init__(self, tools: PlatformTools) -> None:
        base = tools.base_url or DEFAULT_BASE
        self._client = PlatformClient(
            tools=tools, platform=self.name, base_url=base, statuses=_STATUSES, page=DEFAULT_BASE
        )

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        asked = check_search(keyword, page=page)
        container = quote(f"100103type=1&q={asked}", safe="")
        return await self._read_cards(f"containerid={container}&page_type=searchall&page={page}", page, cookie)

    async def list_notes(self, author_id: str, *, page: int, cookie: Secret | None) -> SearchPage:
        if not author_id.isdecimal():
            raise CrawlError(ErrorCode.INVALID_INPUT, "the id of a Weibo author is a number")
        query = f"type=uid&value={author_id}&containerid=107603{author_id}&page={page}"
        return await self._read_cards(query, page, cookie)

    async def _read_cards(self, query: str, page: int, cookie: Secret | None) -> SearchPage:
        document = await self._ask("/api/container/getIndex", query=query, cookie=cookie)
        if document.get("ok") == 0 and fields.text(document, "msg").startswith(_NOTHING_FOUND):
            return SearchPage(hits=(), page=page, has_more=False, total=0)
        return _read_page(self._read_data(document), page=page)

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        if not _ID.fullmatch(reference.note_id):
            raise CrawlError(ErrorCode.INVALID_INPUT, "a Weibo post id has 5 to 32 letters or digits")
        document = await self._ask("/statuses/show", query=f"id={reference.note_id}", cookie=cookie)
        if document.get("ok") == 0 and fields.text(document, "msg").startswith(_NO_SUCH_POST):
            raise self._client.refuse(_GONE, "ok 0")
        data = self._read_data(document)
        if reference.note_id not in {fields.text(data, name) for name in ("id", "mid", "bid")}:
            raise self._client.refuse(NOT_UNDERSTOOD, "it describes another post")
        if data.get("isLongText") is True:
            data = data | {"text": await self._read_long_text(_read_id(data), cookie=cookie)}
        return _read_note(data)

    async def list_comments(self, reference: NoteReference, *, cursor: str, cookie: Secret | None) -> CommentPage:
        place = _CURSOR.fullmatch(cursor)
        if cursor and place is None:
            raise CrawlError(ErrorCode.INVALID_INPUT, "the cursor is not one of Weibo's comments")
        number = _find_number(reference)
        if place is not None and place[3]:
            return await self._list_older(number, int(place[3]), cookie=cookie)
        following, kind = (place[1], place[2]) if place is not None else ("", "0")
        query = f"id={number}&mid={number}&max_id_type={kind}" + (f"&max_id={following}" if following else "")
        answer = await self._send("/comments/hotflow", query=query, cookie=cookie, page=number, accept=(200, 403))
        if answer.status == 403:
            # The platform refuses this list for older posts, which have another one.
            return await self._list_older(number, 1, cookie=cookie)
        return self._read_comments(answer, following=following)

    async def _list_older(self, number: str, page: int, *, cookie: Secret | None) -> CommentPage:
        query = f"id={number}&page={page}"
        answer = await self._send("/api/comments/show", query=query, cookie=cookie, page=number)
        read = self._read_comments(answer, following="")
        last = fields.count(self._client.read_object(answer), "data", "max") or 0
        return replace(read, cursor=f"page {page + 1}" if page < last and read.comments else None)

    def _read_comments(self, answer: Answer, *, following: str) -> CommentPage:
        self._check_page(answer)
        document = self._client.read_object(answer)
        message = fields.text(document, "msg")
        if document.get("ok") == 0 and not document.get("data") and not message.startswith(_ASKED_TOO_OFTEN):
            return CommentPage(comments=())
        data = self._read_data(document)
        found = {comment.comment_id: comment for comment in _find_comments(data)}
        next_id, kind = fields.text(data, "max_id"), fields.text(data, "max_id_type") or "0"
        cursor = f"{next_id} {kind}"
        is_end = next_id in ("", "0", following) or _CURSOR.fullmatch(cursor) is None
        return CommentPage(comments=tuple(found.values()), cursor=None if is_end else cursor)

    async def _read_long_text(self, note_id: str, *, cookie: Secret | None) -> str:
        """The whole text of a post that is shown cut off. Raises CrawlError, because a part of a text is not stored."""
        data = self._read_data(await self._ask("/statuses/extend", query=f"id={note_id}", cookie=cookie))
        text = data.get("longTextContent")
        if not isinstance(text, str) or not text:
            raise self._client.refuse(NOT_UNDERSTOOD, "the whole text is missing")
        return text

    async def check_session(self, cookie: Secret) -> SessionInfo:
        data = self._read_data(await self._ask("/api/config", query="", cookie=cookie))
        if data.get("login") is not True:
            return SessionInfo(is_logged_in=False)
        return SessionInfo(is_logged_in=True, account_id=fields.text(data, "uid"))

    async def _ask(self, path: str, *, query: str, cookie: Secret | None) -> dict[str, Any]:
        answer = await self._send(path, query=query, cookie=cookie)
        self._check_page(answer)
        return self._client.read_object(answer)

    async def _send(
        self, path: str, *, query: str, cookie: Secret | None, page: str = "", accept: Collection[int] = (200,)
    ) -> Answer:
        """Send a request as the site's own page does; `page` is the post whose page it is."""
        referer = {"Referer": f"{DEFAULT_BASE}/detail/{page}"} if page else {}
        headers = _name_page(cookie) | referer
        return await self._client.ask(path, query=query, cookie=cookie, headers=headers, accept=accept)

    def _check_page(self, answer: Answer) -> None:
        """Raise the error of an HTML page that came instead of JSON."""
        body = decode_body(answer, platform=self.name).lstrip()
        if not body.startswith(b"<"):
            return
        if _NO_SUCH_POST.encode() in body:
            raise self._client.refuse(_GONE, "a page that says so")
        if any(mark in body for mark in _LOGIN_PAGE):
            raise self._client.refuse(_LOGIN, "a login page")
        raise self._client.refuse(NOT_UNDERSTOOD, "a page instead of JSON")

    def _read_data(self, document: dict[str, Any]) -> dict[str, Any]:
        accepted, data = document.get("ok"), document.get("data")
        if accepted == -100:
            raise self._client.refuse(_LOGIN, "ok -100")
        if accepted == 0 and fields.text(document, "msg").startswith(_ASKED_TOO_OFTEN):
            raise self._client.refuse(TOO_OFTEN, "ok 0")
        if "data" not in document and "url" in document:
            raise self._client.refuse(SOFT_BLOCK, "the address of a captcha")
        if accepted != 1:
            raise self._client.refuse(_REFUSED, f"ok {show_code(accepted)}")
        return self._client.check_data(data)


def _name_page(cookie: Secret | None) -> dict[str, str]:
    """The headers of the mobile page's own requests. Their token comes from the cookie."""
    headers = {"X-Requested-With": "XMLHttpRequest", "MWeibo-Pwa": "1"}
    token = split_header(cookie.reveal()).get("XSRF-TOKEN") if cookie else None
    return headers | ({"X-XSRF-TOKEN": token} if token else {})


def _read_page(data: dict[str, Any], *, page: int) -> SearchPage:
    # A post can appear alone and in a group.
    hits = {hit.note_id: hit for post in _find_posts(data) if (hit := _read_hit(post)) is not None}
    following = [fields.pick(data, "cardlistInfo", name) for name in ("page", "since_id")]
    more = any(each is not None for each in following) if "cardlistInfo" in data else bool(hits)
    return SearchPage(
        hits=tuple(hits.values()), page=page, has_more=more, total=fields.count(data, "cardlistInfo", "total")
    )


def _find_posts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for card in fields.objects(data, "cards"):
        for inner in (card, *fields.objects(card, "card_group")):
            if inner.get("card_type") == _POST and isinstance(post := inner.get("mblog"), dict):
                yield post


def _read_hit(post: dict[str, Any]) -> Hit | None:
    note_id = _read_id(post)
    if not _ID.fullmatch(note_id):
        return None
    title = shorten_title(fields.html(post, "text"))
    return Hit(platform=Weibo.name, note_id=note_id, url=_locate(note_id), title=title)


def _read_note(post: dict[str, Any]) -> Note:
    note_id, text = _read_id(post), fields.html(post, "text")
    images = tuple(url for picture in fields.objects(post, "pics") if (url := _find_picture(picture)))
    return Note(
        platform=Weibo.name,
        note_id=note_id,
        url=_locate(note_id),
        kind=_tell_kind(post, images),
        title=shorten_title(text),
        text=text,
        author=Author(author_id=fields.text(post, "user", "id"), name=fields.text(post, "user", "screen_name")),
        published_at=fields.timestamp(post, "created_at"),
        counts=Counts(
            likes=fields.count(post, "attitudes_count"),
            comments=fields.count(post, "comments_count"),
            shares=fields.count(post, "reposts_count"),
        ),
        tags=tuple(dict.fromkeys(tag.strip() for tag in _TOPIC.findall(text) if tag.strip())),
        images=images,
        place=fields.text(post, "region_name").removeprefix("发布于").strip(),
    )


def _find_number(reference: NoteReference) -> str:
    """The number of a post, by which its comments are requested. The URL of a collected note contains it."""
    for name in (reference.note_id, urlsplit(reference.url or "").path.rpartition("/")[2]):
        if name.isdecimal() and _ID.fullmatch(name):
            return name
    raise CrawlError(ErrorCode.INVALID_INPUT, "comments are read by the number of a Weibo post")


def _find_comments(data: dict[str, Any]) -> Iterator[Comment]:
    """Comments of the post, each followed by the replies that come with it."""
    for root in fields.objects(data, "data"):
        for item in (root, *fields.objects(root, "comments")):
            if comment_id := _read_id(item):
                yield _read_comment(item, comment_id, parent_id="" if item is root else _read_id(root))


def _read_comment(item: dict[str, Any], comment_id: str, *, parent_id: str) -> Comment:
    picture = _find_picture(fields.pick(item, "pic"))
    return Comment(
        comment_id=comment_id,
        parent_id=parent_id,
        text=fields.html(item, "text"),
        author=Author(author_id=fields.text(item, "user", "id"), name=fields.text(item, "user", "screen_name")),
        published_at=fields.timestamp(item, "created_at"),
        likes=fields.count(item, "like_count"),
        replies=fields.count(item, "total_number"),
        images=(picture,) if picture else (),
        place=fields.text(item, "source").removeprefix("来自").strip(),
    )


def _read_id(post: dict[str, Any]) -> str:
    return fields.text(post, "id") or fields.text(post, "mid")


def _find_picture(picture: object) -> str:
    return fields.text(picture, "large", "url") or fields.text(picture, "url")


def _tell_kind(post: dict[str, Any], images: tuple[str, ...]) -> NoteKind:
    if fields.pick(post, "page_info", "type") == "video":
        return NoteKind.VIDEO
    return NoteKind.IMAGES if images else NoteKind.TEXT


def _locate(note_id: str) -> str:
    return f"https://m.weibo.cn/detail/{note_id}"
