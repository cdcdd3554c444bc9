"""`tidings tokens`: who may use the API."""

import json
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from tidings.cli.announce.announce import JsonOption, require_site
from tidings.cli.announce.report import make_console
from tidings.cli.session import Exit, fail, load_settings, open_session, run
from tidings.core.clock import to_text
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.tokens import TokenRecord

app = typer.Typer(help="Make and revoke tokens for the API.", no_args_is_help=True, rich_markup_mode=None)

ScopeArgument = Annotated[Scope, typer.Argument(help="What it opens.")]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Its name; a token of the same scope and name is replaced. [the time]")
]
SiteOption = Annotated[str | None, typer.Option("--site", help="The site's id, for the scope site.")]


@app.command("new")
def new(scope: ScopeArgument, name: NameOption = None, site: SiteOption = None, as_json: JsonOption = False) -> None:
    """Make a token and print it, this once. Without a name it is one more, beside those there are."""
    _require_fit(scope, site)
    settings = load_settings()
    given = name or f"made {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"

    async def work() -> str:
        async with open_session(settings) as installation:
            found = None if site is None else await require_site(installation, site)
            token = await installation.tokens.make(
                scope, site=None if found is None else found.number, name=given if found is None else found.id
            )
            return token.reveal()

    token = run(work)
    typer.echo(json.dumps({"token": token, "scope": scope.value, "name": site or given}) if as_json else token)


@app.command("revoke")
def revoke(scope: ScopeArgument, name: NameOption = None, site: SiteOption = None, as_json: JsonOption = False) -> None:
    """Take a token back; it stops working within a few seconds."""
    _require_fit(scope, site)
    if site is None and name is None:
        fail("--name says which; `tidings tokens list` shows them")
    settings = load_settings()

    async def work() -> bool:
        async with open_session(settings) as installation:
            number = None if site is None else (await require_site(installation, site)).number
            return await installation.tokens.revoke(scope, site=number, name=None if site else name)

    if not run(work):
        fail("there is no such token; `tidings tokens list` shows them", code=Exit.FAILED)
    typer.echo(json.dumps({"revoked": True, "scope": scope.value, "name": site or name}) if as_json else "Revoked.")


@app.command("list")
def list_tokens(as_json: JsonOption = False) -> None:
    """Show which tokens there are; the tokens themselves are not kept."""
    settings = load_settings()

    async def work() -> list[TokenRecord]:
        async with open_session(settings) as installation:
            return await installation.tokens.list_all()

    found = run(work)
    if as_json:
        rows = [{"scope": each.scope.value, "name": each.name, "createdAt": to_text(each.created_at)} for each in found]
        typer.echo(json.dumps({"tokens": rows}, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("scope", "name", "made"):
        table.add_column(title)
    for each in found:
        table.add_row(each.scope.value, escape(each.name), f"{each.created_at:%Y-%m-%d %H:%M}")
    make_console().print(table)


def _require_fit(scope: Scope, site: str | None) -> None:
    if (scope is Scope.SITE) != (site is not None):
        fail("--site belongs to the scope site, and to no other")
