"""The map in docs/architecture.md names every module, in the row of its folder. docs/dependencies.md and pyproject.toml
name every package that is used. Files and functions are short."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import metadata, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tidings"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
LONGEST_FILE = 400
LONGEST_FUNCTION = 40
# Longer functions, each with its reason. Migrations are not judged: what they once did is not changed any more.
LONG_FUNCTIONS = {
    "announce/execution/report.py:to_json": "a table: one row for each field of the JSON",
    "collect/write/leases.py:__init__": "the statements of leases, which are built once and then only filled in",
}
LICENCE = re.compile(r"^\| ([a-z][a-z0-9, -]+?)(?: \(.+?\))? \| ([A-Z][^|]+) \| ", re.MULTILINE)
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


def list_imports() -> Iterator[str]:
    """The first name of every module that the package imports, also inside functions."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def read_declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [line for lines in project["optional-dependencies"].values() for line in lines]
    return {normalize(re.split(r"[\[<>=~! ]", line, maxsplit=1)[0]) for line in [*project["dependencies"], *optional]}


def normalize(name: str) -> str:
    """The name of a package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.thorough
def test_every_package_that_is_imported_is_declared() -> None:
    """A package that only another one brings may leave with it."""
    providers = packages_distributions()
    used = {name for name in list_imports() if name not in sys.stdlib_module_names and name != "tidings"}
    declared = read_declared()
    undeclared = {name for name in used if declared.isdisjoint(map(normalize, providers.get(name, [name])))}
    assert undeclared == set()


def test_every_declared_package_has_its_licence_and_reason_in_the_docs() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text().lower()
    assert {name for name in read_declared() if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page)} == set()


def test_the_licences_are_those_of_the_installed_packages() -> None:
    """Where a package names its licence by SPDX, the page says the same."""
    page = (ROOT / "docs" / "dependencies.md").read_text().partition("For building, tests")[0]
    named = [(name, row[2]) for row in LICENCE.finditer(page) for name in re.findall(r"[\w-]+", row[1])]
    assert len(named) > 25
    own = {name: metadata(name).get_all("License-Expression") or [] for name, _said in named}
    assert {name: (said, own[name]) for name, said in named if own[name] not in ([], [said])} == {}


Function = ast.FunctionDef | ast.AsyncFunctionDef


def count_lines(function: Function) -> int:
    """The lines of its body without its docstring. Functions inside, such as routes, are counted by themselves."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    inner = sum(count_between(each.decorator_list or [each], each) for each in list_inner(function))
    return count_between(body, function) - inner if body else 0


def count_between(first: Sequence[ast.AST], last: Function) -> int:
    return (last.end_lineno or 0) - getattr(first[0], "lineno", 0) + 1


def list_inner(node: ast.AST) -> Iterator[Function]:
    """The functions directly inside."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        else:
            yield from list_inner(child)


def test_no_file_and_no_function_is_long_without_a_reason() -> None:
    long = set()
    for path in PACKAGE.rglob("*.py"):
        text, name = path.read_text(), path.relative_to(PACKAGE).as_posix()
        if len(text.splitlines()) > LONGEST_FILE:
            long.add(name)
        functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, Function))
        if "/migrations/" not in name:
            long |= {f"{name}:{each.name}" for each in functions if count_lines(each) > LONGEST_FUNCTION}
    assert long - set(LONG_FUNCTIONS) == set()
