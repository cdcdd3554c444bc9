"""The tables of the stand-in: fields with types, records, searches, and Feishu's own error codes and messages.

Exception
└── RefusalError
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

from tidings.sandbox.wire.stand_in import Now

MOST_RECORDS: Final = 20_000
MOST_IN_A_BATCH: Final = 500
MOST_CHARACTERS: Final = 100_000

_LARGEST_PAGE: Final = 500
_MOST_LOOKED_UP: Final = 100
_MOST_CONDITIONS: Final = 50
_NAMES: Final = {
    1254000: "WrongRequestJson",
    1254001: "WrongRequestBody",
    1254013: "TableNameDuplicated",
    1254014: "FieldNameDuplicated",
    1254018: "InvalidFilter",
    1254040: "BaseTokenNotFound",
    1254041: "TableIdNotFound",
    1254043: "RecordIdNotFound",
    1254044: "FieldIdNotFound",
    1254045: "FieldNameNotFound",
    1254060: "TextFieldConvFail",
    1254061: "NumberFieldConvFail",
    1254062: "SingleSelectFieldConvFail",
    1254064: "DatetimeFieldConvFail",
    1254103: "RecordExceedLimit",
    1254104: "RecordAddOnceExceedLimit",
    1254130: "TooLargeCell",
}

Fields = dict[str, object]


class BitableFieldType(IntEnum):
    """The types that this stand-in can hold."""

    TEXT = 1
    NUMBER = 2
    SINGLE_SELECT = 3
    DATETIME = 5


class RefusalError(Exception):
    """An answer with an error code, a message and an HTTP status."""

    def __init__(
        self, code: int, message: str | None = None, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code)
        self.headers = headers or {}
        self.code = code
        self.message = message or _NAMES[code]
        self.status = status


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# The check of a value of each type, and the error code if it fails.
_CHECKS: Final[Mapping[BitableFieldType, tuple[Callable[[object], bool], int]]] = {
    BitableFieldType.TEXT: (lambda value: isinstance(value, str), 1254060),
    BitableFieldType.NUMBER: (_is_number, 1254061),
    BitableFieldType.SINGLE_SELECT: (lambda value: isinstance(value, str), 1254062),
    BitableFieldType.DATETIME: (lambda value: isinstance(value, int) and not isinstance(value, bool), 1254064),
}


class BitableTable:
    """One table. The first field is the primary one. A batch succeeds or fails as a whole."""

    most_records = MOST_RECORDS
    most_characters = MOST_CHARACTERS

    # A search shows a record once it is this old.
    search_delay = timedelta(0)

    def __init__(self, fields: Mapping[str, BitableFieldType], *, now: Now) -> None:
        self.fields = dict(fields)
        self.records: dict[str, Fields] = {}
        self._now = now
        self._created: dict[str, datetime] = {}
        self._numbers = itertools.count(1)
        self._field_ids: dict[str, str] = {}
        self._field_numbers = itertools.count(1)

    @property
    def primary(self) -> str:
        return next(iter(self.fields), "")

    def create(self, records: Sequence[Fields]) -> list[dict[str, object]]:
        self._check_batch(records)
        for record in records:
            self.check(record)
        if len(self.records) + len(records) > self.most_records:
            raise RefusalError(1254103)
        return [self._add(record) for record in records]

    def update(self, changes: Sequence[tuple[str, Fields]]) -> list[dict[str, object]]:
        self._check_batch(changes)
        for record_id, fields in changes:
            self._find(record_id)
            self.check(fields)
        for record_id, fields in changes:
            self.records[record_id] = _drop_empty(self.records[record_id] | fields)
        return [_show_written(record_id, fields) for record_id, fields in changes]

    def delete(self, record_ids: Sequence[str]) -> list[dict[str, object]]:
        self._check_batch(record_ids)
        for record_id in record_ids:
            self._find(record_id)
        for record_id in record_ids:
            del self.records[record_id]
        return [{"deleted": True, "record_id": record_id} for record_id in record_ids]

    def search(self, body: Mapping[str, object], *, page_size: str, page_token: str) -> dict[str, object]:
        """A page of matching records, oldest first. A text is a list of pieces, a number a number."""
        size, start = _read_number(page_size), _read_number(page_token.removeprefix("page-") or "0")
        if not 0 < size <= _LARGEST_PAGE:
            raise RefusalError(99992402, "field validation failed", status=400)
        fits, names = self._read_filter(body.get("filter")), self._read_names(body.get("field_names"))
        shown = {record_id: fields for record_id, fields in self.records.items() if self._is_shown(record_id)}
        found = [(record_id, fields) for record_id, fields in shown.items() if fits(fields)]
        items = [self._show(record_id, fields, names) for record_id, fields in found[start : start + size]]
        more = start + size < len(found)
        following = {"page_token": f"page-{start + size}"} if more else {}
        return {"items": items, "has_more": more, "total": len(found), **following}

    def hide(self, record_ids: Iterable[str]) -> None:
        """Let searches show these records only after the delay, counted from now."""
        self._created |= dict.fromkeys(record_ids, self._now())

    def look_up(self, record_ids: object) -> dict[str, object]:
        """Records by their ids, also new ones."""
        if not isinstance(record_ids, list) or not record_ids:
            raise RefusalError(1254001)
        if len(record_ids) > _MOST_LOOKED_UP:
            raise RefusalError(1254104)
        items = [self._show(name, self.records[name], self.fields) for name in record_ids if name in self.records]
        return {"records": items, "absent_record_ids": [name for name in record_ids if name not in self.records]}

    def list_fields(self) -> dict[str, object]:
        items = [
            {"field_id": self._name_field(name), "field_name": name, "type": int(kind), "is_primary": number == 0}
            for number, (name, kind) in enumerate(self.fields.items())
        ]
        return {"items": items, "has_more": False, "total": len(items)}

    def create_field(self, name: object, kind: object) -> dict[str, object]:
        if not isinstance(name, str) or not name or kind not in list(BitableFieldType):
            raise RefusalError(1254001)
        if name in self.fields:
            raise RefusalError(1254014)
        self.fields[name] = BitableFieldType(int(str(kind)))
        # A field that is created again gets another id.
        self._field_ids.pop(name, None)
        return {"field_id": self._name_field(name), "field_name": name, "type": kind, "is_primary": False}

    def change_field(self, field_id: str, name: object, kind: object) -> dict[str, object]:
        """Replace the name and type of a field. A value that does not fit the new type is lost."""
        old = next((each for each in self.fields if self._name_field(each) == field_id), None)
        if old is None:
            raise RefusalError(1254044)
        if not isinstance(name, str) or not name or kind not in list(BitableFieldType):
            raise RefusalError(1254001)
        if name != old and name in self.fields:
            raise RefusalError(1254014)
        new = BitableFieldType(int(str(kind)))
        self.fields = {
            (name if each == old else each): (new if each == old else kept) for each, kept in self.fields.items()
        }
        self._field_ids[name] = self._field_ids.pop(old)
        fits, _ = _CHECKS[new]
        for record_id, fields in self.records.items():
            self.records[record_id] = {
                (name if each == old else each): value for each, value in fields.items() if each != old or fits(value)
            }
        return {"field_id": field_id, "field_name": name, "type": kind, "is_primary": name == self.primary}

    def check(self, fields: Mapping[str, object]) -> None:
        """Raise RefusalError for an unknown field, or a value of another type."""
        for name, value in fields.items():
            fits, code = _CHECKS[self._find_type(name)]
            if value is not None and not fits(value):
                raise RefusalError(code)
            if isinstance(value, str) and len(value) > self.most_characters:
                raise RefusalError(1254130)

    def _add(self, fields: Fields) -> dict[str, object]:
        record_id = f"rec{next(self._numbers):08d}"
        self.records[record_id] = _drop_empty(fields)
        self._created[record_id] = self._now()
        return _show_written(record_id, fields)

    def _is_shown(self, record_id: str) -> bool:
        created = self._created.get(record_id)
        return created is None or self._now() - created >= self.search_delay

    def _name_field(self, name: str) -> str:
        return self._field_ids.setdefault(name, f"fld{next(self._field_numbers):04d}")

    def _check_batch(self, items: Sequence[object]) -> None:
        if not items:
            raise RefusalError(1254001)
        if len(items) > MOST_IN_A_BATCH:
            raise RefusalError(1254104)

    def _find(self, record_id: str) -> None:
        if record_id not in self.records:
            raise RefusalError(1254043)

    def _find_type(self, name: str) -> BitableFieldType:
        if name not in self.fields:
            raise RefusalError(1254045)
        return self.fields[name]

    def _read_names(self, wanted: object) -> list[str]:
        names = [str(name) for name in wanted] if isinstance(wanted, list) else list(self.fields)
        for name in names:
            self._find_type(name)
        return names

    def _read_filter(self, document: object) -> Callable[[Fields], bool]:
        if document is None:
            return lambda _fields: True
        conditions = document.get("conditions") if isinstance(document, dict) else None
        if not isinstance(document, dict) or not isinstance(conditions, list) or len(conditions) > _MOST_CONDITIONS:
            raise RefusalError(1254018)
        checks = [self._read_condition(condition) for condition in conditions]
        join = {"and": all, "or": any}.get(document.get("conjunction", "and"))
        if join is None:
            raise RefusalError(1254018)
        return lambda fields: join(check(fields) for check in checks)

    def _read_condition(self, condition: object) -> Callable[[Fields], bool]:
        match condition:
            # Feishu does not document whether case matters, so callers must compare again.
            case {"field_name": str(name), "operator": "is", "value": [str(wanted)]}:
                self._find_type(name)
                return lambda fields: str(fields.get(name, "")).lower() == wanted.lower()
            case {"field_name": str(name), "operator": "isEmpty" | "isNotEmpty" as operator, "value": []}:
                self._find_type(name)
                return lambda fields: (name in fields) == (operator == "isNotEmpty")
            case {"field_name": str(name), "operator": "contains", "value": [str(wanted)]}:
                self._find_type(name)
                return lambda fields: wanted.lower() in str(fields.get(name, "")).lower()
        raise RefusalError(1254018)

    def _show(self, record_id: str, fields: Fields, names: Iterable[str]) -> dict[str, object]:
        shown = {name: self._show_value(name, fields[name]) for name in names if name in fields}
        return {"record_id": record_id, "fields": shown}

    def _show_value(self, name: str, value: object) -> object:
        return [{"text": value, "type": "text"}] if self.fields[name] is BitableFieldType.TEXT else value


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise RefusalError(1254001)
    return int(text)


def _drop_empty(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _show_written(record_id: str, fields: Fields) -> dict[str, object]:
    return {"record_id": record_id, "id": record_id, "fields": fields}
