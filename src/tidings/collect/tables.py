"""The tables of collect: keywords, candidates, sources (collected notes), comments, statistics, pauses.

Definitions only; `write` writes the rows. Timestamps are milliseconds since 1970. The mirror's tables are in
`mirror_tables`. The crawl API does not import this file: its only table is in `crawl.cookies.table`.
"""

from enum import StrEnum
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)

from tidings.collect.notes import Counts
from tidings.core.db.columns import optional, required
from tidings.core.db.database import RowId, metadata
from tidings.core.db.postgresql_options import partial_index

# The names of announce's workflows begin with this.
OTHER_WORKFLOWS: Final = "announce:"
# The kinds of collect's executions: its workflows, and the mirror.
COLLECT: Final = "collect"
MIRROR: Final = "mirror"

# The words of a source as PostgreSQL indexes them. A query must use the same expression.
TERMS_VECTOR: Final = "array_to_tsvector(string_to_array(terms, ' '::text))"

_is_pending = text("status = 'pending'")
_is_processing = text("status = 'processing'")
_has_failed = text("status = 'failed'")
_is_collected = text("status = 'collected'")
_is_open = text("status <> 'done'")
_is_refreshed = text("status = 'collected' AND refresh_at IS NOT NULL")


class CandidateStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COLLECTED = "collected"
    FAILED = "failed"
    # A person deleted the note. The row stays, without title and URL, so that the note is not collected again.
    DELETED = "deleted"


class StageStatus(StrEnum):
    """Where the work on a collected note is: that of the next stage (sources), or the reading of its comments."""

    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"


candidates = Table(
    "tbl_candidate",
    metadata,
    *required(Text, "platform", "note_id", "note_url", "title", "status"),
    # The public id of the execution that leased it.
    Column("processing_lock", Text),
    Column("locked_at", BigInteger),
    Column("retry_count", Integer, nullable=False),
    *required(Text, "source_keyword", "exec_meta"),
    # It may be leased from this time on.
    Column("due_at", BigInteger, nullable=False),
    *optional(Text, "last_error_code", "last_error"),
    *required(BigInteger, "created_at", "updated_at"),
    # When its collected note is to be read again, also while that is being done; NULL: not again.
    Column("refresh_at", BigInteger),
    PrimaryKeyConstraint("platform", "note_id"),
    partial_index("candidates_due", "platform", "due_at", where=_is_pending),
    partial_index("candidates_held", "processing_lock", where=_is_processing),
    Index("candidates_by_status", "platform", "status"),
    partial_index("candidates_failed", "updated_at", where=_has_failed),
    partial_index("candidates_collected", "updated_at", "platform", where=_is_collected),
    partial_index("candidates_refreshed", "refresh_at", where=_is_refreshed),
)

