"""That a workflow failed as a whole, which its candidates cannot tell: whoever drives it from outside reports it, and a
person is told. It is over when the workflow next comes to its end.
"""

from typing import Final

from tidings.core.alerts import Alert, Alerts
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionStatus

KIND: Final = "workflow_failed"

_ACTION: Final = "look at this execution where the workflow runs; what it had leased is tried again by itself"
# `partial` is about single candidates, which are counted elsewhere: the workflow itself did its work.
_WELL: Final = frozenset({ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL})


async def report_failure(
    workflow_name: str, message: str, *, execution_id: str | None, database: Database, alerts: Alerts
) -> None:
    """The workflow failed; `execution_id` is what its driver calls that run."""
    where = "" if execution_id is None else f"execution {execution_id}: "
    alert = Alert(kind=KIND, subject=workflow_name, reason=f"{where}{message or 'no reason was given'}", action=_ACTION)
    async with database.write() as connection:
        await alerts.raise_alert(connection, alert)
    alerts.wake()


async def note_end(workflow_name: str, status: ExecutionStatus, *, database: Database, alerts: Alerts) -> None:
    """An execution of the workflow has ended; if well, the failure before it is over."""
    if status not in _WELL:
        return
    async with database.write() as connection:
        await alerts.resolve_alert(connection, KIND, workflow_name)
    alerts.wake()
