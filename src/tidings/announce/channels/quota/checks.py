"""Checks of a site's channels with a quota, before anything is sent. None of them sends a page."""

from urllib.parse import urlsplit

from tidings.announce.channels.answer import Outcome, Verdict
from tidings.announce.channels.google.search_console import GoogleSitemap, SearchConsole, name_property
from tidings.announce.channels.protocols.bing import AskedQuota, BingApi
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.site.check import SiteFinding
from tidings.announce.site.site import Site
from tidings.core.clock import to_text

TRY_AGAIN = "Check that Bing can be reached, and BING_API_BASE if you set it; then try again."


async def check_bing(site: Site, *, api: BingApi, quota: QuotaState) -> SiteFinding:
    """Does Bing know the key and the site, and does its quota fit the one that is configured?"""
    asked = await api.ask_quota(site)
    if not isinstance(asked, AskedQuota):
        advice = asked.advice if asked.verdict in (Verdict.FORBIDDEN, Verdict.THROTTLED) else TRY_AGAIN
        return SiteFinding("Bing", good=False, message=asked.reason, advice=advice)
    counted = f"{quota.limit:,} a day are configured, {quota.used:,} of them are used today"
    if site.bing.auto:
        message = f"Bing allows {asked.daily:,} today and {asked.monthly:,} this month; {quota.used:,} are used today"
        return SiteFinding("Bing", good=True, message=message)
    if asked.daily > quota.limit:
        message = f"Bing allows {asked.daily:,} today and {asked.monthly:,} this month; {counted}"
        return SiteFinding("Bing", good=True, message=message, advice="bingDailyQuota can be raised.")
    # Reports differ on whether Bing returns the total or the rest, so both are accepted.
    if asked.daily >= quota.remaining:
        return SiteFinding("Bing", good=True, message=f"Bing says {asked.daily:,} for today; {counted}")
    return SiteFinding(
        "Bing",
        good=False,
        message=f"Bing takes only {asked.daily:,} today; {counted}",
        advice="Set bingDailyQuota to what Bing allows, or find out what else uses this quota.",
    )


async def check_google(site: Site, *, console: SearchConsole) -> list[SiteFinding]:
    """Can the service account sign in, and what does Google say of the site's sitemaps?"""
    findings = []
    for sitemap in site.sitemap_urls:
        said = await console.describe(site, sitemap)
        if isinstance(said, Outcome) and said.status == 404:
            message = f"Google does not know {sitemap} of {name_property(site)}; the next execution submits it"
            findings.append(SiteFinding("Google", good=True, message=message))
        elif isinstance(said, Outcome):
            findings.append(SiteFinding("Google", good=False, message=said.reason, advice=said.advice))
        else:
            findings.append(_judge_sitemap(sitemap, said))
    return findings


def _judge_sitemap(sitemap: str, said: GoogleSitemap) -> SiteFinding:
    downloaded = "never downloaded" if said.downloaded_at is None else f"downloaded {to_text(said.downloaded_at)}"
    pending = ", not processed yet" if said.pending else ""
    message = f"{sitemap}: {downloaded}{pending}, {said.warnings:,} warnings, {said.errors:,} errors"
    advice = "Search Console names the errors of the sitemap." if said.errors else ""
    return SiteFinding("Google", good=not said.errors, message=message, advice=advice)


def check_baidu(site: Site, *, quota: QuotaState) -> SiteFinding:
    """Does the site's name at Baidu fit its pages? Sends no request, because Baidu reports its quota only in answers to
    a push."""
    name = site.baidu.site or site.origin
    host = urlsplit(name if "://" in name else f"https://{name}").netloc
    if host != site.host:
        return SiteFinding(
            "Baidu",
            good=False,
            message=f"baiduSite is {name}, and the pages are of {site.host}: Baidu answers not_same_site",
            advice="Set baiduSite to the name that Baidu verified, www. included; the sitemap must list the same host.",
        )
    source = "as Baidu said" if quota.learned else "until Baidu says otherwise"
    message = f"{name}: {quota.used:,} of {quota.limit:,} used today ({source}); nothing was sent to find out"
    return SiteFinding("Baidu", good=True, message=message)
