"""The overview: open alerts, key figures, sites, and collection at a glance; and the list of sites."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from tidings.announce.channels.quota.kinds import find_kind as find_channel_kind
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import DayCount, read_days
from tidings.announce.overview import (
    DAYS,
    NEEDS_ATTENTION,
    SiteCondition,
    SiteOrder,
    SitePage,
    SiteSummary,
    list_sites,
)
from tidings.collect.status.overview import CollectionSummary, read_collection
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.middleware.auth import GRANT
from tidings.web.pages.alerts import fold_alerts
from tidings.web.pages.collect import describe_collection
from tidings.web.pages.view.charts import SmallBars, draw_small_bars
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.rendering import FrameCounts
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, require_scope

# Rows of the table: on the overview, collection stands below it.
PAGE_SIZES: Final = {"/": 10, "/sites": 25}
_LONGEST_SEARCH: Final = 100
_SHOWN_ALERTS: Final = 5
# A database takes no offset of any size.
_FURTHEST: Final = 1_000_000

_SEGMENTS: Final[Mapping[str, Sequence[SiteCondition]]] = {
    "": (),
    "attention": NEEDS_ATTENTION,
    "running": (SiteCondition.RUNNING,),
    "new": (SiteCondition.NEW,),
    "ok": (SiteCondition.OK,),
    "paused": (SiteCondition.PAUSED,),
}


@dataclass(frozen=True, slots=True)
class ChannelCell:
    """One channel of one site: 30 days as bars, and the quota where the channel has one."""

    name: str
    off: bool = False
    chart: SmallBars | None = None
    label: str = ""
    accepted: int = 0
    failed: int = 0
    used: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True)
class SiteQuery:
    """The search and filters of the list of sites, as in the URL's query."""

    path: str
    search: str = ""
    # A filter by state; an unknown one filters nothing.
    state: str = ""
    sort: str = ""
    # How many sites come before the page.
    start: int = 0
    group: str = ""

    @property
    def conditions(self) -> Sequence[SiteCondition]:
        return _SEGMENTS.get(self.state, ())

    @property
    def size(self) -> int:
        return PAGE_SIZES[self.path]

    @property
    def order(self) -> SiteOrder:
        return SiteOrder(self.sort) if self.sort in set(SiteOrder) else SiteOrder.URGENT

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the query without the page."""
        sort = "" if self.order is SiteOrder.URGENT else self.order.value
        return {"q": self.search, "state": self.state, "group": self.group, "sort": sort}


def make_overview_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()

    @router.get("/")
    async def show_overview(
        request: Request,
        q: str = Query("", max_length=_LONGEST_SEARCH),
        state: str = "",
        sort: str = SiteOrder.URGENT.value,
        start: int = Query(0, ge=0, le=_FURTHEST, alias="from"),
    ) -> Response:
        grant: Grant = request.scope[GRANT]
        if not grant.allows((Scope.VIEWER,)) or grant.group is not None:
            # The figures of the overview are of all sites.
            return dashboard.renderer.redirect(dashboard.renderer.find_home(request))
        formats = dashboard.renderer.formats(request)
        shown = await _make_list(dashboard, formats, SiteQuery("/", q, state, sort, start))
        installation = dashboard.installation
        alerts = await installation.alerts.list_open(limit=_SHOWN_ALERTS)
        open_alerts = len(alerts) if len(alerts) < _SHOWN_ALERTS else await installation.alerts.count_open()
        # A viewer sees what announce does.
        sees_notes = grant.allows((Scope.WORKFLOW,))
        collection = await read_collection(installation.database, clock=installation.clock) if sees_notes else None
        return dashboard.renderer.render(
            request,
            "overview.html",
            counts=FrameCounts(open_alerts=open_alerts, sites=shown["total"]),
            alerts=fold_alerts(alerts, formats, may_change=grant.scope is not Scope.VIEWER),
            figures=await _make_figures(dashboard, formats, shown["page"], collection),
            list=shown,
            sees_notes=sees_notes,
            collection=None
            if collection is None
            else describe_collection(collection, formats, mirrored=installation.collect.mirror is not None),
        )

    @router.get("/sites")
    async def show_sites(
        request: Request,
        q: str = Query("", max_length=_LONGEST_SEARCH),
        state: str = "",
        sort: str = SiteOrder.URGENT.value,
        start: int = Query(0, ge=0, le=_FURTHEST, alias="from"),
        group: str = Query("", max_length=_LONGEST_SEARCH),
    ) -> Response:
        grant = require_scope(request, Scope.VIEWER)
        formats = dashboard.renderer.formats(request)
        groups = [] if grant.group is not None else await dashboard.installation.sites.list_groups()
        asked = SiteQuery("/sites", q, state, sort, start, group if groups else "")
        shown = await _make_list(dashboard, formats, asked, groups=groups, within=grant.group)
        return await dashboard.render(request, "sites.html", list=shown)

    return router


async def _make_list(
    dashboard: Dashboard, formats: Formats, asked: SiteQuery, *, groups: Sequence[str] = (), within: str | None = None
) -> dict[str, Any]:
    """The sites table as its template needs it.

    `groups`: those that the person may choose from. `within`: the only group that the person may see.
    """
    installation = dashboard.installation
    page = await list_sites(
        installation.database,
        clock=installation.clock,
        search=asked.search.strip(),
        group=within or asked.group or None,
        conditions=asked.conditions,
        order=asked.order,
        offset=asked.start,
        limit=asked.size,
    )
    query, channels = asked.fields, _list_channels(page)
    return {
        "path": asked.path,
        "page": page,
        "search": asked.search,
        "group": asked.group,
        "groups": groups,
        "state": asked.state,
        "order": asked.order.value,
        "orders": [each.value for each in SiteOrder],
        "segments": _make_segments(page, formats, path=asked.path, query=query),
        "columns": [_describe_column(channel, formats) for channel in channels],
        "rows": [_describe_row(site, channels, formats) for site in page.sites],
        "found": page.found,
        "total": page.total,
        "is_filtered": bool(asked.search.strip() or asked.conditions or asked.group),
        "pager": make_pager(
            asked.path, query, start=asked.start, shown=len(page.sites), total=page.found, size=asked.size
        ),
    }


def make_pager(
    path: str, query: Mapping[str, str], *, start: int, shown: int, total: int, size: int
) -> dict[str, Any] | None:
    """Links to the neighbouring pages; None where one page holds everything."""
    if total <= size and not start:
        return None
    return {
        "first": start + 1 if shown else 0,
        "last": start + shown,
        "total": total,
        "previous": make_link(path, query, start=max(0, start - size)) if start else None,
        "next": make_link(path, query, start=start + size) if start + shown < total else None,
    }


def make_link(path: str, query: Mapping[str, str], *, start: int = 0) -> str:
    """The path with the query's fields that are not empty."""
    fields = {name: value for name, value in query.items() if value}
    if start:
        fields["from"] = str(start)
    return f"{path}?{urlencode(fields)}" if fields else path


