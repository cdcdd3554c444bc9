"""The mirrored tables and their rows: fields in Feishu, a row as the values of those fields, and pending changes. Pure.

To mirror a further table, add one `MirroredTable` to `MIRRORED_TABLES`, and its setting. `BASE_TABLES` also has the
table that people fill in: their keywords. Timestamps are Feishu's dates, which hold milliseconds.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, ColumnElement, Row, Select, Table, and_, or_, select, true

from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.crawl.platforms.registry import BUILT_IN
from tidings.collect.notes import Counts, clean_text
from tidings.collect.tables import COLLECT, CandidateStatus, StageStatus, candidates, sources
from tidings.core.clock import to_milliseconds
from tidings.core.execution_table import ExecutionStatus, executions, is_running

KEY_FIELD: Final = "key"
# Tells our records from those of people and of other installations.
OWNER_FIELD: Final = "managed_by"
# Half of Feishu's limit, because an emoji may count as two.
LONGEST_TEXT: Final = 50_000
# The view of collect's executions, and the table in the base that people write keywords into.
EXECUTION_TABLE: Final = "tbl_crawl_execution"
KEYWORD_TABLE: Final = "tbl_keyword"
# Executions are mirrored for this long after their start: a table of a base holds 20,000 records.
EXECUTIONS_KEPT: Final = timedelta(days=30)
# The writer records every change of candidates and sources. A comparison finds what it missed.
COMPARE_EVERY: Final = timedelta(hours=1)
# Changes of cookies and executions are not recorded, so these tables are compared more often.
WATCH_EVERY: Final = timedelta(minutes=1)

# A page of changes has at most this many rows.
_MOST_ROWS: Final = 500

# A cell's value. None is empty.
Cell = str | int | None


class FieldType(IntEnum):
    """Feishu's numbers of the types that the mirror writes."""

    TEXT = 1
    NUMBER = 2
    SINGLE_SELECT = 3
    DATE = 5


# A field of the second type takes the same values as one of the first.
_STAND_INS: Final = {FieldType.DATE: FieldType.NUMBER, FieldType.SINGLE_SELECT: FieldType.TEXT}


@dataclass(frozen=True, slots=True)
class MirrorField:
    """A field that a table in Feishu is to have."""

    type: FieldType
    # The choices of a single select.
    options: tuple[str, ...] = ()

    def takes(self, found: int) -> bool:
        """Whether a field of Feishu's type `found` takes the same values. `tidings collect feishu setup` changes it."""
        return found in (self.type, _STAND_INS.get(self.type))

    def fit(self, value: object) -> Cell:
        """A value as the field takes it: empty, where it cannot."""
        if self.type in (FieldType.NUMBER, FieldType.DATE):
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        return clean_text(value)[:LONGEST_TEXT] or None

    def describe(self, name: str) -> dict[str, Any]:
        """The field as Feishu's API creates it."""
        described: dict[str, Any] = {"field_name": name, "type": int(self.type)}
        if self.type is FieldType.DATE:
            described["property"] = {"date_formatter": "yyyy-MM-dd HH:mm"}
        if self.options:
            described["property"] = {"options": [{"name": option} for option in self.options]}
        return described


class RowKey(NamedTuple):
    """Identifies a row of a mirrored table: the values of the two columns that `MirroredTable.key` names."""

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
    # Changes when the values or the fields' signature change.
    digest: str
    # In characters.
    size: int


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """One of our tables, and how it appears in Feishu."""

    name: str
    # The columns that identify a row: a platform (or a kind), and an id.
    key: tuple[Column[Any], Column[Any]]
    # The columns that are read. A secret is not among them.
    columns: Sequence[ColumnElement[Any]]
    # The fields by name.
    fields: Mapping[str, MirrorField]
    # The values of a row by the names of its fields, without its key and owner.
    read_values: Callable[[Row[Any]], Mapping[str, object]] = lambda row: row._asdict()
    # Rows that are read at once. Notes are long.
    block: int = 500
    # How often our rows are compared with the known records.
    compare_every: timedelta = COMPARE_EVERY
    # Selects the rows that are mirrored at this time.
    choose: Callable[[datetime], ColumnElement[bool]] = lambda _: true()
    # Selects the rows that may have changed since this time; None: any row.
    choose_changed: Callable[[datetime], ColumnElement[bool]] | None = None

    def select(self, at: datetime) -> Select[Any]:
        """The rows that are mirrored at this time. `read_key` reads their keys."""
        named = (column.label(f"row_{name}") for name, column in zip(RowKey._fields, self.key, strict=True))
        return select(*named, *self.columns).where(self.choose(at))

    def match(self, platform: str, ids: Sequence[str]) -> ColumnElement[bool]:
        """The condition for the rows with these keys."""
        return and_(self.key[0] == platform, self.key[1].in_(ids))

    def render(self, row: Row[Any], *, owner: str, signature: str) -> RenderedRow:
        """`signature` is a hash of the table's fields in Feishu: a field that was created again is empty there."""
        values = self.read_values(row)
        fields = {name: field.fit(values.get(name)) for name, field in self.fields.items()}
        # The key is not cleaned, because it is searched for as it is.
        fields |= {KEY_FIELD: read_key(row).text, OWNER_FIELD: owner}
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
class CreateIntent:
    """A create that is about to be sent, or whose outcome is unknown."""

    client_token: str
    # What is created, in the order of the request.
    rows: Mapping[RowKey, Mapping[str, Cell]]


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


