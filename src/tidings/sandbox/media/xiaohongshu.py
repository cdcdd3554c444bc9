"""The stand-in of Xiaohongshu's web API: search, authors, one note and its comments. It verifies signatures
(`xiaohongshu_signature`), sessions and `xsec_token`s. Each refusal is a ready fault.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta

from tidings.sandbox.media.comments import PostComment, list_comments
from tidings.sandbox.media.platform import PlatformRequest, SandboxMedia, format_count
from tidings.sandbox.media.posts import Post
from tidings.sandbox.media.xiaohongshu_signature import read_signature
from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault, answer_json
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.stand_in import SandboxExchange, read_object

SEARCH_PATH = "/api/sns/web/v1/search/notes"
ME_PATH = "/api/sns/web/v2/user/me"
FEED_PATH = "/api/sns/web/v1/feed"
AUTHOR_PATH = "/api/sns/web/v1/user_posted"
COMMENTS_PATH = "/api/sns/web/v2/comment/page"
DEMO_XIAOHONGSHU_SESSION = "040069tidings-sandbox-web-session-9d2f"
DEMO_XIAOHONGSHU_COOKIE = (
    f"a1=19a0tidingssandboxdevice0000000000000000000000000000; web_session={DEMO_XIAOHONGSHU_SESSION}"
)

_GETS = (ME_PATH, AUTHOR_PATH, COMMENTS_PATH)
_COMMENTS_IN_PAGE = 10
_FRESH = timedelta(minutes=10)
_VERIFY = {"Verifytype": "124", "Verifyuuid": "sandbox-verify-uuid"}


def refuse(code: int, message: str, *, status: int = 200) -> Fault:
    """A refusal of Xiaohongshu, as a fault."""
    body = json.dumps({"code": code, "success": False, "msg": message}, ensure_ascii=False)
    return Fault(status=status, body=body)


CAPTCHA_461 = Fault(status=461, headers=_VERIFY, body='{"code":0,"success":true,"data":{}}')
CAPTCHA_471 = Fault(status=471, headers=_VERIFY)
ACCOUNT_ABNORMAL = refuse(300011, "当前账号存在异常，请切换账号后重试")
ADDRESS_BLOCKED = refuse(300012, "网络连接异常，请检查网络设置或重启试试")
BAD_PARAMETERS = refuse(-1, "参数错误")
BAD_SIGNATURE = refuse(300015, "浏览器异常，请尝试更换浏览器后重试")
SESSION_EXPIRED = refuse(-100, "登录已过期")
NOT_LOGGED_IN = refuse(-101, "无登录信息，或登录信息为空")
NO_PERMISSION = refuse(-104, "您当前登录的账号没有权限访问")
BAD_LINK = refuse(300017, "访问链接异常")
NOTE_GONE = refuse(-510000, "笔记不存在")
NOTE_UNAVAILABLE = refuse(-510001, "笔记状态异常")
EMPTY_DATA = Fault(status=200, body='{"code":0,"success":true,"msg":"成功","data":{}}')
EMPTY_BODY = Fault(status=200)
ERROR_PAGE = Fault(status=200, headers={"Content-Type": "text/html"}, body="<html><title>小红书</title></html>")
SIGNATURE_REFUSED = Fault(status=406)
TOO_MANY_REQUESTS = Fault(status=429)
UNAVAILABLE = Fault(status=503)
RESET = Fault(FaultKind.RESET)
DRIP = Fault(FaultKind.DRIP, drip_bytes=1, drip_pause=timedelta(seconds=1))


class SandboxXiaohongshu(SandboxMedia):
    """Xiaohongshu with these sessions (values of web_session). `now` decides whether a signature is fresh."""

    platform = "xiaohongshu"
    session_cookie = "web_session"
    demo_session = DEMO_XIAOHONGSHU_SESSION

    def read_subject(self, path: str, query: Mapping[str, str], body: bytes) -> str:
        document = {**read_object(body), **query}
        names = ("keyword", "source_note_id", "note_id", "user_id")
        return next((str(document[name]) for name in names if document.get(name)), "")

    async def judge(self, exchange: SandboxExchange, asked: PlatformRequest) -> SandboxAnswer:
        if asked.path not in (SEARCH_PATH, FEED_PATH, *_GETS):
            return SandboxAnswer(404)
        method = "GET" if asked.path in _GETS else "POST"
        if asked.method != method:
            return SandboxAnswer(405, headers={"Allow": method})
        if not self._is_signed(asked):
            return answer_fault(BAD_SIGNATURE)
        if asked.path == ME_PATH:
            return _accept(_show_account(is_guest=not self.is_logged_in(asked)))
        if self.session_cookie not in asked.cookies:
            return answer_fault(NOT_LOGGED_IN)
        if not self.is_logged_in(asked):
            return answer_fault(SESSION_EXPIRED)
        if asked.path in _GETS:
            return (self._answer_author if asked.path == AUTHOR_PATH else self._answer_comments)(asked.query)
        document = read_object(asked.body)
        return self._answer_search(document) if asked.path == SEARCH_PATH else self._answer_feed(document)

    def _is_signed(self, asked: PlatformRequest) -> bool:
        """Whether `x-s` is the signature of this path, query, body and account, and recent."""
        signed = read_signature(asked.headers.get("x-s", ""))
        path = f"{asked.path}?{asked.raw_query}" if asked.raw_query else asked.path
        if signed is None or not signed.fits(path=path, body=asked.body, a1=asked.cookies.get("a1", "")):
            return False
        return asked.headers.get("x-t", "") == str(signed.milliseconds) and abs(self._now() - signed.at) <= _FRESH

    def _answer_search(self, document: Mapping[str, object]) -> SandboxAnswer:
        page, size = document.get("page"), document.get("page_size")
        if type(page) is not int or type(size) is not int or not document.get("search_id") or page < 1:
            return answer_fault(BAD_PARAMETERS)
        found = self.library.search(str(document.get("keyword", "")))
        start = (page - 1) * size
        items: list[object] = [_show_item(post) for post in found[start : start + size]]
        if not items:
            return _accept({"has_more": False})
        # As on the real platform, suggestions appear among the notes.
        items.insert(1, {"id": "suggestions", "model_type": "rec_query", "rec_query": {"queries": []}})
        return _accept({"has_more": start + size < len(found), "items": items})

    def _answer_author(self, query: Mapping[str, str]) -> SandboxAnswer:
        """A page of an author's notes. The cursor is the last note of the page before."""
        number, cursor, size = query.get("user_id", "").removeprefix("5f"), query.get("cursor", ""), query.get("num")
        if size is None or not size.isdecimal() or not number:
            return answer_fault(BAD_PARAMETERS)
        found = [post for post in self.library if _show_user(post)["user_id"] == query["user_id"]][::-1]
        names = [name_note(post.number) for post in found]
        start = names.index(cursor) + 1 if cursor in names else 0
        shown = found[start : start + int(size)]
        has_more = start + int(size) < len(found)
        last = name_note(shown[-1].number) if has_more else ""
        return _accept({"notes": [_show_listed(post) for post in shown], "cursor": last, "has_more": has_more})

    def _answer_comments(self, query: Mapping[str, str]) -> SandboxAnswer:
        """A page of comments, with the first reply of each."""
        post, cursor = self.library.find(read_note(query.get("note_id", ""))), query.get("cursor", "")
        if post is None:
            return answer_fault(NOTE_GONE)
        if query.get("xsec_token") != make_token(post.number):
            return answer_fault(BAD_LINK)
        found = list_comments(post)
        names = [_name_comment(each) for each in found]
        start = names.index(cursor) + 1 if cursor in names else 0
        shown = found[start : start + _COMMENTS_IN_PAGE]
        has_more = start + _COMMENTS_IN_PAGE < len(found)
        page = {"comments": [_show_comment(each) for each in shown], "user_id": "", "time": 0}
        return _accept({**page, "cursor": _name_comment(shown[-1]) if has_more else "", "has_more": has_more})

    def _answer_feed(self, document: Mapping[str, object]) -> SandboxAnswer:
        note_id = str(document.get("source_note_id", ""))
        post = self.library.find(read_note(note_id))
        if post is None:
            return answer_fault(NOTE_GONE)
        if document.get("xsec_token") != make_token(post.number):
            return answer_fault(NOTE_UNAVAILABLE)
        item = {"id": note_id, "model_type": "note", "note_card": _show_note(post)}
        return _accept({"cursor_score": "", "items": [item], "current_time": int(self._now().timestamp() * 1000)})


