"""A site as a JSON document with the field names of the API. Keys in an answer are masked."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidings.announce.site.channel_settings import BaiduSettings, BingSettings
from tidings.announce.site.errors import SiteError
from tidings.announce.site.google_settings import GoogleSettings
from tidings.announce.site.site import DEFAULT_ENGINE, DEFAULT_SCHEDULE, Site, SubmitMethod, make_site


def describe_site(site: Site) -> dict[str, Any]:
    """The document of a site. Its keys are masked, also in the name of the key file."""
    return {
        "id": site.id,
        "host": site.host,
        "sitemapUrl": site.sitemap_urls[0],
        "sitemapUrls": list(site.sitemap_urls),
        "backupSitemapUrls": list(site.backup_sitemap_urls),
        "indexnowKey": site.key.masked,
        "keyLocation": site.key_location.replace(site.key.reveal(), site.key.masked),
        "searchEngines": [engine.endpoint for engine in site.engines],
        "submitMethod": site.submit_method.value,
        "schedule": site.schedule,
        "announceRemoved": site.announce_removed,
        "enabled": site.enabled,
        **{name: value for settings in site.ranked for name, value in settings.describe().items()},
    }


def read_site(
    document: Mapping[str, Any],
    *,
    engines: Sequence[str] = (DEFAULT_ENGINE,),
    schedule: str = DEFAULT_SCHEDULE,
) -> Site:
    """A site from its document. A missing or null field gets its default. Raises SiteError."""
    given = {name: value for name, value in document.items() if value is not None}
    if "indexnowKey" not in given:
        raise SiteError("indexnowKey", "it is required; `tidings keys new --indexnow` makes one")
    return make_site(
        site_id=given.get("id"),
        host=given.get("host"),
        sitemap_urls=_read_sitemaps(given),
        backup_sitemap_urls=given.get("backupSitemapUrls", ()),
        key=given["indexnowKey"],
        key_location=given.get("keyLocation"),
        engines=given.get("searchEngines", engines),
        submit_method=SubmitMethod(given.get("submitMethod", SubmitMethod.AUTO)),
        schedule=given.get("schedule", schedule),
        announce_removed=given.get("announceRemoved", False),
        enabled=given.get("enabled", True),
        bing=BingSettings.read(given),
        baidu=BaiduSettings.read(given),
        google=GoogleSettings.read(given),
    )


def change_site(
    site: Site,
    changes: Mapping[str, Any],
    *,
    engines: Sequence[str] = (DEFAULT_ENGINE,),
    schedule: str = DEFAULT_SCHEDULE,
) -> Site:
    """The site with some fields changed. Null resets a field to its default. Raises SiteError."""
    if "sitemapUrl" in changes or "sitemapUrls" in changes:
        changes = {"sitemapUrl": None, "sitemapUrls": None, **changes}
    key = changes.get("indexnowKey") or site.key.reveal()
    return read_site({**_write_site(site, key=key), **changes, "id": site.id}, engines=engines, schedule=schedule)


def _write_site(site: Site, *, key: str) -> dict[str, Any]:
    """All fields with their true values, keys too. Only for making another site of them, with this IndexNow key."""
    default_location = f"{site.origin.partition('://')[0]}://{site.host}/{site.key.reveal()}.txt"
    # A key file that is named after the key is renamed with it. Else the old key would stay here in clear.
    location = site.key_location.replace(site.key.reveal(), key)
    return {
        **describe_site(site),
        "sitemapUrl": None,
        "indexnowKey": key,
        # The default is left out, so that it follows a change of the host.
        "keyLocation": None if site.key_location == default_location else location,
        **{each.fields.key: None if each.key is None else each.key.reveal() for each in site.ranked},
    }


def _read_sitemaps(given: Mapping[str, Any]) -> list[str]:
    """The URLs of `sitemapUrl` and `sitemapUrls`, each once."""
    first = [given["sitemapUrl"]] if "sitemapUrl" in given else []
    return list(dict.fromkeys([*first, *given.get("sitemapUrls", ())]))
