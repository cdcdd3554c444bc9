"""Settings of collect: the crawler, the runner, and the Feishu base."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from tidings.core.clock import parse_duration
from tidings.settings.site import parse_base, parse_urls
from tidings.settings.variables import (
    SettingError,
    Variables,
    choice,
    duration,
    parse_switch,
    parsed,
    read_fields,
    whole,
)

if TYPE_CHECKING:
    # Collect is imported only if one of its variables needs it: most commands of announce never do.
    from tidings.collect.errors import ErrorCode
    from tidings.collect.feishu.client import FeishuTarget

Value = TypeVar("Value")

_LONGEST_USER_AGENT = 200
_MOST_RETRIES = 20
_LONGEST_BACKOFF = 3_600
_SHORTEST_INTERVAL = 0.01
_BACKOFF = (timedelta(seconds=5), timedelta(seconds=15), timedelta(seconds=45))
_BASE_URLS = {"bilibili": "BILIBILI_BASE_URL", "xiaohongshu": "XIAOHONGSHU_BASE_URL", "weibo": "WEIBO_BASE_URL"}
# The setting that holds the id of each table in the base, by the table's name.
FEISHU_TABLES = {
    "tbl_cookie": "FEISHU_TABLE_COOKIE",
    "tbl_candidate": "FEISHU_TABLE_CANDIDATE",
    "tbl_crawl_execution": "FEISHU_TABLE_EXECUTION",
    "tbl_source": "FEISHU_TABLE_SOURCE",
    "tbl_keyword": "FEISHU_TABLE_KEYWORD",
}


class PseudonymUse(StrEnum):
    """Whose names and ids are stored as pseudonyms."""

    OFF = "off"
    # The authors of comments.
    COMMENTS = "comments"
    # The authors of notes too.
    ON = "on"


def _interval(name: str, *, minutes: int) -> timedelta:
    return duration(name, timedelta(minutes=minutes), unit="m", least=_SHORTEST_INTERVAL)


def _parse_backoff(text: str) -> tuple[timedelta, ...]:
    """A comma list of durations."""
    return tuple(parse_duration(part.strip(), unit="s", most=_LONGEST_BACKOFF) for part in text.split(","))


def _parse_user_agent(text: str) -> str:
    if not text.isascii() or not text.isprintable() or len(text) > _LONGEST_USER_AGENT:
        raise ValueError(f"it must have at most {_LONGEST_USER_AGENT} printable ASCII characters")
    return text


@dataclass(frozen=True, slots=True)
class CrawlSettings:
    """How the crawl API asks platforms."""

    # Other addresses of platforms, by platform.
    base_urls: Mapping[str, str] = field(default_factory=dict)
    # Feeds that the platform `web` searches if a keyword names none.
    feeds: tuple[str, ...] = parsed("TIDINGS_FEEDS", (), parse_urls)
    # The User-Agent header; None for Tidings' own.
    user_agent: str | None = parsed("TIDINGS_USER_AGENT", None, _parse_user_agent)
    # Minimum time between two requests to one platform, and with one cookie.
    platform_interval: timedelta = duration("PLATFORM_INTERVAL_SECONDS", timedelta(seconds=1), unit="s")
    cookie_interval: timedelta = duration("COOKIE_INTERVAL_SECONDS", timedelta(seconds=3), unit="s")
    # Time limits of one HTTP request, a search, a note, a batch of notes.
    request_timeout: timedelta = duration("REQUEST_TIMEOUT", timedelta(seconds=10), unit="s", least=1)
    search_timeout: timedelta = duration("SEARCH_TIMEOUT", timedelta(seconds=30), unit="s", least=1)
    detail_timeout: timedelta = duration("DETAIL_TIMEOUT", timedelta(seconds=15), unit="s", least=1)
    batch_timeout: timedelta = duration("BATCH_TIMEOUT", timedelta(seconds=60), unit="s", least=1)
    # A cookie cools for this long after `max_consecutive_errors`, and is invalid after `max_total_errors`.
    cooling: timedelta = duration("COOLING_DURATION_MINUTES", timedelta(minutes=30), unit="m")
    max_consecutive_errors: int = whole("MAX_CONSECUTIVE_ERRORS", 3, least=1, most=1_000)
    max_total_errors: int = whole("MAX_TOTAL_ERRORS", 10, least=1, most=1_000)


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How the writer and the built-in runner collect."""

    # Whether the built-in runner drives discover and collect; if not, an external client does.
    runs: bool = parsed("TIDINGS_COLLECT_RUNNER", True, parse_switch)
    # A lock is released after this long without a heartbeat, which comes every minute; one may be late.
    lock_timeout: timedelta = duration("LOCK_TIMEOUT_MINUTES", timedelta(minutes=30), unit="m", least=2)
    # How often each job of the service runs.
    recovery_interval: timedelta = _interval("RECOVERY_INTERVAL_MINUTES", minutes=15)
    discover_interval: timedelta = _interval("DISCOVER_INTERVAL_MINUTES", minutes=60)
    collect_interval: timedelta = _interval("COLLECT_INTERVAL_MINUTES", minutes=5)
    # Whose authors are stored under a pseudonym.
    pseudonyms: PseudonymUse = choice("COLLECT_PSEUDONYMS", PseudonymUse.COMMENTS)
    # Candidates in one lease.
    batch_size: int = whole("BATCH_SIZE", 10, least=1, most=50)
    # Waits before the first, second, third retry; the last repeats.
    backoff: tuple[timedelta, ...] = parsed("BACKOFF_SECONDS", _BACKOFF, _parse_backoff)
    # Most retries of error codes, where they differ from the table in collect/errors.py.
    retries: "Mapping[ErrorCode, int]" = field(default_factory=dict)
    # The Feishu mirror; None if there is none.
    feishu: "FeishuTarget | None" = None


def read_crawl(variables: Variables) -> CrawlSettings:
    bases = {platform: variables.read(name, parse_base, "") for platform, name in _BASE_URLS.items()}
    named = {platform: base for platform, base in bases.items() if base}
    return CrawlSettings(base_urls=named, **read_fields(CrawlSettings, variables))


def read_collect(variables: Variables) -> CollectSettings:
    return CollectSettings(
        retries=variables.read("ERROR_RETRIES", _parse_retries, {}),
        feishu=_read_feishu(variables),
        **read_fields(CollectSettings, variables),
    )


def _read_feishu(variables: Variables) -> "FeishuTarget | None":
    """The base of the mirror, if there is one. Without table ids, only the setup command can use it."""
    app_id, app_token = variables.text("FEISHU_APP_ID"), variables.text("FEISHU_APP_TOKEN")
    app_secret = variables.secret("FEISHU_APP_SECRET")
    ids = {table: variables.text(name) for table, name in FEISHU_TABLES.items()}
    tables = {table: given for table, given in ids.items() if given is not None}
    base_url = variables.read("FEISHU_BASE_URL", parse_base, "")
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
