"""Alembic's entry point. It runs on the connection and in the transaction of `core.db.database`."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
