"""Alembic's entry: runs on the connection and inside the transaction that `core.database` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
