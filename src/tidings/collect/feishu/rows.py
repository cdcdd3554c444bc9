"""The mirrored tables and their rows: fields in Feishu, a row as the values of those fields, and pending changes. Pure.

To mirror a further table, add one `MirroredTable` to `MIRRORED_TABLES`, and its setting. Timestamps are number fields
(milliseconds), because Feishu compares its dates by the day alone.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Row, Table, and_

from tidings.collect.notes import Counts, clean_text
from tidings.collect.tables import candidates, sources

KEY_FIELD: Final = "key"
# Tells our records from those of people and of other installations.
OWNER_FIELD: Final = "managed_by"
# Half of Feishu's limit, because an emoji may count as two.
LONGEST_TEXT: Final = 50_000

# A page of changes has at most this many rows.
_MOST_ROWS: Final = 500

# A cell's value. None is empty.
Cell = str | int | None


class FieldType(IntEnum):
    """Feishu's numbers of the types that the mirror writes."""

    TEXT = 1
    NUMBER = 2


class RowKey(NamedTuple):
    """Identifies a row of a mirrored table."""

    platform: str
    note_id: str

    @property
    def text(self) -> str:
        """The key as the record's key field holds it."""
        return f"{self.platform}:{self.note_id}"


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """A row as Feishu is to show it."""

    fields: Mapping[str, Cell]
    # Changes with the values and with the fields' signature.
    digest: str
    # In characters.
    size: int


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """One of our tables, and how it appears in Feishu."""

    table: Table
    # Name and type of each field.
    fields: Mapping[str, FieldType]
    # The values of a row, without its owner.
    read_cells: Callable[[Row[Any]], dict[str, Cell]]
    # Selects rows by their ids; the caller also selects the platform.
    match_ids: Callable[[Sequence[str]], ColumnElement[bool]]
    # Rows that are read at once. Notes are long.
    block: int

    @property
    def name(self) -> str:
        return self.table.name

    def render(self, row: Row[Any], *, owner: str, signature: str) -> RenderedRow:
        """`signature` stands for the fields of the table in Feishu: a field that was created again is empty there."""
        fields = self.read_cells(row) | {OWNER_FIELD: owner}
        text = json.dumps(fields, sort_keys=True, ensure_ascii=False)
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16, person=b"tidings.mirror")
        digest.update(signature.encode())
        return RenderedRow(fields, digest.hexdigest(), len(text))


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that changed and has to be delivered."""

    key: RowKey
    # The ids of its outbox entries.
    entries: tuple[int, ...] = ()
    # Its present content. None: the row was deleted.
    content: RenderedRow | None = None
    # Its record in Feishu, if known.
    record_id: str | None = None
    # The digest of the record's content; empty if unknown.
    known_digest: str = ""
    # A request of unknown outcome concerned this row: search before anything is sent.
    in_doubt: bool = False
    # Entries that stay after the delivery: the doubt is so new that a search may not show its outcome yet.
    kept_entries: tuple[int, ...] = ()

    @property
    def is_new(self) -> bool:
        return self.content is not None and self.record_id is None

    @property
    def is_delivered(self) -> bool:
        """Whether Feishu shows the present content already."""
        if self.content is None:
            return self.record_id is None
        return self.record_id is not None and self.content.digest == self.known_digest


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Some of the pending changes, in the order of their oldest entries."""

    changes: list[RowChange]
    # The page covers every entry up to this id.
    last_entry: int


@dataclass(frozen=True, slots=True)
class CreateIntent:
    """A create that is about to be sent, or whose outcome is unknown."""

    client_token: str
    # What is created, in the order of the request.
    rows: Mapping[RowKey, Mapping[str, Cell]]


