"""Reads values of a platform's JSON at a path of names and indexes. A value that is missing, or of another kind, is
empty or None. Pure.
"""

from datetime import datetime
from typing import Any

from tidings.collect.notes import clean_html, clean_text, parse_count, parse_platform_timestamp


def pick(document: object, *path: str | int) -> Any:
    """The value; None if the path does not exist."""
    for step in path:
        if isinstance(step, int):
            document = document[step] if isinstance(document, list) and len(document) > step else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def objects(document: object, *path: str | int) -> list[dict[str, Any]]:
    """The objects of a list; other values are left out."""
    found = pick(document, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(document: object, *path: str | int) -> str:
    """The plain text."""
    return clean_text(pick(document, *path))


def html(document: object, *path: str | int) -> str:
    """The text of an HTML snippet."""
    return clean_html(pick(document, *path))


def count(document: object, *path: str | int) -> int | None:
    return parse_count(pick(document, *path))


def timestamp(document: object, *path: str | int) -> datetime | None:
    return parse_platform_timestamp(pick(document, *path))
