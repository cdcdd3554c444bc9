"""The environment → one frozen Settings. The only reader of the environment.

A value that breaks its rule is refused with one line that names the variable and the rule. Every secret can also come
from a file: `NAME_FILE` holds the path. Secrets are wrapped at once and never repeated in a message.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.site.channel_settings import (
    AUTO,
    BaiduSettings,
    BingSettings,
    PagePriority,
    RankedSettings,
    check_baidu_site,
)
from tidings.announce.site.google_settings import GoogleSettings, check_content, check_property
from tidings.announce.site.site import (
    DEFAULT_ENGINE,
    DEFAULT_SCHEDULE,
    SubmitMethod,
    check_host,
    check_key,
    check_schedule,
    check_url,
    parse_engines,
)
from tidings.core.alerts.kinds import Language
from tidings.core.clock import parse_duration
from tidings.core.logs.logger import LogFormat
from tidings.core.net.addresses import Network, parse_networks
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.variables import SettingError, SettingSource, Variables

if TYPE_CHECKING:
    # Collect is imported only if one of its variables needs it: most commands of announce never do.
    from tidings.collect.errors import ErrorCode
    from tidings.collect.feishu.client import FeishuTarget
    from tidings.core.secrets.keyring import FernetSalt

__all__ = [
    "CollectSettings",
    "CrawlSettings",
    "SettingError",
    "Settings",
    "SiteSettings",
    "read_settings",
]

Value = TypeVar("Value")
Ranked = TypeVar("Ranked", bound=RankedSettings)

_LONGEST_USER_AGENT = 200
_MOST_RETRIES = 20
_LONGEST_BACKOFF = 3_600
_MOST_BATCH = 50
_SHORTEST_INTERVAL = 0.01
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The one site that the environment alone can set up."""

    sitemap_url: str
    # The IndexNow key.
    key: Secret
    # The site's host; None: the sitemap's.
    host: str | None
    # The URL of the key file, which usually contains the key; None: /KEY.txt on the host.
    key_location: Secret | None = None
    # Read in this order, if the sitemap cannot be read.
    backup_sitemap_urls: tuple[str, ...] = ()
    # Announce pages that left the sitemap.
    announce_removed: bool = False
    bing: BingSettings = field(default_factory=BingSettings)
    baidu: BaiduSettings = field(default_factory=BaiduSettings)
    google: GoogleSettings = field(default_factory=GoogleSettings)


