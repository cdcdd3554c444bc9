"""Columns of one type that need no comment of their own."""

from typing import Any

from sqlalchemy import Column
from sqlalchemy.types import TypeEngine


def required(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    """Columns that must not be NULL."""
    return [Column(name, kind, nullable=False) for name in names]


def optional(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    """Columns that may be NULL."""
    return [Column(name, kind) for name in names]
