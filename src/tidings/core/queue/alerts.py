"""The alert of the queue: no worker takes its jobs."""

from datetime import timedelta
from typing import Final

from tidings.core.alerts.events import Alert
from tidings.core.alerts.kinds import AlertKind, AlertLevel
from tidings.core.alerts.service import Alerts
from tidings.core.db.database import Database
from tidings.core.queue.dispatcher import Dispatcher

ALERT_AFTER: Final = timedelta(minutes=10)


class QueueAlert(AlertKind):
    """Each is about the subject that its comment names."""

    # A queue: no living worker takes its jobs.
    NO_WORKERS = "no_workers", AlertLevel.P1, "P1: no worker takes jobs", "P1：没有工作进程处理任务"


async def watch_workers(dispatcher: Dispatcher, *, queues: tuple[str, ...], database: Database, alerts: Alerts) -> None:
    """Once a minute: raise an alert for a queue without a living worker for ten minutes."""
    served = {queue for worker in await dispatcher.list_workers() if not worker.dead for queue in worker.queues}
    async with database.write() as connection:
        for queue in queues:
            if queue in served:
                await alerts.resolve_alert(connection, QueueAlert.NO_WORKERS, queue)
                continue
            alert = Alert(
                kind=QueueAlert.NO_WORKERS,
                subject=queue,
                reason=f"no worker takes jobs of {queue}; what is due waits in the tables, nothing is lost",
                action="Start `tidings worker`, or `tidings serve` without --no-work; `tidings workers` shows them.",
            )
            await alerts.raise_alert(connection, alert, after=ALERT_AFTER)
    alerts.wake()
