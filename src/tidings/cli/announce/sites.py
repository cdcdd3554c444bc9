"""`tidings sites`: the sites that are stored."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidings.announce.page_check.settings import PageCheckMode
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings, PagePriority, RankedFields
from tidings.announce.site.document import change_site, describe_site, read_site
from tidings.announce.site.google_settings import GoogleSettings, IndexedContent
from tidings.announce.site.site import Site, SubmitMethod
from tidings.cli.announce.announce import require_key
from tidings.cli.language import say
from tidings.cli.options import JsonOption, KeyLocationOption, KeyOption, SiteArgument, make_group, read_secret
from tidings.cli.output import escape, print_answer, print_json, print_table
from tidings.cli.session import Session, command, fail, require_site
from tidings.core.secrets.scopes import Scope

app = make_group("Store, change and remove sites.")

EngineOption = Annotated[list[str] | None, typer.Option("--engine", help="An engine; repeat it for more.")]
BackupOption = Annotated[
    list[str] | None, typer.Option("--backup", help="A sitemap to use if a sitemap cannot be read.")
]
MethodOption = Annotated[SubmitMethod | None, typer.Option("--method", help="How to send URLs. [auto]")]
ScheduleOption = Annotated[
    str | None, typer.Option("--schedule", help="When it runs: a cron expression, UTC. [CRON_SCHEDULE]")
]
RemovedOption = Annotated[
    bool | None, typer.Option("--announce-removed/--no-announce-removed", help="Announce pages that are gone too.")
]
BingKeyOption = Annotated[
    str | None,
    typer.Option("--bing-key", help="A file with a key for Bing's Webmaster API; switches Bing on. -: ask for it."),
]
BingQuotaOption = Annotated[
    str | None, typer.Option("--bing-quota", help="The most URLs a day for Bing, 1 to 500, or auto: ask Bing. [100]")
]
BingPriorityOption = Annotated[
    PagePriority | None, typer.Option("--bing-priority", help="The pages that go first. [newest]")
]
BaiduTokenOption = Annotated[
    str | None,
    typer.Option("--baidu-token", help="A file with a token of Baidu's push API; switches Baidu on. -: ask for it."),
]
BaiduSiteOption = Annotated[
    str | None, typer.Option("--baidu-site", help="The site as Baidu verified it. [the sitemap's origin]")
]
BaiduQuotaOption = Annotated[
    int | None, typer.Option("--baidu-quota", help="URLs a day for Baidu until it says how many it takes. [10]")
]
BaiduPriorityOption = Annotated[
    PagePriority | None, typer.Option("--baidu-priority", help="The pages that go first. [newest]")
]
GoogleCredentialsOption = Annotated[
    Path | None,
    typer.Option("--google-credentials", help="The JSON file of a service account; changed sitemaps are submitted."),
]
GooglePropertyOption = Annotated[
    str | None, typer.Option("--google-property", help="The property in Search Console. [the sitemap's origin]")
]
GoogleIndexingOption = Annotated[
    IndexedContent | None,
    typer.Option(
        "--google-indexing",
        help="Send pages to the Indexing API. Google allows it for job postings and live streams only. [off]",
    ),
]
GoogleQuotaOption = Annotated[
    int | None, typer.Option("--google-quota", help="The most pages a day for the Indexing API. [200]")
]
GooglePriorityOption = Annotated[
    PagePriority | None, typer.Option("--google-priority", help="The pages that go first. [newest]")
]
GroupOption = Annotated[str | None, typer.Option("--group", help="Sites of one customer or team.")]
HookSecretOption = Annotated[
    str | None,
    typer.Option("--hook-secret", help="A file with the secret of deploy hooks. -: ask for it."),
]
PageCheckOption = Annotated[
    PageCheckMode | None, typer.Option("--page-check", help="Fetch due pages first; hold back bad ones. [off]")
]
PageCheckLimitOption = Annotated[
    int | None, typer.Option("--page-check-limit", help="Pages that an execution checks, at most. [100]")
]


@app.command("add")
@command
async def add(
    session: Session,
    sitemap_url: Annotated[list[str], typer.Argument(help="The sitemap; several are possible.")],
    key: KeyOption = None,
    site_id: Annotated[str | None, typer.Option("--id", help="The site's id. [the host]")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The site's host. [the sitemap's]")] = None,
    engine: EngineOption = None,
    backup: BackupOption = None,
    method: MethodOption = None,
    key_location: KeyLocationOption = None,
    schedule: ScheduleOption = None,
    announce_removed: RemovedOption = None,
    bing_key: BingKeyOption = None,
    bing_quota: BingQuotaOption = None,
    bing_priority: BingPriorityOption = None,
    baidu_token: BaiduTokenOption = None,
    baidu_site: BaiduSiteOption = None,
    baidu_quota: BaiduQuotaOption = None,
    baidu_priority: BaiduPriorityOption = None,
    google_credentials: GoogleCredentialsOption = None,
    google_property: GooglePropertyOption = None,
    google_indexing: GoogleIndexingOption = None,
    google_quota: GoogleQuotaOption = None,
    google_priority: GooglePriorityOption = None,
    group: GroupOption = None,
    hook_secret: HookSecretOption = None,
    page_check: PageCheckOption = None,
    page_check_limit: PageCheckLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a site, so that `tidings run ID` needs nothing else.

    A site of the same id is replaced.
    """
    from tidings.announce.site.table import Origin

    settings = session.settings
    document = {
        "id": site_id,
        "host": host,
        "sitemapUrls": sitemap_url,
        "backupSitemapUrls": backup,
        "indexnowKey": require_key(key, settings),
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

    site = read_site(document, engines=settings.engines, schedule=settings.schedule)
    installation = await session.open()
    stored = await installation.sites.save(installation.know(site), origin=Origin.API)
    print_answer({"site": describe_site(stored)}, say("Stored {site}.", site=stored.id), as_json=as_json)


@app.command("set")
@command
async def set_site(
    session: Session,
    site_id: SiteArgument,
    sitemap: Annotated[list[str] | None, typer.Option("--sitemap", help="A sitemap; repeat it for more.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The IndexNow key.")] = None,
    engine: EngineOption = None,
    backup: BackupOption = None,
    method: MethodOption = None,
    key_location: KeyLocationOption = None,
    schedule: ScheduleOption = None,
    announce_removed: RemovedOption = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether the schedule runs it.")] = None,
    bing: Annotated[bool | None, typer.Option("--bing/--no-bing", help="Whether to submit to Bing.")] = None,
    baidu: Annotated[bool | None, typer.Option("--baidu/--no-baidu", help="Whether to push to Baidu.")] = None,
    bing_key: BingKeyOption = None,
    bing_quota: BingQuotaOption = None,
    bing_priority: BingPriorityOption = None,
    baidu_token: BaiduTokenOption = None,
    baidu_site: BaiduSiteOption = None,
    baidu_quota: BaiduQuotaOption = None,
    baidu_priority: BaiduPriorityOption = None,
    google_credentials: GoogleCredentialsOption = None,
    google_property: GooglePropertyOption = None,
    google_indexing: GoogleIndexingOption = None,
    google_quota: GoogleQuotaOption = None,
    google_priority: GooglePriorityOption = None,
    no_google: Annotated[bool, typer.Option("--no-google", help="Forget Google's credentials.")] = False,
    no_google_indexing: Annotated[bool, typer.Option("--no-google-indexing", help="Indexing API off.")] = False,
    group: GroupOption = None,
    hook_secret: HookSecretOption = None,
    page_check: PageCheckOption = None,
    page_check_limit: PageCheckLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change some settings of a stored site. The others stay."""
    settings = session.settings
    changes = {
        "sitemapUrls": sitemap,
        "backupSitemapUrls": backup,
        "indexnowKey": key,
        "keyLocation": key_location,
        "searchEngines": engine,
        "submitMethod": method,
        "schedule": schedule,
        "announceRemoved": announce_removed,
        "enabled": enabled,
        **_read_ranked(BingSettings.fields, bing_key, bing_quota, bing_priority, enabled=bing),
        **_read_ranked(BaiduSettings.fields, baidu_token, baidu_quota, baidu_priority, enabled=baidu),
        "baiduSite": baidu_site,
        **_read_google(google_credentials, google_property, google_indexing, google_quota, google_priority),
        "group": group,
        "hookSecret": None if hook_secret is None else read_secret(hook_secret, prompt=say("Hook secret")),
        "pageCheck": page_check,
        "pageCheckLimit": page_check_limit,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if no_google or no_google_indexing:
        given["googleIndexing"] = None
    if no_google:
        given["googleCredentials"] = None
    if not given:
        fail(say("nothing to change: give at least one option; `tidings sites set --help` lists them"))

    installation = await session.open()
    if installation.is_from_environment(site_id):
        fail(say("SITEMAP_URL and the variables beside it set {site} up; change them instead", site=site_id))
    await require_site(installation, site_id)
    changed = await installation.sites.change(
        site_id,
        lambda site: installation.know(change_site(site, given, engines=settings.engines, schedule=settings.schedule)),
    )
    if changed is None:
        fail(say("{site} was removed meanwhile", site=site_id))
    text = say("Changed {site}: {fields}.", site=changed.id, fields=", ".join(given))
    print_answer({"site": describe_site(changed)}, text, as_json=as_json)


def _read_ranked(
    fields: RankedFields,
    key_source: str | None,
    quota: int | str | None,
    priority: PagePriority | None,
    *,
    enabled: bool | None = None,
) -> dict[str, Any]:
    """The fields of a channel with a quota. A key switches it on."""
    prompt = say("Bing API key") if fields is BingSettings.fields else say("Baidu token")
    key = None if key_source is None else read_secret(key_source, prompt=prompt)
    return {
        fields.key: key,
        fields.enabled: True if key and enabled is None else enabled,
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
        except (OSError, UnicodeDecodeError) as error:
            fail(say("--google-credentials: the file cannot be read ({reason})", reason=type(error).__name__))
    return {
        "googleCredentials": text,
        "googleProperty": console_property,
        "googleIndexing": content,
        "googleDailyQuota": quota,
        "googlePriority": priority,
    }


@app.command("list")
@command
async def list_sites(session: Session, as_json: JsonOption = False) -> None:
    """List all sites."""
    installation = await session.open()
    found = await installation.sites.list_all()
    if as_json:
        print_json({"sites": [describe_site(site) for site in found]})
    else:
        titles = (say("sitemap"), say("engines"), "bing", "baidu", "google", say("schedule"))
        print_table([_make_row(site) for site in found], "id", *titles)


def _make_row(site: Site) -> tuple[str, ...]:
    return (
        escape(site.id),
        escape(site.sitemap_urls[0]),
        escape(", ".join(map(str, site.engines))),
        *(say("{count} a day", count=each.shown_quota) if each.enabled else "-" for each in (site.bing, site.baidu)),
        _describe_google(site.google),
        site.schedule,
    )


def _describe_google(google: GoogleSettings) -> str:
    if google.enabled:
        return say("{count} a day", count=google.daily_quota)
    return say("sitemaps") if google.key else "-"


@app.command("show")
@command
async def show(session: Session, site_id: SiteArgument, as_json: JsonOption = True) -> None:
    """Show one site as JSON. Its keys are masked."""
    installation = await session.open()
    print_json({"site": describe_site(await require_site(installation, site_id))}, indent=2)


@app.command("remove")
@command
async def remove(session: Session, site_id: SiteArgument, as_json: JsonOption = False) -> None:
    """Delete a site. Its history and its ledger stay, in case it comes back."""
    installation = await session.open()
    site = await require_site(installation, site_id)
    await installation.service.remove(site)
    await installation.tokens.revoke(Scope.SITE, site=site.number)
    print_answer({"removed": site_id}, say("Removed {site}.", site=site_id), as_json=as_json)
