"""Xiaohongshu: search for notes, list those of an author, read one and its comments, over the web client's API. The
optional package `xhshow` computes the signature `x-s` from path, body or query, time and the account's own `a1`. Its
browser fingerprints are not used: they would be a disguise. Details and comments need the `xsec_token` of the search,
so a hit's URL contains it.
"""

import json
import re
import secrets
import string
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qs, quote, urlsplit

from tidings.collect.comments import Comment
from tidings.collect.crawl.platforms import fields
from tidings.collect.crawl.platforms.client import (
    BLOCKED,
    NOT_UNDERSTOOD,
    TOO_OFTEN,
    PlatformClient,
    blame_cookie,
    blame_input,
    blame_platform,
    check_cookie,
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
    parse_count,
    shorten_title,
)
from tidings.collect.pasted_cookie import split_header
from tidings.core.net.client import Answer
from tidings.core.secrets.secret import Secret

if TYPE_CHECKING:
    from xhshow import Xhshow

DEFAULT_BASE: Final = "https://edith.xiaohongshu.com"
PAGE_SIZE: Final = 20
AUTHOR_PAGE_SIZE: Final = 30

_SEARCH: Final = "/api/sns/web/v1/search/notes"
_PAGE: Final = "https://www.xiaohongshu.com"
_ME: Final = "/api/sns/web/v2/user/me"
_FEED: Final = "/api/sns/web/v1/feed"
_AUTHOR: Final = "/api/sns/web/v1/user_posted"
_COMMENTS: Final = "/api/sns/web/v2/comment/page"
_IMAGE_FORMATS: Final = "jpg,webp,avif"
_SOURCE: Final = "pc_search"
_ID: Final = re.compile(r"[0-9a-f]{24}")
_CURSOR: Final = re.compile(r"[A-Za-z0-9+/=_-]{0,256}")
# Authors whose cursors are kept.
_MOST_AUTHORS: Final = 1_000
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/=_-]{1,256}")
_NOT_NOTES: Final = frozenset({"rec_query", "hot_query"})
_CAPTCHA: Final = blame_cookie("the platform asks the account for a captcha, which a person must solve", captcha=True)
_GONE: Final = blame_input("the note does not exist, or not for this account")
_OUTDATED: Final = blame_platform("the signature is not accepted; is there a newer xhshow?")
_STATUSES: Final = MappingProxyType({406: _OUTDATED, 461: _CAPTCHA, 471: _CAPTCHA})
_CODES: Final = MappingProxyType(
    {
        -1: _OUTDATED,
        -100: blame_cookie("the session has expired, log in again"),
        -101: blame_cookie("the account is not logged in"),
        -104: blame_cookie("the account has no permission"),
        300011: blame_cookie("the platform calls the account abnormal; a person must check it"),
        300012: BLOCKED,
        300013: TOO_OFTEN,
        300015: _OUTDATED,
        300017: blame_input("the xsec_token is missing or belongs to another note; search for the note again"),
        -510000: _GONE,
        -510001: _GONE,
    }
)
_MISSING: Final = (
    "xiaohongshu needs the optional package xhshow to sign its requests; in the folder of Tidings: "
    ".venv/bin/pip install --no-deps --require-hashes -r requirements/xiaohongshu.txt"
)