@dataclass(frozen=True, slots=True)
class CrawlSettings:
    """How the crawl API asks platforms."""

    # Other addresses of platforms, by platform.
    base_urls: Mapping[str, str] = field(default_factory=dict)
    # Feeds that the platform `web` searches if a keyword names none.
    feeds: tuple[str, ...] = ()
    # The User-Agent header; None: the product's own.
    user_agent: str | None = None
    # Least time between two requests to one platform, and with one cookie.
    platform_interval: timedelta = timedelta(seconds=1)
    cookie_interval: timedelta = timedelta(seconds=3)
    # Time limits of one HTTP request, a search, a note, a batch of notes.
    request_timeout: timedelta = timedelta(seconds=10)
    search_timeout: timedelta = timedelta(seconds=30)
    detail_timeout: timedelta = timedelta(seconds=15)
    batch_timeout: timedelta = timedelta(seconds=60)
    # A cookie cools for so long after `max_consecutive_errors`, and is invalid after `max_total_errors`.
    cooling: timedelta = timedelta(minutes=30)
    max_consecutive_errors: int = 3
    max_total_errors: int = 10


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How the writer and the built-in runner collect."""

    # Whether the built-in runner drives discover and collect; if not, an external client does.
    runs: bool = True
    # A lock whose execution was silent for so long is released.
    lock_timeout: timedelta = timedelta(minutes=30)
    # How often each job of the service runs.
    recovery_interval: timedelta = timedelta(minutes=15)
    discover_interval: timedelta = timedelta(minutes=60)
    collect_interval: timedelta = timedelta(minutes=5)
    # Whether authors of notes are stored under a pseudonym.
    pseudonyms: bool = False
    # Candidates in one lease.
    batch_size: int = 10
    # Waits before the first, second, third retry; the last repeats.
    backoff: tuple[timedelta, ...] = (timedelta(seconds=5), timedelta(seconds=15), timedelta(seconds=45))
    # Most retries of error codes, where they differ from the table in collect/errors.py.
    retries: "Mapping[ErrorCode, int]" = field(default_factory=dict)
    # The Feishu mirror; None: there is none.
    feishu: "FeishuTarget | None" = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, with its default."""

    # Holds the SQLite database, the log, and the files of keys.
    data_dir: Path = Path("tidings-data")
    # None: SQLite in the data directory.
    database_url: Secret | None = None
    # Private networks that fetches may reach.
    allow_networks: tuple[Network, ...] = ()
    # The format of log lines on the terminal; the log file is JSON.
    log_format: LogFormat = LogFormat.CONSOLE
    # One master key, or `k2:NEW,k1:OLD`. None: `master.key` in the data directory.
    master_key: Secret | None = None
    # How another program derived the key of its Fernet tokens by PBKDF2.
    fernet_salt: "FernetSalt | None" = None
    # The most time of one execution.
    run_budget: timedelta = timedelta(seconds=300)
    # Multiplies every wait of the retry rules.
    retry_scale: float = 1
    # Least time between two notices of one page.
    resubmit_gap: timedelta = timedelta(seconds=600)
    # Most requests in flight at one engine, in one process.
    max_concurrent_requests: int = 3
    # Least time between two requests to one engine.
    request_interval: timedelta = timedelta(milliseconds=100)
    # An accepted page is due again after so long.
    cache_ttl: timedelta = timedelta(days=30)
    # Most retries of a request to an engine; 3 retries are 4 attempts.
    max_retries: int = 3
    # Engines, submit method and schedule (cron, UTC) of the environment's site, and defaults for others.
    engines: tuple[str, ...] = (DEFAULT_ENGINE,)
    submit_method: SubmitMethod = SubmitMethod.AUTO
    schedule: str = DEFAULT_SCHEDULE
    # The key for sites that are named on the command line, and the channels that they can be sent to.
    indexnow_key: Secret | None = None
    bing: BingSettings = field(default_factory=BingSettings)
    baidu: BaiduSettings = field(default_factory=BaiduSettings)
    google: GoogleSettings = field(default_factory=GoogleSettings)
    # The address that `tidings serve` listens on.
    host: str = "127.0.0.1"
    port: int = 8080
    # Tokens of the API that the environment sets.
    tokens: Mapping[Scope, Secret] = field(default_factory=dict)
    # Proxies whose X-Forwarded-For is believed.
    trusted_proxies: tuple[Network, ...] = ()
    # Apprise URLs, with commas or white space between them.
    alert_urls: Secret | None = None
    # Takes alerts as signed JSON; `webhook_secret` signs. None: `webhook.secret` in the data directory.
    webhook_url: Secret | None = None
    webhook_secret: Secret | None = None
    # Asked for after each good execution, so that a monitor outside notices a dead machine.
    ping_url: Secret | None = None
    # The language of alerts.
    language: Language = Language.ENGLISH
    # Sites of one cron minute are spread over so long.
    schedule_spread: timedelta = timedelta(seconds=300)
    # Most sites that one process runs at once.
    max_executions: int = 4
    # Most connections to PostgreSQL for writing, and as many again for reading.
    database_connections: int = 15
    # Executions are kept for so long; zero keeps them all.
    execution_retention: timedelta = timedelta(days=400)
    # The addresses of channels with a quota.
    bases: ApiBases = field(default_factory=ApiBases)
    crawl: CrawlSettings = field(default_factory=CrawlSettings)
    collect: CollectSettings = field(default_factory=CollectSettings)
    # The environment's own site.
    site: SiteSettings | None = None
    # Every secret among these settings, for the redactor.
    secrets: tuple[Secret, ...] = field(default=(), repr=False)
    # One line for each variable that looks like a setting and is none.
    warnings: tuple[str, ...] = ()
    # Every setting with its source, for people; secrets without their values.
    sources: tuple[SettingSource, ...] = field(default=(), compare=False)


