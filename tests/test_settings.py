"""The environment becomes one frozen Settings, or start is refused in one line that names the variable and the rule."""

import re
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings, PagePriority
from tidings.announce.site.google_settings import GoogleSettings
from tidings.announce.site.site import SubmitMethod
from tidings.collect.errors import BACKOFF
from tidings.core.alerts.kinds import Language
from tidings.core.clock import parse_duration
from tidings.core.logs.logger import LogFormat
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.settings.collect import CollectSettings, CrawlSettings, PseudonymUse
from tidings.settings.settings import Settings, read_settings
from tidings.settings.site import SiteSettings
from tidings.settings.variables import SettingError

CANARY = "canary-5ecret-0123456789"
SITEMAP = "https://example.com/sitemap.xml"
TOKEN_NAMES = {
    Scope.ADMIN: "TIDINGS_TOKEN",
    Scope.CRAWL: "TIDINGS_CRAWL_TOKEN",
    Scope.WORKFLOW: "TIDINGS_WORKFLOW_TOKEN",
    Scope.METRICS: "TIDINGS_METRICS_TOKEN",
}
SECRET_NAMES = (
    "INDEXNOW_API_KEY",
    "COOKIE_MASTER_KEY",
    "TIDINGS_DATABASE_URL",
    "BING_API_KEY",
    "TIDINGS_ALERT_URLS",
    "TIDINGS_WEBHOOK_URL",
    "TIDINGS_WEBHOOK_SECRET",
    *TOKEN_NAMES.values(),
)


def find_refusal(environment: Mapping[str, str]) -> SettingError:
    with pytest.raises(SettingError) as caught:
        read_settings(environment)
    return caught.value


