"""`tidings sites export` and `import`: many sites as one JSON file, to keep beside other configuration."""

import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tidings.announce.site.document import change_site, describe_changes, export_site, read_site
from tidings.announce.site.errors import SiteError
from tidings.cli.announce.sites import app
from tidings.cli.language import label, say, say_rule, translate
from tidings.cli.options import GroupOption
from tidings.cli.output import show
from tidings.cli.session import Session, answering, command, fail, fail_to_read, fail_to_write, require_group

if TYPE_CHECKING:
    from tidings.announce.site.site import Site
    from tidings.wiring.installation import Installation

__all__ = ["app"]

_LARGEST_FILE = 64 * 1024 * 1024

FileArgument = Annotated[str, typer.Argument(help="A JSON file; - for standard output or input.")]


@dataclass(frozen=True, slots=True)
class _PlannedSite:
    """The planned result for one site of the file."""

    # The fields that the file names.
    document: dict[str, Any]
    # The stored site; None where it is new.
    old: "Site | None"
    new: "Site"


@app.command("export")
@command
async def export_sites(
    session: Session,
    file: FileArgument = "-",
    group: GroupOption = None,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Write keys and tokens in clear. Keep the file safe.")
    ] = False,
) -> None:
    """Write the stored sites to a JSON file. Keys are left out.

    `tidings sites import` reads it. A site that exists keeps its keys there.
    """
    installation = await session.open()
    await require_group(installation, group)
    found = [site for site in await installation.sites.list_all() if group is None or site.group == group]
    unscheduled = await installation.sites.list_unscheduled()
    # A site that was announced by hand must get no schedule on another machine.
    stored = (replace(site, enabled=site.number not in unscheduled) for site in found)
    documents = [export_site(site, with_secrets=with_secrets) for site in stored]
    text = json.dumps({"sites": documents}, indent=2, ensure_ascii=False) + "\n"
    if file == "-":
        typer.echo(text, nl=False)
        return
    try:
        _write_private(Path(file), text)
    except OSError as error:
        fail_to_write(file, error)
    count = len(documents)
    if with_secrets:
        show("Wrote {count} {count:site|sites} to {file}.", count=count, file=file)
    else:
        show("Wrote {count} {count:site|sites} to {file}, without {count:its|their} keys.", count=count, file=file)


@app.command("import")
@answering
async def import_sites(
    session: Session,
    file: FileArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference; change nothing.")] = False,
) -> None:
    """Add and change sites as a JSON file says.

    A field that the file leaves out stays as it is, keys too. Sites that are not in the file stay. The same file again
    changes nothing. A mistake anywhere in the file changes nothing at all.
    """
    documents = list(_check_documents(_read_documents(file), file=file))
    installation = await session.open(leaves_nothing=dry_run)
    planned = [await _plan(installation, each, file=file, number=at) for at, each in enumerate(documents, start=1)]
    twice = [site_id for site_id, count in Counter(each.new.id for each in planned).items() if count > 1]
    if twice:
        fail("{file} names {names} more than once; nothing was changed", file=file, names=", ".join(sorted(twice)))
    added = [each.new.id for each in planned if each.old is None]
    changed = {each.new.id: describe_changes(each.old, each.new) for each in planned if each.old is not None}
    changed = {site_id: changes for site_id, changes in changed.items() if changes}
    if not dry_run:
        for each in planned:
            if each.old is None or each.new.id in changed:
                await _store(installation, each)
        installation.wake()
    result = {
        "added": added,
        "changed": changed,
        "unchanged": len(planned) - len(added) - len(changed),
        "dryRun": dry_run,
    }
    session.answer(result, _describe(result))


def _write_private(path: Path, text: str) -> None:
    """Create a file that only its owner can read, because it may contain keys."""
    if path.exists() and not stat.S_ISREG(path.lstat().st_mode):
        fail("{path} is no plain file, and is left as it is; - writes to standard output", path=path)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)


def _describe(result: dict[str, Any]) -> str:
    lines = [f"+ {site_id}" for site_id in result["added"]]
    for site_id, changes in result["changed"].items():
        lines += [f"~ {site_id}: {name}: {old} → {new}" for name, (old, new) in changes.items()]
    counts = say(
        "{added} added, {changed} changed, {unchanged} unchanged.",
        added=len(result["added"]),
        changed=len(result["changed"]),
        unchanged=result["unchanged"],
    )
    end = say(" This was a dry run: nothing was changed.") if result["dryRun"] else ""
    return "\n".join([*lines, counts + end])


def _read_documents(file: str) -> list[dict[str, Any]]:
    """The documents of the file. Ends the command if it has none."""
    try:
        text = sys.stdin.buffer.read(_LARGEST_FILE + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        fail_to_read(file, error)
    try:
        found = json.loads(text[: _LARGEST_FILE + 1])
        documents = found["sites"] if isinstance(found, dict) else found
        is_list = isinstance(documents, list) and all(isinstance(each, dict) for each in documents)
        if len(text) > _LARGEST_FILE or not is_list:
            raise ValueError
        return list(documents)
    except (ValueError, KeyError, TypeError, RecursionError):
        example = '{"sites": [{"id": "shop", …}]}'
        fail("{file}: it must be JSON such as {example}; `tidings sites export` writes it", file=file, example=example)


def _check_documents(documents: list[dict[str, Any]], *, file: str) -> Iterator[dict[str, Any]]:
    """The fields of each document. Ends the command for the first mistake."""
    from pydantic import ValidationError

    from tidings.web.models.announce import NewSiteBody

    for number, document in enumerate(documents, start=1):
        try:
            yield NewSiteBody.model_validate(document).to_fields()
        except ValidationError as error:
            first = error.errors()[0]
            message = label(".".join(map(str, first["loc"])), translate(first["msg"]))
            _refuse(file, number, document, message)


def _refuse(file: str, number: int, document: dict[str, Any], message: str) -> NoReturn:
    """End the command for a mistake in one site of the file."""
    name = document.get("id") or say("without an id")
    fail("{file}: site {number} ({name}): {message}", file=file, number=number, name=name, message=message)


async def _plan(installation: "Installation", document: dict[str, Any], *, file: str, number: int) -> _PlannedSite:
    """Plan one site of the file. Ends the command for an invalid site."""
    defaults = _find_defaults(installation)
    site_id = document.get("id")
    try:
        if site_id is None:
            site_id = read_site({"indexnowKey": "only-for-its-id", **document}, **defaults).id
        if installation.is_from_environment(site_id):
            fail("SITEMAP_URL and the variables beside it set {site} up; take it out of the file", site=site_id)
        old = await installation.sites.find(site_id)
        if old is None:
            return _PlannedSite(document, None, installation.know(read_site(document, **defaults)))
        new = installation.know(change_site(old, document, **defaults))
    except SiteError as error:
        _refuse(file, number, document, say_rule(error.field, error.rule))
    return _PlannedSite(document, old, new)


async def _store(installation: "Installation", planned: _PlannedSite) -> None:
    """Store a site. Changes made meanwhile stay, except in the fields of the file."""
    from tidings.announce.site.table import Origin

    def change(site: "Site") -> "Site":
        return installation.know(change_site(site, planned.document, **_find_defaults(installation)))

    if planned.old is None:
        await installation.sites.save(planned.new, origin=Origin.API)
    else:
        await installation.sites.change(planned.new.id, change)


def _find_defaults(installation: "Installation") -> dict[str, Any]:
    return {"engines": installation.settings.engines, "schedule": installation.settings.schedule}
