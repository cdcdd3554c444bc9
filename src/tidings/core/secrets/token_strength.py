"""Judges tokens that people choose. Tokens that Tidings makes have 256 random bits."""

import re
from typing import Final

_SHORTEST: Final = 16
_FEWEST_LETTERS: Final = 8
# An attacker has to guess only the part of a token without these words.
_WORDS: Final = re.compile(
    "change|replace|insert|your|this|here|please|example|sample|default|dummy|placeholder|secret|password|passwd|pass|"
    "token|bearer|master|admin|root|user|tidings|cookie|crawl|workflow|metrics|test|demo|local|dev|prod|api|key|me|my|"
    "postgresql|postgres|foobar|foo|bar|qwerty|letmein|welcome|1234567890|0123456789|123456789|12345678|1234567|123456|12345|1234|123|"
    r"abcdefgh|abcdef|abcd|abc|20\d\d|[^a-z0-9]"
)


def find_token_weakness(token: str) -> str | None:
    """Why a token can be guessed. None for a strong one."""
    if len(token) < _SHORTEST:
        return f"it has fewer than {_SHORTEST} characters"
    if len(set(token)) < _FEWEST_LETTERS:
        return "it repeats a few characters"
    return "it is made of well-known words" if is_made_of_words(token) else None


def is_made_of_words(text: str) -> bool:
    """Whether well-known words make up nearly all of a text. It can then be guessed, and occurs in ordinary texts."""
    return len(_WORDS.sub("", text.lower())) < _FEWEST_LETTERS
