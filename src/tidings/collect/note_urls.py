"""Finds platform and id of a note in a URL that a person copied from a browser. Pure."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tidings.core.net.addresses import MAX_URL_LENGTH

_BILIBILI: Final = re.compile(r"/(BV[0-9A-Za-z]{10})(?:/|$)")
_WEIBO: Final = re.compile(r"/([0-9A-Za-z]{5,32})/?$")
_XIAOHONGSHU: Final = re.compile(r"/([0-9a-f]{24})/?$")
_SHORT_HOSTS: Final = frozenset({"b23.tv", "xhslink.com", "t.cn"})


class NoteUrlError(ValueError):
    """The URL is not that of a note; the message says what to do."""


@dataclass(frozen=True, slots=True)
class NoteAddress:
    """A note on a platform."""

    platform: str
    note_id: str
    # Contains everything that `detail` needs.
    url: str


def find_note(url: str) -> NoteAddress:
    """The note at this address: of Bilibili, Weibo or Xiaohongshu by its host, else a page of the open web.

    Raises NoteUrlError.
    """
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").lower()
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not host or len(url) > MAX_URL_LENGTH or not url.isprintable():
        raise NoteUrlError("it must be the http(s) address of a note")
    if host in _SHORT_HOSTS:
        raise NoteUrlError("it is a short link; open it and copy the address that the browser shows then")
    if _is_of(host, "bilibili.com"):
        note_id = _find(_BILIBILI, parts.path, "a video, such as https://www.bilibili.com/video/BV…")
        return NoteAddress("bilibili", note_id, f"https://www.bilibili.com/video/{note_id}")
    if _is_of(host, "weibo.com") or _is_of(host, "weibo.cn"):
        note_id = _find(_WEIBO, parts.path, "a post, such as https://m.weibo.cn/detail/…")
        return NoteAddress("weibo", note_id, f"https://m.weibo.cn/detail/{note_id}")
    if _is_of(host, "xiaohongshu.com"):
        note_id = _find(_XIAOHONGSHU, parts.path, "a note, such as https://www.xiaohongshu.com/explore/…?xsec_token=…")
        if not parse_qs(parts.query).get("xsec_token"):
            raise NoteUrlError("it lacks xsec_token; copy the whole address from the browser")
        return NoteAddress("xiaohongshu", note_id, url.strip())
    from tidings.collect.crawl.platforms.open_web.web import name_page

    return NoteAddress("web", name_page(url.strip()), url.strip())


def _is_of(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _find(pattern: re.Pattern[str], path: str, example: str) -> str:
    found = pattern.search(path)
    if found is None:
        raise NoteUrlError(f"it is not the address of {example}")
    return found[1]
