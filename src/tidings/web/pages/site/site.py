"""One site: its status, and the check of its key file and sitemap. Executions, failures and settings have files."""

from collections.abc import Sequence
from datetime import UTC, date, timedelta
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup

from tidings.announce.channels.google.submissions import SitemapSubmissions
from tidings.announce.ledger.batch_state import DayCount
from tidings.announce.overview import DAYS, SiteSummary
from tidings.announce.page_check.settings import PageCheckMode
from tidings.announce.site.check import check_site
from tidings.announce.site.site import Site
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.overview import find_reset
from tidings.web.pages.site.failed import list_failed
from tidings.web.pages.site.view import SiteView
from tidings.web.pages.view.charts import draw_large_bars
from tidings.web.pages.view.formats import Formats, describe_schedule
from tidings.web.pages.view.routing import make_page_router

router = make_page_router()

_SHOWN: Final = 5


@router.get("/sites/{site_id}")
async def show_site(request: Request, site_id: str) -> Response:
    view = await SiteView.open(request, site_id, Scope.VIEWER)
    site, summary, installation = view.site, view.summary, view.installation
    records = await view.list_executions(limit=_SHOWN)
    submissions = SitemapSubmissions(installation.database, site=site.number)
    # Whether any page failed on any of the days that the charts show.
    any_failed = any(each.total > each.successful for days in summary.days.values() for each in days)
    return await view.render_tab(
        "site.html",
        "status",
        progress=view.find_progress(records),
        days=_list_days(view.formats),
        charts=_draw_channels(summary, view.formats, any_failed=any_failed),
        any_failed=any_failed,
        failed=await list_failed(view, limit=_SHOWN),
        can_choose=False,
        quotas=_describe_quotas(summary, view.formats),
        # What Google says of them.
        sitemaps=[] if site.google.key is None else await submissions.list(),
        facts=_describe_facts(site, summary, view.formats, spread=installation.settings.schedule_spread),
        executions=view.describe_rows(records),
    )


@router.get("/sites/{site_id}/check")
async def show_check(request: Request, site_id: str) -> Response:
    view = await SiteView.open(request, site_id)
    findings = await check_site(view.site, client=view.installation.client, clock=view.installation.clock)
    return await view.render_tab("check.html", "check", findings=findings)


def _list_days(formats: Formats) -> list[date]:
    today = formats.now.astimezone(UTC).date()
    return [today - timedelta(days=DAYS - 1 - at) for at in range(DAYS)]


def _draw_channels(summary: SiteSummary, formats: Formats, *, any_failed: bool) -> list[dict[str, Any]]:
    charts = []
    for at, channel in enumerate(summary.channels):
        counts: Sequence[DayCount] = summary.days.get(channel, [DayCount()] * DAYS)
        accepted = [count.successful for count in counts]
        failed = [count.total - count.successful for count in counts]
        charts.append(
            {
                "name": formats.texts(f"channel.{channel}"),
                "summary": formats.texts(
                    "chart.summary", accepted=formats.number(sum(accepted)), failed=formats.number(sum(failed))
                ),
                "accepted": accepted,
                "failed": failed,
                # If their number is odd, the first has a row of its own.
                "is_wide": at == 0 and len(summary.channels) % 2 == 1,
                "chart": draw_large_bars(accepted, failed, can_fail=any_failed),
            }
        )
    return charts


def _describe_quotas(summary: SiteSummary, formats: Formats) -> list[dict[str, Any]]:
    described = []
    for channel, quota in summary.quotas.items():
        resets = find_reset(channel, formats.now)
        time = f"{resets.astimezone(formats.zone):%H:%M}"
        text = formats.texts("site.quota_resets", span=formats.span(resets - formats.now), time=time)
        name = formats.texts(f"channel.{channel}")
        described.append({"name": name, "used": quota.used, "limit": quota.limit, "text": text})
    return described


def _describe_facts(
    site: Site, summary: SiteSummary, formats: Formats, *, spread: timedelta
) -> list[tuple[str, Any, str]]:
    """Name, value, and form: beside the name, below it (`long`), or hidden (`secret`)."""
    texts = formats.texts
    # A site that was announced by hand, or is disabled, has a schedule that does not run.
    schedule = texts("word.off") if summary.next_at is None else describe_schedule(site.schedule, formats)
    keys: list[tuple[str, Any, str]] = [
        (texts(f"site.fact.{name}_key"), "", "secret") if enabled else (texts(f"channel.{name}"), texts("word.off"), "")
        for name, enabled in (
            ("bing", site.bing.enabled),
            ("baidu", site.baidu.enabled),
            ("google", site.google.key is not None),
        )
    ]
    return [
        *((texts("site.fact.sitemap"), url, "long") for url in site.sitemap_urls),
        (texts("site.fact.schedule"), schedule, ""),
        (texts("site.fact.next"), _describe_next(summary, spread, formats), ""),
        (texts("site.fact.key"), "", "secret"),
        (texts("site.fact.engines"), ", ".join(engine.host for engine in site.engines), "long"),
        *keys,
        (texts("site.fact.removed"), texts("site.removed.yes" if site.announce_removed else "site.removed.no"), ""),
        *_describe_extras(site, formats),
    ]


def _describe_next(summary: SiteSummary, spread: timedelta, formats: Formats) -> Markup:
    """When it runs next, and why that is not exactly the schedule's minute."""
    if summary.next_at is None or not spread:
        return formats.time(summary.next_at)
    reason = formats.texts("site.spread", span=formats.span(spread))
    return Markup('{}<br><span class="small muted">{}</span>').format(formats.time(summary.next_at), reason)


def _describe_extras(site: Site, formats: Formats) -> list[tuple[str, Any, str]]:
    """Settings that most sites do not use."""
    texts, check = formats.texts, site.page_check
    extras: list[tuple[str, Any, str]] = []
    if check.mode is not PageCheckMode.OFF:
        shown = texts(f"site.page_check.{check.mode}", n=formats.number(check.limit))
        extras.append((texts("setting_group.page_check.title"), shown, ""))
    if site.group is not None:
        extras.append((texts("setting.group.label"), site.group, ""))
    if site.hook_secret is not None:
        extras.append((texts("setting.hookSecret.label"), "", "secret"))
    return extras
