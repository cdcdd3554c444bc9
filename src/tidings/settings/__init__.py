"""The environment → one frozen Settings. The only reader of the environment.

`settings` has Settings and reads it, with `collect` and `site` for their parts. `variables` reads single variables.
"""

from tidings.settings.collect import FEISHU_TABLES, CollectSettings, CrawlSettings
from tidings.settings.settings import TOKEN_VARIABLES, Settings, read_settings
from tidings.settings.site import SiteSettings
from tidings.settings.variables import SettingError

__all__ = [
    "FEISHU_TABLES",
    "TOKEN_VARIABLES",
    "CollectSettings",
    "CrawlSettings",
    "SettingError",
    "Settings",
    "SiteSettings",
    "read_settings",
]