def test_an_empty_environment_gives_every_default() -> None:
    """A1, A12, A20: all that can be set has the default that the specification names."""
    expected: dict[str, object] = {
        "data_dir": Path("tidings-data"),
        "database_url": None,
        "allow_networks": (),
        "log_format": LogFormat.CONSOLE,
        "master_key": None,
        "run_budget": timedelta(minutes=5),
        "retry_scale": 1,
        "resubmit_gap": timedelta(minutes=10),
        "max_concurrent_requests": 3,
        "request_interval": timedelta(milliseconds=100),
        "cache_ttl": timedelta(days=30),
        "max_retries": 3,
        "engines": ("api.indexnow.org",),
        "submit_method": SubmitMethod.AUTO,
        "schedule": "0 0 * * *",
        "indexnow_key": None,
        "host": "127.0.0.1",
        "port": 8080,
        "tokens": {},
        "trusted_proxies": (),
        "alert_urls": None,
        "webhook_url": None,
        "webhook_secret": None,
        "ping_url": None,
        "fernet_salt": None,
        "language": Language.ENGLISH,
        "schedule_spread": timedelta(minutes=5),
        "max_executions": 4,
        "database_connections": 15,
        "bing": BingSettings(),
        "baidu": BaiduSettings(),
        "google": GoogleSettings(),
        "execution_retention": timedelta(days=400),
        "bases": ApiBases(
            "https://ssl.bing.com/webmaster/api.svc/json", "http://data.zz.baidu.com", "https://www.googleapis.com"
        ),
        "crawl": CrawlSettings(),
        "collect": CollectSettings(),
        "site": None,
        "secrets": {},
        "warnings": (),
    }
    settings = read_settings({})
    assert {field.name: getattr(settings, field.name) for field in fields(Settings) if field.compare} == expected


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("TIDINGS_DATA_DIR", "/var/lib/tidings", "data_dir", Path("/var/lib/tidings")),
        ("TIDINGS_DATABASE_URL", "postgresql://u:p@h/d", "database_url", Secret("postgresql://u:p@h/d")),
        ("TIDINGS_DATABASE_URL", "postgres://u:p@h/d", "database_url", Secret("postgresql://u:p@h/d")),
        (
            "TIDINGS_ALLOW_NETWORKS",
            "127.0.0.0/8, ::1/128",
            "allow_networks",
            (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        ),
        ("TIDINGS_LOG_FORMAT", "json", "log_format", LogFormat.JSON),
        ("COOKIE_MASTER_KEY", CANARY, "master_key", Secret(CANARY)),
        ("INDEXNOW_API_KEY", CANARY, "indexnow_key", Secret(CANARY)),
        ("TIDINGS_RUN_BUDGET_SECONDS", "1", "run_budget", timedelta(seconds=1)),
        ("TIDINGS_RUN_BUDGET_SECONDS", "1.5", "run_budget", timedelta(seconds=1.5)),
        ("TIDINGS_RUN_BUDGET_SECONDS", "15m", "run_budget", timedelta(minutes=15)),
        ("TIDINGS_RUN_BUDGET_SECONDS", "1 h", "run_budget", timedelta(hours=1)),
        ("TIDINGS_RETRY_SCALE", "0", "retry_scale", 0),
        ("TIDINGS_RETRY_SCALE", "0.01", "retry_scale", 0.01),
        ("TIDINGS_RESUBMIT_GAP_SECONDS", "0", "resubmit_gap", timedelta(0)),
        ("TIDINGS_RESUBMIT_GAP_SECONDS", "60", "resubmit_gap", timedelta(minutes=1)),
        ("MAX_CONCURRENT_REQUESTS", "1", "max_concurrent_requests", 1),
        ("MAX_CONCURRENT_REQUESTS", "100", "max_concurrent_requests", 100),
        ("REQUEST_INTERVAL_MS", "0", "request_interval", timedelta(0)),
        ("REQUEST_INTERVAL_MS", "60000", "request_interval", timedelta(minutes=1)),
        ("REQUEST_INTERVAL_MS", "250ms", "request_interval", timedelta(milliseconds=250)),
        ("REQUEST_INTERVAL_MS", "0.5s", "request_interval", timedelta(milliseconds=500)),
        ("CACHE_TTL_DAYS", "36h", "cache_ttl", timedelta(hours=36)),
        ("TIDINGS_EXECUTION_DAYS", "0", "execution_retention", timedelta(0)),
        ("TIDINGS_EXECUTION_DAYS", "24h", "execution_retention", timedelta(days=1)),
        ("CACHE_TTL_DAYS", "1", "cache_ttl", timedelta(days=1)),
        ("CACHE_TTL_DAYS", "3650", "cache_ttl", timedelta(days=3650)),
        ("MAX_RETRIES", "0", "max_retries", 0),
        ("MAX_RETRIES", "20", "max_retries", 20),
        ("CRON_SCHEDULE", "30 */6 * * 1-5", "schedule", "30 */6 * * 1-5"),
        ("INDEXNOW_SUBMIT_METHOD", "get", "submit_method", SubmitMethod.GET),
        ("INDEXNOW_SUBMIT_METHOD", "post", "submit_method", SubmitMethod.POST),
        ("INDEXNOW_SEARCH_ENGINES", "yandex.com", "engines", ("yandex.com",)),
        ("INDEXNOW_SEARCH_ENGINES", "www.bing.com, yandex.com,", "engines", ("www.bing.com", "yandex.com")),
        ("INDEXNOW_SEARCH_ENGINES", '["www.bing.com", "yandex.com"]', "engines", ("www.bing.com", "yandex.com")),
        (
            "INDEXNOW_SEARCH_ENGINES",
            "http://127.0.0.1:8801/indexnow",
            "engines",
            ("http://127.0.0.1:8801/indexnow",),
        ),
        ("TIDINGS_HOST", "0.0.0.0", "host", "0.0.0.0"),
        ("TIDINGS_PORT", "0", "port", 0),
        ("TIDINGS_PORT", "65535", "port", 65_535),
        ("TIDINGS_TOKEN", CANARY, "tokens", {Scope.ADMIN: Secret(CANARY)}),
        ("TIDINGS_CRAWL_TOKEN", CANARY, "tokens", {Scope.CRAWL: Secret(CANARY)}),
        ("TIDINGS_WORKFLOW_TOKEN", CANARY, "tokens", {Scope.WORKFLOW: Secret(CANARY)}),
        ("TIDINGS_METRICS_TOKEN", CANARY, "tokens", {Scope.METRICS: Secret(CANARY)}),
        (
            "TIDINGS_TRUSTED_PROXIES",
            "10.0.0.0/8,fd00::/8",
            "trusted_proxies",
            (ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        ),
        ("TIDINGS_ALERT_URLS", "json://host/a json://host/b", "alert_urls", Secret("json://host/a json://host/b")),
        ("TIDINGS_WEBHOOK_URL", "https://hook.example/in", "webhook_url", Secret("https://hook.example/in")),
        ("TIDINGS_WEBHOOK_SECRET", CANARY, "webhook_secret", Secret(CANARY)),
        ("TIDINGS_LANGUAGE", "zh", "language", Language.CHINESE),
        ("TIDINGS_SCHEDULE_SPREAD_SECONDS", "0", "schedule_spread", timedelta(0)),
        ("TIDINGS_SCHEDULE_SPREAD_SECONDS", "0.5", "schedule_spread", timedelta(seconds=0.5)),
        ("TIDINGS_MAX_EXECUTIONS", "1", "max_executions", 1),
        ("TIDINGS_MAX_EXECUTIONS", "1000", "max_executions", 1_000),
        ("BING_API_BASE", "http://127.0.0.1:8803/json/", "bases", ApiBases(bing="http://127.0.0.1:8803/json")),
    ],
)
def test_a_good_value_is_taken_with_white_space_around_it(name: str, value: str, field: str, expected: object) -> None:
    """A1: each variable sets its own field, at both ends of its range, and no other field but the list of secrets."""
    settings = read_settings({name: f" {value}\n"})
    default = Settings()
    names = [each.name for each in fields(Settings) if each.compare]
    changed = {each for each in names if getattr(settings, each) != getattr(default, each)}
    assert getattr(settings, field) == expected
    assert changed - {"secrets"} == {field}


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("TIDINGS_ALLOW_NETWORKS", "127.0.0.0/8,elsewhere", "'elsewhere' is not a network"),
        ("TIDINGS_ALLOW_NETWORKS", "10.0.0.1/8", "is not a network"),
        ("TIDINGS_LOG_FORMAT", "xml", "one of console, json"),
        ("TIDINGS_RUN_BUDGET_SECONDS", "0", "a number of seconds from 1 to 1,000,000, or one with a unit"),
        ("TIDINGS_RUN_BUDGET_SECONDS", "1000001", "a number of seconds from 1 to 1,000,000, or one with a unit"),
        ("TIDINGS_RUN_BUDGET_SECONDS", "inf", "a number of seconds from 1 to 1,000,000, or one with a unit"),
        ("TIDINGS_RUN_BUDGET_SECONDS", "five", "a number of seconds from 1 to 1,000,000, or one with a unit"),
        ("TIDINGS_RUN_BUDGET_SECONDS", "nan", "a number of seconds from 1 to 1,000,000, or one with a unit"),
        ("TIDINGS_RUN_BUDGET_SECONDS", "5 weeks", "a unit (ms, s, m, h, d) such as 30s or 15m"),
        ("TIDINGS_RUN_BUDGET_SECONDS", "999ms", "a number of seconds from 1 to 1,000,000"),
        ("TIDINGS_RETRY_SCALE", "-0.1", "a number from 0 to 1,000,000"),
        ("TIDINGS_RESUBMIT_GAP_SECONDS", "-1", "a number of seconds from 0 to 1,000,000"),
        ("MAX_CONCURRENT_REQUESTS", "0", "a whole number from 1 to 100"),
        ("MAX_CONCURRENT_REQUESTS", "101", "a whole number from 1 to 100"),
        ("MAX_CONCURRENT_REQUESTS", "three", "a whole number from 1 to 100"),
        ("REQUEST_INTERVAL_MS", "-1", "a number of milliseconds from 0 to 60,000"),
        ("REQUEST_INTERVAL_MS", "60001", "a number of milliseconds from 0 to 60,000"),
        ("REQUEST_INTERVAL_MS", "61s", "a number of milliseconds from 0 to 60,000"),
        ("TIDINGS_EXECUTION_DAYS", "100ms", "at least a day, or 0 to keep all"),
        ("TIDINGS_EXECUTION_DAYS", "23h", "at least a day, or 0 to keep all"),
        ("CACHE_TTL_DAYS", "0", "a number of days from 1 to 3,650"),
        ("CACHE_TTL_DAYS", "²", "a number of days from 1 to 3,650"),
        ("INDEXNOW_SUBMIT_METHOD", "put", "one of auto, get, post"),
        ("MAX_RETRIES", "21", "a whole number from 0 to 20"),
        ("MAX_RETRIES", "1\n2", "a whole number from 0 to 20"),
        ("CRON_SCHEDULE", "daily", "a cron expression such as 0 0 * * *"),
        ("CRON_SCHEDULE", "60 * * * *", "a cron expression such as 0 0 * * *"),
        ("CRON_SCHEDULE", "0 0 * *\n*,", "a cron expression such as 0 0 * * *"),
        ("INDEXNOW_SEARCH_ENGINES", ",", "at least one search engine"),
        ("INDEXNOW_SEARCH_ENGINES", "[]", "at least one search engine"),
        ("INDEXNOW_SEARCH_ENGINES", '["yandex.com"', "a comma list, or JSON"),
        ("INDEXNOW_SEARCH_ENGINES", "[1]", "must be a text"),
        ("INDEXNOW_SEARCH_ENGINES", "bing dot com", "white space"),
        ("INDEXNOW_SEARCH_ENGINES", "yandex.com/indexnow?key=1", "without a query"),
        ("SITE_HOST", "https://example.com/", "a host name such as example.com"),
        ("SITEMAP_URL", "ftp://example.com/sitemap.xml", "only http:// and https://"),
        ("SITEMAP_URL", "sitemap.xml", "only http:// and https://"),
        ("TIDINGS_PORT", "-1", "a whole number from 0 to 65,535"),
        ("TIDINGS_PORT", "65536", "a whole number from 0 to 65,535"),
        ("TIDINGS_TOKEN", "two words", "printable ASCII characters only, without white space"),
        ("TIDINGS_CRAWL_TOKEN", "schlüssel", "printable ASCII characters only, without white space"),
        ("TIDINGS_WORKFLOW_TOKEN", "a\x7fb", "printable ASCII characters only, without white space"),
        ("TIDINGS_METRICS_TOKEN", "a\tb", "printable ASCII characters only, without white space"),
        ("TIDINGS_TRUSTED_PROXIES", "proxy.example", "'proxy.example' is not a network"),
        ("TIDINGS_LANGUAGE", "de", "one of en, zh"),
        ("TIDINGS_SCHEDULE_SPREAD_SECONDS", "-1", "a number of seconds from 0 to 1,000,000"),
        ("TIDINGS_MAX_EXECUTIONS", "0", "a whole number from 1 to 1,000"),
        ("TIDINGS_MAX_EXECUTIONS", "1001", "a whole number from 1 to 1,000"),
        ("BING_API_BASE", "ssl.bing.com", "only http:// and https://"),
        ("BING_API_BASE", "https://ssl.bing.com/json?apikey=1", "a URL without a query"),
        ("BING_API_KEY", "two words", "without white space"),
        ("BING_DAILY_QUOTA", "0", "a whole number from 1 to 500, or auto"),
        ("BING_DAILY_QUOTA", "501", "a whole number from 1 to 500"),
        ("BING_PRIORITY", "oldest", "one of newest, random"),
        ("TIDINGS_COLLECT_RUNNER", "yes", "on or off"),
        ("LOCK_TIMEOUT_MINUTES", "1.9", "a number of minutes from 2 to 1,000,000"),
        ("RECOVERY_INTERVAL_MINUTES", "0", "a number of minutes from 0.01 to 1,000,000"),
        ("DISCOVER_INTERVAL_MINUTES", "often", "a number of minutes from 0.01 to 1,000,000"),
        ("COLLECT_INTERVAL_MINUTES", "-5", "a number of minutes from 0.01 to 1,000,000"),
        ("BATCH_SIZE", "0", "a whole number from 1 to 50"),
        ("BATCH_SIZE", "51", "a whole number from 1 to 50"),
        ("BACKOFF_SECONDS", "5,,45", "seconds from 0 to 3,600"),
        ("BACKOFF_SECONDS", "3601", "seconds from 0 to 3,600"),
        ("BACKOFF_SECONDS", "5;15", "seconds from 0 to 3,600"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_variable_and_rule(name: str, value: str, rule: str) -> None:
    """A1: Bad values: start is refused with one line that names the variable and the rule."""
    error = find_refusal({name: value})
    message = str(error)
    assert error.name == name
    assert message.startswith(f"{name}: ")
    assert rule in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "field", "default"),
    [
        ("REQUEST_TIMEOUT", "request_timeout", 10),
        ("SEARCH_TIMEOUT", "search_timeout", 30),
        ("DETAIL_TIMEOUT", "detail_timeout", 15),
        ("BATCH_TIMEOUT", "batch_timeout", 60),
    ],
)
def test_each_time_limit_of_the_crawl_api_can_be_set(name: str, field: str, default: int) -> None:
    """C16, C26: from one second on, and each sets its own field and no other."""
    assert getattr(CrawlSettings(), field) == timedelta(seconds=default)
    for value in ("1", "2.5", "30s", "2m"):
        crawl = read_settings({name: value}).crawl
        assert crawl == replace(CrawlSettings(), **{field: parse_duration(value, unit="s")})  # type: ignore[arg-type]
    assert str(find_refusal({name: "0.9"})).startswith(f"{name}: it must be a number of seconds from 1 to 1,000,000")


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("TIDINGS_COLLECT_RUNNER", "off", "runs", False),
        ("TIDINGS_COLLECT_RUNNER", "on", "runs", True),
        ("COLLECT_PSEUDONYMS", "on", "pseudonyms", PseudonymUse.ON),
        ("COLLECT_PSEUDONYMS", "off", "pseudonyms", PseudonymUse.OFF),
        ("LOCK_TIMEOUT_MINUTES", "2", "lock_timeout", timedelta(minutes=2)),
        ("RECOVERY_INTERVAL_MINUTES", "0.5", "recovery_interval", timedelta(seconds=30)),
        ("DISCOVER_INTERVAL_MINUTES", "90", "discover_interval", timedelta(minutes=90)),
        ("COLLECT_INTERVAL_MINUTES", "1", "collect_interval", timedelta(minutes=1)),
        ("BATCH_SIZE", "50", "batch_size", 50),
        ("BACKOFF_SECONDS", "0.5, 2", "backoff", (timedelta(seconds=0.5), timedelta(seconds=2))),
        ("BACKOFF_SECONDS", "5s,1m", "backoff", (timedelta(seconds=5), timedelta(minutes=1))),
    ],
)
def test_each_constant_of_collecting_can_be_set(name: str, value: str, field: str, expected: object) -> None:
    """C26: each sets its own field and no other; the defaults are those that the specification names."""
    default = CollectSettings()
    assert read_settings({name: value}).collect == replace(default, **{field: expected})  # type: ignore[arg-type]
    assert (default.lock_timeout, default.recovery_interval) == (timedelta(minutes=30), timedelta(minutes=15))
    assert (default.batch_size, [wait.total_seconds() for wait in default.backoff]) == (10, [5, 15, 45])


