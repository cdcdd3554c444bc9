"""The stand-in of Weibo's mobile API: search, one post and its comments. Each of Weibo's many refusals is a ready
fault."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from html import escape

from tidings.sandbox.media.comments import PostComment, list_comments
from tidings.sandbox.media.platform import PlatformRequest, SandboxMedia, format_count
from tidings.sandbox.media.posts import Post
from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault, answer_json
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.stand_in import SandboxExchange

SEARCH_PATH = "/api/container/getIndex"
CONFIG_PATH = "/api/config"
SHOW_PATH = "/statuses/show"
EXTEND_PATH = "/statuses/extend"
COMMENTS_PATH = "/comments/hotflow"
OLDER_COMMENTS_PATH = "/api/comments/show"
DEMO_WEIBO_SESSION = "_2Atidings-sandbox-sub-40b9e3c5"
DEMO_WEIBO_COOKIE = f"SUB={DEMO_WEIBO_SESSION}; _T_WM=tidings-sandbox-device"

_PAGE_SIZE = 10
_COMMENTS_IN_PAGE = 20
_MOST_OLDER = 50
_FIRST_ID = 5_000_000_000_000_000
_CONTAINER = "100103type=1&q="
# The container of an author's posts is this and the author's id.
_LIST = "107603"
# A longer text is cut off, except on request.
_LONGEST = 140
_CHINA = timezone(timedelta(hours=8))
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTML = {"Content-Type": "text/html; charset=utf-8"}
_LOGIN_URL = "https://passport.weibo.com/sso/signin?entry=wapsso"


def refuse(ok: int, message: str, **more: object) -> Fault:
    """A refusal of Weibo, as a fault."""
    return Fault(status=200, body=json.dumps({"ok": ok, "msg": message, **more}, ensure_ascii=False))


SESSION_REFUSED = Fault(status=432)
LOGIN_WANTED = refuse(-100, "请先登录", url=_LOGIN_URL)
LOGIN_REDIRECT = Fault(status=302, headers={"Location": _LOGIN_URL})
LOGIN_PAGE = Fault(status=200, headers=_HTML, body="<!DOCTYPE html><html><title>Sina Visitor System</title></html>")
BAD_PARAMETERS = refuse(0, "参数错误")
NOTHING_FOUND = refuse(0, "这里还没有内容", data={"cards": []})
NO_SUCH_POST = refuse(0, "微博不存在或暂无查看权限!", errno="20101")
NO_SUCH_POST_PAGE = Fault(status=200, headers=_HTML, body="<html><p>微博不存在或暂无查看权限!</p></html>")
TOO_OFTEN = refuse(0, "请求过于频繁，歇歇吧", errno="100005")
TEAPOT = Fault(status=418)
ERROR_PAGE = Fault(status=200, headers=_HTML, body="<html><title>502 Bad Gateway</title></html>")
EMPTY_DATA = Fault(status=200, body='{"ok":1,"data":{}}')
EMPTY_BODY = Fault(status=200)
FORBIDDEN = Fault(status=403)
TOO_MANY_REQUESTS = Fault(status=429)
UNAVAILABLE = Fault(status=503)
RESET = Fault(FaultKind.RESET)
DRIP = Fault(FaultKind.DRIP, drip_bytes=1, drip_pause=timedelta(seconds=1))


class SandboxWeibo(SandboxMedia):
    """Weibo with these sessions (values of SUB)."""

    platform = "weibo"
    session_cookie = "SUB"
    demo_session = DEMO_WEIBO_SESSION

    def read_subject(self, path: str, query: Mapping[str, str], body: bytes) -> str:
        if path in (SHOW_PATH, EXTEND_PATH, COMMENTS_PATH, OLDER_COMMENTS_PATH):
            return query.get("id", "")
        container = query.get("containerid", "")
        # Some clients do not escape the query inside containerid, so that its q is a field of the whole query.
        return container.removeprefix(_CONTAINER) if container.startswith(_CONTAINER) else query.get("q", "")

    async def judge(self, exchange: SandboxExchange, asked: PlatformRequest) -> SandboxAnswer:
        if asked.path == CONFIG_PATH:
            account = {"login": True, "uid": "7"} if self.is_logged_in(asked) else {"login": False}
            return answer_json({"ok": 1, "data": {**account, "st": "a1b2c3"}})
        if asked.path == OLDER_COMMENTS_PATH:
            return self._answer_older_comments(asked)
        if asked.path not in (SEARCH_PATH, SHOW_PATH, EXTEND_PATH, COMMENTS_PATH):
            return SandboxAnswer(404, b"<html><title>404</title></html>", _HTML)
        if not self.is_logged_in(asked):
            return answer_json({"ok": -100, "url": _LOGIN_URL})
        if asked.path == COMMENTS_PATH:
            return self._answer_comments(asked)
        if asked.path != SEARCH_PATH:
            return self._answer_show(asked)
        is_list = asked.query.get("containerid", "").startswith(_LIST)
        return self._answer_author(asked) if is_list else self._answer_search(asked)

    def _answer_author(self, asked: PlatformRequest) -> SandboxAnswer:
        """The posts of an author. `since_id` is there as long as more follow."""
        author, page = asked.query.get("containerid", "").removeprefix(_LIST), asked.query.get("page", "1")
        if not author.isdigit() or not page.isdigit():
            return answer_fault(BAD_PARAMETERS)
        found, start = self.library.list_of(int(author)), (int(page) - 1) * _PAGE_SIZE
        shown = [_show_card(post) for post in found[start : start + _PAGE_SIZE]]
        if not shown:
            return answer_fault(NOTHING_FOUND)
        info: dict[str, object] = {"total": len(found)}
        if start + _PAGE_SIZE < len(found):
            info["since_id"] = _FIRST_ID + start
        return answer_json({"ok": 1, "data": {"cards": shown, "cardlistInfo": info}})

    def _answer_search(self, asked: PlatformRequest) -> SandboxAnswer:
        page = asked.query.get("page", "1")
        if not asked.query.get("containerid", "").startswith("100103type=1") or not page.isdigit():
            return answer_fault(BAD_PARAMETERS)
        found = self.library.search(asked.about)
        start = (int(page) - 1) * _PAGE_SIZE
        shown = [_show_card(post) for post in found[start : start + _PAGE_SIZE]]
        if not shown:
            return answer_fault(NOTHING_FOUND)
        following = int(page) + 1 if start + _PAGE_SIZE < len(found) else None
        # As on the real platform, the first card is a group, and the second is not a post.
        group = {"card_type": 11, "card_group": [shown[0], {"card_type": 4, "desc": "相关搜索"}]}
        cards = [group, {"card_type": 8, "desc": "广告"}, *shown[1:]]
        return answer_json(
            {"ok": 1, "data": {"cards": cards, "cardlistInfo": {"page": following, "total": len(found)}}}
        )

    def _answer_comments(self, asked: PlatformRequest) -> SandboxAnswer:
        """A page of comments. The next one is named by `max_id` and `max_id_type`, which changes on the way."""
        post = self.library.find(read_post(asked.about))
        found = [] if post is None else list_comments(post)
        marks = {name: asked.query.get(name, "0") for name in ("max_id", "max_id_type")}
        if not all(mark.isdecimal() for mark in marks.values()) or asked.query.get("mid") != asked.about:
            return answer_fault(BAD_PARAMETERS)
        start = int(marks["max_id"])
        shown = [_show_comment(each) for each in found[start : start + _COMMENTS_IN_PAGE]]
        if not shown or bool(start) != (marks["max_id_type"] == "1"):
            return answer_json({"ok": 0, "msg": "快来发表你的评论吧"})
        following = start + _COMMENTS_IN_PAGE if start + _COMMENTS_IN_PAGE < len(found) else 0
        page = {"data": shown, "max_id": following, "max_id_type": 1, "total_number": len(found)}
        return answer_json({"ok": 1, "data": page})

    def _answer_older_comments(self, asked: PlatformRequest) -> SandboxAnswer:
        """Fewer comments in numbered pages, also without a login."""
        post, page = self.library.find(read_post(asked.about)), asked.query.get("page", "1")
        found = [] if post is None else list_comments(post)[:_MOST_OLDER]
        start = (int(page) - 1) * _PAGE_SIZE if page.isdecimal() else len(found)
        shown = [_show_comment(each) for each in found[start : start + _PAGE_SIZE]]
        if not shown:
            return answer_json({"ok": 0, "msg": "暂无数据"})
        return answer_json({"ok": 1, "data": {"data": shown, "max": -(-len(found) // _PAGE_SIZE)}})

    def _answer_show(self, asked: PlatformRequest) -> SandboxAnswer:
        post = self.library.find(read_post(asked.about))
        if post is None:
            return answer_fault(NO_SUCH_POST)
        if asked.path == EXTEND_PATH:
            return answer_json({"ok": 1, "data": {"longTextContent": _write_text(post, whole=True)}})
        return answer_json({"ok": 1, "data": _show_post(post)})


def name_post(number: int) -> str:
    """The id of a post."""
    return str(_FIRST_ID + number)


def read_post(text: str) -> int:
    """The number of a post, from its id or bid."""
    if text.startswith("Sb") and text[2:].isdigit():
        return int(text[2:])
    return int(text) - _FIRST_ID if text.isascii() and text.isdigit() else 0


def format_timestamp(timestamp: datetime) -> str:
    """A timestamp in Weibo's format, `Tue Sep 22 10:00:00 +0800 2026`, in English on every machine."""
    local = timestamp.astimezone(_CHINA)
    return f"{_DAYS[local.weekday()]} {_MONTHS[local.month - 1]} {local:%d %H:%M:%S} +0800 {local.year:04d}"


