"""The stand-in of Bilibili's web API: the nav answer with the keys of the day, search with a verified signature, one
video and its comments. Each refusal is a ready fault.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from urllib.parse import quote, unquote

from tidings.sandbox.media.comments import PostComment, list_comments
from tidings.sandbox.media.platform import PlatformRequest, SandboxMedia
from tidings.sandbox.media.posts import Post
from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault, answer_json
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.stand_in import SandboxExchange

NAV_PATH = "/x/web-interface/nav"
RENEWAL_PATH = "/x/passport-login/web/cookie/info"
SEARCH_PATH = "/x/web-interface/wbi/search/type"
VIEW_PATH = "/x/web-interface/view"
AUTHOR_PATH = "/x/space/wbi/arc/search"
COMMENTS_PATH = "/x/v2/reply/wbi/main"
DEMO_BILIBILI_SESSION = "tidings-sandbox-sessdata-71c6f2aa"
DEMO_BILIBILI_COOKIE = f"SESSDATA={DEMO_BILIBILI_SESSION}; buvid3=tidings-sandbox-device"

_MOST_RESULTS = 1_000
_COMMENTS_IN_PAGE = 20
_FRESH = timedelta(minutes=10)
# The positions of the 32 characters of the mixed key in the two concatenated keys of the day.
_PLACES = bytes.fromhex("2e2f1202350817200f320a1f3a032d231b2b053121092a131d1c0e270c26290d")
_DROPPED = "!'()*"


def refuse(code: int, message: str, *, status: int = 200) -> Fault:
    """A refusal of Bilibili, as a fault."""
    body = json.dumps({"code": code, "message": message, "ttl": 1}, ensure_ascii=False)
    return Fault(status=status, body=body)


NOT_LOGGED_IN = refuse(-101, "账号未登录")
RISK_CONTROL = refuse(-352, "风控校验失败")
BAD_REQUEST = refuse(-400, "请求错误")
NO_ACCESS = refuse(-403, "访问权限不足")
NO_SUCH_VIDEO = refuse(-404, "啥都木有")
BLOCKED = refuse(-412, "请求被拦截")
BLOCKED_WITH_STATUS = refuse(-412, "request was banned", status=412)
INVISIBLE = refuse(62002, "稿件不可见")
COMMENTS_CLOSED = refuse(12002, "评论区已关闭")
UNDER_REVIEW = refuse(62004, "稿件审核中")
ONLY_FOR_AUTHOR = refuse(62012, "仅UP主自己可见")
V_VOUCHER = Fault(status=200, body='{"code":0,"message":"0","ttl":1,"data":{"v_voucher":"voucher_sandbox"}}')
EMPTY_DATA = Fault(status=200, body='{"code":0,"message":"0","ttl":1,"data":{}}')
EMPTY_BODY = Fault(status=200)
ERROR_PAGE = Fault(
    status=200, headers={"Content-Type": "text/html"}, body="<!doctype html><title>出错啦! - bilibili.com</title>"
)
TOO_MANY_REQUESTS = Fault(status=429)
UNAVAILABLE = Fault(status=503)
RESET = Fault(FaultKind.RESET)
DRIP = Fault(FaultKind.DRIP, drip_bytes=1, drip_pause=timedelta(seconds=1))


class SandboxBilibili(SandboxMedia):
    """Bilibili with these sessions (values of SESSDATA). `now` decides whether a signature is fresh."""

    platform = "bilibili"
    session_cookie = "SESSDATA"
    demo_session = DEMO_BILIBILI_SESSION

    # Whether the web page would renew the sessions now.
    wants_renewal = False
    _day = 0

    def rotate_keys(self) -> None:
        """Start a new day: signatures with the old keys are refused from now on."""
        self._day += 1

    def read_subject(self, path: str, query: Mapping[str, str], body: bytes) -> str:
        return next((query[name] for name in ("keyword", "bvid", "aid", "oid", "mid") if query.get(name)), "")

    async def judge(self, exchange: SandboxExchange, asked: PlatformRequest) -> SandboxAnswer:
        routes = {
            NAV_PATH: self._answer_nav,
            RENEWAL_PATH: self._answer_renewal,
            SEARCH_PATH: self._answer_search,
            VIEW_PATH: self._answer_view,
            AUTHOR_PATH: self._answer_author,
            COMMENTS_PATH: self._answer_comments,
        }
        if asked.path not in routes:
            return answer_fault(replace(NO_SUCH_VIDEO, status=404))
        if asked.method != "GET":
            return answer_fault(refuse(-405, "Method Not Allowed", status=405))
        if asked.path != NAV_PATH and not self.is_logged_in(asked):
            return answer_fault(NOT_LOGGED_IN)
        return routes[asked.path](asked)

    def _answer_nav(self, asked: PlatformRequest) -> SandboxAnswer:
        logged_in = self.is_logged_in(asked)
        folder = "https://i0.hdslb.com/bfs/wbi"
        images = {"img_url": f"{folder}/{self._key('img')}.png", "sub_url": f"{folder}/{self._key('sub')}.png"}
        document = {"isLogin": logged_in, "wbi_img": images}
        if logged_in:
            return _accept(document | {"mid": 7, "uname": "沙盒用户"})
        return answer_json({"code": -101, "message": "账号未登录", "ttl": 1, "data": document})

    def _answer_renewal(self, asked: PlatformRequest) -> SandboxAnswer:
        return _accept({"refresh": self.wants_renewal, "timestamp": int(self._now().timestamp() * 1000)})

    def _answer_search(self, asked: PlatformRequest) -> SandboxAnswer:
        if not self._is_signed(asked):
            return _accept({"v_voucher": f"voucher_{self._key('voucher')}"})
        page, size = _read_number(asked, "page", 1), _read_number(asked, "page_size", 20)
        if asked.query.get("search_type") != "video" or not asked.about or not 1 <= page <= 50 or not 1 <= size <= 50:
            return answer_fault(BAD_REQUEST)
        begin, end = _read_number(asked, "pubtime_begin_s", 0), _read_number(asked, "pubtime_end_s", 0)
        found = [
            post for post in self.library.search(asked.about) if not end or begin <= post.published.timestamp() <= end
        ][:_MOST_RESULTS]
        shown = found[(page - 1) * size : page * size]
        document = {"page": page, "pagesize": size, "numResults": len(found), "numPages": -(-len(found) // size)}
        results = {"result": [_show_result(post, asked.about) for post in shown]} if shown else {}
        return _accept(document | results)

    def _answer_author(self, asked: PlatformRequest) -> SandboxAnswer:
        # As on the real platform, a bad signature and a missing Referer are refused without a voucher.
        if not self._is_signed(asked) or "space.bilibili.com" not in asked.headers.get("Referer", ""):
            return answer_fault(NO_ACCESS)
        page, size = _read_number(asked, "pn", 1), _read_number(asked, "ps", 30)
        if page < 1 or not 1 <= size <= 30:
            return answer_fault(BAD_REQUEST)
        found = self.library.list_of(_read_number(asked, "mid", 0))
        shown = [_show_entry(post) for post in found[(page - 1) * size : page * size]]
        return _accept({"list": {"vlist": shown}, "page": {"pn": page, "ps": size, "count": len(found)}})

    def _answer_view(self, asked: PlatformRequest) -> SandboxAnswer:
        number = read_bvid(asked.query.get("bvid", "")) or _read_number(asked, "aid", 0) - _FIRST_AID
        if not ("bvid" in asked.query or "aid" in asked.query):
            return answer_fault(BAD_REQUEST)
        post = self.library.find(number)
        return _accept(_show_video(post)) if post is not None else answer_fault(NO_SUCH_VIDEO)

    def _answer_comments(self, asked: PlatformRequest) -> SandboxAnswer:
        """A page of comments. The first shows the pinned one in two places; `next_offset` names the next page."""
        if not self._is_signed(asked):
            return answer_fault(NO_ACCESS)
        post, start = self.library.find(_read_number(asked, "oid", 0) - _FIRST_AID), _read_offset(asked)
        if post is None or asked.query.get("type") != "1":
            return answer_fault(NO_SUCH_VIDEO)
        if start is None:
            return answer_fault(BAD_REQUEST)
        found = list_comments(post)
        shown = [_show_comment(each, post) for each in found[start : start + _COMMENTS_IN_PAGE]]
        is_end = start + _COMMENTS_IN_PAGE >= len(found)
        place = {} if is_end else {"next_offset": f"offset-{start + _COMMENTS_IN_PAGE}"}
        cursor = {"all_count": len(found), "is_begin": not start, "is_end": is_end, "pagination_reply": place}
        pinned = [] if start else shown[:1]
        top = {"top_replies": pinned, "top": {"upper": pinned[0] if pinned else None}}
        return _accept({"cursor": cursor, "replies": shown or None, **top})

    def _is_signed(self, asked: PlatformRequest) -> bool:
        """Whether `w_rid` is the signature of the query with the keys of the day, and `wts` is recent."""
        pairs = [pair.partition("=") for pair in asked.raw_query.split("&")]
        values = {unquote(name): unquote(value) for name, _, value in pairs}
        signature, timestamp = values.pop("w_rid", ""), values.get("wts", "")
        if not timestamp.isdigit() or abs(self._now() - datetime.fromtimestamp(int(timestamp[:12]), UTC)) > _FRESH:
            return False
        text = "&".join(f"{_encode(name)}={_encode(value)}" for name, value in sorted(values.items()))
        return hashlib.md5((text + self.mixed_key()).encode(), usedforsecurity=False).hexdigest() == signature

    def mixed_key(self) -> str:
        return mix_keys(self._key("img"), self._key("sub"))

    def _key(self, name: str) -> str:
        return hashlib.blake2b(f"{name} of day {self._day}".encode(), digest_size=16).hexdigest()


def mix_keys(img_key: str, sub_key: str) -> str:
    """The key for the signature of a query."""
    both = img_key + sub_key
    return "".join(map(both.__getitem__, _PLACES))


def name_video(number: int) -> str:
    """The bvid of a post."""
    return f"BV1sb{number:07d}"


def read_bvid(bvid: str) -> int:
    """The number of a post. 0 for an unknown bvid."""
    digits = bvid.removeprefix("BV1sb")
    return int(digits) if digits.isdigit() and name_video(int(digits)) == bvid else 0


_FIRST_AID = 900_000_000


def _encode(text: str) -> str:
    return quote("".join(letter for letter in text if letter not in _DROPPED), safe="-_.~")


def _read_number(asked: PlatformRequest, name: str, default: int) -> int:
    text = asked.query.get(name, str(default))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else -1


def _read_offset(asked: PlatformRequest) -> int | None:
    """The first comment of the page that is asked for; None if that is no page."""
    try:
        offset = json.loads(asked.query.get("pagination_str", "{}"))["offset"]
    except (ValueError, KeyError, TypeError):
        return None
    number = str(offset).removeprefix("offset-")
    return 0 if offset == "" else int(number) if number.isdecimal() else None


def _accept(data: object) -> SandboxAnswer:
    return answer_json({"code": 0, "message": "0", "ttl": 1, "data": data})


def _show_result(post: Post, keyword: str) -> dict[str, object]:
    words = escape(keyword, quote=False)
    title = escape(post.title, quote=False).replace(words, f'<em class="keyword">{words}</em>')
    return {
        "type": "video",
        "aid": _FIRST_AID + post.number,
        "bvid": name_video(post.number),
        "title": title,
        "description": post.text,
        "author": post.author,
        "mid": post.author_id,
        "pic": f"//i0.hdslb.com/bfs/archive/{post.number}.jpg",
        "play": post.views,
        "video_review": post.comments,
        "favorites": post.favorites,
        "review": post.comments,
        "tag": ",".join(post.tags),
        "pubdate": int(post.published.timestamp()),
        "duration": "4:2",
    }


def _show_entry(post: Post) -> dict[str, object]:
    """A post in the list of its author."""
    return {
        "aid": _FIRST_AID + post.number,
        "bvid": name_video(post.number),
        "title": post.title,
        "description": post.text,
        "pic": f"//i0.hdslb.com/bfs/archive/{post.number}.jpg",
        "created": int(post.published.timestamp()),
        "length": "04:02",
        "play": post.views,
        "comment": post.comments,
        "video_review": post.comments * 2,
        "author": post.author,
        "mid": post.author_id,
    }


def _show_comment(comment: PostComment, post: Post) -> dict[str, object]:
    return {
        "rpid": comment.number,
        "rpid_str": str(comment.number),
        "oid": _FIRST_AID + post.number,
        "ctime": int(comment.published.timestamp()),
        "like": comment.likes,
        "rcount": len(comment.replies),
        "member": {"mid": str(comment.reader_id), "uname": comment.reader},
        "content": {"message": comment.text},
        "replies": [_show_comment(each, post) for each in comment.replies] or None,
        "reply_control": {"location": f"IP属地：{comment.place}"},
    }


def _show_video(post: Post) -> dict[str, object]:
    return {
        "bvid": name_video(post.number),
        "aid": _FIRST_AID + post.number,
        "title": post.title,
        "desc": post.text,
        "pic": f"http://i0.hdslb.com/bfs/archive/{post.number}.jpg",
        "pubdate": int(post.published.timestamp()),
        "ctime": int(post.published.timestamp()) - 60,
        "duration": 242,
        "owner": {"mid": post.author_id, "name": post.author, "face": "https://i0.hdslb.com/bfs/face/1.jpg"},
        "stat": {
            "view": post.views,
            "danmaku": post.comments * 2,
            "reply": post.comments,
            "favorite": post.favorites,
            "coin": post.likes // 2,
            "share": post.shares,
            "like": post.likes,
        },
        "pages": [{"cid": post.number, "page": 1, "part": post.title}],
    }
