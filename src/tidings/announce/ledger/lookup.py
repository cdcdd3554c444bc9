"""Looks up one page: per channel, when it was last accepted, by which rule it is due or not, and what is open."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select

from tidings.announce.due.pages import PageFilter
from tidings.announce.due.rules import DueRules
from tidings.announce.ledger.ledger import Channel, Entry, ledger
from tidings.announce.ledger.outbox_tables import HASHES, batches, deliveries
from tidings.announce.ledger.packing import read_bits, read_numbers
from tidings.announce.site.site import Site
from tidings.core.clock import Clock, from_milliseconds, read_timestamp, to_milliseconds
from tidings.core.db.database import Database


class LookupRule(StrEnum):
    """Why a page is due at a channel or not. The sitemap is not read: a later lastmod may change the last two."""

    # Due: the channel never accepted it, or has been asked to forget it.
    NEW = "new"
    # Due: it was accepted so long ago that the entry no longer counts.
    EXPIRED = "expired"
    # Not due: it is planned, and waits in the outbox.
    OPEN = "open"
    # Not due: it was accepted so recently that even a change has to wait.
    TOO_SOON = "too_soon"
    # Not due unless its lastmod is later than `accepted_at`.
    ACCEPTED = "accepted"


class LookupRefusal(StrEnum):
    """Why this site never announces a URL."""

    INVALID = "invalid"
    FOREIGN_HOST = "foreign_host"
    OUTSIDE_KEY_LOCATION = "outside_key_location"


@dataclass(frozen=True, slots=True)
class OpenDelivery:
    """One engine that did not take a page so far."""

    # The engine's endpoint, or `bing`.
    engine: str
    # Whether the page left the sitemap; otherwise it is new or changed.
    removed: bool
    # When it was planned.
    planned_at: datetime
    # Requests that carried it, over all executions.
    attempts: int
    # The last failure; both None before the first one.
    reason: str | None
    failed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLookup:
    """What one channel knows of a page."""

    channel: Channel
    rule: LookupRule
    # When it was last accepted; None if never.
    accepted_at: datetime | None = None
    # The lastmod that it had then; None if it had none.
    lastmod: datetime | None = None
    # When the rule ends by itself: the end of the gap, or the expiry of the entry. None if it does not.
    until: datetime | None = None
    # Deliveries that still hold the page, one per engine.
    deliveries: tuple[OpenDelivery, ...] = ()

    @property
    def is_due(self) -> bool:
        """Whether the next execution that finds it in the sitemap plans it, with any lastmod."""
        return self.rule in (LookupRule.NEW, LookupRule.EXPIRED)


@dataclass(frozen=True, slots=True)
class PageLookup:
    """The result of a look-up, or why the site never announces the page."""

    # As it is announced; if it is refused, as it was requested.
    url: str
    refusal: LookupRefusal | None = None
    # One for each channel that was asked for.
    channels: tuple[ChannelLookup, ...] = ()


async def find_page(
    site: Site,
    url: str,
    *,
    database: Database,
    clock: Clock,
    rules: DueRules,
    channels: Collection[Channel],
) -> PageLookup:
    """Was this page announced? Reads ledger and outbox, and nothing from the site.

    `channels`: those that the site has switched on. A channel that took the page before is named as well.
    """
    pages = PageFilter(site)
    listing = pages.read([(url.strip().encode("utf-8", "replace"), b"")])
    if not listing.urls:
        return PageLookup(url, _find_refusal(pages))
    url_hash, now = listing.hashes[0], to_milliseconds(clock.now())
    entries = await _find_entries(database, url_hash, site=site.number)
    waiting = await _find_deliveries(database, url_hash, site=site.number)
    named = [each for each in Channel if each in channels or each in entries or each in waiting]
    found = [_judge(each, entries.get(each), waiting.get(each, []), rules=rules, now=now) for each in named]
    return PageLookup(listing.urls[0].decode(), channels=tuple(found))


async def _find_entries(database: Database, url_hash: int, *, site: int) -> dict[Channel, Entry]:
    statement = select(ledger.c.channel, ledger.c.submitted_at, ledger.c.lastmod).where(
        ledger.c.site == site,
        ledger.c.channel.in_([each.value for each in Channel]),
        ledger.c.url_hash == url_hash,
    )
    return {Channel(row[0]): Entry(row[1], row[2]) for row in await database.fetch(statement)}


async def _find_deliveries(database: Database, url_hash: int, *, site: int) -> dict[Channel, list[OpenDelivery]]:
    """The deliveries that hold this page, by channel and engine. Reads the hashes of every open batch of the site."""
    statement = (
        select(deliveries, batches.c.removed, batches.c.created_at, HASHES)
        .join(batches, batches.c.id == deliveries.c.batch)
        .where(deliveries.c.site == site)
        .order_by(deliveries.c.engine, deliveries.c.id)
    )
    found: dict[Channel, list[OpenDelivery]] = {}
    async with database.read() as connection, connection.stream(statement) as rows:
        async for row in rows:
            numbers = read_numbers(row.hashes)
            if url_hash in numbers and read_bits(row.pending) >> numbers.index(url_hash) & 1:
                planned_at, failed_at = from_milliseconds(row.created_at), read_timestamp(row.failed_at)
                each = OpenDelivery(row.engine, row.removed, planned_at, row.attempts, row.reason, failed_at)
                found.setdefault(Channel(row.channel), []).append(each)
    return found


def _judge(
    channel: Channel, entry: Entry | None, waiting: list[OpenDelivery], *, rules: DueRules, now: int
) -> ChannelLookup:
    expires = gap_ends = None
    if entry is not None:
        accepted_at = from_milliseconds(entry.submitted_at)
        expires, gap_ends = accepted_at + rules.time_to_live, accepted_at + rules.resubmit_gap
    until = None
    if waiting:
        rule = LookupRule.OPEN
    elif expires is None or gap_ends is None:
        rule = LookupRule.NEW
    elif expires <= from_milliseconds(now):
        rule = LookupRule.EXPIRED
    elif gap_ends > from_milliseconds(now):
        rule, until = LookupRule.TOO_SOON, gap_ends
    else:
        rule, until = LookupRule.ACCEPTED, expires
    return ChannelLookup(
        channel=channel,
        rule=rule,
        accepted_at=None if entry is None else from_milliseconds(entry.submitted_at),
        lastmod=None if entry is None else read_timestamp(entry.lastmod),
        until=until,
        deliveries=tuple(waiting),
    )


def _find_refusal(pages: PageFilter) -> LookupRefusal:
    if pages.dropped.foreign_host:
        return LookupRefusal.FOREIGN_HOST
    return LookupRefusal.OUTSIDE_KEY_LOCATION if pages.dropped.outside_key_location else LookupRefusal.INVALID
