"""One writer (C1): no file of the crawl API's packages names the mirror. An import contract forbids them to import the
writer, and their database connection is read-only.
"""

from pathlib import Path
from typing import Final

from tidings.audit.report import Check, CheckBuilder, CheckName

CRAWL_PACKAGES: Final = (
    "collect/crawl",
    "collect/errors.py",
    "collect/notes.py",
    "web/models/crawler.py",
    "web/routes/collect/crawler.py",
)
_WORD: Final = b"feishu"


def check_one_writer(package: Path, *, check: CheckBuilder) -> Check:
    """`grep -ri feishu` over the crawl API's packages finds nothing. `package` is the folder of Tidings' code."""
    sources: list[Path] = []
    for name in CRAWL_PACKAGES:
        found = _list_sources(package / name)
        if not found:
            check.find(package / name, "there is no such file or package of the crawl API")
        sources += found
    for path in sources:
        if _WORD in path.read_bytes().lower():
            check.find(path, f"it names {_WORD.decode()}")
    return check.build(CheckName.ONE_WRITER, f"{len(sources):,} files of the crawl API")


def _list_sources(root: Path) -> list[Path]:
    """The files there, without compiled ones, whose source may be gone."""
    files = [root] if root.is_file() else sorted(root.rglob("*"))
    return [path for path in files if path.is_file() and "__pycache__" not in path.relative_to(root).parts]