def _make_segments(page: SitePage, formats: Formats, *, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
    segments = []
    for name, conditions in _SEGMENTS.items():
        count = sum(page.counts.get(each, 0) for each in conditions) if name else page.total
        if name and not count and query["state"] != name:
            continue
        segments.append(
            {
                "href": make_link(path, {**query, "state": name}),
                "title": formats.texts(f"sites.segment.{name or 'all'}"),
                # They are those of all sites, so beside a search they would mislead.
                "count": None if query["q"] else count,
                "current": query["state"] == name,
            }
        )
    return segments


def _describe_row(site: SiteSummary, channels: Sequence[Channel], formats: Formats) -> dict[str, Any]:
    accepted = site.last_result.get("submitted")
    if site.running_since is not None:
        last: Markup | str = formats.texts("sites.running")
        last_text = formats.duration(formats.now - site.running_since)
    else:
        last = formats.ago(site.last_at)
        last_text = "" if accepted is None else formats.texts("sites.accepted_count", n=formats.number(accepted))
    overdue = site.condition is SiteCondition.OVERDUE
    expected = (
        formats.texts("sites.expected", time=str(formats.relative(site.next_at).striptags())) if overdue else None
    )
    return {
        "id": site.id,
        "href": locate_site(site.id),
        "condition": site.condition,
        "reason": _shorten(formats.say(site.reason)) or expected,
        "last": last,
        "last_text": last_text,
        "next": formats.relative(site.next_at),
        "overdue": overdue,
        "channels": [_describe_channel(site, channel, formats) for channel in channels],
    }


def _shorten(reason: str) -> str:
    """The first sentence: the site's page has all of it."""
    return re.split(r"(?<=[^. ]{2})\. |。", reason, maxsplit=1)[0]


def _list_channels(page: SitePage) -> list[Channel]:
    """The columns of the table: IndexNow and Bing, and every other channel that a site on this page has on."""
    used = {channel for site in page.sites for channel in site.channels}
    return [channel for channel in Channel if channel <= Channel.BING or channel in used]


def _describe_column(channel: Channel, formats: Formats) -> tuple[str, str]:
    """A channel's name, and what stands below its chart."""
    texts = formats.texts
    if channel is Channel.INDEXNOW:
        return texts(f"channel.{channel}"), texts("sites.column.accepted")
    resets = find_reset(channel, formats.now)
    return texts(f"channel.{channel}"), texts("sites.column.resets", span=formats.span(resets - formats.now))


def find_reset(channel: Channel, now: datetime) -> datetime:
    """When the channel's quota resets: each channel has a day of its own."""
    kind = find_channel_kind(channel)
    return QuotaState(kind.find_day(now), 0, zone=kind.zone).resets_at


def _describe_channel(site: SiteSummary, channel: Channel, formats: Formats) -> ChannelCell:
    name = formats.texts(f"channel.{channel}")
    if channel not in site.channels:
        return ChannelCell(name, off=True)
    counts = site.days.get(channel, [DayCount()] * DAYS)
    accepted = [count.successful for count in counts]
    failed = [count.total - count.successful for count in counts]
    today = formats.now.astimezone(UTC).date()
    label = formats.texts(
        "chart.strip",
        channel=name,
        accepted=formats.number(sum(accepted)),
        failed=formats.number(sum(failed)),
        first=formats.date(today - timedelta(days=DAYS - 1)),
        last=formats.date(today),
    )
    quota = site.quotas.get(channel)
    return ChannelCell(
        name,
        chart=draw_small_bars(accepted, failed),
        label=label,
        accepted=sum(accepted),
        failed=sum(failed),
        used=quota.used if quota else 0,
        limit=quota.limit if quota else 0,
    )


async def _make_figures(
    dashboard: Dashboard, formats: Formats, page: SitePage, collection: CollectionSummary | None
) -> list[dict[str, Any]]:
    """At most four key figures, each with a link to its list."""
    today = formats.now.astimezone(UTC).date()
    days = await read_days(dashboard.installation.database, today=today, days=2)
    yesterday, current = days[today - timedelta(days=1)], days[today]
    accepted = sum(count.successful for count in current.values())
    before = sum(count.successful for count in yesterday.values())
    failed = sum(count.total - count.successful for count in current.values())
    texts = formats.texts
    return [
        {
            "href": "/sites?state=attention",
            "name": texts("overview.attention"),
            "value": formats.number(page.attention),
            "context": texts("overview.attention_of", n=formats.number(page.total)),
        },
        {
            "href": "/sites",
            "name": texts("overview.accepted_today"),
            "value": formats.number(accepted),
            "context": texts("overview.yesterday", n=formats.number(before)),
        },
        {
            "href": "/sites?state=attention",
            "name": texts("overview.failed_today"),
            "value": formats.number(failed),
            "context": "",
        },
        *_make_collection_figure(collection, formats),
    ]


def _make_collection_figure(collection: CollectionSummary | None, formats: Formats) -> list[dict[str, Any]]:
    if collection is None or collection.is_empty:
        return []
    collected, failed = (
        sum(getattr(of, name) for of in collection.platforms.values()) for name in ("collected", "failed")
    )
    return [
        {
            "href": "/candidates",
            "name": formats.texts("overview.collected"),
            "value": formats.number(collected),
            "context": formats.texts("overview.collected_failed", n=formats.number(failed)),
        }
    ]
