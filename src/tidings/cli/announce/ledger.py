"""`tidings ledger`: correct the record of accepted pages."""

from typing import Annotated

import typer

from tidings.announce.channels.choice import ChannelChoice
from tidings.cli.options import JsonOption, SiteArgument, make_group
from tidings.cli.output import print_answer
from tidings.cli.session import Session, command, fail, require_site
from tidings.core.clock import parse_timestamp

app = make_group("Correct the record of announced pages.")


@app.command("forget")
@command
async def forget(
    session: Session,
    site: SiteArgument,
    since: Annotated[str, typer.Option("--since", help="A time such as 2026-11-15T10:00Z, or a day.")],
    channel: Annotated[ChannelChoice, typer.Option("--channel", help="On which channel.")] = ChannelChoice.ALL,
    as_json: JsonOption = False,
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
    print_answer(
        {"forgotten": forgotten},
        f"{forgotten:,} entries are forgotten; their pages are due again.",
        as_json=as_json,
    )