FEISHU = {
    "FEISHU_APP_ID": "cli_1",
    "FEISHU_APP_SECRET": CANARY,
    "FEISHU_APP_TOKEN": "bascn1",
    "FEISHU_TABLE_CANDIDATE": "tbl1",
    "FEISHU_TABLE_SOURCE": "tbl2",
}


def test_a_mirror_is_set_up_by_its_variables() -> None:
    """C21: one table is enough; its server can be another one."""
    whole = read_settings(FEISHU).collect.feishu
    one = read_settings(
        {**FEISHU, "FEISHU_TABLE_SOURCE": "", "FEISHU_BASE_URL": "https://open.larksuite.com/"}
    ).collect.feishu
    assert whole is not None
    assert one is not None
    assert (whole.app_id, whole.app_secret, whole.app_token) == ("cli_1", Secret(CANARY), "bascn1")
    assert (whole.tables, whole.base_url) == ({"tbl_candidate": "tbl1", "tbl_source": "tbl2"}, "https://open.feishu.cn")
    assert (one.tables, one.base_url) == ({"tbl_candidate": "tbl1"}, "https://open.larksuite.com")
    assert CANARY not in repr(read_settings(FEISHU))
    others = {f"FEISHU_TABLE_{name}": f"tbl{name}" for name in ("COOKIE", "EXECUTION", "KEYWORD")}
    more = read_settings({**FEISHU, **others}).collect.feishu
    assert more is not None
    assert (len(more.tables), more.tables["tbl_crawl_execution"], more.keyword_table) == (
        4,
        "tblEXECUTION",
        "tblKEYWORD",
    )