def read_language(environment: Mapping[str, str]) -> Language:
    """The language alone, for a command that fails before it needs the settings. A wrong value counts as English."""
    chosen = environment.get("TIDINGS_LANGUAGE", "")
    return Language(chosen) if chosen in list(Language) else Language.ENGLISH


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Settings from these variables. Raises SettingError."""
    variables = Variables(environment)
    default = Settings()
    key = variables.secret("INDEXNOW_API_KEY")
    if key is not None:
        variables.check("INDEXNOW_API_KEY", lambda: check_key(key.reveal()))
    baidu_site = variables.read("BAIDU_SITE", check_baidu_site, None)
    bing = _read_ranked(variables, BingSettings, key_name="BING_API_KEY")
    baidu = _read_ranked(variables, BaiduSettings, key_name="BAIDU_TOKEN", site=baidu_site)
    google = _read_google(variables)
    settings = Settings(
        data_dir=Path(variables.text("TIDINGS_DATA_DIR", default=default.data_dir) or default.data_dir),
        database_url=variables.secret("TIDINGS_DATABASE_URL", normalise=_normalise_database_url),
        allow_networks=variables.read("TIDINGS_ALLOW_NETWORKS", parse_networks, default.allow_networks),
        log_format=variables.choice("TIDINGS_LOG_FORMAT", default.log_format),
        master_key=variables.secret("COOKIE_MASTER_KEY"),
        fernet_salt=_read_fernet_salt(variables),
        run_budget=variables.duration("TIDINGS_RUN_BUDGET_SECONDS", default.run_budget, unit="s", least=1),
        retry_scale=variables.number("TIDINGS_RETRY_SCALE", default=1, least=0),
        resubmit_gap=variables.duration("TIDINGS_RESUBMIT_GAP_SECONDS", default.resubmit_gap, unit="s"),
        max_concurrent_requests=variables.whole("MAX_CONCURRENT_REQUESTS", default=3, least=1, most=100),
        request_interval=variables.duration("REQUEST_INTERVAL_MS", default.request_interval, unit="ms", most=60_000),
        cache_ttl=variables.duration("CACHE_TTL_DAYS", default.cache_ttl, unit="d", least=1, most=3_650),
        max_retries=variables.whole("MAX_RETRIES", default=3, least=0, most=20),
        engines=variables.read("INDEXNOW_SEARCH_ENGINES", _parse_engine_names, default.engines),
        submit_method=variables.choice("INDEXNOW_SUBMIT_METHOD", default.submit_method),
        schedule=variables.read("CRON_SCHEDULE", check_schedule, default.schedule),
        indexnow_key=key,
        bing=bing,
        baidu=baidu,
        google=google,
        host=variables.text("TIDINGS_HOST", default=default.host) or default.host,
        port=variables.whole("TIDINGS_PORT", default=default.port, least=0, most=65_535),
        tokens=_read_tokens(variables),
        trusted_proxies=variables.read("TIDINGS_TRUSTED_PROXIES", parse_networks, default.trusted_proxies),
        alert_urls=variables.secret("TIDINGS_ALERT_URLS"),
        webhook_url=variables.secret("TIDINGS_WEBHOOK_URL"),
        webhook_secret=variables.secret("TIDINGS_WEBHOOK_SECRET"),
        ping_url=_read_ping_url(variables),
        language=variables.choice("TIDINGS_LANGUAGE", default.language),
        schedule_spread=variables.duration("TIDINGS_SCHEDULE_SPREAD_SECONDS", default.schedule_spread, unit="s"),
        max_executions=variables.whole("TIDINGS_MAX_EXECUTIONS", default=4, least=1, most=1_000),
        database_connections=variables.whole("TIDINGS_DATABASE_CONNECTIONS", default=15, least=4, most=1_000),
        execution_retention=timedelta(
            days=variables.whole("TIDINGS_EXECUTION_DAYS", default=400, least=0, most=36_500)
        ),
        bases=ApiBases(
            bing=variables.read("BING_API_BASE", _parse_base, default.bases.bing),
            baidu=variables.read("BAIDU_API_BASE", _parse_base, default.bases.baidu),
            google=variables.read("GOOGLE_API_BASE", _parse_base, default.bases.google),
        ),
        crawl=_read_crawl(variables),
        collect=_read_collect(variables),
        site=_read_site(variables, key=key, bing=bing, baidu=baidu, google=google),
        secrets=tuple(variables.secrets),
    )
    # Last, because by now every variable has been asked for.
    warnings = (*_describe_unknown(variables), *_describe_idle(settings))
    return replace(settings, warnings=warnings, sources=variables.list_sources())


def _read_fernet_salt(variables: Variables) -> "FernetSalt | None":
    salt = variables.text("COOKIE_FERNET_SALT")
    iterations = variables.whole("COOKIE_FERNET_ITERATIONS", default=480_000, least=1, most=10_000_000)
    if salt is None:
        return None
    from tidings.core.secrets.keyring import FernetSalt

    return FernetSalt(salt, iterations)


def _read_ping_url(variables: Variables) -> Secret | None:
    url = variables.secret("TIDINGS_PING_URL")
    if url is not None:
        variables.check("TIDINGS_PING_URL", lambda: check_url("url", url.reveal()))
    return url


def _describe_unknown(variables: Variables) -> Iterator[str]:
    for name, nearest in variables.find_unknown():
        yield f"{name} is not a setting and has no effect; did you mean {nearest}?"


def _describe_idle(settings: Settings) -> Iterator[str]:
    feishu = settings.collect.feishu
    if feishu is not None and not (feishu.tables or feishu.keyword_table):
        yield "FEISHU_APP_ID is set without a FEISHU_TABLE_…: nothing is mirrored; run `tidings collect feishu setup`"


def _normalise_database_url(url: str) -> str:
    """Hosting services hand out `postgres://`, which SQLAlchemy does not know."""
    return re.sub("^postgres://", "postgresql://", url)


def _read_site(
    variables: Variables,
    *,
    key: Secret | None,
    bing: BingSettings,
    baidu: BaiduSettings,
    google: GoogleSettings,
) -> SiteSettings | None:
    """The environment's site, if there is one. A key alone is for sites that are named on the command line."""
    sitemap = variables.read("SITEMAP_URL", lambda text: check_url("sitemapUrl", text).text, None)
    host = variables.read("SITE_HOST", check_host, None)
    # It usually contains the key.
    location = variables.secret("INDEXNOW_KEY_LOCATION")
    if location is not None:
        variables.check("INDEXNOW_KEY_LOCATION", lambda: check_url("keyLocation", location.reveal()))
    none: tuple[str, ...] = ()
    backups = variables.read("BACKUP_SITEMAP_URLS", _parse_urls, none)
    announce_removed = variables.switch("INDEXNOW_ANNOUNCE_REMOVED", default=False)
    if sitemap is None:
        return None
    if key is None:
        raise SettingError("INDEXNOW_API_KEY", "required because SITEMAP_URL is set")
    return SiteSettings(
        sitemap_url=sitemap,
        key=key,
        host=host,
        key_location=location,
        backup_sitemap_urls=backups,
        announce_removed=announce_removed,
        bing=bing,
        baidu=baidu,
        google=google,
    )


