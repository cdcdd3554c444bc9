"""The tables of the queue on PostgreSQL, as Procrastinate 3.10 has them. SQLite has none."""

from alembic import op

from tidings.core.queue.schema import CREATE_QUEUE, DROP_QUEUE

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    _execute(CREATE_QUEUE)


def downgrade() -> None:
    _execute(DROP_QUEUE)


def _execute(statements: str) -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # Without parameters psycopg leaves percent signs alone, and sends many statements at once.
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
