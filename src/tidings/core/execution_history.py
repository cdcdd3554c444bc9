"""The history of executions: how long ended ones are kept."""

from datetime import timedelta

from sqlalchemy import delete, select

from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import ExecutionStatus, executions
from tidings.core.logs.logger import get_logger

# So many executions of a workflow stay, however old they are.
KEPT = 30
_PURGE_BLOCK = 1_000

_log = get_logger(__name__)


async def purge_executions(database: Database, *, clock: Clock, older_than: timedelta) -> int:
    """Delete ended executions that are older, but the newest 30 of each workflow. Returns how many."""
    before, newer = to_milliseconds(clock.now() - older_than), executions.alias("newer")
    kept_from = (
        select(newer.c.id)
        .where(newer.c.workflow_name == executions.c.workflow_name)
        .order_by(newer.c.id.desc())
        .offset(KEPT - 1)
        .limit(1)
        .scalar_subquery()
    )
    old = select(executions.c.id).where(
        executions.c.status != ExecutionStatus.RUNNING.value,
        executions.c.completed_at < before,
        executions.c.id < kept_from,
    )
    deleted, count = 0, _PURGE_BLOCK
    while count == _PURGE_BLOCK:
        async with database.write() as connection:
            purge = delete(executions).where(executions.c.id.in_(old.limit(_PURGE_BLOCK)))
            count = (await connection.execute(purge)).rowcount
        deleted += count
    _log.info("executions.purged", executions=deleted)
    return deleted
