"""Corrections of the ledger: undo a bad execution, or have some pages sent again.

Both are done as an execution of the site: one that ran meanwhile would remember what it had seen before.
"""

from collections.abc import Awaitable, Callable, Sequence
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

_LEDGERS = {
    ChannelChoice.ALL: tuple(Channel),
    ChannelChoice.INDEXNOW: (Channel.INDEXNOW,),
    ChannelChoice.BING: (Channel.BING,),
    ChannelChoice.BAIDU: (Channel.BAIDU,),
    ChannelChoice.GOOGLE: (Channel.GOOGLE,),
}


async def forget_since(
    site: Site, since: datetime, *, channel: ChannelChoice, database: Database, executions: Executions
) -> int:
    """What was announced since then counts as not announced. Returns how many entries; raises AlreadyRunningError."""

    async def forget(connection: AsyncConnection) -> int:
        count, at = 0, to_milliseconds(since)
        for each in _LEDGERS[channel]:
            count += await Ledger(database, site=site.number, channel=each).forget(connection, since=at)
            # Pages that were planned since then and wait for an engine are due by the ledger as well.
            await Outbox(database, site=site.number, channel=each).drop_since(connection, since=at)
        return count

    done = {"since": to_text(since), "channel": channel.value}
    return await _correct(site, forget, done, database=database, executions=executions)


async def requeue(
    site: Site, urls: Sequence[str], *, channel: ChannelChoice, database: Database, executions: Executions
) -> int:
    """These pages are sent again by the next execution that finds them in the sitemap.

    Returns how many entries were taken out; raises AlreadyRunningError.
    """
    listing = PageFilter(site).read([(url.strip().encode("utf-8", "replace"), b"") for url in urls])
    hashes = sorted(listing.hashes)

    async def take_out(connection: AsyncConnection) -> int:
        counts = [
            await Ledger(database, site=site.number, channel=each).remove(connection, hashes)
            for each in _LEDGERS[channel]
        ]
        return sum(counts)

    done = {"urls": len(urls), "channel": channel.value}
    return await _correct(site, take_out, done, database=database, executions=executions)


async def requeue_failed(site: Site, *, database: Database, executions: Executions) -> int:
    """Every page that failed and is open is sent again to all engines of its channel, as `requeue` does.

    Returns how many pages that are; raises AlreadyRunningError.
    """
    pages = 0
    result: dict[str, Any] = {"failed": True, "channel": ChannelChoice.ALL.value}
    found: dict[Channel, list[int]] = {}
    for each in Channel:
        hashes: set[int] = set()
        async for block in FailedPages(database, site=site.number, channel=each).list_hashes():
            hashes.update(block)
        found[each] = sorted(hashes)
        pages += len(hashes)

    async def take_out(connection: AsyncConnection) -> int:
        counts = [
            await Ledger(database, site=site.number, channel=each).remove(connection, hashes)
            for each, hashes in found.items()
        ]
        return sum(counts)

    await _correct(site, take_out, result, database=database, executions=executions)
    return pages


async def count_since(site: Site, since: datetime, *, channel: ChannelChoice, database: Database) -> int:
    """How many entries `forget_since` would take out."""
    at = to_milliseconds(since)
    return sum([await Ledger(database, site=site.number, channel=each).count(since=at) for each in _LEDGERS[channel]])


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
