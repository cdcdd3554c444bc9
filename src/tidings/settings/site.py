"""Settings of the environment's own site, with its channels."""

import re
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tidings.announce.site.channel_settings import AUTO, PagePriority, RankedSettings
from tidings.announce.site.google_settings import GoogleSettings, check_content, check_property
from tidings.announce.site.site import check_host, check_url
from tidings.core.secrets.secret import Secret
from tidings.settings.variables import SettingError, Variables, parse_choice, parse_switch, parse_whole

Ranked = TypeVar("Ranked", bound=RankedSettings)


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The one site that the environment alone can set up. Its key and channels are those of `Settings`."""

    sitemap_url: str
    # The site's host; None: the sitemap's.
    host: str | None
    # The URL of the key file, which usually contains the key; None: /KEY.txt on the host.
    key_location: Secret | None = None
    # Read in this order, if the sitemap cannot be read.
    backup_sitemap_urls: tuple[str, ...] = ()
    # Announce pages that left the sitemap.
    announce_removed: bool = False


def read_site(variables: Variables, *, has_key: bool) -> SiteSettings | None:
    """The environment's site, if there is one. A key alone is for sites that are named on the command line."""
    sitemap = variables.read("SITEMAP_URL", lambda text: check_url("sitemapUrl", text).text, "")
    host = variables.read("SITE_HOST", check_host, None)
    location = variables.secret("INDEXNOW_KEY_LOCATION", parse_url)
    none: tuple[str, ...] = ()
    backups = variables.read("BACKUP_SITEMAP_URLS", parse_urls, none)
    announce_removed = variables.read("INDEXNOW_ANNOUNCE_REMOVED", parse_switch, default=False)
    if sitemap and not has_key:
        raise SettingError("INDEXNOW_API_KEY", "required because SITEMAP_URL is set")
    return SiteSettings(sitemap, host, location, backups, announce_removed) if sitemap else None


def read_google(variables: Variables) -> GoogleSettings:
    """With credentials, sitemaps are submitted; the Indexing API is on if the content is declared."""
    content = variables.read("GOOGLE_INDEXING", check_content, None)
    google = read_ranked(
        variables,
        GoogleSettings,
        key_name="GOOGLE_CREDENTIALS",
        console_property=variables.read("GOOGLE_PROPERTY", check_property, None),
        content=content,
    )
    if content is not None and google.key is None:
        raise SettingError("GOOGLE_CREDENTIALS", "required because GOOGLE_INDEXING is set")
    return replace(google, enabled=content is not None)


def read_ranked(variables: Variables, kind: type[Ranked], *, key_name: str, **others: Any) -> Ranked:
    """A channel with a quota is on if its key is set."""
    key, fields = variables.secret(key_name), kind.fields
    prefix = fields.prefix.upper()
    quota_name = f"{prefix}_DAILY_QUOTA"
    auto = fields.asks and variables.text(quota_name) == AUTO
    parse_quota = parse_whole(least=1, most=fields.most_quota, beside=f", or {AUTO}" if fields.asks else "")
    return kind(
        enabled=key is not None,
        key=None if key is None else variables.check(key_name, lambda: kind.check_key(key.reveal())),
        daily_quota=fields.default_quota if auto else variables.read(quota_name, parse_quota, fields.default_quota),
        auto=auto,
        priority=variables.read(f"{prefix}_PRIORITY", parse_choice(PagePriority), PagePriority.NEWEST),
        **others,
    )


def parse_urls(text: str) -> tuple[str, ...]:
    """URLs with commas or white space between them."""
    return tuple(check_url("url", url).text for url in re.split(r"[\s,]+", text) if url)


def parse_url(text: str) -> str:
    """A URL, kept as it was written."""
    check_url("url", text)
    return text


def parse_base(text: str) -> str:
    url = check_url("BING_API_BASE", text.rstrip("/"))
    if url.query:
        raise ValueError("it must be a URL without a query")
    # Without a slash at the end, because the platforms' paths begin with one.
    return url.text.rstrip("/")
