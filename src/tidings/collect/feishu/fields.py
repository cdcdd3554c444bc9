"""What a row looks like in Feishu: the fields of each table with their types, and a row as their values. Pure. Moments
are numbers (milliseconds), because Feishu compares its dates by the day alone.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Row

from tidings.collect.notes import Counts, clean_text
from tidings.collect.tables import candidates, sources

KEY_FIELD: Final = "key"
# Whose record it is: of two installations that write to one table, and of people, each has its own.
OWNER_FIELD: Final = "managed_by"
# Half of what a cell holds: an emoji may count as two.
LONGEST_TEXT: Final = 50_000

Cell = str | int | None


class FieldType(IntEnum):
    """Feishu's numbers for the types that are written."""

    TEXT = 1
    NUMBER = 2


class Key(NamedTuple):
    """A row of one of our tables."""

    platform: str
    note_id: str

    @property
    def text(self) -> str:
        return f"{self.platform}:{self.note_id}"


def parse_key(text: str) -> Key | None:
    """The key that a record carries; None for what is none, such as the empty line of a person."""
    platform, colon, note_id = text.partition(":")
    return Key(platform, note_id) if colon and platform and note_id else None


_TEXT: Final = FieldType.TEXT
_NUMBER: Final = FieldType.NUMBER
_CANDIDATE_FIELDS: Final = {
    KEY_FIELD: _TEXT,
    "platform": _TEXT,
    "note_id": _TEXT,
    "title": _TEXT,
    "url": _TEXT,
    "status": _TEXT,
    "keyword": _TEXT,
    "retries": _NUMBER,
    "due_at": _NUMBER,
    "last_error_code": _TEXT,
    "last_error": _TEXT,
    "request_id": _TEXT,
    "created_at": _NUMBER,
    "updated_at": _NUMBER,
    OWNER_FIELD: _TEXT,
}
_SOURCE_FIELDS: Final = {
    KEY_FIELD: _TEXT,
    "platform": _TEXT,
    "note_id": _TEXT,
    "title": _TEXT,
    "url": _TEXT,
    "kind": _TEXT,
    "author": _TEXT,
    "published_at": _NUMBER,
    "text": _TEXT,
    "tags": _TEXT,
    **dict.fromkeys(Counts.__slots__, _NUMBER),
    "request_id": _TEXT,
    "collected_at": _NUMBER,
    OWNER_FIELD: _TEXT,
}
FIELDS: Final[Mapping[str, Mapping[str, FieldType]]] = {
    candidates.name: _CANDIDATE_FIELDS,
    sources.name: _SOURCE_FIELDS,
}


def show_candidate(row: Row[Any]) -> dict[str, Cell]:
    return {
        **_show_common(row),
        "status": row.status,
        "keyword": _show_text(row.source_keyword),
        "retries": row.retry_count,
        "due_at": row.due_at,
        "last_error_code": row.last_error_code,
        "last_error": _show_text(row.last_error),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def show_source(row: Row[Any]) -> dict[str, Cell]:
    note = _read_object(row.content)
    counts = note.get("counts")
    counted = counts if isinstance(counts, dict) else {}
    tags = note.get("tags")
    return {
        **_show_common(row),
        "kind": row.kind,
        "author": _show_text(row.author_name),
        "published_at": row.published_at,
        "text": _show_text(note.get("text")),
        "tags": _show_text(", ".join(str(tag) for tag in tags)) if isinstance(tags, list) else None,
        **{name: _show_number(counted.get(name)) for name in Counts.__slots__},
        "collected_at": row.collected_at,
    }


SHOWN: Final[Mapping[str, Callable[[Row[Any]], dict[str, Cell]]]] = {
    candidates.name: show_candidate,
    sources.name: show_source,
}


def drop_empty(fields: Mapping[str, Cell]) -> dict[str, Cell]:
    """A new record is written without what it does not have."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Shown:
    """A row as it stands in Feishu. The digest tells whether there is anything new to show, `size` how long it is."""

    fields: Mapping[str, Cell]
    digest: str
    size: int


def show_row(table_name: str, row: Row[Any], *, owner: str, signature: str) -> Shown:
    """`signature` is that of the fields: one that was made anew is empty, and everything has to be written again."""
    fields = SHOWN[table_name](row) | {OWNER_FIELD: owner}
    written = json.dumps(fields, sort_keys=True, ensure_ascii=False)
    digest = hashlib.blake2b(written.encode(errors="surrogatepass"), digest_size=16, person=b"tidings.mirror")
    digest.update(signature.encode())
    return Shown(fields, digest.hexdigest(), len(written))


def sign_fields(fields: Mapping[str, tuple[int, str]]) -> str:
    """A signature of fields with their types and ids."""
    written = json.dumps(sorted(fields.items())).encode()
    return hashlib.blake2b(written, digest_size=16, person=b"tidings.fields").hexdigest()


def _show_common(row: Row[Any]) -> dict[str, Cell]:
    return {
        # As it is: what is searched for must be what was written.
        KEY_FIELD: Key(row.platform, row.note_id).text,
        "platform": row.platform,
        "note_id": row.note_id,
        "title": _show_text(row.title),
        "url": _show_text(row.note_url),
        "request_id": _show_text(_read_object(row.exec_meta).get("request_id")),
    }


def _show_text(value: object) -> str | None:
    return clean_text(value)[:LONGEST_TEXT] or None


def _show_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
