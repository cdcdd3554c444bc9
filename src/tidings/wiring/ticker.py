"""Builds the ticker: what is due in both pipelines, and the chores that every service does."""

from datetime import timedelta

from tidings.collect.run.jobs import CollectSchedule
from tidings.core.db.database import newest_revision
from tidings.core.execution_history import purge_executions
from tidings.core.queue.alerts import watch_workers
from tidings.core.queue.tick import Ticker
from tidings.wiring.collect import list_collect_intervals
from tidings.wiring.installation import WATCH, WATCH_EVERY, Installation


def make_ticker(installation: Installation) -> Ticker:
    """The ticker of an installation: it submits what is due."""
    service, periodic = installation.service, installation.periodic

    async def sync_schedules() -> None:
        """Make schedules match the sites once for each revision of the tables: with many sites it takes seconds."""
        name, forever = f"announce.sync {newest_revision()}", timedelta(days=36_500)
        async with installation.database.read() as connection:
            if not await periodic.list_due(connection, {name: forever}):
                return
        await installation.schedules.sync()
        await periodic.begin(name, every=forever)

    async def watch() -> None:
        queues = ("announce", "collect")
        await watch_workers(
            installation.dispatcher, queues=queues, database=installation.database, alerts=installation.alerts
        )

    async def purge() -> None:
        if kept_for := installation.settings.execution_retention:
            await purge_executions(installation.database, clock=installation.clock, older_than=kept_for)

    return Ticker(
        installation.dispatcher,
        clock=installation.clock,
        periodic=periodic,
        prepare=sync_schedules,
        recover=installation.executions.recover,
        requested=service.list_requested,
        due={
            "announce": service.list_due,
            "collect": CollectSchedule(periodic, list_collect_intervals(installation.settings)).list_due,
        },
        chores={
            WATCH: (WATCH_EVERY, service.watch_over),
            "queue.watch": (timedelta(minutes=1), watch),
            "executions.purge": (timedelta(days=1), purge),
        },
        find_next_due=installation.schedules.find_next_due,
    )
