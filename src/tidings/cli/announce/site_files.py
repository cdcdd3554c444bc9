"""`tidings sites export` and `import`: many sites as one JSON file, to keep beside other configuration."""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.announce.site.document import change_site, describe_changes, export_site, read_site
from tidings.announce.site.errors import SiteError
from tidings.cli.announce.sites import app
from tidings.cli.language import say, say_rule, translate
from tidings.cli.options import JsonOption
from tidings.cli.output import print_answer
from tidings.cli.session import Session, command, fail

if TYPE_CHECKING:
    from tidings.announce.site.site import Site
    from tidings.wiring.installation import Installation

__all__ = ["app"]

_LARGEST_FILE = 64 * 1024 * 1024

FileArgument = Annotated[str, typer.Argument(help="A JSON file; - for standard output or input.")]


@app.command("export")
@command
async def export_sites(
    session: Session,
    file: FileArgument = "-",
    group: Annotated[str | None, typer.Option("--group", help="Only this group.")] = None,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Write keys and tokens in clear. Keep the file safe.")
    ] = False,
) -> None:
    """Write the stored sites to a JSON file. Keys are left out.

    `tidings sites import` reads it. A site that exists keeps its keys there.
    """
    installation = await session.open()
    found = [site for site in await installation.sites.list_all() if group is None or site.group == group]
    documents = [export_site(site, with_secrets=with_secrets) for site in found]
    text = json.dumps({"sites": documents}, indent=2, ensure_ascii=False) + "\n"
    if file == "-":
        typer.echo(text, nl=False)
        return
    _write_private(Path(file), text)
    count = f"{len(documents):,}"
    typer.echo(
        say("Wrote {count} sites to {file}.", count=count, file=file)
        if with_secrets
        else say("Wrote {count} sites to {file}, without their keys.", count=count, file=file)
    )


@app.command("import")
@command
async def import_sites(
    session: Session,
    file: FileArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference; change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Add and change sites as a JSON file says.

    A field that the file leaves out stays as it is, keys too. Sites that are not in the file stay. The same file again
    changes nothing. A mistake anywhere in the file changes nothing at all.
    """
    documents = _read_documents(file)
    installation = await session.open(leaves_nothing=dry_run)
    planned = [await _plan(installation, document) for document in documents]
    twice = [site_id for site_id, count in Counter(site.id for _, site in planned).items() if count > 1]
    if twice:
        names = ", ".join(sorted(twice))
        fail(say("{file} names {names} more than once; nothing was changed", file=file, names=names))
    added = [site for old, site in planned if old is None]
    changed = {new.id: describe_changes(old, new) for old, new in planned if old is not None}
    changed = {site_id: changes for site_id, changes in changed.items() if changes}
    if not dry_run:
        for old, new in planned:
            if old is None or new.id in changed:
                await _store(installation, new, is_new=old is None)
        installation.wake()
    result = {
        "added": [site.id for site in added],
        "changed": changed,
        "unchanged": len(planned) - len(added) - len(changed),
        "dryRun": dry_run,
    }
    print_answer(result, _describe(result), as_json=as_json)


def _write_private(path: Path, text: str) -> None:
    """A new file that only its owner reads, from its first byte: it may hold keys."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)


def _describe(result: dict[str, Any]) -> str:
    lines = [f"+ {site_id}" for site_id in result["added"]]
    for site_id, changes in result["changed"].items():
        lines += [f"~ {site_id}: {name}: {old} → {new}" for name, (old, new) in changes.items()]
    counts = say(
        "{added} added, {changed} changed, {unchanged} unchanged.",
        added=f"{len(result['added']):,}",
        changed=f"{len(result['changed']):,}",
        unchanged=f"{result['unchanged']:,}",
    )
    end = say(" This was a dry run: nothing was changed.") if result["dryRun"] else ""
    return "\n".join([*lines, counts + end])


def _read_documents(file: str) -> list[dict[str, Any]]:
    """The documents of the file, checked field by field. Ends the command for the first mistake."""
    from pydantic import ValidationError

    from tidings.web.models.announce import NewSiteBody

    try:
        text = sys.stdin.buffer.read(_LARGEST_FILE + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        fail(say("{path} cannot be read: {reason}", path=file, reason=translate(error.strerror or "")))
    try:
        found = json.loads(text[: _LARGEST_FILE + 1])
        documents = found["sites"] if isinstance(found, dict) else found
        if len(text) > _LARGEST_FILE or not all(isinstance(each, dict) for each in documents):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        example = '{"sites": [{"id": "shop", …}]}'
        fail(
            say(
                "{file}: it must be JSON such as {example}; `tidings sites export` writes it",
                file=file,
                example=example,
            )
        )
    checked = []
    for number, document in enumerate(documents, start=1):
        try:
            checked.append(NewSiteBody.model_validate(document).to_fields())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            name = document.get("id") or say("without an id")
            message = translate(first["msg"])
            fail(
                say(
                    "{file}: site {number} ({name}): {field}: {message}",
                    file=file,
                    number=number,
                    name=name,
                    field=place,
                    message=message,
                )
            )
    return checked


async def _plan(installation: "Installation", document: dict[str, Any]) -> "tuple[Site | None, Site]":
    """The stored site, if there is one, and what becomes of it. Ends the command for a site that cannot be."""
    settings = installation.settings
    defaults: dict[str, Any] = {"engines": settings.engines, "schedule": settings.schedule}
    site_id = document.get("id")
    try:
        if site_id is None:
            site_id = read_site({"indexnowKey": "only-for-its-id", **document}, **defaults).id
        if installation.is_from_environment(site_id):
            fail(say("SITEMAP_URL and the variables beside it set {site} up; take it out of the file", site=site_id))
        old = await installation.sites.find(site_id)
        if old is None:
            return None, installation.know(read_site(document, **defaults))
        return old, installation.know(change_site(old, document, **defaults))
    except SiteError as error:
        fail(f"{site_id or say('a site without an id')}: {say_rule(error.field, error.rule)}")


async def _store(installation: "Installation", site: "Site", *, is_new: bool) -> None:
    from tidings.announce.site.table import Origin

    if is_new:
        await installation.sites.save(site, origin=Origin.API)
    else:
        await installation.sites.change(site.id, lambda _: site)