def _read_google(variables: Variables) -> GoogleSettings:
    """Credentials have sitemaps submitted; the Indexing API is on if the pages are declared."""
    content = variables.read("GOOGLE_INDEXING", check_content, None)
    google = _read_ranked(
        variables,
        GoogleSettings,
        key_name="GOOGLE_CREDENTIALS",
        console_property=variables.read("GOOGLE_PROPERTY", check_property, None),
        content=content,
    )
    if content is not None and google.key is None:
        raise SettingError("GOOGLE_CREDENTIALS", "required because GOOGLE_INDEXING is set")
    return replace(google, enabled=content is not None)


_BASE_URLS = {
    "bilibili": "BILIBILI_BASE_URL",
    "xiaohongshu": "XIAOHONGSHU_BASE_URL",
    "weibo": "WEIBO_BASE_URL",
}


def _read_crawl(variables: Variables) -> CrawlSettings:
    default = CrawlSettings()
    bases = {platform: variables.read(name, _parse_base, "") for platform, name in _BASE_URLS.items()}
    return CrawlSettings(
        base_urls={platform: base for platform, base in bases.items() if base},
        feeds=variables.read("TIDINGS_FEEDS", _parse_urls, default.feeds),
        user_agent=variables.read("TIDINGS_USER_AGENT", _parse_user_agent, default.user_agent),
        platform_interval=variables.duration("PLATFORM_INTERVAL_SECONDS", default.platform_interval, unit="s"),
        cookie_interval=variables.duration("COOKIE_INTERVAL_SECONDS", default.cookie_interval, unit="s"),
        request_timeout=variables.duration("REQUEST_TIMEOUT", default.request_timeout, unit="s", least=1),
        search_timeout=variables.duration("SEARCH_TIMEOUT", default.search_timeout, unit="s", least=1),
        detail_timeout=variables.duration("DETAIL_TIMEOUT", default.detail_timeout, unit="s", least=1),
        batch_timeout=variables.duration("BATCH_TIMEOUT", default.batch_timeout, unit="s", least=1),
        cooling=variables.duration("COOLING_DURATION_MINUTES", default.cooling, unit="m"),
        max_consecutive_errors=variables.whole("MAX_CONSECUTIVE_ERRORS", default=3, least=1, most=1_000),
        max_total_errors=variables.whole("MAX_TOTAL_ERRORS", default=10, least=1, most=1_000),
    )


