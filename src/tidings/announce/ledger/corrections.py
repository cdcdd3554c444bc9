"""Corrections of the ledger: undo a bad execution, or have some pages sent again.

Both run as an execution of the site, because another one at the same time would have read the ledger before.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.due.pages import PageFilter
from tidings.announce.ledger.failed_pages import FailedPages
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.ledger.outbox import Outbox
from tidings.announce.site.site import CORRECTION, Site
from tidings.announce.sitemap.validators import SitemapValidators
from tidings.core.clock import to_milliseconds, to_text
from tidings.core.db.database import Database
from tidings.core.executions import Executions, ExecutionStatus


async def forget_since(
    site: Site, since: datetime, *, channel: ChannelChoice, database: Database, executions: Executions
) -> int:
    """Pages announced since then count as not announced. Returns how many entries; raises AlreadyRunningError."""

    async def forget(connection: AsyncConnection) -> int:
        count, at = 0, to_milliseconds(since)
        for each in _list_channels(channel):
            count += await Ledger(database, site=site.number, channel=each).forget(connection, since=at)
            # Pages that were planned since then and wait for an engine are due by the ledger as well.
            await Outbox(database, site=site.number, channel=each).drop_since(connection, since=at)
        return count

    done = {"since": to_text(since), "channel": channel.value}
    return await _correct(site, forget, done, database=database, executions=executions)


async def requeue(
    site: Site, urls: Sequence[str], *, channel: ChannelChoice, database: Database, executions: Executions
) -> int:
    """The next execution that finds these pages in the sitemap sends them again.

    Returns how many entries were taken out; raises AlreadyRunningError.
    """
    listing = PageFilter(site).read([(url.strip().encode("utf-8", "replace"), b"") for url in urls])
    hashes = dict.fromkeys(_list_channels(channel), sorted(listing.hashes))
    done = {"urls": len(urls), "channel": channel.value}
    return await _remove(site, hashes, done, database=database, executions=executions)


async def requeue_failed(site: Site, *, database: Database, executions: Executions) -> int:
    """Every page that failed and is open is sent again to all engines of its channel, as `requeue` does.

    Returns how many pages that are; raises AlreadyRunningError.
    """
    found: dict[Channel, Sequence[int]] = {}
    for each in Channel:
        hashes: set[int] = set()
        async for block in FailedPages(database, site=site.number, channel=each).list_hashes():
            hashes.update(block)
        found[each] = sorted(hashes)
    done = {"failed": True, "channel": ChannelChoice.ALL.value}
    await _remove(site, found, done, database=database, executions=executions)
    return sum(map(len, found.values()))


async def count_since(site: Site, since: datetime, *, channel: ChannelChoice, database: Database) -> int:
    """How many entries `forget_since` would take out."""
    at = to_milliseconds(since)
    return sum(
        [await Ledger(database, site=site.number, channel=each).count(since=at) for each in _list_channels(channel)]
    )


def _list_channels(choice: ChannelChoice) -> Sequence[Channel]:
    return tuple(Channel) if choice is ChannelChoice.ALL else (Channel[choice.name],)


async def _remove(
    site: Site,
    hashes: Mapping[Channel, Sequence[int]],
    done: dict[str, Any],
    *,
    database: Database,
    executions: Executions,
) -> int:
    """Take these entries out of the ledger."""

    async def remove(connection: AsyncConnection) -> int:
        ledgers = {each: Ledger(database, site=site.number, channel=each) for each in hashes}
        return sum([await ledger.remove(connection, hashes[each]) for each, ledger in ledgers.items()])

    return await _correct(site, remove, done, database=database, executions=executions)


async def _correct(
    site: Site,
    work: Callable[[AsyncConnection], Awaitable[int]],
    done: dict[str, Any],
    *,
    database: Database,
    executions: Executions,
) -> int:
    result: dict[str, Any] = {"forgotten": 0, **done}

    async def correct(connection: AsyncConnection) -> None:
        await SitemapValidators(database, site=site.number).forget(connection)
        result["forgotten"] = await work(connection)

    with executions.hold():
        execution = await executions.acquire(site.workflow_name, kind=CORRECTION)
        try:
            await executions.finish(execution, ExecutionStatus.SUCCEEDED, result=result, also=correct)
        except BaseException:
            await executions.abandon(execution)
            raise
    return int(result["forgotten"])
