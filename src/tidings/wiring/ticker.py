"""Builds the ticker with the due work of both pipelines, and the chores of every service."""

from datetime import timedelta

from sqlalchemy import or_, select

from tidings.announce.schedule.table import may_be_due as may_schedule_be_due
from tidings.collect.run.jobs import CollectSchedule
from tidings.core.clock import to_milliseconds
from tidings.core.db.revisions import newest_revision
from tidings.core.execution_requests import is_requested
from tidings.core.execution_table import purge_executions
from tidings.core.queue.alerts import watch_workers
from tidings.core.queue.periodic import any_job_due
from tidings.core.queue.tick import Ticker
from tidings.wiring.collect import list_collect_intervals
from tidings.wiring.installation import WATCH, WATCH_EVERY, Installation


def make_ticker(installation: Installation) -> Ticker:
    """The ticker of an installation: it submits what is due."""
    service, periodic = installation.service, installation.periodic
    intervals = list_collect_intervals(installation.settings)

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

    chores = {
        WATCH: (WATCH_EVERY, service.watch_over),
        "queue.watch": (timedelta(minutes=1), watch),
        "executions.purge": (timedelta(days=1), purge),
    }
    short_look = select(or_(is_requested, may_schedule_be_due, any_job_due([*chores, *intervals])).label("due"))

    async def look_shortly() -> bool:
        [row] = await installation.database.look_up(short_look, {"now": to_milliseconds(installation.clock.now())})
        return bool(row.due)

    return Ticker(
        installation.dispatcher,
        clock=installation.clock,
        periodic=periodic,
        prepare=sync_schedules,
        recover=installation.executions.recover,
        may_be_due=look_shortly,
        requested=service.list_requested,
        due={
            "announce": service.list_due,
            "collect": CollectSchedule(periodic, intervals).list_due,
        },
        chores=chores,
        find_next_due=installation.schedules.find_next_due,
    )
