"""`tidings check`: find mistakes before anything is sent."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.announce.site.site import Site, make_site
from tidings.cli.announce.announce import require_key
from tidings.cli.language import label, say, translate
from tidings.cli.options import KeyLocationOption, KeyOption
from tidings.cli.output import escape, make_console, print_json
from tidings.cli.session import Exit, Session, answering, fail, require_site
from tidings.core.secrets.escapes import escape_controls

if TYPE_CHECKING:
    from tidings.announce.site.check import SiteFinding
    from tidings.wiring.installation import Installation


@answering
async def check(
    session: Session,
    site: Annotated[str | None, typer.Argument(help="A site's id, or a sitemap's URL with --key.")] = None,
    key: KeyOption = None,
    key_location: KeyLocationOption = None,
) -> Exit:
    """Check a site's key file, sitemap and quotas. Sends nothing.

    Fetches the key file as an engine would, asks Bing for its quota, and Google for what it says of the sitemap.

    Exit code 0: all good. 1: something is wrong. 2: bad input.
    """
    given = None
    if site is not None and "://" in site:
        given = make_site(sitemap_urls=[site], key=require_key(key, session.settings), key_location=key_location)
    elif site is not None and "/" in site:
        fail("{site} is no URL: a sitemap's begins with https:// or http://", site=escape_controls(site))
    installation = await session.open(leaves_nothing=True)
    found = installation.know(given) if given else await require_site(installation, site)
    findings = await _find(installation, found)
    if session.as_json:
        documents = [{**asdict(each), "advice": each.advice or None} for each in findings]
        print_json({"site": found.id, "findings": documents})
    else:
        for each in findings:
            mark = f"[green]{say('good')}[/]" if each.good else f"[red]{say('wrong')}[/]"
            advice = f"\n     {escape(translate(each.advice))}" if each.advice else ""
            finding = label(translate(each.subject), escape(translate(each.message)))
            make_console().print(f"{mark} {finding}{advice}")
    return Exit.DONE if all(each.good for each in findings) else Exit.FAILED


async def _find(installation: "Installation", site: Site) -> "list[SiteFinding]":
    from tidings.announce.channels.google.access import GoogleAccess
    from tidings.announce.channels.google.search_console import SearchConsole
    from tidings.announce.channels.protocols.baidu import BAIDU_KIND
    from tidings.announce.channels.protocols.bing import BING_KIND, BingApi
    from tidings.announce.channels.quota.checks import check_baidu, check_bing, check_google
    from tidings.announce.channels.quota.ranked import open_quota
    from tidings.announce.site.check import check_site

    client, clock, database = installation.client, installation.clock, installation.database
    findings = await check_site(site, client=client, clock=clock)
    if site.bing.enabled:
        api = BingApi(installation.own_client, clock, installation.settings.bases.bing)
        quota = await open_quota(site, BING_KIND, database=database, clock=clock).read()
        findings.append(await check_bing(site, api=api, quota=quota))
    if site.baidu.enabled:
        quota = await open_quota(site, BAIDU_KIND, database=database, clock=clock).read()
        findings.append(check_baidu(site, quota=quota))
    if site.google.key is not None:
        access = GoogleAccess(installation.own_client, clock, installation.settings.bases.google)
        findings += await check_google(site, console=SearchConsole(access))
    return findings
