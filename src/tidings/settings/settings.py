"""The environment → one frozen Settings. The only reader of the environment.

A value that breaks its rule is refused with one line that names the variable and the rule. Every secret can also come
from a file: `NAME_FILE` holds the path. Secrets are wrapped at once and never repeated in a message.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings, check_baidu_site
from tidings.announce.site.google_settings import GoogleSettings
from tidings.announce.site.site import (
    DEFAULT_ENGINE,
    DEFAULT_SCHEDULE,
    SubmitMethod,
    check_key,
    check_schedule,
    parse_engines,
)
from tidings.core.alerts.kinds import Language
from tidings.core.clock import parse_duration
from tidings.core.logs.logger import LogFormat
from tidings.core.net.addresses import Network, parse_networks
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.settings.collect import CollectSettings, CrawlSettings, read_collect, read_crawl
from tidings.settings.site import SiteSettings, parse_base, parse_url, read_google, read_ranked, read_site
from tidings.settings.variables import (
    LARGEST,
    SettingError,
    SettingSource,
    Variables,
    choice,
    duration,
    parse_whole,
    parsed,
    read_fields,
    secret,
    whole,
)

if TYPE_CHECKING:
    # Collect is imported only if one of its variables needs it: most commands of announce never do.
    from tidings.core.secrets.keyring import FernetSalt


_TOKEN = re.compile(r"[\x21-\x7e]+")


def _parse_retention(text: str) -> timedelta:
    kept_for = parse_duration(text, unit="d", most=36_500)
    if timedelta(0) < kept_for < timedelta(days=1):
        raise ValueError("it must be at least a day, or 0 to keep all")
    return kept_for


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


def _normalise_database_url(url: str) -> str:
    """Hosting services hand out `postgres://`, which SQLAlchemy does not know."""
    return re.sub("^postgres://", "postgresql://", url)


def _parse_scale(text: str) -> float:
    value = math.nan
    with suppress(ValueError):
        value = float(text)
    if not 0 <= value <= LARGEST:
        raise ValueError(f"it must be a number from 0 to {LARGEST:,}")
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, with its default."""

    # Holds the SQLite database, the log, and the files of keys.
    data_dir: Path = parsed("TIDINGS_DATA_DIR", Path("tidings-data"), Path)
    # None: SQLite in the data directory.
    database_url: Secret | None = secret("TIDINGS_DATABASE_URL", _normalise_database_url)
    # Private networks that fetches may reach.
    allow_networks: tuple[Network, ...] = parsed("TIDINGS_ALLOW_NETWORKS", (), parse_networks)
    # The format of log lines on the terminal; the log file is JSON.
    log_format: LogFormat = choice("TIDINGS_LOG_FORMAT", LogFormat.CONSOLE)
    # One master key, or `k2:NEW,k1:OLD`. None: `master.key` in the data directory.
    master_key: Secret | None = secret("COOKIE_MASTER_KEY")
    # How another program derived the key of its Fernet tokens by PBKDF2.
    fernet_salt: "FernetSalt | None" = None
    # The time budget of one execution.
    run_budget: timedelta = duration("TIDINGS_RUN_BUDGET_SECONDS", timedelta(seconds=300), unit="s", least=1)
    # Multiplies every wait of the retry rules.
    retry_scale: float = parsed("TIDINGS_RETRY_SCALE", 1.0, _parse_scale)
    # Minimum time between two notices of one page.
    resubmit_gap: timedelta = duration("TIDINGS_RESUBMIT_GAP_SECONDS", timedelta(seconds=600), unit="s")
    # Most requests in flight at one engine, in one process.
    max_concurrent_requests: int = whole("MAX_CONCURRENT_REQUESTS", 3, least=1, most=100)
    # Minimum time between two requests to one engine.
    request_interval: timedelta = duration("REQUEST_INTERVAL_MS", timedelta(milliseconds=100), unit="ms", most=60_000)
    # An accepted page is due again after this long.
    cache_ttl: timedelta = duration("CACHE_TTL_DAYS", timedelta(days=30), unit="d", least=1, most=3_650)
    # Most retries of a request to an engine; 3 retries are 4 attempts.
    max_retries: int = whole("MAX_RETRIES", 3, least=0, most=20)
    # Engines, submit method and schedule (cron, UTC) of the environment's site, and defaults for others.
    engines: tuple[str, ...] = parsed("INDEXNOW_SEARCH_ENGINES", (DEFAULT_ENGINE,), _parse_engine_names)
    submit_method: SubmitMethod = choice("INDEXNOW_SUBMIT_METHOD", SubmitMethod.AUTO)
    schedule: str = parsed("CRON_SCHEDULE", DEFAULT_SCHEDULE, check_schedule)
    # The key of the environment's site and of sites that are named on the command line, and their channels.
    indexnow_key: Secret | None = secret("INDEXNOW_API_KEY", lambda text: check_key(text).reveal())
    bing: BingSettings = field(default_factory=BingSettings)
    baidu: BaiduSettings = field(default_factory=BaiduSettings)
    google: GoogleSettings = field(default_factory=GoogleSettings)
    # The address that `tidings serve` listens on.
    host: str = parsed("TIDINGS_HOST", "127.0.0.1", str)
    port: int = whole("TIDINGS_PORT", 8080, least=0, most=65_535)
    # Tokens of the API that the environment sets.
    tokens: Mapping[Scope, Secret] = field(default_factory=dict)
    # Proxies whose X-Forwarded-For is believed.
    trusted_proxies: tuple[Network, ...] = parsed("TIDINGS_TRUSTED_PROXIES", (), parse_networks)
    # Apprise URLs, with commas or white space between them.
    alert_urls: Secret | None = secret("TIDINGS_ALERT_URLS")
    # The URL that gets alerts as JSON, signed with `webhook_secret`. None: `webhook.secret` in the data directory.
    webhook_url: Secret | None = secret("TIDINGS_WEBHOOK_URL")
    webhook_secret: Secret | None = secret("TIDINGS_WEBHOOK_SECRET")
    # Called after each successful execution, so that an external monitor notices a dead machine.
    ping_url: Secret | None = secret("TIDINGS_PING_URL", parse_url)
    # The language of alerts.
    language: Language = choice("TIDINGS_LANGUAGE", Language.ENGLISH)
    # Sites of one cron minute are spread over this long.
    schedule_spread: timedelta = duration("TIDINGS_SCHEDULE_SPREAD_SECONDS", timedelta(seconds=300), unit="s")
    # Most sites that one process runs at once.
    max_executions: int = whole("TIDINGS_MAX_EXECUTIONS", 4, least=1, most=1_000)
    # Most connections to PostgreSQL for writing, and as many again for reading.
    database_connections: int = whole("TIDINGS_DATABASE_CONNECTIONS", 15, least=4, most=1_000)
    # Executions are kept for this long; zero keeps them all.
    execution_retention: timedelta = parsed("TIDINGS_EXECUTION_DAYS", timedelta(days=400), _parse_retention, unit="d")
    # The addresses of channels with a quota.
    bases: ApiBases = field(default_factory=ApiBases)
    crawl: CrawlSettings = field(default_factory=CrawlSettings)
    collect: CollectSettings = field(default_factory=CollectSettings)
    # The environment's own site.
    site: SiteSettings | None = None
    # Every secret among these settings, for the redactor.
    secrets: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    # A warning for each variable that looks like a setting but is none.
    warnings: tuple[str, ...] = ()
    # Every setting with its source, for people; secrets without their values.
    sources: tuple[SettingSource, ...] = field(default=(), compare=False)

    @property
    def mirror_warning(self) -> str | None:
        """Why Feishu has no effect although it is set; only commands that concern the mirror show it."""
        feishu = self.collect.feishu
        if feishu is None or feishu.tables or feishu.keyword_table:
            return None
        return "FEISHU_APP_ID is set without a FEISHU_TABLE_…: nothing is mirrored; run `tidings collect feishu setup`"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Settings from these variables. Raises SettingError."""
    variables = Variables(environment)
    bases, fields = ApiBases(), read_fields(Settings, variables)
    baidu_site = variables.read("BAIDU_SITE", check_baidu_site, None)
    settings = Settings(
        fernet_salt=_read_fernet_salt(variables),
        bing=read_ranked(variables, BingSettings, key_name="BING_API_KEY"),
        baidu=read_ranked(variables, BaiduSettings, key_name="BAIDU_TOKEN", site=baidu_site),
        google=read_google(variables),
        tokens=_read_tokens(variables),
        bases=ApiBases(
            bing=variables.read("BING_API_BASE", parse_base, bases.bing),
            baidu=variables.read("BAIDU_API_BASE", parse_base, bases.baidu),
            google=variables.read("GOOGLE_API_BASE", parse_base, bases.google),
        ),
        crawl=read_crawl(variables),
        collect=read_collect(variables),
        site=read_site(variables, has_key=fields["indexnow_key"] is not None),
        **fields,
    )
    # Last, when every variable has been read.
    warnings = tuple(_describe_unknown(variables))
    return replace(settings, secrets=variables.secrets, warnings=warnings, sources=variables.list_sources())


def _read_fernet_salt(variables: Variables) -> "FernetSalt | None":
    salt = variables.text("COOKIE_FERNET_SALT")
    iterations = variables.read("COOKIE_FERNET_ITERATIONS", parse_whole(least=1, most=10_000_000), 480_000)
    if salt is None:
        return None
    from tidings.core.secrets.keyring import FernetSalt

    return FernetSalt(salt, iterations)


def _describe_unknown(variables: Variables) -> Iterator[str]:
    for name, nearest in variables.find_unknown():
        yield f"{name} is not a setting and has no effect; did you mean {nearest}?"


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