def _show_account(*, is_guest: bool) -> dict[str, object]:
    """As on the real platform, a client without a login is a guest with a user id."""
    return {"guest": is_guest, "user_id": "5f00000000000000000000aa", "nickname": "" if is_guest else "沙盒用户"}


def name_note(number: int) -> str:
    """The id of a post."""
    return f"65a0{number:020x}"


def read_note(note_id: str) -> int:
    """The number of a post. 0 for an unknown id."""
    try:
        return int(note_id.removeprefix("65a0"), 16)
    except ValueError:
        return 0


def make_token(number: int) -> str:
    """The xsec_token of a post, as a search gives it."""
    return f"AB{hashlib.blake2b(name_note(number).encode(), digest_size=20).hexdigest()}="


def _accept(data: object) -> SandboxAnswer:
    return answer_json({"code": 0, "success": True, "msg": "成功", "data": data})


def _tell_type(post: Post) -> str:
    return "video" if post.number % 4 == 0 else "normal"


def _show_user(post: Post) -> dict[str, str]:
    return {"user_id": f"5f{post.author_id:022x}", "nickname": post.author, "avatar": "https://sns-avatar.xhscdn.com/1"}


def _show_item(post: Post) -> dict[str, object]:
    card = {
        "display_title": post.title,
        "type": _tell_type(post),
        "user": _show_user(post),
        "interact_info": {"liked_count": format_count(post.likes), "shared_count": format_count(post.shares)},
        "cover": {"url_default": f"https://sns-webpic.xhscdn.com/{post.number}.jpg"},
    }
    token = make_token(post.number)
    return {"id": name_note(post.number), "model_type": "note", "xsec_token": token, "note_card": card}


