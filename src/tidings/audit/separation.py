"""One writer: the packages of the crawl API do not even know the name of what is written to. That they do not import
the writer is held by a contract on imports, and that they cannot write by their connection.
"""

from pathlib import Path
from typing import Final

from tidings.audit.report import Check, CheckName, Notes
from tidings.audit.streams import read_windows

CRAWL_PACKAGES: Final = (
    "collect/cookies",
    "collect/crawl*",
    "collect/envelope.py",
    "collect/errors.py",
    "collect/notes.py",
    "collect/platforms",
    "web/crawler*",
)
_WORD: Final = b"feishu"


def check_one_writer(package: Path, *, notes: Notes) -> Check:
    """`grep -ri feishu` over the crawl API's packages, below the folder of Tidings' code, finds nothing."""
    roots = [root for pattern in CRAWL_PACKAGES for root in sorted(package.glob(pattern))]
    files = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    # What Python has compiled is no source, and may be of a file that is no longer there.
    sources = [path for path in files if path.is_file() and "__pycache__" not in path.relative_to(package).parts]
    if not sources:
        notes.find(package, "the packages of the crawl API are not there")
    for path in sources:
        if _has_word(path):
            notes.find(path, f"it names {_WORD.decode()}")
    return notes.close(CheckName.ONE_WRITER, f"{len(sources):,} files of the crawl API")


def _has_word(path: Path) -> bool:
    with path.open("rb") as file:
        return any(_WORD in window.data.lower() for window in read_windows(file))
