"""Pseudonyms of people: an author's id becomes a keyed hash, and the name its first character.

The same author has the same pseudonym on a platform, so notes can still be counted and grouped by author. Nobody
without the master key can compute it from an id, or find the id by trying all.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass, field, replace

from tidings.collect.comments import Comment
from tidings.collect.notes import Author, Note

# A person whom a comment addresses; platforms end such a name with a space or a colon.
_ADDRESSED = re.compile(r"@([^\s@:：,，。!！?？#]{1,40})")


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """Replaces authors."""

    key: bytes = field(repr=False)

    def hide_author(self, note: Note) -> Note:
        """The note without its author's id and name."""
        return replace(note, author=self._hide(note.platform, note.author))

    def hide_reader(self, platform: str, comment: Comment) -> Comment:
        """The comment without its author's id and name, and without the names of people whom it addresses."""
        text = _ADDRESSED.sub(lambda found: f"@{_mask(found[1])}", comment.text)
        return replace(comment, author=self._hide(platform, comment.author), text=text)

    def _hide(self, platform: str, author: Author) -> Author:
        return Author(author_id=self._hash(platform, author.author_id), name=_mask(author.name))

    def _hash(self, platform: str, author_id: str) -> str:
        if not author_id:
            return ""
        text = f"{platform}:{author_id}".encode(errors="surrogatepass")
        return f"p-{hmac.new(self.key, text, hashlib.sha256).hexdigest()[:24]}"


def _mask(name: str) -> str:
    return f"{name[0]}***" if name else ""
