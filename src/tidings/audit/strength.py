"""Checks the strength of the master key, by the rules of `core.secrets.master_key`, and of the tokens in the settings.
Tokens made by Tidings are strong, and the database holds only their digests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidings.audit.report import Check, CheckBuilder, CheckName, count_things
from tidings.core.secrets.keyring import FernetSalt, KeyRing
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.token_strength import find_token_weakness

_MOST_READ: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class AuditedMasterKey:
    """The master key that the audit found."""

    # As it is written. None where there is no key yet.
    text: Secret | None = None
    # None where the text is not a valid key ring.
    ring: KeyRing | None = None

    @property
    def secrets(self) -> Sequence[Secret]:
        """Each key of the ring."""
        if self.ring is not None:
            return self.ring.secrets
        return () if self.text is None else (self.text,)


def check_master_key(
    given: Secret | None,
    *,
    fernet_salt: FernetSalt | None,
    data_dir: Path,
    database: Path | None,
    check: CheckBuilder,
) -> tuple[Check, AuditedMasterKey]:
    """Check the key of the settings, or else of the data directory. Makes none.

    A key on the disk of the data is a hint. `database` is SQLite's file.
    """
    path = data_dir / "master.key"
    in_file = given is None and path.is_file()
    where = str(path) if in_file else "COOKIE_MASTER_KEY"
    text, ring = given, None
    try:
        text = _read_key(path) if in_file else given
        ring = None if text is None else KeyRing.parse(text, fernet_salt=fernet_salt)
    except KeyRingError as error:
        check.find(where, str(error))
    except OSError as error:
        check.find(where, f"it cannot be read ({error.strerror})")
    if in_file and database is not None and _are_on_one_disk(path, database):
        check.warn(where, "key and data lie on one disk: a thief of one has both; set COOKIE_MASTER_KEY")
    keys = count_things(0 if ring is None else len(ring.ids), "key")
    covered = "there is no master key yet" if text is None else f"{where}, {keys}"
    return check.build(CheckName.MASTER_KEY, covered), AuditedMasterKey(text, ring)


def _read_key(path: Path) -> Secret:
    # With any mode: a key that others can read is still the one to search for.
    with path.open("rb") as file:
        return Secret(file.read(_MOST_READ).decode("ascii", "replace").strip())


def _are_on_one_disk(first: Path, second: Path) -> bool:
    return second.exists() and first.stat().st_dev == second.stat().st_dev


def check_tokens(tokens: Mapping[str, Secret], *, check: CheckBuilder) -> Check:
    """Check whether the tokens of the settings can be guessed. A finding uses the names in `tokens`."""
    seen: dict[Secret, str] = {}
    for name, token in tokens.items():
        if weakness := find_token_weakness(token.reveal()):
            check.find(name, weakness)
        if token in seen:
            check.warn(name, f"it equals {seen[token]}, so both open the same doors")
        seen.setdefault(token, name)
    return check.build(CheckName.TOKENS, f"{len(tokens):,} tokens of the settings")
