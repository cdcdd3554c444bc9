"""The map in docs/architecture.md names every module, in the row of its folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tidings"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| (.+?) \| (.+) \|$", re.MULTILINE)


def read_map() -> dict[str, set[str]]:
    """Folder → names of modules and subfolders in its row."""
    rows: dict[str, set[str]] = {}
    for folders, names in ROW.findall(PAGE.partition("## The map")[2].partition("\n## ")[0]):
        for folder in re.findall(r"`([\w/]+)/`", folders) or [""]:
            rows[folder] = set(re.findall(r"`(\w+)/?`", names))
    return rows


def list_modules() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        folder = path.parent.relative_to(PACKAGE).as_posix()
        if path.name != "__init__.py" and "migrations" not in folder:
            found.setdefault("" if folder == "." else folder, set()).add(path.stem)
    return found


@pytest.mark.parametrize("folder", sorted(list_modules()))
def test_the_map_names_every_module_of_a_folder(folder: str) -> None:
    assert list_modules()[folder] - read_map().get(folder, set()) == set()


def test_the_map_names_nothing_that_is_gone() -> None:
    modules = list_modules()
    known = {name for names in modules.values() for name in names} | {"migrations"}
    gone = {
        f"{folder}: {name}" for folder, names in read_map().items() for name in names if name not in known and folder
    }
    assert gone == set()
    assert {folder for folder in read_map() if folder and folder not in modules} == set()
