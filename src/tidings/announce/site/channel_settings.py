"""Settings of channels with a daily quota: values, and their rules.

Every such channel has the same four fields, which are named after it: `bingEnabled`, `bingApiKey`, `bingDailyQuota`,
`bingPriority`. A channel adds fields of its own.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from tidings.announce.site.errors import SiteError, check_unmasked
from tidings.core.net.addresses import UrlError, parse_url
from tidings.core.secrets.secret import Secret

# Bing's keys are 32 hexadecimal digits today, but only the absence of white space is certain.
_KEY = re.compile(r"[\x21-\x7e]{1,256}")
# The value of a daily quota for which the channel is asked.
AUTO = "auto"


class PagePriority(StrEnum):
    """Which pages are submitted first when more are due than the quota allows."""

    NEWEST = "newest"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class RankedFields:
    """Names and limits of one channel's settings."""

    # How the names of its fields begin: `bing` gives `bingEnabled`.
    prefix: str
    # The field of its key, and the column that stores it encrypted.
    key: str
    key_column: str
    # URLs a day: the default, and the maximum.
    default_quota: int
    most_quota: int
    # The field that switches it on, where it has another name.
    switch: str | None = None
    # The channel can be asked for its quota, so the setting may be `auto`.
    asks: bool = False

    @property
    def enabled(self) -> str:
        return self.switch or f"{self.prefix}Enabled"

    @property
    def daily_quota(self) -> str:
        return f"{self.prefix}DailyQuota"

    @property
    def priority(self) -> str:
        return f"{self.prefix}Priority"


@dataclass(frozen=True, slots=True)
class RankedSettings:
    """Whether and how a site's pages go to one channel with a daily quota."""

    fields: ClassVar[RankedFields]

    enabled: bool = False
    # Kept while the channel is disabled.
    key: Secret | None = None
    # URLs a day.
    daily_quota: int = 0
    priority: PagePriority = PagePriority.NEWEST
    # The channel is asked for its quota; `daily_quota` counts until it has answered.
    auto: bool = False

    def __post_init__(self) -> None:
        if not self.daily_quota:
            object.__setattr__(self, "daily_quota", self.fields.default_quota)

    @property
    def shown_quota(self) -> int | str:
        """The daily quota as it was set."""
        return AUTO if self.auto else self.daily_quota

    @property
    def identity(self) -> str:
        """Identifies what a lasting refusal concerns: with another value the channel may be tried again."""
        return "" if self.key is None else self.key.fingerprint

    @property
    def quota_project(self) -> str | None:
        """All sites with this project share one quota. None: the site has its own."""
        return None

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets, for the redactor."""
        return () if self.key is None else (self.key,)

    def require_key(self) -> Secret:
        """The key. Raises SiteError where there is none."""
        if self.key is None:
            raise SiteError(self.fields.key, f"{self.fields.key} is required when {self.fields.enabled} is true")
        return self.key

    @classmethod
    def make(
        cls,
        *,
        enabled: bool = False,
        key: str | None = None,
        daily_quota: int | str | None = None,
        priority: PagePriority = PagePriority.NEWEST,
        **others: Any,
    ) -> Self:
        """The settings from plain values. `others` are the fields of this channel alone. Raises SiteError."""
        auto = cls.fields.asks and daily_quota == AUTO
        quota = cls.fields.default_quota if daily_quota is None or auto else cls.check_quota(daily_quota)
        settings = cls(enabled, cls.check_key(key) if key else None, quota, priority, auto, **others)
        if enabled:
            settings.require_key()
        return settings

    @classmethod
    def check_key(cls, key: str) -> Secret:
        """The key as a secret. Raises SiteError, which does not repeat the key."""
        check_unmasked(cls.fields.key, key)
        if not _KEY.fullmatch(key):
            raise SiteError(cls.fields.key, "it must have 1 to 256 printable ASCII characters without white space")
        return Secret(key)

    @classmethod
    def check_quota(cls, quota: int | str) -> int:
        if not isinstance(quota, int) or not 1 <= quota <= cls.fields.most_quota:
            auto = f", or {AUTO}" if cls.fields.asks else ""
            rule = f"it must be a whole number from 1 to {cls.fields.most_quota}{auto}"
            raise SiteError(cls.fields.daily_quota, rule)
        return quota

    def describe(self) -> dict[str, Any]:
        """The fields of an answer. The key is masked."""
        return {
            self.fields.enabled: self.enabled,
            self.fields.key: None if self.key is None else self.key.masked,
            self.fields.daily_quota: self.shown_quota,
            self.fields.priority: self.priority.value,
        }

    @classmethod
    def read(cls, given: dict[str, Any]) -> Self:
        """The settings from the fields of a document that are not null. Raises SiteError."""
        return cls.make(
            enabled=bool(given.get(cls.fields.enabled)),
            key=given.get(cls.fields.key),
            daily_quota=given.get(cls.fields.daily_quota),
            priority=PagePriority(given.get(cls.fields.priority, PagePriority.NEWEST)),
            **cls.read_others(given),
        )

    @classmethod
    def read_others(cls, given: dict[str, Any]) -> dict[str, Any]:
        """The fields of this channel alone."""
        return {}


@dataclass(frozen=True, slots=True)
class BingSettings(RankedSettings):
    """Whether and how a site is submitted to Bing's Webmaster API. The day of its quota is UTC's."""

    fields = RankedFields("bing", "bingApiKey", "bing_key", default_quota=100, most_quota=500, asks=True)


@dataclass(frozen=True, slots=True)
class BaiduSettings(RankedSettings):
    """Whether and how a site is pushed to Baidu. The day of its quota is UTC+8's.

    `daily_quota` counts until an answer says how much Baidu really takes.
    """

    fields = RankedFields("baidu", "baiduToken", "baidu_token", default_quota=10, most_quota=1_000_000)

    # The site as it was verified at Baidu, such as https://www.example.com; None: the origin of its sitemap.
    site: str | None = None

    @property
    def identity(self) -> str:
        # A refusal may also concern the name of the site.
        return "" if self.key is None else f"{self.key.fingerprint} {self.site or ''}".strip()

    def describe(self) -> dict[str, Any]:
        return {**RankedSettings.describe(self), "baiduSite": self.site}

    @classmethod
    def read_others(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {"site": check_baidu_site(given["baiduSite"]) if given.get("baiduSite") else None}


def check_baidu_site(site: str) -> str:
    """A site as Baidu knows it, with or without its scheme. Raises SiteError."""
    site = site.strip().rstrip("/")
    try:
        url = parse_url(site if "://" in site else f"https://{site}")
    except UrlError as error:
        raise SiteError("baiduSite", f"{error}; it must be a site such as https://www.example.com") from None
    if urlsplit(url.text).path not in ("", "/") or url.query:
        raise SiteError("baiduSite", "it must be a site such as https://www.example.com, without a path")
    return site