class Xiaohongshu:
    """See `Platform`. Raises CrawlError if `xhshow` is not installed."""

    name = "xiaohongshu"
    needs_cookie = True

    def __init__(self, tools: PlatformTools) -> None:
        base = tools.base_url or DEFAULT_BASE
        self._client = PlatformClient(
            tools=tools, platform=self.name, base_url=base, page=_PAGE, statuses=_STATUSES, codes=_CODES
        )
        self._clock = tools.clock
        self._make_signer = _load_signer()
        # The cursors of authors' pages. The platform numbers no pages.
        self._cursors: dict[tuple[str, int], str] = {}

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        question = {
            "keyword": check_search(keyword, page=page),
            "page": page,
            "page_size": PAGE_SIZE,
            "search_id": _make_search_id(),
            "sort": "general",
            "note_type": 0,
        }
        return _read_page(await self._ask(_SEARCH, question, cookie=cookie), page=page)

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        token = _find_token(reference)
        question = {
            "source_note_id": _check_id(reference.note_id),
            "image_formats": ["jpg", "webp", "avif"],
            "extra": {"need_body_topic": 1},
            "xsec_source": _SOURCE,
            "xsec_token": token,
        }
        data = await self._ask(_FEED, question, cookie=cookie)
        card = fields.pick(data, "items", 0, "note_card")
        if not isinstance(card, dict) or fields.text(card, "note_id") != reference.note_id:
            raise self._client.refuse(NOT_UNDERSTOOD, "it describes another note")
        return _read_note(card, token=token)

    async def list_notes(self, author_id: str, *, page: int, cookie: Secret | None) -> SearchPage:
        """Reads the earlier pages again if the cursor of this one is not known."""
        if not _ID.fullmatch(author_id):
            raise CrawlError(ErrorCode.INVALID_INPUT, "the id of a Xiaohongshu author has 24 hexadecimal digits")
        known = max((at for (of, at) in self._cursors if of == author_id and at <= page), default=1)
        for at in range(known, page + 1):
            cursor = self._cursors.get((author_id, at), "")
            found = await self._ask_author(author_id, cursor=cursor, cookie=cookie)
            following = fields.text(found, "cursor")
            has_more = found.get("has_more") is True and following not in ("", cursor)
            if not has_more:
                break
            self._remember(author_id, at + 1, following)
        hits = tuple(hit for item in fields.objects(found, "notes") if (hit := _read_listed(item)) is not None)
        return SearchPage(hits=hits if at == page else (), page=page, has_more=has_more and at == page)

    async def _ask_author(self, author_id: str, *, cursor: str, cookie: Secret | None) -> dict[str, Any]:
        asked = {"num": str(AUTHOR_PAGE_SIZE), "cursor": cursor, "user_id": author_id}
        more = {"image_formats": _IMAGE_FORMATS, "xsec_token": "", "xsec_source": "pc_feed"}
        return await self._read(_AUTHOR, asked | more, cookie=cookie)

    def _remember(self, author_id: str, page: int, cursor: str) -> None:
        if len(self._cursors) >= _MOST_AUTHORS:
            self._cursors.clear()
        self._cursors[author_id, page] = cursor

    async def list_comments(self, reference: NoteReference, *, cursor: str, cookie: Secret | None) -> CommentPage:
        if not _CURSOR.fullmatch(cursor):
            raise CrawlError(ErrorCode.INVALID_INPUT, "the cursor is not one of Xiaohongshu's comments")
        asked = {"note_id": _check_id(reference.note_id), "cursor": cursor, "top_comment_id": ""}
        asked |= {"image_formats": _IMAGE_FORMATS, "xsec_token": _find_token(reference)}
        data = await self._read(_COMMENTS, asked, cookie=cookie)
        following = fields.text(data, "cursor")
        has_more = data.get("has_more") is True and following not in ("", cursor)
        found = {comment.comment_id: comment for comment in _find_comments(data)}
        return CommentPage(comments=tuple(found.values()), cursor=following if has_more else None)

    async def _read(self, path: str, parameters: Mapping[str, str], *, cookie: Secret | None) -> dict[str, Any]:
        """The data of a successful answer to a GET. The query is sent exactly as it is signed."""
        headers = self._sign(path, parameters, cookie=cookie, method="GET")
        query = "&".join(f"{name}={quote(value, safe=',')}" for name, value in parameters.items())
        return self._read_data(await self._client.ask(path, cookie=cookie, query=query, headers=headers))

    async def _ask(self, path: str, question: Mapping[str, object], *, cookie: Secret | None) -> dict[str, Any]:
        """The data of a successful answer. Raises CrawlError."""
        headers = self._sign(path, question, cookie=cookie, method="POST")
        body = json.dumps(question, separators=(",", ":"), ensure_ascii=False).encode()
        return self._read_data(await self._client.ask(path, cookie=cookie, body=body, headers=headers))

    async def check_session(self, cookie: Secret) -> SessionInfo:
        data = await self._read(_ME, {}, cookie=cookie)
        # Without a login the platform answers as for a guest.
        if data.get("guest") is not False:
            return SessionInfo(is_logged_in=False)
        name, number = fields.text(data, "nickname"), fields.text(data, "user_id")
        return SessionInfo(is_logged_in=True, account_id=number, account_name=name)

    def _read_data(self, answer: Answer) -> dict[str, Any]:
        document = self._client.read_object(answer)
        code, data = document.get("code"), document.get("data")
        if code != 0 or document.get("success") is False:
            raise self._client.refuse_code(code)
        return self._client.check_data(data)

    def _sign(
        self, path: str, question: Mapping[str, object], *, cookie: Secret | None, method: Literal["GET", "POST"]
    ) -> dict[str, str]:
        """The signature of a request, over its path and its body or query."""
        a1 = split_header(check_cookie(cookie, platform=self.name)).get("a1")
        if not a1:
            raise self._client.refuse(blame_cookie("the cookie has no a1"), "nothing was sent")
        signer, now = self._make_signer(), self._clock.now().timestamp()
        signature = signer.sign_xs(method, path, a1, payload=dict(question), timestamp=now)
        return {"x-s": signature, "x-t": str(signer.get_x_t(now))}


def _load_signer() -> "type[Xhshow]":
    try:
        from xhshow import Xhshow
    except ImportError:
        raise CrawlError(ErrorCode.PLATFORM_ERROR, _MISSING) from None
    return Xhshow


