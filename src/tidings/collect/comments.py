"""The comment model that all platforms share. Pure: `crawl.platforms` reads comments, `write.comments` stores them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tidings.collect.notes import Author
from tidings.core.clock import parse_timestamp, to_text

# The most comments of each note that a keyword may ask for.
MOST_COMMENTS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """One comment of a note, or a reply to one."""

    # The platform's own id.
    comment_id: str
    # The comment that it replies to; empty for a comment of the note itself.
    parent_id: str = ""
    # Plain text with line breaks.
    text: str
    author: Author = field(default_factory=Author)
    # UTC.
    published_at: datetime | None = None
    # Counts of the platform; None is unknown.
    likes: int | None = None
    replies: int | None = None
    # URLs.
    images: tuple[str, ...] = ()
    # The author's place according to the platform.
    place: str = ""

    def describe(self) -> dict[str, object]:
        """The comment as a JSON object."""
        return {
            "comment_id": self.comment_id,
            "parent_id": self.parent_id,
            "text": self.text,
            "author": {"author_id": self.author.author_id, "name": self.author.name},
            "published_at": None if self.published_at is None else to_text(self.published_at),
            "likes": self.likes,
            "replies": self.replies,
            "images": list(self.images),
            "place": self.place,
        }


def read_comment(described: Mapping[str, Any]) -> Comment:
    """The inverse of `Comment.describe` for a validated object. An invalid date becomes None."""
    names = ("comment_id", "parent_id", "text", "likes", "replies", "place")
    return Comment(
        **{name: described[name] for name in names},
        author=Author(**described["author"]),
        published_at=parse_timestamp(described["published_at"] or ""),
        images=tuple(described["images"]),
    )