def test_a_base_without_a_table_is_for_a_setup_and_says_so() -> None:
    """C21: whoever forgot the tables learns that nothing is mirrored, and what to run."""
    bare = read_settings({name: value for name, value in FEISHU.items() if "TABLE" not in name})
    assert bare.collect.feishu is not None
    assert bare.warnings == ()
    assert bare.mirror_warning == (
        "FEISHU_APP_ID is set without a FEISHU_TABLE_…: nothing is mirrored; run `tidings collect feishu setup`"
    )
    assert read_settings(FEISHU).mirror_warning is None


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        (("FEISHU_APP_ID",), "FEISHU_APP_ID"),
        (("FEISHU_APP_SECRET",), "FEISHU_APP_SECRET"),
        (("FEISHU_APP_TOKEN",), "FEISHU_APP_TOKEN"),
    ],
)
def test_half_a_mirror_is_refused_in_one_line(missing: tuple[str, ...], name: str) -> None:
    """C21: whoever has begun to set it up learns what is missing."""
    refusal = find_refusal({each: value for each, value in FEISHU.items() if each not in missing})
    assert str(refusal) == f"{name}: required because another FEISHU_ variable is set"


@pytest.mark.parametrize(
    "changes", [{"FEISHU_BASE_URL": "http://elsewhere.example"}, {"FEISHU_TABLE_SOURCE": "tbl1"}], ids=str
)
def test_a_mirror_that_cannot_work_is_refused_without_its_secret(changes: dict[str, str]) -> None:
    """C7, C21: a secret sent in clear, or two tables in one."""
    message = str(find_refusal({**FEISHU, **changes}))
    assert message.startswith("FEISHU_BASE_URL or FEISHU_TABLE_…: ")
    assert (CANARY in message, len(message.splitlines())) == (False, 1)