sources = Table(
    "tbl_source",
    metadata,
    Column("id", RowId, primary_key=True),
    *required(Text, "platform", "note_id"),
    # `{note_id}_v{version}`.
    Column("idempotency_key", Text, nullable=False),
    *required(Text, "note_url", "kind", "title", "author_id", "author_name"),
    # The keyword that found the note first.
    Column("source_keyword", Text, nullable=False),
    Column("published_at", BigInteger),
    # `published_at`; the time of collection where the platform names none.
    Column("dated_at", BigInteger, nullable=False),
    # A note whose text changed has one row for each version.
    Column("version", Integer, nullable=False),
    Column("is_latest", Boolean, nullable=False),
    # The note as JSON.
    Column("content", Text, nullable=False),
    # The next stage: status, lock, failed attempts, the time from which it may be leased, and the last error.
    Column("status", Text, nullable=False),
    Column("processing_lock", Text),
    Column("locked_at", BigInteger),
    Column("retry_count", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    *optional(Text, "last_error_code", "last_error"),
    Column("exec_meta", Text, nullable=False),
    Column("collected_at", BigInteger, nullable=False),
    UniqueConstraint("platform", "idempotency_key"),
    Index("sources_of_note", "platform", "note_id"),
    Index("sources_by_platform", "platform", "id"),
    Index("sources_by_kind", "kind", "id"),
    Index("sources_by_keyword", "source_keyword", "id"),
    Index("sources_by_author", "author_name", "id"),
    Index("sources_by_author_id", "author_id", "id"),
    Index("sources_by_date", "dated_at", "id"),
    partial_index("sources_due", "platform", "due_at", where=_is_pending),
    partial_index("sources_held", "processing_lock", where=_is_processing),
    sqlite_autoincrement=True,
)

# The counts of a note each time it was read: at first, and whenever its keyword asked to see it again.
note_snapshots = Table(
    "note_snapshots",
    metadata,
    *required(Text, "platform", "note_id"),
    Column("taken_at", BigInteger, nullable=False),
    *(Column(name, BigInteger) for name in Counts.__slots__),
    PrimaryKeyConstraint("platform", "note_id", "taken_at"),
)

# Notes whose comments are wanted. An execution leases a thread for each page, as candidates are leased.
comment_threads = Table(
    "comment_threads",
    metadata,
    *required(Text, "platform", "note_id", "note_url"),
    # The keyword that found the note first.
    Column("source_keyword", Text, nullable=False),
    # How many comments are wanted, and how many this reading has found.
    *required(Integer, "wanted", "found"),
    # The platform's cursor of the next page; empty for the first.
    Column("cursor", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("processing_lock", Text),
    Column("locked_at", BigInteger),
    Column("retry_count", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    *optional(Text, "last_error_code", "last_error"),
    Column("exec_meta", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("platform", "note_id"),
    partial_index("threads_due", "platform", "due_at", where=_is_pending),
    partial_index("threads_held", "processing_lock", where=_is_processing),
    partial_index("threads_open", "platform", "status", where=_is_open),
    Index("threads_by_keyword", "platform", "source_keyword"),
)

# Comments of notes, each once, as they were read last. Their authors have pseudonyms unless the settings say otherwise.
comments = Table(
    "tbl_comment",
    metadata,
    Column("id", RowId, primary_key=True),
    *required(Text, "platform", "note_id", "comment_id"),
    # The comment that it replies to; empty for a comment of the note itself.
    Column("parent_id", Text, nullable=False),
    *required(Text, "author_id", "author_name", "text"),
    *optional(BigInteger, "likes", "replies"),
    # URLs as JSON.
    Column("images", Text, nullable=False),
    Column("place", Text, nullable=False),
    Column("published_at", BigInteger),
    Column("exec_meta", Text, nullable=False),
    # When it was read first and last.
    *required(BigInteger, "collected_at", "updated_at"),
    UniqueConstraint("platform", "note_id", "comment_id"),
    sqlite_autoincrement=True,
)

# The words of each source, separated by spaces: the content of the full-text index (`archive.search`). SQLite has the
# index in the virtual table `note_search`, which triggers keep in step. PostgreSQL has an index on the expression.
note_terms = Table(
    "note_terms",
    metadata,
    Column("source_id", BigInteger, primary_key=True, autoincrement=False),
    Column("terms", Text, nullable=False),
)

watched_keywords = Table(
    "watched_keywords",
    metadata,
    Column("id", RowId, primary_key=True),
    *required(Text, "platform", "keyword"),
    Column("pages", Integer, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_run_at", BigInteger),
    *optional(Integer, "last_found", "last_created"),
    Column("last_error_code", Text),
    # Its notes are read again this often, for this long after they were collected (milliseconds); NULL: never.
    *optional(BigInteger, "refresh_every", "refresh_for"),
    # How many comments of each of its notes are collected; NULL: none.
    Column("comments", Integer),
    UniqueConstraint("platform", "keyword"),
    sqlite_autoincrement=True,
)

# Tries that succeeded and failed in each minute since 1970.
collect_minutes = Table(
    "collect_minutes",
    metadata,
    Column("minute", BigInteger, primary_key=True, autoincrement=False),
    *required(Integer, "succeeded", "failed"),
)

# Paused platforms. A row stays until the platform answers again.
platform_pauses = Table(
    "platform_pauses",
    metadata,
    Column("platform", Text, primary_key=True),
    Column("cause", Text, nullable=False),
    # The error that caused the pause.
    Column("message", Text, nullable=False),
    # The number of pauses in a row, which decides how long the present one is.
    Column("failures", Integer, nullable=False),
    # When the first of them began.
    Column("paused_at", BigInteger, nullable=False),
    # From this time on one candidate may probe the platform.
    Column("paused_until", BigInteger, nullable=False),
    # When the last probe was leased, until it reports.
    Column("probed_at", BigInteger),
)

# Tries of notes by their error code, since the beginning. `OK` is a success.
collect_tries = Table(
    "collect_tries",
    metadata,
    *required(Text, "platform", "code"),
    Column("tries", BigInteger, nullable=False),
    PrimaryKeyConstraint("platform", "code"),
)


def write_pending_platforms(table: str) -> str:
    """The platforms with pending records, as a table expression `pending(platform)`. The last row is NULL.

    It skips from platform to platform in the index of due records, whose order it names: for `min`, SQLite takes
    another index and reads every collected row. DISTINCT would read every pending row.
    """
    return f"""
    pending(platform) AS (
        SELECT (SELECT platform FROM {table} WHERE status = 'pending' ORDER BY platform, due_at LIMIT 1)
        UNION ALL
        SELECT (
            SELECT platform FROM {table} WHERE status = 'pending' AND platform > pending.platform
            ORDER BY platform, due_at LIMIT 1
        )
        FROM pending WHERE pending.platform IS NOT NULL
    )
    """


def write_oldest_pending(table: str) -> str:
    """The due time of the oldest pending record of each platform, as table expressions: `oldest(platform, due_at)`."""
    return f"""
    {write_pending_platforms(table)}, oldest AS (
        SELECT platform, (
            SELECT min(due_at) FROM {table} AS one WHERE status = 'pending' AND one.platform = pending.platform
        ) AS due_at
        FROM pending WHERE platform IS NOT NULL
    )
    """


# One line, as in the migration: SQLite stores the text of a view.
_EXECUTION_VIEW: Final = (
    "tbl_crawl_execution AS SELECT workflow_name, public_id AS execution_id, status, started_at, heartbeat_at, "
    "completed_at, items_processed, items_failed FROM executions "
    f"WHERE kind = '{COLLECT}'"
)
_CREATE_VIEW: Final = {"sqlite": "CREATE VIEW IF NOT EXISTS", "postgresql": "CREATE OR REPLACE VIEW"}


# As in the migration, word by word.
_SEARCH_INDEX: Final = {
    "postgresql": (f"CREATE INDEX IF NOT EXISTS note_terms_search ON note_terms USING gin ({TERMS_VECTOR})",),
    "sqlite": (
        "CREATE VIRTUAL TABLE IF NOT EXISTS note_search USING fts5(terms, content='note_terms', "
        "content_rowid='source_id', tokenize='ascii', detail=none, columnsize=0)",
        "CREATE TRIGGER IF NOT EXISTS note_terms_added AFTER INSERT ON note_terms BEGIN "
        "INSERT INTO note_search (rowid, terms) VALUES (new.source_id, new.terms); END",
        "CREATE TRIGGER IF NOT EXISTS note_terms_removed AFTER DELETE ON note_terms BEGIN "
        "INSERT INTO note_search (note_search, rowid, terms) VALUES ('delete', old.source_id, old.terms); END",
    ),
}


@event.listens_for(metadata, "after_create")
def _create_other_objects(_target: object, connection: Connection, **_: object) -> None:
    """Create the view and the full-text index, which SQLAlchemy's metadata cannot describe."""
    connection.execute(text(f"{_CREATE_VIEW[connection.dialect.name]} {_EXECUTION_VIEW}"))
    for statement in _SEARCH_INDEX[connection.dialect.name]:
        connection.exec_driver_sql(statement)
