"""The tables of Procrastinate, which a new PostgreSQL database gets with ours. Its SQL is beside this file; a test
holds it equal to the installed package."""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, event

from tidings.core.db.database import metadata

CREATE_QUEUE: Final = (Path(__file__).parent / "procrastinate.sql").read_text()

DROP_QUEUE: Final = """
DROP TABLE procrastinate_events, procrastinate_periodic_defers, procrastinate_jobs, procrastinate_workers CASCADE;
DO $$
DECLARE
    each record;
BEGIN
    FOR each IN SELECT oid::regprocedure AS name FROM pg_proc
        WHERE proname LIKE 'procrastinate\\_%' AND pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE 'DROP FUNCTION ' || each.name || ' CASCADE';
    END LOOP;
END;
$$;
DROP TYPE procrastinate_job_to_defer_v1, procrastinate_job_status, procrastinate_job_event_type;
"""


@event.listens_for(metadata, "after_create")
def create_queue(_metadata: object, connection: Connection, **_options: Any) -> None:
    """Create the tables of the queue after ours, in a new database."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(CREATE_QUEUE, execution_options={"no_parameters": True})
