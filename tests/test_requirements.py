"""The requirements in the repository: each is proved by a test that names it, and each number in a test leads there."""

import re

from scripts.requirements import NOT_BUILT, PAGE, find_proofs, list_requirements, list_tests, write_proofs

ACCEPTANCE_ROW = re.compile(r"^\| .* \| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)


def test_the_page_names_the_tests_that_prove_each_requirement() -> None:
    """`python -m scripts.requirements` brings the page up to date."""
    page = PAGE.read_text()
    assert page == write_proofs(page, find_proofs())


def test_every_number_in_a_test_is_a_requirement() -> None:
    assert set(find_proofs()) <= set(list_requirements(PAGE.read_text()))


def test_the_page_has_every_requirement_once_and_in_order() -> None:
    numbers = list_requirements(PAGE.read_text())
    assert numbers == [*(f"A{n}" for n in range(1, 48)), *(f"C{n}" for n in range(1, 36))]


def test_a_requirement_without_a_test_says_that_it_is_not_built() -> None:
    page = write_proofs("### A1\n\nText.\n\nProof: `tests/test_gone.py` (1)\n", {})
    assert page == f"### A1\n\nText.\n\n{NOT_BUILT}\n"


def test_every_line_of_the_acceptance_list_names_a_test_that_exists() -> None:
    rows = ACCEPTANCE_ROW.findall(PAGE.read_text())
    assert len(rows) == 17
    assert set(rows) <= {(file, name) for file, name, _ in list_tests()}
