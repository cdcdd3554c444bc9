"""A site and its engines: values, and the rules that they must keep. `table` stores them."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError

from tidings.announce.page_check.settings import PageCheck
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings, RankedSettings
from tidings.announce.site.errors import SiteError, check_unmasked
from tidings.announce.site.google_settings import GoogleSettings
from tidings.core.net.addresses import Url, UrlError, parse_url
from tidings.core.secrets.secret import Secret

WORKFLOW_PREFIX = "announce:"
# The kinds of executions of a site: one that announces its pages, and one that corrects its ledger.
ANNOUNCE = "announce"
CORRECTION = "correction"
DEFAULT_ENGINE = "api.indexnow.org"
DEFAULT_SCHEDULE = "0 0 * * *"

_WANTED = {"host": "a host such as example.com", "searchEngines": "an engine such as api.indexnow.org"}
_WANTED_URL = "a URL such as https://example.com/sitemap.xml"

_ID = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,252}")
_KEY = re.compile(r"[A-Za-z0-9-]{8,128}")
_GROUP = re.compile(r"[\w.-]{1,64}")
_HOOK_SECRET = re.compile(r"[\x21-\x7e]{16,256}")

_LONGEST_SCHEDULE = 200
_SCHEDULES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class SubmitMethod(StrEnum):
    """How URLs are submitted. `auto`: one URL by GET, more by POST."""

    AUTO = "auto"
    GET = "get"
    POST = "post"


@dataclass(frozen=True, slots=True)
class Engine:
    """One IndexNow engine."""

    # The URL that requests go to.
    endpoint: str
    # Host and port: requests are paced by it, and people read it.
    host: str

    def __str__(self) -> str:
        return self.host


@dataclass(frozen=True, slots=True)
class Site:
    """One host with its sitemaps, keys and schedule."""

    # The name in commands and in the API; the host by default.
    id: str
    # Host, with its port where it is not the default one.
    host: str
    sitemap_urls: tuple[str, ...]
    # The IndexNow key.
    key: Secret
    engines: tuple[Engine, ...]
    # The URL of the key file. Usually contains the key, so it is not printed.
    key_location: str = field(repr=False)
    # Read in this order, one for each sitemap that cannot be read.
    backup_sitemap_urls: tuple[str, ...] = ()
    submit_method: SubmitMethod = SubmitMethod.AUTO
    # A cron expression of five fields, in UTC.
    schedule: str = DEFAULT_SCHEDULE
    # Announce pages that left the sitemap.
    announce_removed: bool = False
    # Execute it by its schedule.
    enabled: bool = True
    bing: BingSettings = field(default_factory=BingSettings)
    baidu: BaiduSettings = field(default_factory=BaiduSettings)
    google: GoogleSettings = field(default_factory=GoogleSettings)
    page_check: PageCheck = field(default_factory=PageCheck)
    # Sites of one customer or team, for lists and for tokens that see one group.
    group: str | None = None
    # Signs the deploy hooks of GitHub and Netlify.
    hook_secret: Secret | None = None
    # The key of the site in all tables; 0 until it is stored.
    number: int = 0

    @property
    def origin(self) -> str:
        """Scheme and host of its first sitemap: the name of the site at Bing, and usually at Baidu."""
        return find_origin(self.sitemap_urls[0])

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Its keys, for the redactor."""
        channels = (secret for settings in self.ranked for secret in settings.secrets)
        return (self.key, *channels, *([] if self.hook_secret is None else [self.hook_secret]))

    @property
    def ranked(self) -> tuple[RankedSettings, ...]:
        """The settings of every channel with a daily quota."""
        return (self.bing, self.baidu, self.google)

    @property
    def workflow_name(self) -> str:
        """The workflow name of its executions."""
        return name_workflow(self.id)

    @property
    def key_folder(self) -> str:
        """The folder of the key file. IndexNow accepts only URLs below it; "/" is the whole host."""
        return urlsplit(self.key_location).path.rpartition("/")[0] + "/"


def make_site(
    *,
    sitemap_urls: Sequence[str],
    key: str,
    host: str | None = None,
    site_id: str | None = None,
    engines: Sequence[str] = (DEFAULT_ENGINE,),
    key_location: str | None = None,
    backup_sitemap_urls: Sequence[str] = (),
    submit_method: SubmitMethod = SubmitMethod.AUTO,
    schedule: str = DEFAULT_SCHEDULE,
    announce_removed: bool = False,
    enabled: bool = True,
    bing: BingSettings | None = None,
    baidu: BaiduSettings | None = None,
    google: GoogleSettings | None = None,
    page_check: PageCheck | None = None,
    group: str | None = None,
    hook_secret: str | None = None,
) -> Site:
    """A site from plain values. Raises SiteError."""
    if not sitemap_urls:
        raise SiteError("sitemapUrl", "at least one sitemap is needed")
    sitemaps = [check_url("sitemapUrl", url) for url in sitemap_urls]
    checked_host = check_host(host) if host else find_netloc(sitemaps[0])
    checked_key = check_key(key)
    check_unmasked("keyLocation", key_location or "")
    # A site on plain http has its key file there, too. For https this is the default of the protocol.
    location = check_url(
        "keyLocation", key_location or f"{sitemaps[0].scheme}://{checked_host}/{checked_key.reveal()}.txt"
    )
    if find_netloc(location) != checked_host:
        raise SiteError("keyLocation", f"the key file must be on the site's own host, {checked_host}")
    return Site(
        id=check_id(site_id or checked_host),
        host=checked_host,
        sitemap_urls=tuple(url.text for url in sitemaps),
        key=checked_key,
        engines=parse_engines(engines),
        key_location=location.text,
        backup_sitemap_urls=tuple(check_url("backupSitemapUrls", url).text for url in backup_sitemap_urls),
        submit_method=submit_method,
        schedule=check_schedule(schedule),
        announce_removed=announce_removed,
        enabled=enabled,
        bing=bing or BingSettings(),
        baidu=baidu or BaiduSettings(),
        google=google or GoogleSettings(),
        page_check=page_check or PageCheck(),
        group=check_group(group) if group else None,
        hook_secret=check_hook_secret(hook_secret) if hook_secret else None,
    )


