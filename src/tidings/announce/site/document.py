"""A site as a JSON document with the field names of the API. Keys in an answer are masked."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidings.announce.page_check.settings import PageCheck
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings
from tidings.announce.site.errors import SiteError
from tidings.announce.site.google_settings import GoogleSettings
from tidings.announce.site.site import DEFAULT_ENGINE, DEFAULT_SCHEDULE, Site, SubmitMethod, make_site

# Stands for the key in the name of the key file, in an exported document.
KEY_HERE = "{key}"


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
        "group": site.group,
        "hookSecret": None if site.hook_secret is None else site.hook_secret.masked,
        **site.page_check.describe(),
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
    if KEY_HERE in given.get("keyLocation", ""):
        given["keyLocation"] = given["keyLocation"].replace(KEY_HERE, given.get("indexnowKey", ""))
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
        page_check=PageCheck.read(given),
        group=given.get("group"),
        hook_secret=given.get("hookSecret"),
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
    fields = {**_write_site(site, key=key), **changes, "id": site.id}
    changed = read_site(fields, engines=engines, schedule=schedule)
    if changed.host != site.host:
        # The stored pages would be those of another host.
        raise SiteError("host", "it stays as it was created; a site of another host needs another id")
    return changed


def _write_site(site: Site, *, key: str) -> dict[str, Any]:
    """All fields with their real values, including keys. Use it only to build another site from them, with this
    IndexNow key."""
    default_location = f"{site.origin.partition('://')[0]}://{site.host}/{site.key.reveal()}.txt"
    # A key file that is named after the key is renamed with it. Else the old key would stay here in clear.
    location = site.key_location.replace(site.key.reveal(), key)
    return {
        **describe_site(site),
        "sitemapUrl": None,
        "indexnowKey": key,
        # The default is left out, so that it follows a change of the scheme.
        "keyLocation": None if site.key_location == default_location else location,
        "hookSecret": None if site.hook_secret is None else site.hook_secret.reveal(),
        **{each.fields.key: None if each.key is None else each.key.reveal() for each in site.ranked},
    }


def export_site(site: Site, *, with_secrets: bool) -> dict[str, Any]:
    """The document of a site as `read_site` and `change_site` take it, on this machine or on another.

    Without secrets, a placeholder also replaces the key in the name of the key file.
    """
    document = {**_write_site(site, key=KEY_HERE), "indexnowKey": site.key.reveal()}
    del document["sitemapUrl"]
    if not with_secrets:
        for name in _list_secrets(site):
            del document[name]
    return document


def describe_changes(old: Site, new: Site) -> dict[str, tuple[str, str]]:
    """The differences field by field, for people; for a secret only that it differs."""
    before, after = (_write_site(site, key=site.key.reveal()) for site in (old, new))
    before["keyLocation"], after["keyLocation"] = (
        site.key_location.replace(site.key.reveal(), site.key.masked) for site in (old, new)
    )
    secrets = _list_secrets(old)
    return {
        name: ("one", "another") if name in secrets else (_show(before[name]), _show(after[name]))
        for name in before
        if before[name] != after[name]
    }


def _list_secrets(site: Site) -> frozenset[str]:
    return frozenset({"indexnowKey", "hookSecret", *(each.fields.key for each in site.ranked)})


def _show(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _read_sitemaps(given: Mapping[str, Any]) -> list[str]:
    """The URLs of `sitemapUrl` and `sitemapUrls`, each once."""
    first = [given["sitemapUrl"]] if "sitemapUrl" in given else []
    return list(dict.fromkeys([*first, *given.get("sitemapUrls", ())]))
