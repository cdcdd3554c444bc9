"""Reads article pages: the text without menus and footers, title, author, date and tags. Pure; `web` fetches."""

import codecs
import re
from typing import Final

from tidings.collect.notes import Author, Note, NoteKind, clean_text, parse_platform_timestamp, shorten_title

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_SEPARATORS: Final = re.compile(r"[,，;；、]")
# No guessing from numbers on the page: no date is better than a wrong one.
_DATES: Final = {"extensive_search": False, "original_date": True, "outputformat": "%Y-%m-%dT%H:%M:%S%z"}


def read_article(body: bytes, *, platform: str, note_id: str, url: str, content_type: str) -> Note | None:
    """The article of a page, or None."""
    from trafilatura import bare_extraction

    page = _decode(body, content_type)
    found = bare_extraction(page, url=url, with_metadata=True, include_comments=False, date_extraction_params=_DATES)
    text = clean_text(getattr(found, "text", None))
    if found is None or not text:
        return None
    image = clean_text(getattr(found, "image", None))
    return Note(
        platform=platform,
        note_id=note_id,
        url=url,
        kind=NoteKind.ARTICLE,
        title=clean_text(getattr(found, "title", None)) or shorten_title(text),
        text=text,
        author=Author(name=clean_text(getattr(found, "author", None))),
        published_at=parse_platform_timestamp(getattr(found, "date", None)),
        tags=_split_tags(getattr(found, "tags", None)),
        images=(image,) if image else (),
    )


def _decode(body: bytes, content_type: str) -> str | bytes:
    """Decode by the header's charset. Without one, return bytes: the parser reads the page's own declaration."""
    named = _CHARSET.search(content_type)
    try:
        return body.decode(codecs.lookup(named[1]).name, "replace") if named else body
    except (LookupError, UnicodeError):
        return body


def _split_tags(tags: object) -> tuple[str, ...]:
    """Split tags: trafilatura returns the whole `keywords` line as one."""
    lines = tags if isinstance(tags, list) else []
    single = (clean_text(tag) for line in lines for tag in _SEPARATORS.split(str(line)))
    return tuple(dict.fromkeys(tag for tag in single if tag))
