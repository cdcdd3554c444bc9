"""What a request to Feishu says: its fields, and the readers of its body."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidings.sandbox.feishu.tables import BitableFieldType, Fields, RefusalError


@dataclass(frozen=True, slots=True)
class BitableRequest:
    """A request to Feishu. `urls` are the keys and record ids that it concerns; faults can match them."""

    method: str
    path: str
    query: Mapping[str, str]
    token: str = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    size: int = 0
    urls: tuple[str, ...] = ()

    @property
    def fields(self) -> Mapping[str, object]:
        """For the request log: the number of bytes and records, and the client_token."""
        named = self.document.get("records")
        count = {"bytes": self.size} | ({"records": len(named)} if isinstance(named, list) else {})
        return count | {name: self.query[name] for name in ("client_token",) if name in self.query}


def is_uuid4(text: str) -> bool:
    try:
        return uuid.UUID(text).version == 4 and str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def read_field_types(fields: Sequence[Any]) -> dict[str, BitableFieldType]:
    try:
        return {str(field["field_name"]): BitableFieldType(field["type"]) for field in fields}
    except (KeyError, TypeError, ValueError):
        raise RefusalError(1254001) from None


def read_fields(document: Mapping[str, Any]) -> Fields:
    fields = document.get("fields")
    if not isinstance(fields, dict):
        raise RefusalError(1254001)
    return fields


def read_list(document: Mapping[str, Any]) -> list[Any]:
    records = document.get("records")
    if not isinstance(records, list):
        raise RefusalError(1254001)
    return records


def read_records(document: Mapping[str, Any]) -> list[Fields]:
    return [read_fields(record) for record in read_list(document)]


def read_changes(document: Mapping[str, Any]) -> list[tuple[str, Fields]]:
    return [(str(record.get("record_id")), read_fields(record)) for record in read_list(document)]


def read_ids(document: Mapping[str, Any]) -> list[str]:
    return [str(record) for record in read_list(document)]
