"""`tidings keys`: master keys, which encrypt stored secrets, and IndexNow keys."""

import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tidings.announce.site.site import check_key, make_indexnow_key
from tidings.cli.announce.announce import require_key
from tidings.cli.language import say, translate
from tidings.cli.options import JsonOption, KeyOption, make_group
from tidings.cli.output import print_answer
from tidings.cli.session import Exit, Session, command, fail
from tidings.core.secrets.master_key import new_master_key

app = make_group("Make and rotate keys.")


@app.command("new")
def new(
    indexnow: Annotated[bool, typer.Option("--indexnow", help="Make an IndexNow key instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a master key and print it. Changes nothing."""
    key = make_indexnow_key() if indexnow else new_master_key()
    print_answer({"key": key}, key, as_json=as_json)


@app.command("file")
@command
async def file(
    session: Session,
    docroot: Annotated[Path, typer.Argument(help="The folder that your web server serves as /.")],
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Write the IndexNow key file into a web server's folder.

    The file is KEY.txt, where engines look for it, and everybody may read it. A file with other content is left alone.
    """
    text = check_key(require_key(key, session.settings)).reveal()
    path = docroot / f"{text}.txt"
    if not docroot.is_dir():
        fail(say("{path} is not a folder", path=docroot))
    try:
        written = _write_new(path, text)
        if not written and path.read_bytes().strip() != text.encode():
            fail(say("{path} holds something else; nothing was changed", path=path), code=Exit.FAILED)
    except OSError as error:
        reason = translate(error.strerror or "")
        fail(say("{path} cannot be written: {reason}", path=path, reason=reason), code=Exit.FAILED)
    message = say("Wrote {path}.", path=path) if written else say("{path} is there already.", path=path)
    print_answer({"path": str(path), "written": written}, message, as_json=as_json)
    return Exit.DONE


def _write_new(path: Path, text: str) -> bool:
    """Write a file that everybody may read. False where something has this name already, if only a dead link."""
    try:
        with path.open("x", encoding="ascii") as opened:
            os.fchmod(opened.fileno(), 0o644)
            opened.write(text)
    except FileExistsError:
        return False
    return True


@app.command("rotate")
@command
async def rotate(session: Session, as_json: JsonOption = False) -> None:
    """Encrypt all stored secrets with the newest master key.

    The newest is the first in COOKIE_MASTER_KEY=k2:NEW,k1:OLD.
    """
    installation = await session.open()
    rotated = await installation.sites.rotate_keys() + await installation.collect.cookies.rotate_keys()
    print_answer(
        {"rotated": rotated},
        say("Encrypted {count} stored {count:secret|secrets} again.", count=f"{rotated:,}"),
        as_json=as_json,
    )


@app.command("status")
@command
async def status(session: Session, as_json: JsonOption = False) -> None:
    """Show the ids of the master keys that are in use."""
    installation = await session.open()
    current = installation.keys.current_id
    counts = Counter(await installation.sites.count_key_ids())
    counts.update(await installation.collect.cookies.count_key_ids())
    lines = [say("New secrets are encrypted with {key}.", key=current)]
    for key_id, count in counts.items():
        advice = "" if key_id == current else say("; run `tidings keys rotate`")
        lines.append(say("{key}: {count} {count:secret|secrets}", key=key_id, count=f"{count:,}") + advice)
    print_answer({"current": current, "values": dict(counts)}, "\n".join(lines), as_json=as_json)
