"""The environment → one frozen Settings. The only reader of the environment.

A value that breaks its rule is refused with one line that names the variable and the rule. Every secret can also come
from a file: `NAME_FILE` holds the path. Secrets are wrapped at once and never repeated in a message.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tidings.announce.channels.bing import DEFAULT_BASE
from tidings.announce.site.site import (
    DEFAULT_BING_QUOTA,
    DEFAULT_ENGINE,
    DEFAULT_SCHEDULE,
    MOST_BING_QUOTA,
    BingPriority,
    BingSettings,
    check_bing_key,
    check_host,
    check_key,
    check_schedule,
    check_url,
    parse_engines,
)
from tidings.collect.errors import BACKOFF, RULES, ErrorCode
from tidings.collect.feishu.target import FEISHU_DOMAIN, FeishuTarget
from tidings.core.alerts.kinds import Language
from tidings.core.logs.logger import LogFormat
from tidings.core.net.addresses import Network, parse_networks
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.variables import SettingError, Variables

__all__ = [
    "CollectSettings",
    "CrawlSettings",
    "SettingError",
    "Settings",
    "SiteSettings",
    "read_settings",
]

_LONGEST_USER_AGENT = 200
_MOST_RETRIES = 20
_LONGEST_BACKOFF = 3_600
_MOST_BATCH = 50
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The one site that can be set up by the environment alone."""

    sitemap_url: str
    key: Secret
    host: str | None
    bing: BingSettings = field(default_factory=BingSettings)


