"""Notes can be listed, searched, leased by a next stage and deleted: more columns of sources, and a full-text index.

The index is filled for the notes that are there. The way back keeps every note. A deleted candidate becomes `collected`
there, because an older release collects only what is not.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import ROW_ID, create_first_sources, create_partial_index, optional, required

revision = "0012"
down_revision = "0011"

BLOCK = 500
OLD = "old_source"

# The words of a note, as this revision's release finds them.
CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
RUN = re.compile(rf"(?P<cjk>[{CJK}]+)|\d+|[^\W\d_{CJK}]+")
MOST_CHARACTERS = 50_000
LONGEST_WORD = 64

KEPT = (
    *("id", "platform", "note_id", "idempotency_key", "note_url", "kind", "title", "author_name", "published_at"),
    *("content", "processing_lock", "locked_at", "last_error_code", "exec_meta", "collected_at"),
)
SEARCH_TABLE = (
    "CREATE VIRTUAL TABLE note_search USING fts5(terms, content='note_terms', content_rowid='source_id', "
    "tokenize='ascii', detail=none, columnsize=0)",
    "CREATE TRIGGER note_terms_added AFTER INSERT ON note_terms BEGIN "
    "INSERT INTO note_search (rowid, terms) VALUES (new.source_id, new.terms); END",
    "CREATE TRIGGER note_terms_removed AFTER DELETE ON note_terms BEGIN "
    "INSERT INTO note_search (note_search, rowid, terms) VALUES ('delete', old.source_id, old.terms); END",
)


def upgrade() -> None:
    op.drop_index("sources_held", "tbl_source")
    if op.get_bind().dialect.name == "sqlite":
        # The table is created again, because added columns would stand behind the constraints, unlike in a new
        # database.
        op.rename_table("tbl_source", OLD)
        create_sources()
        copy_rows(OLD, "tbl_source", [*KEPT, *ADDED_VALUES], [*KEPT, *ADDED_VALUES.values()])
        op.drop_table(OLD)
    else:
        add_columns()
    create_indexes()
    create_search()
    fill_search(op.get_bind())


# How the new columns are filled.
ADDED_VALUES = {
    "author_id": "''",
    "source_keyword": (
        "coalesce((SELECT source_keyword FROM tbl_candidate AS found "
        f"WHERE found.platform = {OLD}.platform AND found.note_id = {OLD}.note_id), '')"
    ),
    "dated_at": "coalesce(published_at, collected_at)",
    "version": "1",
    "is_latest": "true",
    "status": "'pending'",
    "retry_count": "0",
    "due_at": "collected_at",
    "last_error": "NULL",
}


def list_new_columns() -> list[sa.Column[Any]]:
    return [
        *required(sa.Text, "author_id", "source_keyword"),
        sa.Column("dated_at", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("is_latest", sa.Boolean, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("last_error", sa.Text),
    ]


def create_sources() -> None:
    op.create_table(
        "tbl_source",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "platform", "note_id", "idempotency_key", "note_url", "kind", "title", "author_id"),
        *required(sa.Text, "author_name", "source_keyword"),
        sa.Column("published_at", sa.BigInteger),
        sa.Column("dated_at", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("is_latest", sa.Boolean, nullable=False),
        *required(sa.Text, "content", "status"),
        sa.Column("processing_lock", sa.Text),
        sa.Column("locked_at", sa.BigInteger),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        *optional(sa.Text, "last_error_code", "last_error"),
        sa.Column("exec_meta", sa.Text, nullable=False),
        sa.Column("collected_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("platform", "idempotency_key"),
        sqlite_autoincrement=True,
    )


def add_columns() -> None:
    for column in list_new_columns():
        is_required, column.nullable = not column.nullable, True
        op.add_column("tbl_source", column)
        value = ADDED_VALUES[column.name].replace(OLD, "tbl_source")
        op.execute(f"UPDATE tbl_source SET {column.name} = {value}")
        if is_required:
            op.alter_column("tbl_source", column.name, nullable=False)
    op.execute("UPDATE tbl_source SET retry_count = 0")


def create_indexes() -> None:
    op.create_index("sources_of_note", "tbl_source", ["platform", "note_id"])
    for name, column in {
        "sources_by_platform": "platform",
        "sources_by_kind": "kind",
        "sources_by_keyword": "source_keyword",
        "sources_by_author": "author_name",
        "sources_by_author_id": "author_id",
        "sources_by_date": "dated_at",
    }.items():
        op.create_index(name, "tbl_source", [column, "id"])
    create_partial_index("sources_due", "tbl_source", ["platform", "due_at"], "status = 'pending'")
    create_partial_index("sources_held", "tbl_source", ["processing_lock"], "status = 'processing'")


def create_search() -> None:
    op.create_table(
        "note_terms",
        sa.Column("source_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("terms", sa.Text, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for statement in SEARCH_TABLE:
            op.execute(statement)
    else:
        vector = "array_to_tsvector(string_to_array(terms, ' '::text))"
        op.execute(f"CREATE INDEX note_terms_search ON note_terms USING gin ({vector})")


def fill_search(connection: sa.Connection) -> None:
    """Index the notes, and fill in the ids of their authors, which stand in the JSON alone."""
    find = sa.text("SELECT id, content FROM tbl_source WHERE id > :last ORDER BY id LIMIT :block")
    add_terms = sa.text("INSERT INTO note_terms (source_id, terms) VALUES (:id, :terms)")
    set_author = sa.text("UPDATE tbl_source SET author_id = :author_id WHERE id = :id")
    rows = connection.execute(find, {"last": 0, "block": BLOCK}).all()
    while rows:
        found = [(row.id, json.loads(row.content)) for row in rows]
        connection.execute(add_terms, [{"id": number, "terms": " ".join(list_terms(note))} for number, note in found])
        authors = [{"id": number, "author_id": note["author"]["author_id"]} for number, note in found]
        connection.execute(set_author, authors)
        rows = connection.execute(find, {"last": rows[-1].id, "block": BLOCK}).all()


def list_terms(note: dict[str, Any]) -> Iterator[str]:
    whole = "\n".join((note["title"], note["author"]["name"], *note["tags"], note["text"]))
    for run in RUN.finditer(unicodedata.normalize("NFKC", whole).lower()[:MOST_CHARACTERS]):
        if run["cjk"]:
            yield from (run[0][at : at + 2] for at in range(len(run[0])))
        else:
            yield run[0][:LONGEST_WORD]


def downgrade() -> None:
    for name in ("note_search", "note_terms"):
        op.execute(f"DROP TABLE IF EXISTS {name}")
    op.execute("UPDATE tbl_candidate SET status = 'collected' WHERE status = 'deleted'")
    for name in ("of_note", "by_platform", "by_kind", "by_keyword", "by_author", "by_author_id", "by_date", "due"):
        op.drop_index(f"sources_{name}", "tbl_source")
    op.drop_index("sources_held", "tbl_source")
    if op.get_bind().dialect.name == "sqlite":
        op.rename_table("tbl_source", OLD)
        create_first_sources()
        copy_rows(OLD, "tbl_source", [*KEPT, "retry_count"], [*KEPT, "retry_count"])
        op.drop_table(OLD)
    else:
        for column in list_new_columns():
            op.drop_column("tbl_source", column.name)
        create_partial_index("sources_held", "tbl_source", ["locked_at"], "processing_lock IS NOT NULL")


def copy_rows(source: str, target: str, columns: list[str], values: list[str]) -> None:
    op.execute(f"INSERT INTO {target} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {source}")