def parse_engines(names: Sequence[str]) -> tuple[Engine, ...]:
    """Engines from hosts, hosts with a path, or URLs; each once. Raises SiteError."""
    engines = tuple(dict.fromkeys(parse_engine(name) for name in names))
    if not engines:
        raise SiteError("searchEngines", "at least one search engine is needed")
    return engines


@lru_cache(maxsize=256)
def parse_engine(name: str) -> Engine:
    """`api.indexnow.org`, `www.bing.com/indexnow` or `http://127.0.0.1:8801/indexnow`."""
    url = name.strip() if "://" in name else f"https://{name.strip()}"
    parsed = check_url("searchEngines", url if "/" in url.partition("://")[2] else f"{url}/indexnow")
    if parsed.query:
        raise SiteError("searchEngines", "an engine is a host, a host with a path, or a URL without a query")
    return Engine(endpoint=parsed.text, host=find_netloc(parsed))


def check_key(key: str) -> Secret:
    """An IndexNow key as a secret. Raises SiteError, which does not repeat the key."""
    if not _KEY.fullmatch(key):
        raise SiteError("indexnowKey", "it must have 8 to 128 characters, all of them letters, digits or -")
    return Secret(key)


def check_group(group: str) -> str:
    """The name of a group. Raises SiteError."""
    if not _GROUP.fullmatch(group):
        raise SiteError("group", "it must have 1 to 64 characters, all of them letters, digits or one of . _ -")
    return group


def check_hook_secret(secret: str) -> Secret:
    """The secret of deploy hooks. Raises SiteError, which does not repeat it."""
    check_unmasked("hookSecret", secret)
    if not _HOOK_SECRET.fullmatch(secret):
        raise SiteError("hookSecret", "it must have 16 to 256 printable ASCII characters without white space")
    return Secret(secret)


def check_id(site_id: str) -> str:
    """The id of a site. Raises SiteError."""
    if not _ID.fullmatch(site_id):
        raise SiteError("id", "it must have 1 to 253 characters, all of them letters, digits or one of . _ : - [ ]")
    return site_id


def check_host(host: str) -> str:
    """A host name, with or without a port. Raises SiteError."""
    if set(host) & set("/@?#"):
        raise SiteError("host", "it must be a host name such as example.com, without scheme or path")
    return find_netloc(check_url("host", f"https://{host}/"))


def check_url(field: str, url: str) -> Url:
    try:
        return parse_url(url.strip())
    except UrlError as error:
        raise SiteError(field, f"{error}; it must be {_WANTED.get(field, _WANTED_URL)}") from None


# CronSim's name of a field → the values that it takes.
_CRON_FIELDS = {
    "Bad minute": "the minute must be 0 to 59",
    "Bad hour": "the hour must be 0 to 23",
    "Bad day-of-month": "the day must be 1 to 31",
    "Bad month": "the month must be 1 to 12",
    "Bad day-of-week": "the weekday must be 0 to 7",
}


# Many sites share few schedules.
@lru_cache(maxsize=256)
def check_schedule(schedule: str) -> str:
    """A cron expression of five fields, or a name such as @daily for one. Returns the expression. Raises SiteError."""
    schedule = _SCHEDULES.get(schedule.strip().lower(), schedule)
    try:
        # CronSim would take a sixth field for seconds.
        if len(schedule.split()) != 5 or len(schedule) > _LONGEST_SCHEDULE:
            raise CronSimError("Wrong number of fields")
        # Some are well-formed but never occur, such as 30 February.
        if next(CronSim(schedule, datetime.now(UTC)), None) is None:
            raise CronSimError("It never comes")
    except (CronSimError, ValueError) as error:
        reason = _CRON_FIELDS.get(str(error), str(error))
        raise SiteError("schedule", f"it must be a cron expression such as 0 0 * * *, or @daily ({reason})") from None
    return schedule


def make_indexnow_key() -> str:
    """A new IndexNow key."""
    return secrets.token_hex(16)


def name_workflow(site_id: str) -> str:
    """The workflow name of a site's executions."""
    return f"{WORKFLOW_PREFIX}{site_id}"


def find_origin(url: str) -> str:
    """Scheme, host and port of a valid URL."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}"


def find_netloc(url: Url) -> str:
    """Host, with the port where it is not the default one."""
    return urlsplit(url.text).netloc