def _read_collect(variables: Variables) -> CollectSettings:
    default = CollectSettings()
    return CollectSettings(
        runs=variables.switch("TIDINGS_COLLECT_RUNNER", default=default.runs),
        pseudonyms=variables.switch("COLLECT_PSEUDONYMS", default=default.pseudonyms),
        # A heartbeat comes every minute, and one may be late.
        lock_timeout=variables.duration("LOCK_TIMEOUT_MINUTES", default.lock_timeout, unit="m", least=2),
        recovery_interval=variables.duration(
            "RECOVERY_INTERVAL_MINUTES", default.recovery_interval, unit="m", least=_SHORTEST_INTERVAL
        ),
        discover_interval=variables.duration(
            "DISCOVER_INTERVAL_MINUTES", default.discover_interval, unit="m", least=_SHORTEST_INTERVAL
        ),
        collect_interval=variables.duration(
            "COLLECT_INTERVAL_MINUTES", default.collect_interval, unit="m", least=_SHORTEST_INTERVAL
        ),
        batch_size=variables.whole("BATCH_SIZE", default=default.batch_size, least=1, most=_MOST_BATCH),
        backoff=variables.read("BACKOFF_SECONDS", _parse_backoff, default.backoff),
        retries=variables.read("ERROR_RETRIES", _parse_retries, default.retries),
        feishu=_read_feishu(variables),
    )


# The setting that holds the id of each table in the base, by the table's name.
FEISHU_TABLES = {
    "tbl_cookie": "FEISHU_TABLE_COOKIE",
    "tbl_candidate": "FEISHU_TABLE_CANDIDATE",
    "tbl_crawl_execution": "FEISHU_TABLE_EXECUTION",
    "tbl_source": "FEISHU_TABLE_SOURCE",
    "tbl_keyword": "FEISHU_TABLE_KEYWORD",
}


def _read_feishu(variables: Variables) -> "FeishuTarget | None":
    """The base of the mirror, if there is one. Without a table, only a setup can use it."""
    app_id, app_token = variables.text("FEISHU_APP_ID"), variables.text("FEISHU_APP_TOKEN")
    app_secret = variables.secret("FEISHU_APP_SECRET")
    ids = {table: variables.text(name) for table, name in FEISHU_TABLES.items()}
    tables = {table: given for table, given in ids.items() if given is not None}
    base_url = variables.read("FEISHU_BASE_URL", _parse_base, "")
    if not any((app_id, app_secret, app_token, tables)):
        return None
    from tidings.collect.feishu.client import FEISHU_URL, FeishuTarget

    app_id = _require_feishu("FEISHU_APP_ID", app_id)
    app_secret = _require_feishu("FEISHU_APP_SECRET", app_secret)
    app_token = _require_feishu("FEISHU_APP_TOKEN", app_token)
    keyword_table = tables.pop("tbl_keyword", None)
    return variables.check(
        "FEISHU_BASE_URL or FEISHU_TABLE_…",
        lambda: FeishuTarget(app_id, app_secret, app_token, tables, keyword_table, base_url or FEISHU_URL),
    )