def _show_listed(post: Post) -> dict[str, object]:
    """A note in the list of its author."""
    card = {"display_title": post.title, "type": _tell_type(post), "user": _show_user(post)}
    info = {"liked_count": format_count(post.likes), "sticky": False}
    return {"note_id": name_note(post.number), "xsec_token": make_token(post.number), **card, "interact_info": info}


def _name_comment(comment: PostComment) -> str:
    return f"65c0{comment.number:020x}"


def _show_comment(comment: PostComment) -> dict[str, object]:
    return {
        "id": _name_comment(comment),
        "content": comment.text,
        "create_time": int(comment.published.timestamp() * 1000),
        "like_count": format_count(comment.likes),
        "ip_location": comment.place,
        "user_info": {"user_id": f"5e{comment.reader_id:022x}", "nickname": comment.reader},
        "sub_comment_count": str(len(comment.replies)),
        "sub_comments": [_show_comment(each) for each in comment.replies],
    }


def _show_note(post: Post) -> dict[str, object]:
    topics = " ".join(f"#{tag}[话题]#" for tag in post.tags)
    published = int(post.published.timestamp() * 1000)
    return {
        "note_id": name_note(post.number),
        "type": _tell_type(post),
        "title": post.title,
        "desc": f"{post.text} {topics}".strip(),
        "time": published,
        "last_update_time": published + 3_600_000,
        "user": _show_user(post),
        "interact_info": {
            "liked_count": format_count(post.likes),
            "collected_count": format_count(post.favorites),
            "comment_count": format_count(post.comments),
            "share_count": format_count(post.shares),
        },
        "image_list": [{"url_default": f"https://sns-webpic.xhscdn.com/{post.number}-{place}.jpg"} for place in (1, 2)],
        "tag_list": [{"name": tag, "type": "topic"} for tag in post.tags],
        "ip_location": "浙江",
    }
