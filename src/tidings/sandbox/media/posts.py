"""The posts of the media platforms: generated from their number, with authors, counts and timestamps. They can be
searched, added, edited and removed, and their counts can grow. Each platform shows them in its own format.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

TOPICS = ("咖啡", "露营", "摄影", "tea", "bread")

_FIRST = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)
_AUTHORS = ("山间小屋", "阿青", "Lighthouse", "面包师老王", "海边的卡片机")


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    number: int
    title: str
    text: str
    author: str
    published: datetime
    tags: tuple[str, ...] = ()
    likes: int = 0
    comments: int = 0
    shares: int = 0
    favorites: int = 0
    views: int = 0

    @property
    def author_id(self) -> int:
        return 10_000 + sum(self.author.encode()) % 997


class PostLibrary:
    """Posts 1 to `count`, about each of the TOPICS in rotation."""

    def __init__(self, count: int = 60) -> None:
        self._posts = {number: _make_post(number) for number in range(1, count + 1)}

    def __iter__(self) -> Iterator[Post]:
        return iter(self._posts.values())

    def find(self, number: int) -> Post | None:
        return self._posts.get(number)

    def search(self, keyword: str) -> list[Post]:
        """The posts whose titles contain the keyword."""
        wanted = keyword.casefold()
        return [post for post in self if wanted in post.title.casefold()]

    def list_of(self, author_id: int) -> list[Post]:
        """The posts of an author, the newest first."""
        return sorted((post for post in self if post.author_id == author_id), key=lambda post: -post.number)

    def add(self, title: str, text: str = "", *, published: datetime = _FIRST) -> Post:
        number = max(self._posts, default=0) + 1
        post = Post(number=number, title=title, text=text, author=_AUTHORS[0], published=published)
        self._posts[number] = post
        return post

    def edit(self, number: int, **fields: Any) -> None:
        """Change fields of a post, as its author or its readers do."""
        self._posts[number] = replace(self._posts[number], **fields)

    def grow(self, count: int) -> None:
        """Every post gets this many more likes, comments, shares and favorites, and ten times as many views."""
        for post in list(self):
            more = {name: getattr(post, name) + count for name in ("likes", "comments", "shares", "favorites")}
            self.edit(post.number, **more, views=post.views + 10 * count)

    def remove(self, number: int) -> None:
        self._posts.pop(number, None)


def _make_post(number: int) -> Post:
    topic = TOPICS[number % len(TOPICS)]
    return Post(
        number=number,
        title=f"{topic} & 生活 第{number}篇",
        text=f"今天说说{topic}：第 {number} 次。\n1 < 2 && 3 > 2，好用吗？",
        author=_AUTHORS[number % len(_AUTHORS)],
        published=_FIRST + timedelta(hours=7 * number),
        tags=(topic, "日常"),
        likes=number * 997,
        comments=number * 13,
        shares=number * 3,
        favorites=number * 101,
        views=number * 20_011,
    )