class Asked(dict[str, str]):
    """An empty environment that remembers what was looked for in it."""

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        self[name] = default
        return default


def test_the_page_of_settings_names_every_variable_and_no_other() -> None:
    """A1: docs/settings.md is what people go by."""
    environment = Asked()
    read_settings(environment)
    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
    read = {name for name in environment if not name.endswith("_FILE")}
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert read <= set(re.findall(r"`([A-Z_]+)`", page))
    assert {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)} <= read


@pytest.mark.parametrize(
    ("name", "rule"), [("MAX_RETRIES", "a whole number from 0 to"), ("REQUEST_INTERVAL_MS", "a number of milliseconds")]
)
def test_a_number_of_thousands_of_digits_is_refused_by_the_same_rule(name: str, rule: str) -> None:
    """A1: also where the text is too long for Python to make a number of it."""
    assert str(find_refusal({name: "9" * 5_000})).startswith(f"{name}: it must be {rule}")


def test_the_environments_waits_before_a_retry_are_those_of_the_error_codes() -> None:
    """C15, C26: 5 s, 15 s, 45 s, wherever the default is written."""
    assert read_settings({}).collect.backoff == BACKOFF


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("BACKOFF", "BACKOFF is not a setting and has no effect; did you mean BACKOFF_SECONDS?"),
        ("TIDINGS_DATADIR", "TIDINGS_DATADIR is not a setting and has no effect; did you mean TIDINGS_DATA_DIR?"),
        ("TIDINGS_BACKOFF", "TIDINGS_BACKOFF is not a setting and has no effect; did you mean BACKOFF_SECONDS?"),
        ("MAX_RETRY", "MAX_RETRY is not a setting and has no effect; did you mean MAX_RETRIES?"),
        (
            "INDEXNOW_KEY_FILE",
            "INDEXNOW_KEY_FILE is not a setting and has no effect; did you mean INDEXNOW_API_KEY_FILE?",
        ),
        ("FEISHU_X", "FEISHU_X is not a setting and has no effect; did you mean FEISHU_APP_ID?"),
        ("MAX_MAP_COUNT", None),
        ("HOME", None),
        ("TIDINGS_TOKEN_FILE", None),
        ("TIDINGS", None),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_known_one(
    name: str, warning: str | None, tmp_path: Path
) -> None:
    """Interfaces: a typing error does not go unnoticed; variables of other programs are left alone."""
    (tmp_path / "value").write_text("value-0123")
    warnings = read_settings({name: str(tmp_path / "value")}).warnings
    assert warnings == (() if warning is None else (warning,))


