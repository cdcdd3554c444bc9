"""SQL for the quota of one day as columns beside each site, for statements that read many sites at once."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from sqlalchemy import ColumnElement, FromClause, and_, null

from tidings.announce.channels.quota.quota import QuotaState, channel_quota, select_allowed, select_elsewhere
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.site.table import sites
from tidings.core.clock import read_timestamp

_STORED = ("used", "allowed", "full", "updated_at", "submitted_at")


def join_quota(tables: FromClause, kind: RankedKind, *, day: Any) -> tuple[FromClause, list[ColumnElement[Any]]]:
    """The tables, which `sites` is among, with the quota of this day; and the columns for `read_quota`."""
    channel, today = kind.channel, channel_quota.alias(f"{kind.channel}_today")
    lately = select_allowed(sites.c.number, channel, day=day).scalar_subquery() if kind.tells_limit else null()
    columns = [
        *(today.c[name].label(f"{channel}_{name}") for name in _STORED),
        *select_elsewhere(kind, site=sites.c.number, project=sites.c.google_project, day=day),
        lately.label(f"{channel}_allowed_lately"),
    ]
    is_today = and_(today.c.site == sites.c.number, today.c.channel == channel.value, today.c.day == day)
    return tables.outerjoin(today, is_today), columns


def read_quota(row: Any, kind: RankedKind, settings: Mapping[str, Any], *, day: date) -> QuotaState:
    """The quota of a row's site. `settings` are those that the table of sites stores."""

    def read(name: str) -> Any:
        return getattr(row, f"{kind.channel}_{name}")

    return QuotaState(
        day,
        kind.find_limit(settings, allowed=read("allowed_lately")),
        used=(read("used") or 0) + read("used_elsewhere"),
        full=bool(read("full") or read("full_elsewhere")),
        updated_at=read_timestamp(read("updated_at")),
        submitted_at=read_timestamp(read("submitted_at")),
        zone=kind.zone,
        learned=read("allowed") is not None,
    )
