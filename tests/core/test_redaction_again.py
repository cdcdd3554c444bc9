"""The redactor remembers short texts that it has looked at: never longer than is right."""

import pytest

from tidings.core.secrets.patterns import MARKER
from tidings.core.secrets.redaction import Redactor


def test_a_text_that_was_harmless_is_not_once_it_holds_a_new_secret() -> None:
    """A4: a secret is hidden from the moment that it is known, also in a text that has been seen before."""
    redactor = Redactor()
    assert redactor.redact("site abcd-1234-efgh") == "site abcd-1234-efgh"
    redactor.add("abcd-1234-efgh")
    assert redactor.redact("site abcd-1234-efgh") == f"site {MARKER}"


def test_a_secret_that_is_told_again_changes_nothing() -> None:
    """A4: a site's keys are made known whenever it is loaded."""
    redactor = Redactor(["abcd-1234-efgh"])
    for _ in range(3):
        redactor.add("abcd-1234-efgh")
        assert redactor.redact("abcd-1234-efgh") == MARKER


@pytest.mark.parametrize("length", [1, 39, 40, 41, 400])
def test_the_length_of_a_text_makes_no_difference(length: int) -> None:
    """A4: what is remembered and what is not are redacted alike, the first time and the second."""
    redactor = Redactor(["abcd-1234-efgh"])
    text = "x" * length + " abcd-1234-efgh"
    assert [redactor.redact(text) for _ in range(2)] == [f"{'x' * length} {MARKER}"] * 2


def test_what_is_remembered_is_bounded() -> None:
    """A4: thousands of request ids pass through a service that runs for months."""
    redactor = Redactor()
    for number in range(5_000):
        assert redactor.redact(f"req-{number}") == f"req-{number}"
    assert len(redactor._remembered) <= 1_000