def read_key(row: Row[Any]) -> RowKey:
    """The key of a row that `MirroredTable.select` read."""
    return RowKey(row.row_platform, row.row_note_id)


def _read_source(row: Row[Any]) -> Mapping[str, object]:
    """The columns, and the parts of the note, which is JSON."""
    note = _read_object(row.content)
    counts, tags = note.get("counts"), note.get("tags")
    return {
        **(counts if isinstance(counts, dict) else {}),
        **row._asdict(),
        "text": note.get("text"),
        "tags": ", ".join(str(tag) for tag in tags) if isinstance(tags, list) else None,
    }


def _read_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _name_fields(names: str, *, statuses: Iterable[str] = ()) -> dict[str, MirrorField]:
    """Fields by their names, which are separated by blanks: `#` marks a number, `@` a date. The key is the primary one.

    A field `status` is a single select of these statuses.
    """
    kinds = {"#": FieldType.NUMBER, "@": FieldType.DATE}
    fields = {name.lstrip("#@"): MirrorField(kinds.get(name[0], FieldType.TEXT)) for name in names.split()}
    if "status" in fields:
        fields["status"] = MirrorField(FieldType.SINGLE_SELECT, tuple(statuses))
    text = MirrorField(FieldType.TEXT)
    return {KEY_FIELD: text, **fields, OWNER_FIELD: text}


def _mirror_table(
    table: Table, id_column: Column[Any], fields: Mapping[str, MirrorField], **options: Any
) -> MirroredTable:
    """A table with a platform, of which the columns with a field of the same name are read."""
    columns = [column for column in table.c if column.name in (*fields, "content")]
    return MirroredTable(
        table.name,
        key=(table.c.platform, id_column),
        columns=columns,
        fields=fields,
        **options,
    )


_CANDIDATE: Final = _mirror_table(
    candidates,
    candidates.c.note_id,
    _name_fields(
        "platform note_id note_url title status processing_lock @locked_at #retry_count source_keyword exec_meta "
        "@due_at last_error_code last_error @created_at @updated_at",
        statuses=[status for status in CandidateStatus if status is not CandidateStatus.DELETED],
    ),
    choose=lambda _: candidates.c.status != CandidateStatus.DELETED.value,
)
_SOURCE: Final = _mirror_table(
    sources,
    sources.c.idempotency_key,
    _name_fields(
        "platform note_id idempotency_key note_url kind title author_name source_keyword @published_at text tags "
        f"{' '.join(f'#{name}' for name in Counts.__slots__)} #version "
        "status processing_lock @locked_at #retry_count @due_at last_error_code last_error exec_meta @collected_at",
        statuses=StageStatus,
    ),
    read_values=_read_source,
    block=25,
)
# Without `cookie_encrypted`: the mirror does not even read it.
_COOKIE: Final = _mirror_table(
    cookies,
    cookies.c.cookie_name,
    _name_fields(
        "cookie_name platform encryption_key_id status #priority #daily_used #daily_limit #consecutive_errors "
        "#total_errors @cooling_until @created_at @updated_at",
        statuses=[status for status in CookieStatus if status is not CookieStatus.UNREADABLE],
    ),
    compare_every=WATCH_EVERY,
)
_EXECUTION: Final = MirroredTable(
    EXECUTION_TABLE,
    key=(executions.c.kind, executions.c.public_id),
    columns=(
        executions.c.workflow_name,
        executions.c.public_id.label("execution_id"),
        *(executions.c[name] for name in ("status", "started_at", "heartbeat_at", "completed_at")),
        *(executions.c[name] for name in ("items_processed", "items_failed")),
    ),
    fields=_name_fields(
        "workflow_name execution_id status @started_at @heartbeat_at @completed_at #items_processed #items_failed",
        statuses=ExecutionStatus,
    ),
    compare_every=WATCH_EVERY,
    choose=lambda at: and_(
        executions.c.kind == COLLECT, executions.c.started_at >= to_milliseconds(at - EXECUTIONS_KEPT)
    ),
    choose_changed=lambda since: or_(is_running, executions.c.completed_at >= to_milliseconds(since)),
)

MIRRORED_TABLES: Final[Mapping[str, MirroredTable]] = {
    table.name: table for table in (_COOKIE, _CANDIDATE, _EXECUTION, _SOURCE)
}
# The fields of every table of the base. People fill in the keyword table; its status holds our answer.
BASE_TABLES: Final[Mapping[str, Mapping[str, MirrorField]]] = {
    **{name: table.fields for name, table in MIRRORED_TABLES.items()},
    KEYWORD_TABLE: {
        "keyword": MirrorField(FieldType.TEXT),
        "platform": MirrorField(FieldType.SINGLE_SELECT, tuple(BUILT_IN)),
        "pages": MirrorField(FieldType.NUMBER),
        "refresh": MirrorField(FieldType.TEXT),
        "for": MirrorField(FieldType.TEXT),
        "comments": MirrorField(FieldType.NUMBER),
        "status": MirrorField(FieldType.TEXT),
    },
}


def group_ids(keys: Iterable[RowKey]) -> dict[str, list[str]]:
    """The note ids of each platform."""
    ids: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        ids[key.platform].append(key.note_id)
    return ids