def _make_search_id() -> str:
    return "".join(secrets.choice(string.digits + string.ascii_lowercase) for _ in range(21))


def _check_id(note_id: str) -> str:
    if not _ID.fullmatch(note_id):
        raise CrawlError(ErrorCode.INVALID_INPUT, "a Xiaohongshu note id has 24 hexadecimal digits")
    return note_id


def _find_token(reference: NoteReference) -> str:
    """The token of the request, or of its URL."""
    token = reference.xsec_token or _read_token(reference.url or "")
    if not _TOKEN.fullmatch(token):
        rule = "a Xiaohongshu note needs the xsec_token or the URL of the search that found it"
        raise CrawlError(ErrorCode.INVALID_INPUT, rule)
    return token


def _read_token(url: str) -> str:
    try:
        # A plus sign in a query means a space, but people paste tokens into URLs unescaped.
        return parse_qs(urlsplit(url).query.replace("+", "%2B")).get("xsec_token", [""])[0]
    except ValueError:
        return ""


def _read_page(data: dict[str, Any], *, page: int) -> SearchPage:
    items = (item for item in fields.objects(data, "items") if item.get("model_type") not in _NOT_NOTES)
    hits = tuple(hit for item in items if (hit := _read_hit(item)) is not None)
    return SearchPage(hits=hits, page=page, has_more=data.get("has_more") is True)


def _read_hit(item: dict[str, Any]) -> Hit | None:
    note_id, token = fields.text(item, "id"), fields.text(item, "xsec_token")
    if not _ID.fullmatch(note_id) or "note_card" not in item:
        return None
    title = fields.text(item, "note_card", "display_title")
    url = _locate(note_id, token=token)
    return Hit(platform=Xiaohongshu.name, note_id=note_id, url=url, title=title, xsec_token=token or None)


def _read_listed(item: dict[str, Any]) -> Hit | None:
    """A note in the list of its author."""
    note_id, token = fields.text(item, "note_id"), fields.text(item, "xsec_token")
    if not _ID.fullmatch(note_id):
        return None
    url, title = _locate(note_id, token=token), fields.text(item, "display_title")
    return Hit(platform=Xiaohongshu.name, note_id=note_id, url=url, title=title, xsec_token=token or None)


def _find_comments(data: dict[str, Any]) -> Iterator[Comment]:
    """Comments of the note, each followed by the replies that come with it."""
    for root in fields.objects(data, "comments"):
        for item in (root, *fields.objects(root, "sub_comments")):
            if comment_id := fields.text(item, "id"):
                yield _read_comment(item, comment_id, parent_id="" if item is root else fields.text(root, "id"))


def _read_comment(item: dict[str, Any], comment_id: str, *, parent_id: str) -> Comment:
    images = (fields.text(each, "url_default") for each in fields.objects(item, "pictures"))
    return Comment(
        comment_id=comment_id,
        parent_id=parent_id,
        text=fields.text(item, "content"),
        author=Author(
            author_id=fields.text(item, "user_info", "user_id"),
            name=fields.text(item, "user_info", "nickname"),
        ),
        published_at=fields.timestamp(item, "create_time"),
        likes=fields.count(item, "like_count"),
        replies=fields.count(item, "sub_comment_count"),
        images=tuple(url for url in images if url),
        place=fields.text(item, "ip_location"),
    )


def _read_note(card: dict[str, Any], *, token: str) -> Note:
    note_id = fields.text(card, "note_id")
    text = fields.text(card, "desc").replace("[话题]#", "")
    images = (fields.text(image, "url_default") for image in fields.objects(card, "image_list"))
    return Note(
        platform=Xiaohongshu.name,
        note_id=note_id,
        url=_locate(note_id, token=token),
        kind=NoteKind.VIDEO if card.get("type") == "video" else NoteKind.IMAGES,
        title=fields.text(card, "title") or shorten_title(text),
        text=text,
        author=Author(author_id=fields.text(card, "user", "user_id"), name=fields.text(card, "user", "nickname")),
        published_at=fields.timestamp(card, "time"),
        updated_at=fields.timestamp(card, "last_update_time"),
        counts=_read_counts(card.get("interact_info")),
        tags=tuple(tag for item in fields.objects(card, "tag_list") if (tag := fields.text(item, "name"))),
        images=tuple(url for url in images if url),
        place=fields.text(card, "ip_location"),
    )


def _read_counts(info: object) -> Counts:
    return Counts(
        likes=fields.count(info, "liked_count"),
        comments=fields.count(info, "comment_count"),
        shares=parse_count(fields.pick(info, "share_count") or fields.pick(info, "shared_count")),
        favorites=fields.count(info, "collected_count"),
    )


def _locate(note_id: str, *, token: str) -> str:
    query = f"?xsec_token={quote(token, safe='')}&xsec_source={_SOURCE}" if token else ""
    return f"https://www.xiaohongshu.com/explore/{note_id}{query}"
