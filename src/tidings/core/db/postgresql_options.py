"""Options of tables and indexes for PostgreSQL, set when tables are created there. SQLAlchemy loads its PostgreSQL
dialect as soon as it sees one of them: 25 ms and 2 MB that a command on SQLite does not need.
"""

from typing import Any

from sqlalchemy import Connection, Index, MetaData, PrimaryKeyConstraint, Table, TextClause, event

from tidings.core.db.database import metadata

_options: list[tuple[Index | PrimaryKeyConstraint | Table, dict[str, Any]]] = []


def partial_index(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """An index over the rows for which `where` holds, on both databases."""
    index = Index(name, *columns, unique=unique, sqlite_where=where)
    set_on_postgresql(index, where=where)
    return index


def set_on_postgresql(element: Index | PrimaryKeyConstraint | Table, **options: Any) -> None:
    """Give an element options of SQLAlchemy's PostgreSQL dialect, by their names without the prefix `postgresql_`."""
    _options.append((element, options))


@event.listens_for(metadata, "before_create")
def _apply(_: MetaData, connection: Connection, **__: Any) -> None:
    if connection.dialect.name == "postgresql":
        for element, options in _options:
            for name, value in options.items():
                element.dialect_kwargs[f"postgresql_{name}"] = value
