"""The overview: open alerts, key figures, sites, and collection at a glance; and the list of sites."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from tidings.announce.channels.quota.kinds import find_kind
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.ledger.batch_state import DayCount
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import read_days
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
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.alerts import fold_alerts
from tidings.web.pages.collect import draw_funnels
from tidings.web.pages.view.charts import draw_small_bars
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.rendering import FrameCounts
from tidings.web.pages.view.routing import PageView, make_link, make_page_router

router = make_page_router()

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
class SiteQuery:
    """The search and filters of the list of sites, as in the URL's query."""

    q: Annotated[str, Query(max_length=_LONGEST_SEARCH)] = ""
    # A filter by state; an unknown one filters nothing.
    state: str = ""
    sort: str = ""
    # How many sites come before the page.
    start: Annotated[int, Query(ge=0, le=_FURTHEST, alias="from")] = 0
    group: Annotated[str, Query(max_length=_LONGEST_SEARCH)] = ""

    @property
    def conditions(self) -> Sequence[SiteCondition]:
        return _SEGMENTS.get(self.state, ())

    @property
    def order(self) -> SiteOrder:
        return SiteOrder(self.sort) if self.sort in set(SiteOrder) else SiteOrder.URGENT

    @property
    def is_filtered(self) -> bool:
        return bool(self.q.strip() or self.conditions or self.group)

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the query without the page."""
        sort = "" if self.order is SiteOrder.URGENT else self.order.value
        return {"q": self.q, "state": self.state, "group": self.group, "sort": sort}


@router.get("/")
async def show_overview(request: Request, asked: Annotated[SiteQuery, Depends()]) -> Response:
    view = PageView(request, *Scope)
    if not view.grant.allows((Scope.VIEWER,)) or view.grant.group is not None:
        # The figures of the overview are of all sites.
        return view.redirect(view.dashboard.renderer.find_home(request))
    installation = view.installation
    shown = await _make_list(view, "/", asked)
    alerts = await installation.alerts.list_open(limit=_SHOWN_ALERTS)
    open_alerts = len(alerts) if len(alerts) < _SHOWN_ALERTS else await installation.alerts.count_open()
    # A viewer sees what announce does.
    collection = CollectionSummary()
    if view.grant.allows((Scope.WORKFLOW,)):
        collection = await read_collection(installation.database, clock=installation.clock)
    return await view.render(
        "overview.html",
        counts=FrameCounts(open_alerts=open_alerts, sites=shown["page"].total),
        alerts=fold_alerts(alerts, view),
        figures=await _make_figures(view, shown["page"], collection),
        list=shown,
        sees_notes=view.grant.allows((Scope.WORKFLOW,)),
        collection=None if collection.is_empty else collection,
        funnels=draw_funnels(collection),
        has_mirror=installation.collect.mirror is not None,
    )


@router.get("/sites")
async def show_sites(request: Request, asked: Annotated[SiteQuery, Depends()]) -> Response:
    view = PageView(request, Scope.VIEWER)
    groups = await view.installation.sites.list_groups() if view.grant.group is None else []
    return await view.render("sites.html", list=await _make_list(view, "/sites", asked, groups=groups))


async def _make_list(view: PageView, path: str, asked: SiteQuery, *, groups: Sequence[str] = ()) -> dict[str, Any]:
    """The sites table as its template needs it. `groups`: those that the person may choose from."""
    asked, size = replace(asked, group=asked.group if groups else ""), PAGE_SIZES[path]
    page = await list_sites(
        view.installation.database,
        clock=view.installation.clock,
        search=asked.q.strip(),
        group=view.grant.group or asked.group or None,
        conditions=asked.conditions,
        order=asked.order,
        offset=asked.start,
        limit=size,
    )
    channels = _list_channels(page)
    return {
        "path": path,
        "page": page,
        "asked": asked,
        "groups": groups,
        "orders": [each.value for each in SiteOrder],
        "segments": _make_segments(page, asked, view.formats, path=path),
        "columns": [_describe_column(channel, view.formats) for channel in channels],
        "rows": [_describe_row(site, channels, view.formats) for site in page.sites],
        "pager": _make_pager(path, page, asked, size=size),
    }


def _make_pager(path: str, page: SitePage, asked: SiteQuery, *, size: int) -> dict[str, Any] | None:
    """Links to the neighbouring pages; None where one page holds everything."""
    start, last = asked.start, asked.start + len(page.sites)
    if page.found <= size and not start:
        return None
    before, after = max(0, start - size), start + size
    return {
        "first": start + 1 if page.sites else 0,
        "last": last,
        "total": page.found,
        "previous": make_link(path, {**asked.fields, "from": before}) if start else None,
        "next": make_link(path, {**asked.fields, "from": after}) if last < page.found else None,
    }


def _make_segments(page: SitePage, asked: SiteQuery, formats: Formats, *, path: str) -> list[dict[str, Any]]:
    segments = []
    for name, conditions in _SEGMENTS.items():
        count = sum(page.counts.get(each, 0) for each in conditions) if name else page.total
        if name and not count and asked.state != name:
            continue
        segments.append(
            {
                "href": make_link(path, {**asked.fields, "state": name}),
                "title": formats.texts(f"sites.segment.{name or 'all'}"),
                # They are those of all sites, so beside a search they would mislead.
                "count": None if asked.q else count,
                "current": asked.state == name,
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
    expected = ""
    if site.condition is SiteCondition.OVERDUE:
        expected = formats.texts("sites.expected", time=str(formats.relative(site.next_at).striptags()))
    return {
        "site": site,
        "reason": _shorten(formats.say(site.reason)) or expected,
        "last": last,
        "last_text": last_text,
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
    kind = find_kind(channel)
    return QuotaState(kind.find_day(now), 0, zone=kind.zone).resets_at


def _describe_channel(site: SiteSummary, channel: Channel, formats: Formats) -> dict[str, Any]:
    """One channel of one site: 30 days as bars, and the quota where the channel has one. It is off without a chart."""
    name = formats.texts(f"channel.{channel}")
    if channel not in site.channels:
        return {"name": name, "chart": None}
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
    return {
        "name": name,
        "chart": draw_small_bars(accepted, failed),
        "label": label,
        "accepted": sum(accepted),
        "failed": sum(failed),
        "quota": site.quotas.get(channel),
    }


async def _make_figures(
    view: PageView, page: SitePage, collection: CollectionSummary
) -> list[tuple[str, str, int, str]]:
    """At most four key figures: the address of the list, the name, the value, and what it compares with."""
    texts, number = view.texts, view.formats.number
    today = view.formats.now.astimezone(UTC).date()
    days = await read_days(view.installation.database, today=today, days=2)
    before, accepted = (
        sum(count.successful for count in days[day].values()) for day in (today - timedelta(days=1), today)
    )
    failed = sum(count.total - count.successful for count in days[today].values())
    attention = "/sites?state=attention"
    figures = [
        (attention, texts("overview.attention"), page.attention, texts("overview.attention_of", n=number(page.total))),
        ("/sites", texts("overview.accepted_today"), accepted, texts("overview.yesterday", n=number(before))),
        (attention, texts("overview.failed_today"), failed, ""),
    ]
    if not collection.is_empty:
        collected, lost = (
            sum(getattr(of, name) for of in collection.platforms.values()) for name in ("collected", "failed")
        )
        context = texts("overview.collected_failed", n=number(lost))
        figures.append(("/candidates", texts("overview.collected"), collected, context))
    return figures
