"""Options of `tidings sites add` and `sites set`: settings of a site that both can set."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from tidings.announce.page_check.settings import PageCheckMode
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings, PagePriority
from tidings.announce.site.google_settings import IndexedContent
from tidings.announce.site.site import SubmitMethod
from tidings.cli.language import say
from tidings.cli.options import read_secret
from tidings.cli.session import declare, fail_to_read

# Reads what was given: the fields of a site's document, None for those that were not given. It may ask for secrets.
ReadOptions = Callable[[], dict[str, Any]]
Work = Callable[..., Coroutine[Any, Any, None]]


def _read_quota(quota: str) -> int | str:
    return int(quota) if quota.isdecimal() else quota


def _read_credentials(path: Path) -> str:
    """Google's credentials come from a file: they are long, and must not be in the shell's history."""
    try:
        return path.read_text()
    except OSError as error:
        fail_to_read(path, error)
    except UnicodeDecodeError:
        fail_to_read(path, say("it is not text"))


@dataclass(frozen=True, slots=True)
class _SiteOption:
    """One option, and the field of a site's document that it sets."""

    name: str
    field: str
    type: Any
    help: str
    # Makes the field's value from the given one.
    read: Callable[[Any], Any] | None = None

    @property
    def parameter(self) -> inspect.Parameter:
        """The option as a parameter of a command."""
        name = self.name.partition("/")[0].removeprefix("--").replace("-", "_")
        option = typer.Option(None, self.name, help=self.help)
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=self.type | None)


_OPTIONS: Final = (
    _SiteOption("--engine", "searchEngines", list[str], "An engine; repeat it for more."),
    _SiteOption("--backup", "backupSitemapUrls", list[str], "A sitemap to use if a sitemap cannot be read."),
    _SiteOption("--method", "submitMethod", SubmitMethod, "How to send URLs. [auto]"),
    _SiteOption("--key-location", "keyLocation", str, "URL of the key file. [/KEY.txt on the host]"),
    _SiteOption("--schedule", "schedule", str, "When it runs: a cron expression, UTC. [CRON_SCHEDULE]"),
    _SiteOption(
        "--announce-removed/--no-announce-removed", "announceRemoved", bool, "Announce pages that are gone too."
    ),
    _SiteOption(
        "--bing-key",
        "bingApiKey",
        str,
        "A file with a key for Bing's Webmaster API; switches Bing on. -: ask for it.",
        read=lambda source: read_secret(source, prompt=say("Bing API key")),
    ),
    _SiteOption(
        "--bing-quota",
        "bingDailyQuota",
        str,
        "The most URLs a day for Bing, 1 to 500, or auto: ask Bing. [100]",
        read=_read_quota,
    ),
    _SiteOption("--bing-priority", "bingPriority", PagePriority, "The pages that go first. [newest]"),
    _SiteOption(
        "--baidu-token",
        "baiduToken",
        str,
        "A file with a token of Baidu's push API; switches Baidu on. -: ask for it.",
        read=lambda source: read_secret(source, prompt=say("Baidu token")),
    ),
    _SiteOption("--baidu-site", "baiduSite", str, "The site as Baidu verified it. [the sitemap's origin]"),
    _SiteOption("--baidu-quota", "baiduDailyQuota", int, "URLs a day for Baidu until it says how many it takes. [10]"),
    _SiteOption("--baidu-priority", "baiduPriority", PagePriority, "The pages that go first. [newest]"),
    _SiteOption(
        "--google-credentials",
        "googleCredentials",
        Path,
        "The JSON file of a service account; changed sitemaps are submitted.",
        read=_read_credentials,
    ),
    _SiteOption("--google-property", "googleProperty", str, "The property in Search Console. [the sitemap's origin]"),
    _SiteOption(
        "--google-indexing",
        "googleIndexing",
        IndexedContent,
        "Send pages to the Indexing API. Google allows it for job postings and live streams only. [off]",
    ),
    _SiteOption("--google-quota", "googleDailyQuota", int, "The most pages a day for the Indexing API. [200]"),
    _SiteOption("--google-priority", "googlePriority", PagePriority, "The pages that go first. [newest]"),
    _SiteOption("--group", "group", str, "Sites of one customer or team."),
    _SiteOption(
        "--hook-secret",
        "hookSecret",
        str,
        "A file with the secret of deploy hooks. -: ask for it.",
        read=lambda source: read_secret(source, prompt=say("Hook secret")),
    ),
    _SiteOption("--page-check", "pageCheck", PageCheckMode, "Fetch due pages first; hold back bad ones. [off]"),
    _SiteOption("--page-check-limit", "pageCheckLimit", int, "Pages that an execution checks, at most. [100]"),
)


def takes_site_options(work: Work) -> Work:
    """Add these options to a command. It gets them as `read_options`."""
    own = {name: each for name, each in inspect.signature(work).parameters.items() if name != "read_options"}
    shared = {option.parameter.name: option.parameter for option in _OPTIONS}

    @functools.wraps(work)
    async def run(*args: Any, **kwargs: Any) -> None:
        given = {option.field: kwargs.pop(option.parameter.name) for option in _OPTIONS}
        await work(*args, **kwargs, read_options=functools.partial(_read_options, given))

    declare(run, [*own.values(), *shared.values()])
    return run


def _read_options(given: Mapping[str, Any]) -> dict[str, Any]:
    fields = {}
    for option in _OPTIONS:
        value = given[option.field]
        fields[option.field] = value if value is None or option.read is None else option.read(value)
    # A key switches its channel on.
    switches = {kind.fields.enabled: True for kind in (BingSettings, BaiduSettings) if fields[kind.fields.key]}
    return fields | switches
