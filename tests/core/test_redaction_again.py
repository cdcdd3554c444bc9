"""The redactor at its edges: secrets that come later or again, spellings, cookies, markers."""

import urllib.parse

import pytest

from tidings.core.secrets.patterns import MARKER
from tidings.core.secrets.redaction import Redactor


def test_a_text_that_was_harmless_is_not_once_it_holds_a_new_secret() -> None:
    """A4: a secret is hidden from the moment that it is known, also in a text that has been seen before."""
    redactor = Redactor()
    assert redactor.redact("site abcd-1234-efgh") == "site abcd-1234-efgh"
    redactor.add("abcd-1234-efgh")
    assert redactor.redact("site abcd-1234-efgh") == f"site {MARKER}"


def test_a_secret_that_is_reported_again_changes_nothing() -> None:
    """A4: a site's keys are made known whenever it is loaded."""
    redactor = Redactor(["abcd-1234-efgh"])
    for _ in range(3):
        redactor.add("abcd-1234-efgh")
        assert redactor.redact("abcd-1234-efgh") == MARKER


KNOWN = "hunter2-secret"


def test_a_known_secret_is_recognised_in_any_spelling_and_nothing_else_is() -> None:
    """C23: what only looks like a secret is not one that the program knows."""
    redactor = Redactor([KNOWN])
    for text in (KNOWN, f"a {KNOWN}.", "hunter2%2Dsecret", r"hunter2\u002dsecret", KNOWN.encode().hex()):
        assert redactor.recognises(text)
    for text in ("", "hunter2", "web_session=abcdefgh", MARKER):
        assert not redactor.recognises(text)


def test_a_secret_behind_four_levels_of_escapes_is_found() -> None:
    """C23: a URL in a URL in a URL in a URL."""
    text = "hunter2/secret"
    for _ in range(4):
        text = urllib.parse.quote(text, safe="")
    assert Redactor(["hunter2/secret"]).redact(text) == MARKER


@pytest.mark.parametrize("value", ["abcdefgh12345678", "abcd=fgh12345678="])
def test_each_long_value_of_a_cookie_is_a_secret_by_itself(value: str) -> None:
    """C7: of sixteen characters and more, also with an equals sign inside; shorter ones are too common."""
    redactor = Redactor([f"sid={value}; lang=simplified-zh15; x=1"])
    assert redactor.redact(f"got {value} back") == f"got {MARKER} back"
    assert redactor.redact("got simplified-zh15 back") == "got simplified-zh15 back"


def test_a_secret_that_is_no_valid_unicode_is_hidden_as_well() -> None:
    """C7: nothing that can be a str stops the log."""
    assert Redactor(["hunter2-\ud800-secret"]).redact("a hunter2-\ud800-secret") == f"a {MARKER}"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"{MARKER} x", f"{MARKER} x"),
        (f"{MARKER} and {KNOWN}", f"{MARKER} and {MARKER}"),
        (f"{KNOWN}{MARKER}", f"{MARKER}{MARKER}"),
        (f"{KNOWN}other-known", MARKER),
        (f"{KNOWN}%20x", f"{MARKER}%20x"),
        (f"x%20{KNOWN}", f"x%20{MARKER}"),
    ],
    ids=["marker alone", "marker and secret", "secret and marker", "two secrets", "escape after", "escape before"],
)
def test_markers_and_escapes_beside_a_secret_stay_whole(text: str, redacted: str) -> None:
    """A4: a marker is never taken for a secret, even if its word is one, and an escape is not cut in two."""
    redactor = Redactor([KNOWN, "other-known", "REDACTED"])
    assert redactor.redact(text) == redacted
    assert redactor.redact(redacted) == redacted