@dataclass(frozen=True, slots=True)
class CrawlSettings:
    """How media platforms are crawled. `base_urls` are other addresses of platforms, by their names."""

    base_urls: Mapping[str, str] = field(default_factory=dict)
    feeds: tuple[str, ...] = ()
    user_agent: str | None = None
    platform_interval: timedelta = timedelta(seconds=1)
    cookie_interval: timedelta = timedelta(seconds=3)
    request_timeout: timedelta = timedelta(seconds=10)
    search_timeout: timedelta = timedelta(seconds=30)
    detail_timeout: timedelta = timedelta(seconds=15)
    batch_timeout: timedelta = timedelta(seconds=60)
    cooling: timedelta = timedelta(minutes=30)
    max_consecutive_errors: int = 3
    max_total_errors: int = 10


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How content is collected. Where `runs` is False somebody else drives the workflows, through the API. `retries`
    are other numbers of most retries than the table of error codes has."""

    runs: bool = True
    lock_timeout: timedelta = timedelta(minutes=30)
    recovery_interval: timedelta = timedelta(minutes=15)
    discover_interval: timedelta = timedelta(minutes=60)
    collect_interval: timedelta = timedelta(minutes=5)
    batch_size: int = 10
    backoff: tuple[timedelta, ...] = BACKOFF
    retries: Mapping[ErrorCode, int] = field(default_factory=dict)
    feishu: FeishuTarget | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, with its default."""

    data_dir: Path = Path("tidings-data")
    database_url: Secret | None = None
    allow_networks: tuple[Network, ...] = ()
    log_format: LogFormat = LogFormat.CONSOLE
    master_key: Secret | None = None
    run_budget: timedelta = timedelta(seconds=300)
    retry_scale: float = 1
    resubmit_gap: timedelta = timedelta(seconds=600)
    max_concurrent_requests: int = 3
    request_interval: timedelta = timedelta(milliseconds=100)
    cache_ttl: timedelta = timedelta(days=30)
    max_retries: int = 3
    engines: tuple[str, ...] = (DEFAULT_ENGINE,)
    schedule: str = DEFAULT_SCHEDULE
    indexnow_key: Secret | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Mapping[Scope, Secret] = field(default_factory=dict)
    trusted_proxies: tuple[Network, ...] = ()
    alert_urls: Secret | None = None
    webhook_url: Secret | None = None
    webhook_secret: Secret | None = None
    language: Language = Language.ENGLISH
    schedule_spread: timedelta = timedelta(seconds=300)
    max_executions: int = 4
    bing_base: str = DEFAULT_BASE
    crawl: CrawlSettings = field(default_factory=lambda: CrawlSettings())
    collect: CollectSettings = field(default_factory=lambda: CollectSettings())
    site: SiteSettings | None = None
    secrets: tuple[Secret, ...] = field(default=(), repr=False)


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Settings from these variables. Raises SettingError."""
    variables = Variables(environment)
    default = Settings()
    key = variables.secret("INDEXNOW_API_KEY")
    if key is not None:
        variables.check("INDEXNOW_API_KEY", lambda: check_key(key.reveal()))
    return Settings(
        data_dir=Path(variables.text("TIDINGS_DATA_DIR") or default.data_dir),
        database_url=variables.secret("TIDINGS_DATABASE_URL"),
        allow_networks=variables.read("TIDINGS_ALLOW_NETWORKS", parse_networks, default.allow_networks),
        log_format=variables.read("TIDINGS_LOG_FORMAT", _parse_log_format, default.log_format),
        master_key=variables.secret("COOKIE_MASTER_KEY"),
        run_budget=timedelta(seconds=variables.number("TIDINGS_RUN_BUDGET_SECONDS", default=300, least=1)),
        retry_scale=variables.number("TIDINGS_RETRY_SCALE", default=1, least=0),
        resubmit_gap=timedelta(seconds=variables.number("TIDINGS_RESUBMIT_GAP_SECONDS", default=600, least=0)),
        max_concurrent_requests=variables.whole("MAX_CONCURRENT_REQUESTS", default=3, least=1, most=100),
        request_interval=timedelta(
            milliseconds=variables.whole("REQUEST_INTERVAL_MS", default=100, least=0, most=60_000)
        ),
        cache_ttl=timedelta(days=variables.whole("CACHE_TTL_DAYS", default=30, least=1, most=3_650)),
        max_retries=variables.whole("MAX_RETRIES", default=3, least=0, most=20),
        engines=variables.read("INDEXNOW_SEARCH_ENGINES", _parse_engine_names, default.engines),
        schedule=variables.read("CRON_SCHEDULE", check_schedule, default.schedule),
        indexnow_key=key,
        host=variables.text("TIDINGS_HOST") or default.host,
        port=variables.whole("TIDINGS_PORT", default=default.port, least=0, most=65_535),
        tokens=_read_tokens(variables),
        trusted_proxies=variables.read("TIDINGS_TRUSTED_PROXIES", parse_networks, default.trusted_proxies),
        alert_urls=variables.secret("TIDINGS_ALERT_URLS"),
        webhook_url=variables.secret("TIDINGS_WEBHOOK_URL"),
        webhook_secret=variables.secret("TIDINGS_WEBHOOK_SECRET"),
        language=variables.read("TIDINGS_LANGUAGE", _parse_language, default.language),
        schedule_spread=timedelta(seconds=variables.number("TIDINGS_SCHEDULE_SPREAD_SECONDS", default=300, least=0)),
        max_executions=variables.whole("TIDINGS_MAX_EXECUTIONS", default=4, least=1, most=1_000),
        bing_base=variables.read("BING_API_BASE", _parse_base, default.bing_base),
        crawl=_read_crawl(variables),
        collect=_read_collect(variables),
        site=_read_site(variables, key=key),
        secrets=tuple(variables.secrets),
    )


def _read_site(variables: Variables, *, key: Secret | None) -> SiteSettings | None:
    """The environment's site, where there is one. A key alone is for sites that are named on the command line."""
    sitemap = variables.read("SITEMAP_URL", lambda text: check_url("sitemapUrl", text).text, None)
    host = variables.read("SITE_HOST", check_host, None)
    bing = _read_bing(variables)
    if sitemap is None:
        return None
    if key is None:
        raise SettingError("INDEXNOW_API_KEY", "it must be set where SITEMAP_URL is")
    return SiteSettings(sitemap_url=sitemap, key=key, host=host, bing=bing)


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
        feeds=variables.read("TIDINGS_FEEDS", _parse_feeds, default.feeds),
        user_agent=variables.read("TIDINGS_USER_AGENT", _parse_user_agent, default.user_agent),
        platform_interval=variables.seconds("PLATFORM_INTERVAL_SECONDS", default.platform_interval),
        cookie_interval=variables.seconds("COOKIE_INTERVAL_SECONDS", default.cookie_interval),
        request_timeout=variables.seconds("REQUEST_TIMEOUT", default.request_timeout, least=1),
        search_timeout=variables.seconds("SEARCH_TIMEOUT", default.search_timeout, least=1),
        detail_timeout=variables.seconds("DETAIL_TIMEOUT", default.detail_timeout, least=1),
        batch_timeout=variables.seconds("BATCH_TIMEOUT", default.batch_timeout, least=1),
        cooling=variables.minutes("COOLING_DURATION_MINUTES", default.cooling, least=0),
        max_consecutive_errors=variables.whole("MAX_CONSECUTIVE_ERRORS", default=3, least=1, most=1_000),
        max_total_errors=variables.whole("MAX_TOTAL_ERRORS", default=10, least=1, most=1_000),
    )


def _read_collect(variables: Variables) -> CollectSettings:
    default = CollectSettings()
    return CollectSettings(
        runs=variables.read("TIDINGS_COLLECT_RUNNER", _parse_switch, default.runs),
        # A heartbeat comes every minute, and one may be late.
        lock_timeout=variables.minutes("LOCK_TIMEOUT_MINUTES", default.lock_timeout, least=2),
        recovery_interval=variables.minutes("RECOVERY_INTERVAL_MINUTES", default.recovery_interval),
        discover_interval=variables.minutes("DISCOVER_INTERVAL_MINUTES", default.discover_interval),
        collect_interval=variables.minutes("COLLECT_INTERVAL_MINUTES", default.collect_interval),
        batch_size=variables.whole("BATCH_SIZE", default=default.batch_size, least=1, most=_MOST_BATCH),
        backoff=variables.read("BACKOFF_SECONDS", _parse_backoff, default.backoff),
        retries=variables.read("ERROR_RETRIES", _parse_retries, default.retries),
        feishu=_read_feishu(variables),
    )