@pytest.mark.parametrize("value", ["* * * * * *", "0 0 0 1 1 *"])
def test_a_schedule_of_six_fields_is_refused(value: str) -> None:
    """A1, A38: a cron expression has five fields; with a sixth it would run every second, or on other days."""
    assert str(find_refusal({"CRON_SCHEDULE": value})).startswith("CRON_SCHEDULE: ")


@pytest.mark.parametrize("host", [None, "www.example.com"])
def test_sitemap_and_key_alone_make_a_site(host: str | None) -> None:
    """A1: zero-config single site; the host may be named and need not be."""
    environment = {"SITEMAP_URL": SITEMAP, "INDEXNOW_API_KEY": CANARY} | ({"SITE_HOST": host} if host else {})
    settings = read_settings(environment)
    assert (settings.site, settings.indexnow_key) == (SiteSettings(sitemap_url=SITEMAP, host=host), Secret(CANARY))


def test_a_sitemap_without_a_key_is_refused_and_the_missing_variable_named() -> None:
    """A1: half a site is a mistake and not "no site"."""
    error = find_refusal({"SITEMAP_URL": SITEMAP})
    assert str(error) == "INDEXNOW_API_KEY: required because SITEMAP_URL is set"
    assert error.name == "INDEXNOW_API_KEY"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, BingSettings()),
        ({"BING_API_KEY": CANARY}, BingSettings(enabled=True, key=Secret(CANARY))),
        (
            {"BING_API_KEY": CANARY, "BING_DAILY_QUOTA": "500", "BING_PRIORITY": "random"},
            BingSettings(enabled=True, key=Secret(CANARY), daily_quota=500, priority=PagePriority.RANDOM),
        ),
        ({"BING_DAILY_QUOTA": "1"}, BingSettings(daily_quota=1)),
    ],
)
def test_bing_is_on_for_the_environments_site_where_its_key_is_set(
    variables: dict[str, str], expected: BingSettings
) -> None:
    """A1, A3: off by default, a quota of 100, the newest first."""
    settings = read_settings({"SITEMAP_URL": SITEMAP, "INDEXNOW_API_KEY": "other-key-0123", **variables})
    assert settings.bing == expected


