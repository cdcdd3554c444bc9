"""Secret: it cannot print itself, and nothing gives it away by accident."""

import copy
import dataclasses
import json
import pickle
from string import Template

import pytest

from tidings.core.secrets.secret import Secret

CANARY = "canary-5ecret-0123456789"


@dataclasses.dataclass(frozen=True)
class ProcessLock:
    name: str
    key: Secret


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(repr, id="repr"),
        pytest.param(str, id="str"),
        pytest.param("{}".format, id="format"),
        pytest.param("{:>40}".format, id="format with a width"),
        pytest.param(lambda secret: "%s %r" % (secret, secret), id="percent"),  # noqa: UP031 - this way is tested too
        pytest.param(lambda secret: Template("$s").substitute(s=secret), id="template"),
        pytest.param(lambda secret: repr([secret, {"a": secret}]), id="inside containers"),
        pytest.param(lambda secret: repr(ProcessLock("x", secret)), id="inside a dataclass"),
        pytest.param(lambda secret: repr(dataclasses.asdict(ProcessLock("x", secret))), id="asdict"),
        pytest.param(lambda secret: json.dumps({"a": secret}, default=str), id="json with default"),
    ],
)
def test_a_secret_shows_only_stars(shown: object) -> None:
    """A4, C7: everything that turns a Secret into text gets `Secret(***)`."""
    assert callable(shown)
    text = shown(Secret(CANARY))
    assert "Secret(***)" in text
    assert CANARY not in text


def test_only_reveal_gives_the_secret_away() -> None:
    """C7: one way out, and it has a telling name."""
    assert Secret(CANARY).reveal() == CANARY
    with pytest.raises(TypeError):
        vars(Secret(CANARY))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_cannot_be_pickled(protocol: int) -> None:
    """C7: no cookie in clear in a queue or a cache."""
    with pytest.raises(TypeError, match=r"^a Secret cannot be pickled$"):
        pickle.dumps(Secret(CANARY), protocol=protocol)
    with pytest.raises(TypeError, match=r"^a Secret cannot be pickled$"):
        Secret(CANARY).__getstate__()


def test_json_refuses_a_secret() -> None:
    """C7: never in a response."""
    with pytest.raises(TypeError) as caught:
        json.dumps({"key": Secret(CANARY)})
    assert CANARY not in str(caught.value)


def test_copies_are_the_same_closed_secret() -> None:
    """C7: copying takes no way around."""
    secret = Secret(CANARY)
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret


def test_a_secret_cannot_be_changed() -> None:
    """C7: what was registered for redaction stays what it is."""
    secret = Secret(CANARY)
    with pytest.raises(AttributeError, match=r"^a Secret cannot be changed$"):
        secret._value = "other"
    with pytest.raises(AttributeError, match=r"^a Secret cannot be changed$"):
        del secret._value
    assert secret.reveal() == CANARY


def test_secrets_are_equal_by_value_and_never_equal_to_text() -> None:
    """C7: a comparison with a plain string fails closed."""
    assert Secret(CANARY) == Secret(CANARY)
    assert Secret(CANARY) != Secret(CANARY + "x")
    assert Secret(CANARY) != CANARY
    assert len({Secret(CANARY), Secret(CANARY), Secret("other")}) == 2
    assert Secret("\ud800") == Secret("\ud800")
    assert not Secret("")
    assert Secret("x")
    # A dictionary of secrets stays quick: their hashes spread.
    assert len({hash(Secret(str(number))) for number in range(100)}) > 90


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("abcd1234", "abcd****"),
        ("abcd1234-5678-90ab", "abcd****"),
        ("abcd123", "****"),
        ("abcd", "****"),
        ("", "****"),
    ],
)
def test_hint_shows_four_characters_of_a_key_and_nothing_of_less(text: str, hint: str) -> None:
    """A4: logs show only the first 4 characters of an IndexNow key."""
    assert Secret(text).hint == hint


def test_masked_tells_not_even_the_length() -> None:
    """A4: masked in every response as `****...****`."""
    assert Secret(CANARY).masked == Secret("x").masked == "****...****"


def test_fingerprint_identifies_without_revealing() -> None:
    """C7: two secrets can be distinguished in a report; the digest is short and the same on every machine."""
    fingerprint = Secret(CANARY).fingerprint
    assert fingerprint == Secret(CANARY).fingerprint == "625c53cad88f"
    assert fingerprint != Secret(CANARY + "x").fingerprint
    assert fingerprint not in CANARY


@pytest.mark.parametrize("value", [None, 5, b"bytes", Secret("inner")])
def test_a_secret_is_made_of_text_only(value: object) -> None:
    """C7: the refusal names the type and not the value."""
    with pytest.raises(TypeError) as caught:
        Secret(value)  # type: ignore[arg-type]
    assert str(caught.value) == f"a Secret is made of str, not {type(value).__name__}"
