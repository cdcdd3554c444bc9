"""A site and its engines: values, and the rules they must keep. Where sites are stored is in `site_records`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError

from tidings.core.net.addresses import Url, UrlError, parse_url
from tidings.core.secrets.secret import Secret

WORKFLOW_PREFIX = "announce:"
DEFAULT_ENGINE = "api.indexnow.org"
DEFAULT_SCHEDULE = "0 0 * * *"

_WANTED = {"host": "a host such as example.com", "searchEngines": "an engine such as api.indexnow.org"}
_WANTED_URL = "a URL such as https://example.com/sitemap.xml"

_ID = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,252}")
_KEY = re.compile(r"[A-Za-z0-9-]{8,128}")
# Bing's keys are 32 hexadecimal digits today; all that is certain is that one has no white space.
_BING_KEY = re.compile(r"[\x21-\x7e]{1,256}")

_LONGEST_SCHEDULE = 200

DEFAULT_BING_QUOTA = 100
MOST_BING_QUOTA = 500


class SiteError(ValueError):
    """A site's setting breaks a rule. `field` is its name in the API; the message names both."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(rule if rule.startswith(field) else f"{field}: {rule}")
        self.field = field
        self.rule = rule


class SubmitMethod(StrEnum):
    """`auto`: one URL goes by GET, more by POST."""

    AUTO = "auto"
    GET = "get"
    POST = "post"


class BingPriority(StrEnum):
    """Which pages go first where more are due than the quota allows."""

    NEWEST = "newest"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class BingSettings:
    """Whether and how a site is submitted to Bing. The key is kept while it is switched off."""

    enabled: bool = False
    key: Secret | None = None
    daily_quota: int = DEFAULT_BING_QUOTA
    priority: BingPriority = BingPriority.NEWEST

    def require_key(self) -> Secret:
        """The key; raises SiteError where there is none."""
        if self.key is None:
            raise SiteError("bingApiKey", "bingApiKey is required when bingEnabled is true")
        return self.key


@dataclass(frozen=True, slots=True)
class Engine:
    """One IndexNow endpoint. `host` is what requests are paced by and what people read."""

    endpoint: str
    host: str

    def __str__(self) -> str:
        return self.host


@dataclass(frozen=True, slots=True)
class Site:
    """One host with its sitemaps, key and schedule. `number` is its short name in the tables; 0 until it is stored."""

    id: str
    host: str
    sitemap_urls: tuple[str, ...]
    key: Secret
    engines: tuple[Engine, ...]
    # Usually named after the key, so it must not show.
    key_location: str = field(repr=False)
    backup_sitemap_urls: tuple[str, ...] = ()
    submit_method: SubmitMethod = SubmitMethod.AUTO
    schedule: str = DEFAULT_SCHEDULE
    announce_removed: bool = False
    enabled: bool = True
    bing: BingSettings = field(default_factory=BingSettings)
    number: int = 0

    @property
    def origin(self) -> str:
        """Scheme and host of its sitemap: what Bing knows the site by."""
        return find_origin(self.sitemap_urls[0])

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All that must not show."""
        return (self.key,) if self.bing.key is None else (self.key, self.bing.key)

    @property
    def workflow_name(self) -> str:
        """What its executions are called."""
        return name_workflow(self.id)

    @property
    def key_folder(self) -> str:
        """The path that the key vouches for: where the key file lies ("/" for the whole host)."""
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
) -> Site:
    """A site from plain values; what is left out gets its default. Raises SiteError."""
    if not sitemap_urls:
        raise SiteError("sitemapUrl", "at least one sitemap is needed")
    sitemaps = [check_url("sitemapUrl", url) for url in sitemap_urls]
    checked_host = check_host(host) if host else find_netloc(sitemaps[0])
    checked_key = check_key(key)
    if key_location and checked_key.masked in key_location:
        raise SiteError("keyLocation", "this is what an answer shows of it; leave it out to keep it")
    # A site on plain http has its key file there too; for every other one this is the protocol's own default.
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
    )


def make_bing_settings(
    *,
    enabled: bool = False,
    key: str | None = None,
    daily_quota: int = DEFAULT_BING_QUOTA,
    priority: BingPriority = BingPriority.NEWEST,
) -> BingSettings:
    """Bing's settings from plain values. Raises SiteError."""
    settings = BingSettings(enabled, check_bing_key(key) if key else None, check_bing_quota(daily_quota), priority)
    if enabled:
        settings.require_key()
    return settings


def parse_engines(names: Sequence[str]) -> tuple[Engine, ...]:
    """Engines from hosts, hosts with a path, or full URLs; each once. Raises SiteError."""
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
    """An IndexNow key, wrapped. Raises SiteError, which does not repeat it."""
    if not _KEY.fullmatch(key):
        raise SiteError("indexnowKey", "it must have 8 to 128 characters, all of them letters, digits or -")
    return Secret(key)


def check_id(site_id: str) -> str:
    """A site's name in commands and addresses."""
    if not _ID.fullmatch(site_id):
        raise SiteError("id", "it must have 1 to 253 characters, all of them letters, digits or one of . _ : - [ ]")
    return site_id


def check_bing_key(key: str) -> Secret:
    """A key of Bing's Webmaster API, wrapped. Raises SiteError, which does not repeat it."""
    if key == Secret(key).masked:
        raise SiteError("bingApiKey", "this is what an answer shows in its place; leave it out to keep the key")
    if not _BING_KEY.fullmatch(key):
        raise SiteError("bingApiKey", "it must have 1 to 256 printable ASCII characters without white space")
    return Secret(key)


def check_bing_quota(quota: int) -> int:
    if not 1 <= quota <= MOST_BING_QUOTA:
        raise SiteError("bingDailyQuota", f"it must be a whole number from 1 to {MOST_BING_QUOTA}")
    return quota


def check_host(host: str) -> str:
    """A bare host name, with its port where it has one."""
    if set(host) & set("/@?#"):
        raise SiteError("host", "it must be a host name such as example.com, without scheme or path")
    return find_netloc(check_url("host", f"https://{host}/"))


def check_url(field: str, url: str) -> Url:
    try:
        return parse_url(url.strip())
    except UrlError as error:
        raise SiteError(field, f"{error}; it must be {_WANTED.get(field, _WANTED_URL)}") from None


# Sites that are read from the table have few engines and schedules between them.
@lru_cache(maxsize=256)
def check_schedule(schedule: str) -> str:
    """A cron expression of five fields."""
    try:
        # Six fields would be seconds to CronSim.
        if len(schedule.split()) != 5 or len(schedule) > _LONGEST_SCHEDULE:
            raise CronSimError("Wrong number of fields")
        # A few of them are well-formed and never come, such as the fifth Monday of a February's 31st.
        if next(CronSim(schedule, datetime.now(UTC)), None) is None:
            raise CronSimError("It never comes")
    except (CronSimError, ValueError) as error:
        raise SiteError("schedule", f"it must be a cron expression such as 0 0 * * * ({error})") from None
    return schedule


def name_workflow(site_id: str) -> str:
    """What the executions of a site are called."""
    return f"{WORKFLOW_PREFIX}{site_id}"


def find_origin(url: str) -> str:
    """Scheme and host (and port) of a URL that is known to be good."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}"


def find_netloc(url: Url) -> str:
    """Host, and the port where it is not the scheme's own."""
    return urlsplit(url.text).netloc
