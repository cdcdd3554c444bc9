"""`tidings tokens`: tokens of the API."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from tidings.announce.site.site import check_group
from tidings.cli.language import say
from tidings.cli.options import make_group
from tidings.cli.output import format_time
from tidings.cli.session import Exit, Session, answering, fail, require_site, warn
from tidings.core.clock import to_text
from tidings.core.secrets.scopes import Scope

app = make_group("Make and revoke tokens of the API.")

ScopeArgument = Annotated[Scope, typer.Argument(help="What the token may do.")]
NameOption = Annotated[str | None, typer.Option("--name", help="The token's name. [the present time]")]
GroupOption = Annotated[str | None, typer.Option("--group", help="The only group of sites that a viewer sees.")]
SiteOption = Annotated[str | None, typer.Option("--site", help="The site's id, for the scope site.")]


@app.command("new")
@answering
async def new(
    session: Session,
    scope: ScopeArgument,
    name: NameOption = None,
    site: SiteOption = None,
    group: GroupOption = None,
) -> None:
    """Make a token and print it. It is not shown again.

    A token of the same scope and name is replaced.
    """
    _require_fit(scope, site)
    if group is not None and scope is not Scope.VIEWER:
        fail("--group belongs to the scope viewer, and only to it")
    installation = await session.open()
    if group is not None and not await installation.sites.has_group(check_group(group)):
        warn(say("no site is in the group {group!r} yet", group=group))
    found = None if site is None else await require_site(installation, site)
    given = name or f"made {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
    made = await installation.tokens.make(
        scope,
        site=None if found is None else found.number,
        name=given if found is None else found.id,
        group=group,
    )
    token = made.reveal()
    session.answer({"token": token, "scope": scope.value, "name": site or given}, token)


@app.command("revoke")
@answering
async def revoke(
    session: Session,
    scope: ScopeArgument,
    name: NameOption = None,
    site: SiteOption = None,
) -> None:
    """Revoke a token. It stops working within a few seconds."""
    _require_fit(scope, site)
    if site is None and name is None:
        fail("--name is needed; `tidings tokens list` shows the names")
    installation = await session.open()
    number = None if site is None else (await require_site(installation, site)).number
    if not await installation.tokens.revoke(scope, site=number, name=None if site else name):
        fail("there is no such token; `tidings tokens list` shows the tokens", code=Exit.FAILED)
    session.answer({"revoked": True, "scope": scope.value, "name": site or name}, "Revoked.")


@app.command("list")
@answering
async def list_tokens(session: Session) -> None:
    """List all tokens by scope and name. The tokens themselves are not stored."""
    installation = await session.open()
    found = await installation.tokens.list_all()
    documents = [
        {"scope": each.scope.value, "name": each.name, "group": each.group, "createdAt": to_text(each.created_at)}
        for each in found
    ]
    session.answer_table(
        {"tokens": documents},
        (say("scope"), say("name"), say("group"), say("made")),
        [(each.scope.value, each.name, each.group or "-", format_time(each.created_at)) for each in found],
    )


def _require_fit(scope: Scope, site: str | None) -> None:
    if scope is Scope.SITE and site is None:
        fail("the scope site needs --site; `tidings sites list` shows the sites")
    if scope is not Scope.SITE and site is not None:
        fail("--site belongs to the scope site, and only to it")
