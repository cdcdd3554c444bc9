"""Keeps pauses over a restore: a backup does not contain a pause that was set before restoring it. So the operator can
check the result before anything is executed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.schedule.table import EVERYTHING, schedules
from tidings.announce.site.table import sites
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database


@dataclass(frozen=True, slots=True)
class Pauses:
    """What is paused."""

    # All sites together.
    everything: bool = False
    # The ids of the sites that are paused one by one.
    sites: Sequence[str] = ()


async def read_pauses(database: Database) -> Pauses:
    """The present pauses. The tables must exist."""
    paused = schedules.c.paused_at.is_not(None)
    everything = select(schedules.c.site).where(schedules.c.site == EVERYTHING, paused)
    one_by_one = select(sites.c.id).join(schedules, schedules.c.site == sites.c.number).where(paused)
    async with database.read() as connection:
        return Pauses(
            (await connection.execute(everything)).first() is not None,
            list((await connection.execute(one_by_one)).scalars()),
        )


async def keep_pauses(connection: AsyncConnection, pauses: Pauses, *, database: Database, clock: Clock) -> None:
    """In the caller's transaction: pause the same sites again, where they exist."""
    paused_at = to_milliseconds(clock.now())
    if pauses.everything:
        everything = database.insert(schedules).values(site=EVERYTHING, cron="", paused_at=paused_at)
        pause = everything.on_conflict_do_update(index_elements=["site"], set_={"paused_at": paused_at})
        await connection.execute(pause)
    for site_id in pauses.sites:
        number = select(sites.c.number).where(sites.c.id == site_id).scalar_subquery()
        await connection.execute(update(schedules).where(schedules.c.site == number).values(paused_at=paused_at))
