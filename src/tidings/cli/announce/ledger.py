"""`tidings ledger`: look a page up in the record of accepted pages, and correct it."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidings.announce.channels.choice import ChannelChoice
from tidings.cli.language import label, say, translate
from tidings.cli.options import SiteArgument, make_group
from tidings.cli.output import escape, format_time, make_console, print_json, print_table
from tidings.cli.session import Exit, Session, answering, fail, require_site
from tidings.core.clock import parse_timestamp

if TYPE_CHECKING:
    from tidings.announce.ledger.lookup import PageLookup
    from tidings.announce.site.site import Site
    from tidings.wiring.installation import Installation

app = make_group("Look up and correct the record of announced pages.")


def _say_rule(rule: str) -> str:
    words = {
        "new": say("due: never accepted"),
        "expired": say("due: accepted too long ago"),
        "open": say("waits in the outbox"),
        "too_soon": say("just accepted: a change waits"),
        "accepted": say("not due, unless it changed"),
    }
    return words[rule]


def _say_refusal(refusal: str) -> str:
    words = {
        "invalid": say("this is not a URL that can be announced"),
        "foreign_host": say("it is not of the site's host"),
        "outside_key_location": say("it lies outside the key file's folder"),
    }
    return words[refusal]


@app.command("forget")
@answering
async def forget(
    session: Session,
    site: SiteArgument,
    since: Annotated[str, typer.Option("--since", help="A time such as 2026-11-15T10:00Z, or a day.")],
    channel: Annotated[ChannelChoice, typer.Option("--channel", help="On which channel.")] = ChannelChoice.ALL,
) -> None:
    """Undo a bad execution: pages announced since then are due again."""
    from tidings.announce.ledger.corrections import forget_since

    since_at = parse_timestamp(since)
    if since_at is None:
        fail("--since: it must be a time such as 2026-11-15T10:00Z, or a day such as 2026-11-15")
    installation = await session.open()
    found = await require_site(installation, site)
    forgotten = await forget_since(
        found, since_at, channel=channel, database=installation.database, executions=installation.executions
    )
    session.answer(
        {"forgotten": forgotten},
        "{count} {count:entry is|entries are} forgotten; {count:its page is|their pages are} due again.",
        count=forgotten,
    )


@app.command("find")
@answering
async def find(
    session: Session,
    url: Annotated[str, typer.Argument(help="The page.")],
    site: Annotated[str | None, typer.Option("--site", help="The site's id. [the sites of the URL's host]")] = None,
) -> Exit:
    """Was this page announced? Shows each channel.

    When it was last accepted, by which rule it is due or not due now, and what is open or failed.

    Exit code 0: a site announces this page. 1: none does.
    """
    from tidings.announce.channels.enabled_channels import list_page_channels
    from tidings.announce.ledger.lookup import find_page

    installation = await session.open()
    sites = [await require_site(installation, site)] if site else await _find_sites(installation, url)
    if not sites:
        fail("no site has the host of this URL; `tidings sites list` shows the sites")
    database, clock, rules = installation.database, installation.clock, installation.announcer.rules
    found = {
        each.id: await find_page(
            each, url, database=database, clock=clock, rules=rules, channels=list_page_channels(each)
        )
        for each in sites
    }
    if session.as_json:
        from tidings.web.models.announce_answers import LookupAnswer

        shown = {name: LookupAnswer.model_validate(lookup).to_json() for name, lookup in found.items()}
        print_json({"sites": [{"site": name, **lookup} for name, lookup in shown.items()]})
    else:
        for name, lookup in found.items():
            _print_lookup(name, lookup)
    return Exit.DONE if any(lookup.refusal is None for lookup in found.values()) else Exit.FAILED


async def _find_sites(installation: "Installation", url: str) -> "list[Site]":
    from tidings.announce.due.pages import encode_unfit
    from tidings.announce.site.site import find_netloc
    from tidings.core.net.addresses import UrlError, parse_url

    try:
        host = find_netloc(parse_url(encode_unfit(url.strip())))
    except UrlError as error:
        fail(label("URL", translate(str(error))))
    return [installation.know(each) for each in await installation.sites.list_all() if each.host == host]


def _print_lookup(name: str, lookup: "PageLookup") -> None:
    console = make_console()
    console.print(say("{url} at {site}", url=escape(lookup.url), site=escape(name)))
    if lookup.refusal is not None:
        console.print(say("[red]never announced[/]: {reason}", reason=_say_refusal(lookup.refusal.value)))
        return
    rows = [
        (str(each.channel), _say_rule(each.rule.value), format_time(each.accepted_at), format_time(each.until))
        for each in lookup.channels
    ]
    print_table(rows, say("channel"), say("now"), say("last accepted"), say("until"))
    for each in (delivery for channel in lookup.channels for delivery in channel.deliveries):
        if each.reason is None:
            state = say("planned {time}", time=format_time(each.planned_at))
        else:
            state = say(
                "failed {time}: {reason} ({attempts} attempts)",
                time=format_time(each.failed_at),
                reason=translate(each.reason),
                attempts=each.attempts,
            )
        console.print(say("  open at {engine}: {state}", engine=escape(each.engine), state=escape(state)))
