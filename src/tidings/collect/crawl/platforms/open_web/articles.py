"""Reads article pages: the text without menus and footers, title, author, date and tags. Pure; `web` fetches.

`web` calls it in a child process, so the service itself never loads the parser.
"""

import re
from typing import Final

from trafilatura import bare_extraction

from tidings.collect.crawl.platforms.open_web.feeds import CHARSET
from tidings.collect.notes import Author, Note, NoteKind, clean_text, parse_platform_timestamp, shorten_title
from tidings.core.charsets import find_charset
from tidings.core.net.addresses import UrlError, join_url, parse_url

_SEPARATORS: Final = re.compile(r"[,，;；、]")
# Do not guess dates from numbers on the page: no date is better than a wrong one.
_DATES: Final = {"extensive_search": False, "original_date": True, "outputformat": "%Y-%m-%dT%H:%M:%S%z"}


# A page may list a million tags.
_MOST_TAGS: Final = 100
_LONGEST_TAGS: Final = 20_000


def describe_article(
    body: bytes, *, platform: str, note_id: str, url: str, content_type: str
) -> dict[str, object] | None:
    """The article of a page as `Note.describe` writes it, or None."""
    note = read_article(body, platform=platform, note_id=note_id, url=url, content_type=content_type)
    return None if note is None else note.describe()


def read_article(body: bytes, *, platform: str, note_id: str, url: str, content_type: str) -> Note | None:
    """The article of a page, or None."""
    page = _decode(body, content_type)
    found = bare_extraction(page, url=url, with_metadata=True, include_comments=False, date_extraction_params=_DATES)
    text = clean_text(getattr(found, "text", None))
    if found is None or not text:
        return None
    image = _find_address(getattr(found, "image", None), page=url)
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
    """Decode by the header's charset. Without a known one, return bytes: the parser guesses it."""
    named = CHARSET.search(content_type)
    charset = find_charset(named[1]) if named else None
    return body if charset is None else body.decode(charset, "replace")


def _find_address(reference: object, *, page: str) -> str:
    """The URL that a page names; empty if it is none of the web."""
    try:
        return join_url(parse_url(page), clean_text(reference)).text if reference else ""
    except UrlError:
        return ""


def _split_tags(tags: object) -> tuple[str, ...]:
    """Split tags: trafilatura returns the whole `keywords` line as one."""
    lines = tags if isinstance(tags, list) else []
    text = "、".join(map(str, lines[:_MOST_TAGS]))[:_LONGEST_TAGS]
    single = (clean_text(tag) for tag in _SEPARATORS.split(text))
    return tuple(dict.fromkeys(tag for tag in single if tag))[:_MOST_TAGS]