def _require_feishu(name: str, value: Value | None) -> Value:
    if value is None:
        raise SettingError(name, "required because another FEISHU_ variable is set")
    return value


# The variable of each token.
TOKEN_VARIABLES = {
    Scope.ADMIN: "TIDINGS_TOKEN",
    Scope.CRAWL: "TIDINGS_CRAWL_TOKEN",
    Scope.WORKFLOW: "TIDINGS_WORKFLOW_TOKEN",
    Scope.METRICS: "TIDINGS_METRICS_TOKEN",
}


def _read_tokens(variables: Variables) -> dict[Scope, Secret]:
    tokens = {scope: token for scope, name in TOKEN_VARIABLES.items() if (token := variables.secret(name)) is not None}
    for scope, token in tokens.items():
        if not _TOKEN.fullmatch(token.reveal()):
            raise SettingError(
                TOKEN_VARIABLES[scope], "it must have printable ASCII characters only, without white space"
            )
    return tokens


def _read_ranked(variables: Variables, kind: type[Ranked], *, key_name: str, **others: Any) -> Ranked:
    """A channel with a quota is on if its key is set."""
    key, fields = variables.secret(key_name), kind.fields
    prefix = fields.prefix.upper()
    auto = fields.asks and variables.text(f"{prefix}_DAILY_QUOTA") == AUTO
    return kind(
        enabled=key is not None,
        key=None if key is None else variables.check(key_name, lambda: kind.check_key(key.reveal())),
        daily_quota=fields.default_quota
        if auto
        else variables.whole(f"{prefix}_DAILY_QUOTA", default=fields.default_quota, least=1, most=fields.most_quota),
        auto=auto,
        priority=variables.choice(f"{prefix}_PRIORITY", PagePriority.NEWEST),
        **others,
    )


def _parse_base(text: str) -> str:
    url = check_url("BING_API_BASE", text.rstrip("/"))
    if url.query:
        raise ValueError("it must be a URL without a query")
    # A bare host is given its slash back, and the platforms' paths begin with one.
    return url.text.rstrip("/")


def _parse_backoff(text: str) -> tuple[timedelta, ...]:
    """A comma list of durations."""
    return tuple(parse_duration(part.strip(), unit="s", most=_LONGEST_BACKOFF) for part in text.split(","))


def _parse_retries(text: str) -> "dict[ErrorCode, int]":
    """A comma list such as NETWORK_ERROR=5,TIMEOUT_ERROR=0."""
    from tidings.collect.errors import RULES, ErrorCode

    repeatable = [code.value for code, rule in RULES.items() if rule.retryable]
    rule = f"it must be CODE=NUMBER with numbers from 0 to {_MOST_RETRIES} and codes of {', '.join(repeatable)}"
    retries = {}
    for part in text.split(","):
        code, _, number = part.strip().partition("=")
        if code not in repeatable or not re.fullmatch(r"\d{1,2}", number) or int(number) > _MOST_RETRIES:
            raise ValueError(rule)
        retries[ErrorCode(code)] = int(number)
    return retries


def _parse_urls(text: str) -> tuple[str, ...]:
    """URLs with commas or white space between them."""
    return tuple(check_url("url", url).text for url in re.split(r"[\s,]+", text) if url)


def _parse_user_agent(text: str) -> str:
    if not text.isascii() or not text.isprintable() or len(text) > _LONGEST_USER_AGENT:
        raise ValueError(f"it must have at most {_LONGEST_USER_AGENT} printable ASCII characters")
    return text


def _parse_engine_names(text: str) -> tuple[str, ...]:
    """A comma list, or a JSON list of strings."""
    names: list[str]
    if text.startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            raise ValueError('it must be a comma list, or JSON such as ["api.indexnow.org"]') from None
        if not all(isinstance(name, str) for name in names):
            raise ValueError("every engine must be a text")
    else:
        names = [name for name in text.split(",") if name.strip()]
    parse_engines(names)
    return tuple(name.strip() for name in names)
