"""A master key as people handle it: text in a setting or a file. This module makes, checks and decodes such a key, and
keeps it in the data directory. `keyring` encrypts with it.

    KeyRingError
    ├── WeakKeyError         guessable, too short, or no key at all
    ├── MalformedKeyError    not a list of id:key
    ├── KeyFileError         the key file cannot be used
    ├── UnknownKeyError      (keyring)
    └── DecryptionError      (keyring)

No message contains any part of a key.
"""

import base64
import contextlib
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

_SHORTEST: Final = 32
_MOST_READ: Final = 64 * 1024
_ADVICE: Final = "make a good one with: tidings keys new"
# Six letters or more: a shorter word turns up in good random keys too often.
_PLACEHOLDERS: Final = (
    "change", "replace", "insert", "example", "sample", "default", "dummykey", "placeholder", "secret", "password",
    "master", "tidings", "cookie", "testtest", "testkey", "demodemo", "foobar", "qwerty", "letmein", "admin123",
    "123456", "abcdef", "zyxwvu", "xxxxxx",
)  # fmt: skip


class KeyRingError(Exception):
    """A master key, or a value that it should decrypt, is wrong."""


class WeakKeyError(KeyRingError):
    """The key could be guessed. The message says why and how to make a good one."""


class MalformedKeyError(KeyRingError):
    """A key ring that is not one key and not a list of `id:key` either."""


class KeyFileError(KeyRingError):
    """The key file cannot be used. The message says what to do."""


def new_master_key() -> str:
    """32 random bytes as urlsafe base64, the form of Fernet keys."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(_SHORTEST)).decode()
        # One random key in some millions contains a placeholder word.
        with contextlib.suppress(WeakKeyError):
            decode_master_key(text)
            return text


def decode_master_key(text: str, *, name: str = "the master key") -> bytes:
    """The material of a key given as base64 (either alphabet, padded or not) or hexadecimal. Raises WeakKeyError."""
    body = text.strip().rstrip("=")
    material = _decode(body)
    reason = "it is neither base64 nor hexadecimal" if material is None else _find_weakness(body, material)
    if material is None or reason:
        raise WeakKeyError(f"{name} is weak: {reason}; {_ADVICE}")
    return material


def _decode(body: str) -> bytes | None:
    # Hexadecimal digits are base64 letters too; read as base64, 24 bytes of hexadecimal would pass for 36.
    if re.fullmatch(r"[0-9A-Fa-f]+", body):
        return bytes.fromhex(body if len(body) % 2 == 0 else body[:-1])
    try:
        standard = body.replace("-", "+").replace("_", "/")
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except ValueError:
        return None


def _find_weakness(body: str, material: bytes) -> str | None:
    if len(material) < _SHORTEST:
        return f"it has {len(material)} bytes, and {_SHORTEST} are needed"
    # Of 32 random bytes about 30 differ; in 200,000 keys the fewest were 23.
    if len(set(material)) < 18:
        return "it repeats a few characters"
    if _is_sequence(material) or _is_sequence([ord(letter) for letter in body]):
        return "it is a sequence"
    if any(word in body.lower() for word in _PLACEHOLDERS):
        return "it contains a well-known word"
    # Random base64 without a capital, or without a small letter, comes once in a thousand million.
    if not re.fullmatch(r"[0-9A-Fa-f]+", body) and (body == body.lower() or body == body.upper()):
        return "it reads like words, not like random bytes"
    return None


def _is_sequence(values: Sequence[int]) -> bool:
    """Whether most values follow from the one before by the same step."""
    steps = Counter(after - before for before, after in pairwise(values))
    return steps.most_common(1)[0][1] * 2 > len(values)


def load_or_create_key_file(
    path: Path, *, make: Callable[[], str] = new_master_key, setting: str = "COOKIE_MASTER_KEY"
) -> tuple[str, bool]:
    """The key of this file, and whether it was just created. `setting`: the variable that can hold the key instead.

    The file is 0600 under any umask and is never seen half written: of several processes that start at once, one
    makes the key and all get it. Raises KeyFileError for a file that is empty, readable by others, of
    another user, or out of reach.
    """
    try:
        return _read_key_file(path), False
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _refuse(path, f"cannot be read ({error.strerror})", advice="give this user access to it") from None
    try:
        created = _create_key_file(path, make())
        return _read_key_file(path), created
    except OSError as error:
        advice = f"make the directory writable, or set {setting}"
        raise _refuse(path, f"cannot be made ({error.strerror})", advice=advice) from None


def _read_key_file(path: Path) -> str:
    # Without O_NONBLOCK a named pipe in this place would hold the start for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_file(path, os.fstat(descriptor))
        content = os.read(descriptor, _MOST_READ).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if not content:
        advice = "restore it from a backup; remove it only if nothing was encrypted yet"
        raise _refuse(path, "is empty", advice=advice)
    return content


def is_trusted_owner(uid: int) -> bool:
    """Whether files of this user may be used: ours, or root's, who can read everything anyway."""
    return uid in (0, os.geteuid())


def _check_file(path: Path, status: os.stat_result) -> None:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        raise _refuse(path, "is not a file", advice="move it away")
    if not is_trusted_owner(status.st_uid):
        advice = f"if nobody else read it: chown {os.geteuid()} {path}; else make a new key"
        raise _refuse(path, f"belongs to another user (uid {status.st_uid})", advice=advice)
    if mode & 0o077:
        raise _refuse(path, "is open to others", advice=f"if nobody read it: chmod 600 {path}; else make a new key")


def _create_key_file(path: Path, text: str) -> bool:
    """Whether this process's key became the file; False if another process was first."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_durably(draft, text + "\n")
        # A link, unlike a rename, fails when the name is taken, and shows the whole file or none.
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
        sync_directory(path.parent)
    return True


def _write_durably(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Sync the directory, so that its file names survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse(path: Path, problem: str, *, advice: str) -> KeyFileError:
    return KeyFileError(f"the key file {path} {problem}; {advice}")