@pytest.mark.parametrize("key", ["a" * 8, "a" * 128, "Az09-Az09"])
def test_a_key_of_the_allowed_form_is_taken(key: str) -> None:
    """A4: 8..128 of [A-Za-z0-9-]."""
    given = read_settings({"SITEMAP_URL": SITEMAP, "INDEXNOW_API_KEY": key}).indexnow_key
    assert given is not None
    assert given.reveal() == key


@pytest.mark.parametrize("key", ["canary7", "canary" * 22, "canary_0123", "canary 0123", "canáry0123", "canary\n0123"])
def test_a_key_of_another_form_is_refused_and_not_repeated(key: str) -> None:
    """A1, A4: the rule is named, the key is not shown."""
    message = str(find_refusal({"SITEMAP_URL": SITEMAP, "INDEXNOW_API_KEY": key}))
    assert message == "INDEXNOW_API_KEY: it must have 8 to 128 characters, all of them letters, digits or -"


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_secret_can_come_from_a_file_and_the_variable_itself_goes_first(name: str, tmp_path: Path) -> None:
    """A1: NAME_FILE holds the path; white space at the end of the file does not belong to the secret."""
    path = tmp_path / "secret"
    path.write_text(f"{CANARY}\n")
    others = {"SITEMAP_URL": SITEMAP, "INDEXNOW_API_KEY": "other-key-0123"}
    others.pop(name, None)
    from_file = read_settings({**others, f"{name}_FILE": str(path)})
    from_both = read_settings({**others, f"{name}_FILE": str(path), name: "direct-0123"})
    assert Secret(CANARY) in from_file.secrets.values()
    assert Secret("direct-0123") in from_both.secrets.values()
    assert Secret(CANARY) not in from_both.secrets.values()


