"""Options of `tidings sites add` and `sites set`: settings of a site that both can set."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from tidings.announce.page_check.settings import PageCheckMode
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings, PagePriority, RankedFields
from tidings.announce.site.google_settings import IndexedContent
from tidings.announce.site.site import SubmitMethod
from tidings.cli.language import say, translate
from tidings.cli.options import KeyLocationOption, read_secret
from tidings.cli.session import fail

# Reads what was given: the fields of a site's document, None for those that were not given. It may ask for secrets.
ReadOptions = Callable[[], dict[str, Any]]
Work = Callable[..., Coroutine[Any, Any, None]]


def _read_options(
    *,
    engine: Annotated[list[str] | None, typer.Option("--engine", help="An engine; repeat it for more.")] = None,
    backup: Annotated[
        list[str] | None, typer.Option("--backup", help="A sitemap to use if a sitemap cannot be read.")
    ] = None,
    method: Annotated[SubmitMethod | None, typer.Option("--method", help="How to send URLs. [auto]")] = None,
    key_location: KeyLocationOption = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", help="When it runs: a cron expression, UTC. [CRON_SCHEDULE]")
    ] = None,
    announce_removed: Annotated[
        bool | None, typer.Option("--announce-removed/--no-announce-removed", help="Announce pages that are gone too.")
    ] = None,
    bing_key: Annotated[
        str | None,
        typer.Option("--bing-key", help="A file with a key for Bing's Webmaster API; switches Bing on. -: ask for it."),
    ] = None,
    bing_quota: Annotated[
        str | None,
        typer.Option("--bing-quota", help="The most URLs a day for Bing, 1 to 500, or auto: ask Bing. [100]"),
    ] = None,
    bing_priority: Annotated[
        PagePriority | None, typer.Option("--bing-priority", help="The pages that go first. [newest]")
    ] = None,
    baidu_token: Annotated[
        str | None,
        typer.Option(
            "--baidu-token", help="A file with a token of Baidu's push API; switches Baidu on. -: ask for it."
        ),
    ] = None,
    baidu_site: Annotated[
        str | None, typer.Option("--baidu-site", help="The site as Baidu verified it. [the sitemap's origin]")
    ] = None,
    baidu_quota: Annotated[
        int | None, typer.Option("--baidu-quota", help="URLs a day for Baidu until it says how many it takes. [10]")
    ] = None,
    baidu_priority: Annotated[
        PagePriority | None, typer.Option("--baidu-priority", help="The pages that go first. [newest]")
    ] = None,
    google_credentials: Annotated[
        Path | None,
        typer.Option(
            "--google-credentials", help="The JSON file of a service account; changed sitemaps are submitted."
        ),
    ] = None,
    google_property: Annotated[
        str | None, typer.Option("--google-property", help="The property in Search Console. [the sitemap's origin]")
    ] = None,
    google_indexing: Annotated[
        IndexedContent | None,
        typer.Option(
            "--google-indexing",
            help="Send pages to the Indexing API. Google allows it for job postings and live streams only. [off]",
        ),
    ] = None,
    google_quota: Annotated[
        int | None, typer.Option("--google-quota", help="The most pages a day for the Indexing API. [200]")
    ] = None,
    google_priority: Annotated[
        PagePriority | None, typer.Option("--google-priority", help="The pages that go first. [newest]")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Sites of one customer or team.")] = None,
    hook_secret: Annotated[
        str | None,
        typer.Option("--hook-secret", help="A file with the secret of deploy hooks. -: ask for it."),
    ] = None,
    page_check: Annotated[
        PageCheckMode | None, typer.Option("--page-check", help="Fetch due pages first; hold back bad ones. [off]")
    ] = None,
    page_check_limit: Annotated[
        int | None, typer.Option("--page-check-limit", help="Pages that an execution checks, at most. [100]")
    ] = None,
) -> dict[str, Any]:
    return {
        "backupSitemapUrls": backup,
        "keyLocation": key_location,
        "searchEngines": engine,
        "submitMethod": method,
        "schedule": schedule,
        "announceRemoved": announce_removed,
        **_read_ranked(BingSettings.fields, bing_key, bing_quota, bing_priority),
        **_read_ranked(BaiduSettings.fields, baidu_token, baidu_quota, baidu_priority),
        "baiduSite": baidu_site,
        **_read_google(google_credentials, google_property, google_indexing, google_quota, google_priority),
        "group": group,
        "hookSecret": None if hook_secret is None else read_secret(hook_secret, prompt=say("Hook secret")),
        "pageCheck": page_check,
        "pageCheckLimit": page_check_limit,
    }


def takes_site_options(work: Work) -> Work:
    """Add these options to a command. It gets them as `read_options`."""
    own = {name: each for name, each in inspect.signature(work).parameters.items() if name != "read_options"}
    shared = inspect.signature(_read_options).parameters

    @functools.wraps(work)
    async def run(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in shared}
        await work(*args, **kwargs, read_options=functools.partial(_read_options, **given))

    run.__signature__ = inspect.Signature([*own.values(), *shared.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in (own | dict(shared)).items()}
    return run


def _read_ranked(
    fields: RankedFields,
    key_source: str | None,
    quota: int | str | None,
    priority: PagePriority | None,
) -> dict[str, Any]:
    """The fields of a channel with a quota. A key switches it on."""
    prompt = say("Bing API key") if fields is BingSettings.fields else say("Baidu token")
    key = None if key_source is None else read_secret(key_source, prompt=prompt)
    return {
        fields.key: key,
        fields.enabled: True if key else None,
        fields.daily_quota: int(quota) if isinstance(quota, str) and quota.isdecimal() else quota,
        fields.priority: priority,
    }


def _read_google(
    credentials: Path | None,
    console_property: str | None,
    content: IndexedContent | None,
    quota: int | None,
    priority: PagePriority | None,
) -> dict[str, Any]:
    """The fields of Google. Credentials come from a file: they are long, and must not be in the shell's history."""
    text = None
    if credentials is not None:
        try:
            text = credentials.read_text()
        except OSError as error:
            fail(say("{path} cannot be read: {reason}", path=credentials, reason=translate(error.strerror or "")))
        except UnicodeDecodeError:
            fail(say("{path} cannot be read: {reason}", path=credentials, reason=say("it is not text")))
    return {
        "googleCredentials": text,
        "googleProperty": console_property,
        "googleIndexing": content,
        "googleDailyQuota": quota,
        "googlePriority": priority,
    }
