"""Writes which tests prove each requirement into docs/requirements.md.

A test proves a requirement when its docstring names the number (`A12`, `C5`). The page holds the requirements' texts,
which people write, and below each a line `Proof:`, which this script writes. `tests/test_requirements.py` fails when
the page is out of date.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "requirements.md"
NOT_BUILT = "Proof: none yet; this is not built."

_NUMBER = re.compile(r"\b[AC][1-9]\d?\b")
_HEADING = re.compile(r"^### ([AC]\d+)\b", re.MULTILINE)
_PROOF = re.compile(r"^Proof: .*$", re.MULTILINE)


def list_tests(root: Path = ROOT) -> Iterator[tuple[str, str, str]]:
    """Every test as (file, name, docstring). The docstring of a module or class counts for each test in it."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        yield from _list_tests_of(ast.parse(path.read_text()), path.relative_to(root).as_posix())


def _list_tests_of(node: ast.Module | ast.ClassDef, file: str) -> Iterator[tuple[str, str, str]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _list_tests_of(child, file)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test_"):
            yield file, child.name, ast.get_docstring(child) or ""


def find_proofs(root: Path = ROOT) -> dict[str, dict[str, int]]:
    """For each requirement, the files with tests that name it, and how many tests in each do."""
    proofs: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for file, _, docstring in list_tests(root):
        for number in set(_NUMBER.findall(docstring)):
            proofs[number][file] = proofs[number].get(file, 0) + 1
    return dict(proofs)


def write_proofs(page: str, proofs: Mapping[str, Mapping[str, int]]) -> str:
    """The page with a current `Proof:` line in each requirement's section."""
    parts = _HEADING.split(page)
    written = [parts[0]]
    for number, section in zip(parts[1::2], parts[2::2], strict=True):
        written += [f"### {number}", _PROOF.sub(_describe_proof(proofs.get(number, {})), section, count=1)]
    return "".join(written)


def list_requirements(page: str) -> list[str]:
    """The numbers that have a section of their own."""
    return _HEADING.findall(page)


def _describe_proof(files: Mapping[str, int]) -> str:
    if not files:
        return NOT_BUILT
    most_first = sorted(files.items(), key=lambda item: (-item[1], item[0]))
    return "Proof: " + ", ".join(f"`{file}` ({count})" for file, count in most_first)


if __name__ == "__main__":
    PAGE.write_text(write_proofs(PAGE.read_text(), find_proofs()))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is up to date\n")