@pytest.mark.parametrize("name", SECRET_NAMES)
@pytest.mark.parametrize("kind", ["missing", "directory", "binary"])
def test_a_secret_file_that_cannot_be_read_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    """A1: one line that names the variable; nothing of the file is shown."""
    path = tmp_path / "secret"
    if kind == "directory":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"canary\xff\xfe")
    message = str(find_refusal({f"{name}_FILE": str(path)}))
    reasons = {"missing": "No such file or directory", "directory": "Is a directory", "binary": "it is not text"}
    assert message == f"{name}_FILE: the file cannot be read ({reasons[kind]})"
    assert "canary" not in message
    assert len(message.splitlines()) == 1


def test_no_secret_shows_in_the_settings_and_all_are_known_to_the_redactor() -> None:
    """A4: repr(Settings) is safe to log, and every secret that was read is handed on to be kept out of the logs."""
    values = {
        "INDEXNOW_API_KEY": f"{CANARY}-1",
        "COOKIE_MASTER_KEY": f"{CANARY}-2",
        "TIDINGS_DATABASE_URL": f"postgresql://user:{CANARY}-3@host/name",
        "BING_API_KEY": f"{CANARY}-4",
        "TIDINGS_ALERT_URLS": f"json://user:{CANARY}-5@host",
        "TIDINGS_WEBHOOK_URL": f"https://hook.example/{CANARY}-6",
        "TIDINGS_WEBHOOK_SECRET": f"{CANARY}-7",
        **{name: f"{CANARY}-{scope}" for scope, name in TOKEN_NAMES.items()},
    }
    settings = read_settings({**values, "SITEMAP_URL": SITEMAP})
    assert "canary" not in repr(settings)
    assert "canary" not in str(settings)
    assert {secret.reveal() for secret in settings.secrets.values()} == set(values.values())


def test_settings_cannot_be_changed() -> None:
    """A1: read once, frozen."""
    with pytest.raises(FrozenInstanceError):
        read_settings({}).max_retries = 5  # type: ignore[misc]


def test_the_environments_site_has_the_settings_that_other_sites_have() -> None:
    """A1, A2: key location, backup sitemaps and removed pages; the key location counts as a secret."""
    location = f"https://example.com/keys/{CANARY}.txt"
    environment = {
        "SITEMAP_URL": SITEMAP,
        "INDEXNOW_API_KEY": CANARY,
        "INDEXNOW_KEY_LOCATION": location,
        "BACKUP_SITEMAP_URLS": "https://example.com/a.xml, https://example.com/b.xml",
        "INDEXNOW_ANNOUNCE_REMOVED": "on",
    }
    settings = read_settings(environment)
    assert settings.site is not None
    assert (settings.site.key_location, settings.site.announce_removed) == (Secret(location), True)
    assert settings.site.backup_sitemap_urls == ("https://example.com/a.xml", "https://example.com/b.xml")
    assert CANARY not in repr(settings)
    with pytest.raises(SettingError, match="INDEXNOW_KEY_LOCATION"):
        read_settings(environment | {"INDEXNOW_KEY_LOCATION": "keys.txt"})