def _show_card(post: Post) -> dict[str, object]:
    return {"card_type": 9, "mblog": _show_post(post), "scheme": f"https://m.weibo.cn/status/Sb{post.number:07d}"}


def _write_text(post: Post, *, whole: bool) -> str:
    emoji = '<span class="url-icon"><img alt=[笑而不语] src="https://h5.sinaimg.cn/m/emoticon/1.png" /></span>'
    topic = f'<a href="https://m.weibo.cn/search">#{escape(post.tags[0])}#</a>' if post.tags else ""
    text = f"{escape(post.title)}<br />{escape(post.text).replace(chr(10), '<br />')}{emoji}{topic}"
    if whole or len(post.text) <= _LONGEST:
        return text
    return f'{escape(post.text[:_LONGEST])}...<a href="/status/{name_post(post.number)}">全文</a>'


def _show_comment(comment: PostComment) -> dict[str, object]:
    return {
        "id": str(comment.number),
        "mid": str(comment.number),
        "created_at": format_timestamp(comment.published),
        "text": f"{escape(comment.text)}<br />",
        "source": f"来自{comment.place}",
        "like_count": comment.likes,
        "total_number": len(comment.replies),
        "user": {"id": comment.reader_id, "screen_name": comment.reader},
        "comments": [_show_comment(each) for each in comment.replies] or False,
    }


def _show_post(post: Post) -> dict[str, object]:
    picture = f"https://wx1.sinaimg.cn/large/{post.number}.jpg"
    return {
        "id": name_post(post.number),
        "mid": name_post(post.number),
        "bid": f"Sb{post.number:07d}",
        "text": _write_text(post, whole=False),
        "isLongText": len(post.text) > _LONGEST,
        "created_at": format_timestamp(post.published),
        "user": {"id": post.author_id, "screen_name": post.author},
        "reposts_count": post.shares,
        "comments_count": post.comments,
        "attitudes_count": format_count(post.likes) if post.likes >= 10_000 else post.likes,
        "pics": [{"url": picture.replace("large", "orj360"), "large": {"url": picture}}],
        "region_name": "发布于 浙江",
    }
