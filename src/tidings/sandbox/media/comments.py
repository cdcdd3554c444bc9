"""The comments of a post, generated from its number: as many as the post counts, some with a reply, by people with a
name and a place. Each platform shows them in its own format, page by page.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidings.sandbox.media.posts import Post

_READERS = ("小满", "Tea Drinker", "老陈", "一只猫", "Moka")
_PLACES = ("浙江", "北京", "广东")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostComment:
    """One comment, or the reply to one."""

    # Unique on the platform.
    number: int
    text: str
    reader: str
    reader_id: int
    published: datetime
    likes: int
    place: str
    replies: "tuple[PostComment, ...]" = ()


def list_comments(post: Post) -> list[PostComment]:
    """The comments of a post, the most liked first."""
    return [_make_comment(post, place) for place in range(1, post.comments + 1)]


def _make_comment(post: Post, place: int) -> PostComment:
    number = post.number * 100_000 + place * 10
    # Every fourth one has a reply, which names the person that it answers.
    reply = _make(post, number + 1, f"回复 @{_name_reader(number)} ：我也这么想", likes=1) if place % 4 == 0 else None
    text = f"第 {place} 条评论：{post.tags[0] if post.tags else '这个'}不错 & 好看"
    return _make(post, number, text, likes=20_000 // place, replies=() if reply is None else (reply,))


def _make(post: Post, number: int, text: str, *, likes: int, replies: tuple[PostComment, ...] = ()) -> PostComment:
    return PostComment(
        number=number,
        text=text,
        reader=_name_reader(number),
        reader_id=700_000 + number % 1_000,
        published=post.published + timedelta(minutes=number % 10_000),
        likes=likes,
        place=_PLACES[number % len(_PLACES)],
        replies=replies,
    )


def _name_reader(number: int) -> str:
    return f"{_READERS[number % len(_READERS)]}{number % 100}"
