"""Whether keys and tokens are good enough: the master key by the rules of `master_key`, the tokens of the settings by
those of this module. Tokens that Tidings has made are always good, and only their digests are stored.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidings.audit.report import Check, CheckName, Notes
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.secret import Secret

_SHORTEST_TOKEN: Final = 16
_FEWEST_LETTERS: Final = 8
_MOST_READ: Final = 64 * 1024
# What is left of a token without these is what somebody would have to guess.
_WORDS: Final = re.compile(
    "change|replace|insert|your|this|here|please|example|sample|default|dummy|placeholder|secret|password|passwd|pass|"
    "token|bearer|master|admin|root|user|tidings|cookie|crawl|workflow|metrics|test|demo|local|dev|prod|api|key|me|my|"
    "postgresql|postgres|foobar|foo|bar|qwerty|letmein|welcome|1234567890|0123456789|123456789|12345678|1234567|123456|12345|1234|123|"
    r"abcdefgh|abcdef|abcd|abc|20\d\d|[^a-z0-9]"
)


@dataclass(frozen=True, slots=True)
class MasterKey:
    """The master key: as it is written, and as a ring where it can be one."""

    text: Secret | None = None
    ring: KeyRing | None = None

    @property
    def secrets(self) -> Sequence[Secret]:
        """Each key by itself."""
        if self.ring is not None:
            return self.ring.secrets
        return () if self.text is None else (self.text,)


def check_master_key(
    given: Secret | None, *, data_dir: Path, database: Path | None, notes: Notes
) -> tuple[Check, MasterKey]:
    """How good the key is, and whether it lies on the disk of the data (`database` is SQLite's file); and the key.

    It is the one of the settings, or else that of the data directory. None is made here.
    """
    path = data_dir / "master.key"
    in_file = given is None and path.is_file()
    where = str(path) if in_file else "COOKIE_MASTER_KEY"
    text, ring = given, None
    try:
        text = _read_key(path) if in_file else given
        ring = None if text is None else KeyRing.parse(text)
    except KeyRingError as error:
        notes.find(where, str(error))
    except OSError as error:
        notes.find(where, f"it cannot be read ({error.strerror})")
    if in_file and database is not None and _are_on_one_disk(path, database):
        notes.warn(where, "key and data lie on one disk: who takes the one has the other; set COOKIE_MASTER_KEY")
    covered = "there is no master key yet" if text is None else f"{where}, {0 if ring is None else len(ring.ids)} keys"
    return notes.close(CheckName.MASTER_KEY, covered), MasterKey(text, ring)


def _read_key(path: Path) -> Secret:
    # Its mode is not minded here: a key that others can read is still the one to look for.
    with path.open("rb") as file:
        return Secret(file.read(_MOST_READ).decode("ascii", "replace").strip())


def _are_on_one_disk(first: Path, second: Path) -> bool:
    return second.exists() and first.stat().st_dev == second.stat().st_dev


def check_tokens(tokens: Mapping[str, Secret], *, notes: Notes) -> Check:
    """Whether the tokens of the settings could be guessed; a finding calls each by its name in `tokens`."""
    seen: dict[Secret, str] = {}
    for name, token in tokens.items():
        if weakness := find_weakness(token.reveal()):
            notes.find(name, weakness)
        if token in seen:
            notes.warn(name, f"it is the same as {seen[token]}, so whoever has one has both")
        seen.setdefault(token, name)
    return notes.close(CheckName.TOKENS, f"{len(tokens):,} tokens of the settings")


def find_weakness(token: str) -> str | None:
    """Why a token could be guessed; None for a good one."""
    if len(token) < _SHORTEST_TOKEN:
        return f"it has fewer than {_SHORTEST_TOKEN} characters"
    if len(set(token)) < _FEWEST_LETTERS:
        return "it repeats a few characters"
    return "it is made of well-known words" if is_made_of_words(token) else None


def is_made_of_words(text: str) -> bool:
    """Whether little is left of it without well-known words: it can be guessed, and is in ordinary texts, too."""
    return len(_WORDS.sub("", text.lower())) < _FEWEST_LETTERS
