"""Pseudonyms of people: an author's id becomes a keyed hash, and the name its first character.

The same author has the same pseudonym on a platform, so notes can still be counted and grouped by author. Nobody
without the master key can compute it from an id, or find the id by trying all.
"""

import hashlib
import hmac
from dataclasses import dataclass, field, replace

from tidings.collect.notes import Author, Note


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """Replaces authors."""

    key: bytes = field(repr=False)

    def hide_author(self, note: Note) -> Note:
        """The note without its author's id and name."""
        author = note.author
        hidden = Author(author_id=self._hash(note.platform, author.author_id), name=_mask(author.name))
        return replace(note, author=hidden)

    def _hash(self, platform: str, author_id: str) -> str:
        if not author_id:
            return ""
        text = f"{platform}:{author_id}".encode(errors="surrogatepass")
        return f"p-{hmac.new(self.key, text, hashlib.sha256).hexdigest()[:24]}"


def _mask(name: str) -> str:
    return f"{name[0]}***" if name else ""