_FEISHU_TABLES = {"tbl_candidate": "FEISHU_CANDIDATE_TABLE", "tbl_source": "FEISHU_SOURCE_TABLE"}


def _read_feishu(variables: Variables) -> FeishuTarget | None:
    """The mirror, where there is one. Of its variables all must be set, or none; of the tables one is enough."""
    app_id, app_token = variables.text("FEISHU_APP_ID"), variables.text("FEISHU_APP_TOKEN")
    app_secret = variables.secret("FEISHU_APP_SECRET")
    ids = {table: variables.text(name) for table, name in _FEISHU_TABLES.items()}
    tables = {table: given for table, given in ids.items() if given is not None}
    base_url = variables.read("FEISHU_BASE_URL", _parse_base, FEISHU_DOMAIN)
    if not any((app_id, app_secret, app_token, tables)):
        return None
    rule = "it must be set where another variable of Feishu's is"
    if app_id is None:
        raise SettingError("FEISHU_APP_ID", rule)
    if app_secret is None:
        raise SettingError("FEISHU_APP_SECRET", rule)
    if app_token is None:
        raise SettingError("FEISHU_APP_TOKEN", rule)
    names = " or ".join(_FEISHU_TABLES.values())
    if not tables:
        raise SettingError(names, rule)
    return variables.check(
        f"FEISHU_BASE_URL or {names}", lambda: FeishuTarget(app_id, app_secret, app_token, tables, base_url)
    )


_TOKENS = {
    Scope.ADMIN: "TIDINGS_TOKEN",
    Scope.CRAWL: "TIDINGS_CRAWL_TOKEN",
    Scope.WORKFLOW: "TIDINGS_WORKFLOW_TOKEN",
    Scope.METRICS: "TIDINGS_METRICS_TOKEN",
}


def _read_tokens(variables: Variables) -> dict[Scope, Secret]:
    tokens = {scope: token for scope, name in _TOKENS.items() if (token := variables.secret(name)) is not None}
    for scope, token in tokens.items():
        if not _TOKEN.fullmatch(token.reveal()):
            raise SettingError(_TOKENS[scope], "it must have printable ASCII characters only, without white space")
    return tokens


def _read_bing(variables: Variables) -> BingSettings:
    """Bing is on where its key is set."""
    key = variables.secret("BING_API_KEY")
    return BingSettings(
        enabled=key is not None,
        key=None if key is None else variables.check("BING_API_KEY", lambda: check_bing_key(key.reveal())),
        daily_quota=variables.whole("BING_DAILY_QUOTA", default=DEFAULT_BING_QUOTA, least=1, most=MOST_BING_QUOTA),
        priority=variables.read("BING_PRIORITY", _parse_priority, BingPriority.NEWEST),
    )


def _parse_log_format(text: str) -> LogFormat:
    try:
        return LogFormat(text)
    except ValueError:
        raise ValueError(f"it must be one of {', '.join(LogFormat)}") from None


def _parse_language(text: str) -> Language:
    try:
        return Language(text)
    except ValueError:
        raise ValueError(f"it must be one of {', '.join(Language)}") from None


def _parse_priority(text: str) -> BingPriority:
    try:
        return BingPriority(text)
    except ValueError:
        raise ValueError(f"it must be one of {', '.join(BingPriority)}") from None


def _parse_base(text: str) -> str:
    url = check_url("BING_API_BASE", text.rstrip("/"))
    if url.query:
        raise ValueError("it must be a URL without a query")
    # A bare host is given its slash back, and the platforms' paths begin with one.
    return url.text.rstrip("/")


def _parse_switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("it must be on or off")
    return text == "on"


def _parse_backoff(text: str) -> tuple[timedelta, ...]:
    """A comma list of seconds."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,4}(\.\d{1,3})?", part) and float(part) <= _LONGEST_BACKOFF for part in parts):
        raise ValueError(f"it must be numbers of seconds from 0 to {_LONGEST_BACKOFF:,}, such as 5,15,45")
    return tuple(timedelta(seconds=float(part)) for part in parts)


def _parse_retries(text: str) -> dict[ErrorCode, int]:
    """A comma list such as NETWORK_ERROR=5,TIMEOUT_ERROR=0."""
    repeatable = [code.value for code, rule in RULES.items() if rule.retryable]
    rule = f"it must be CODE=NUMBER with numbers from 0 to {_MOST_RETRIES} and codes of {', '.join(repeatable)}"
    retries = {}
    for part in text.split(","):
        code, _, number = part.strip().partition("=")
        if code not in repeatable or not re.fullmatch(r"\d{1,2}", number) or int(number) > _MOST_RETRIES:
            raise ValueError(rule)
        retries[ErrorCode(code)] = int(number)
    return retries


def _parse_feeds(text: str) -> tuple[str, ...]:
    return tuple(check_url("TIDINGS_FEEDS", url).text for url in re.split(r"[\s,]+", text) if url)


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