def read_candidate(row: Row[Any]) -> dict[str, Cell]:
    return {
        **_read_common(row),
        "status": row.status,
        "keyword": _clean(row.source_keyword),
        "retries": row.retry_count,
        "due_at": row.due_at,
        "last_error_code": row.last_error_code,
        "last_error": _clean(row.last_error),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def read_source(row: Row[Any]) -> dict[str, Cell]:
    note = _read_object(row.content)
    counts, tags = note.get("counts"), note.get("tags")
    counted = counts if isinstance(counts, dict) else {}
    return {
        **_read_common(row),
        "kind": row.kind,
        "author": _clean(row.author_name),
        "published_at": row.published_at,
        "text": _clean(note.get("text")),
        "tags": _clean(", ".join(str(tag) for tag in tags)) if isinstance(tags, list) else None,
        **{name: _read_number(counted.get(name)) for name in Counts.__slots__},
        "collected_at": row.collected_at,
    }


def _match_sources(note_ids: Sequence[str]) -> ColumnElement[bool]:
    # The second condition repeats the first for the column that has an index.
    keys = [f"{note_id}_v1" for note_id in note_ids]
    return and_(sources.c.note_id.in_(note_ids), sources.c.idempotency_key.in_(keys))


def _name_fields(*, texts: str, numbers: str) -> dict[str, FieldType]:
    """Fields by their names, which are separated by blanks. The key comes first: it is the primary field."""
    texts = f"{KEY_FIELD} platform note_id title url request_id {texts} {OWNER_FIELD}"
    return dict.fromkeys(texts.split(), FieldType.TEXT) | dict.fromkeys(numbers.split(), FieldType.NUMBER)


MIRRORED_TABLES: Final[Mapping[str, MirroredTable]] = {
    candidates.name: MirroredTable(
        candidates,
        fields=_name_fields(
            texts="status keyword last_error_code last_error", numbers="retries due_at created_at updated_at"
        ),
        read_cells=read_candidate,
        match_ids=candidates.c.note_id.in_,
        block=500,
    ),
    sources.name: MirroredTable(
        sources,
        fields=_name_fields(
            texts="kind author text tags", numbers=" ".join(("published_at", *Counts.__slots__, "collected_at"))
        ),
        read_cells=read_source,
        match_ids=_match_sources,
        block=25,
    ),
}


def parse_key(text: str) -> RowKey | None:
    """The key of a record. None for a text that is no key, such as a line that a person wrote."""
    platform, colon, note_id = text.partition(":")
    return RowKey(platform, note_id) if colon and platform and note_id else None


def drop_empty(fields: Mapping[str, Cell]) -> dict[str, Cell]:
    """The fields that have a value: a new record is created without the others."""
    return {name: value for name, value in fields.items() if value is not None}


def sign_fields(fields: Mapping[str, tuple[int, str]]) -> str:
    """A signature of the fields in Feishu, with their types and ids."""
    text = json.dumps(sorted(fields.items())).encode()
    return hashlib.blake2b(text, digest_size=16, person=b"tidings.fields").hexdigest()


def group_entries(entries: Iterable[Any], *, settled_before: int) -> tuple[dict[RowKey, RowChange], int]:
    """The changes of a page by their rows, and the last entry that they cover.

    Doubts that are newer than `settled_before` (milliseconds) are kept.
    """
    changes: dict[RowKey, RowChange] = {}
    last = 0
    for entry in entries:
        key = RowKey(entry.platform, entry.note_id)
        if key not in changes and len(changes) == _MOST_ROWS:
            break
        change = changes.get(key, RowChange(key))
        kept = (entry.id,) if entry.in_doubt and entry.created_at > settled_before else ()
        changes[key] = replace(
            change,
            entries=(*change.entries, entry.id),
            in_doubt=change.in_doubt or bool(entry.in_doubt),
            kept_entries=(*change.kept_entries, *kept),
        )
        last = entry.id
    return changes, last


def _read_common(row: Row[Any]) -> dict[str, Cell]:
    return {
        # Not cleaned, because it is searched for as it is.
        KEY_FIELD: RowKey(row.platform, row.note_id).text,
        "platform": row.platform,
        "note_id": row.note_id,
        "title": _clean(row.title),
        "url": _clean(row.note_url),
        "request_id": _clean(_read_object(row.exec_meta).get("request_id")),
    }


def _clean(value: object) -> str | None:
    return clean_text(value)[:LONGEST_TEXT] or None


def _read_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
