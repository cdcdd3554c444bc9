"""The mirror of four tables: a source is named by its idempotency key, and rows of the keyword table are read once."""

import json
from collections.abc import Callable

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0016"
down_revision = "0015"

FIRST_VERSION = "_v1"
SOURCES = "tbl_source"


def upgrade() -> None:
    op.create_table(
        "mirror_requests",
        *required(sa.Text, "table_id", "record_id"),
        sa.Column("read_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("table_id", "record_id"),
    )
    for table in ("mirror_outbox", "mirror_records", "mirror_failures"):
        op.execute(f"UPDATE {table} SET note_id = note_id || '{FIRST_VERSION}' WHERE table_name = '{SOURCES}'")
    rename_intended(lambda note_id: note_id + FIRST_VERSION)


def downgrade() -> None:
    for table in ("mirror_outbox", "mirror_records", "mirror_failures"):
        # The release before knows one version of a note.
        op.execute(f"DELETE FROM {table} WHERE table_name = '{SOURCES}' AND note_id NOT LIKE '%!_v1' ESCAPE '!'")
        op.execute(
            f"UPDATE {table} SET note_id = substr(note_id, 1, length(note_id) - {len(FIRST_VERSION)}) "
            f"WHERE table_name = '{SOURCES}'"
        )
    rename_intended(lambda note_id: note_id.removesuffix(FIRST_VERSION))
    # The release before mirrors two tables, and knows no other state.
    for table in ("mirror_outbox", "mirror_records", "mirror_failures", "mirror_intents", "mirror_state"):
        op.execute(f"DELETE FROM {table} WHERE table_name NOT IN ('tbl_candidate', '{SOURCES}')")
    op.drop_table("mirror_requests")


def rename_intended(rename: Callable[[str], str]) -> None:
    """Rename the sources of the create in progress, if there is one."""
    intents = sa.table("mirror_intents", sa.column("table_name"), sa.column("body"))
    connection = op.get_bind()
    chosen = intents.c.table_name == SOURCES
    for (body,) in connection.execute(sa.select(intents.c.body).where(chosen)).all():
        rows = [[platform, rename(note_id), fields] for platform, note_id, fields in json.loads(body)]
        connection.execute(sa.update(intents).where(chosen).values(body=json.dumps(rows)))
