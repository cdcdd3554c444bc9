"""`tidings keys`: master keys, which encrypt stored secrets, and IndexNow keys."""

import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tidings.announce.site.site import check_key, make_indexnow_key
from tidings.cli.announce.announce import require_key
from tidings.cli.language import say
from tidings.cli.options import KeyOption, make_group
from tidings.cli.session import Exit, Session, answering, fail, fail_to_write
from tidings.core.secrets.master_key import new_master_key

app = make_group("Make and rotate keys.")


@app.command("new")
@answering
async def new(
    session: Session,
    indexnow: Annotated[bool, typer.Option("--indexnow", help="Make an IndexNow key instead.")] = False,
) -> None:
    """Make a master key and print it. Changes nothing."""
    key = make_indexnow_key() if indexnow else new_master_key()
    session.answer({"key": key}, key)


@app.command("file")
@answering
async def file(
    session: Session,
    docroot: Annotated[Path, typer.Argument(help="The folder that your web server serves as /.")],
    key: KeyOption = None,
) -> None:
    """Write the IndexNow key file into a web server's folder.

    The file is KEY.txt, where engines look for it, and everybody may read it. A file with other content is left alone.
    """
    text = check_key(require_key(key, session.settings)).reveal()
    path = docroot / f"{text}.txt"
    if not docroot.is_dir():
        fail("{path} is not a folder", path=docroot)
    try:
        written = _write_new(path, text)
        if not written and path.read_bytes().strip() != text.encode():
            fail("{path} holds something else; nothing was changed", path=path, code=Exit.FAILED)
    except OSError as error:
        fail_to_write(path, error)
    message = say("Wrote {path}.", path=path) if written else say("{path} is there already.", path=path)
    session.answer({"path": str(path), "written": written}, message)


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
@answering
async def rotate(session: Session) -> None:
    """Encrypt all stored secrets with the newest master key.

    The newest is the first in COOKIE_MASTER_KEY=k2:NEW,k1:OLD.
    """
    installation = await session.open()
    rotated = await installation.sites.rotate_keys() + await installation.collect.cookies.rotate_keys()
    session.answer({"rotated": rotated}, "Encrypted {count} stored {count:secret|secrets} again.", count=rotated)


@app.command("status")
@answering
async def status(session: Session) -> None:
    """Show the ids of the master keys that are in use."""
    installation = await session.open()
    current = installation.keys.current_id
    counts = Counter(await installation.sites.count_key_ids())
    counts.update(await installation.collect.cookies.count_key_ids())
    lines = [say("New secrets are encrypted with {key}.", key=current)]
    for key_id, count in counts.items():
        advice = "" if key_id == current else say("; run `tidings keys rotate`")
        lines.append(say("{key}: {count} {count:secret|secrets}", key=key_id, count=count) + advice)
    session.answer({"current": current, "values": dict(counts)}, "\n".join(lines))
