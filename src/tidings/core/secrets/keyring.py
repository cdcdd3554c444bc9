"""The key ring encrypts and decrypts every secret at rest, with AES-256-GCM. It derives one key for each purpose from
the master keys. The place of a value (table, column, row) and its key's id are authenticated with it: a ciphertext that
was moved to another row cannot be decrypted. `master_key` makes and judges master keys, and has the tree of errors.

    blob = version (1 byte, 0x01) ‖ nonce (12 bytes, random) ‖ ciphertext and tag

Random nonces are safe for about 2^32 values under one key and purpose. Fernet tokens (AES-128) are read for cookies
that another program stored, and never written. Their key is the master key itself, its SHA-256, or its PBKDF2 with a
given salt. They carry no place, so `needs_rotation` asks to encrypt them again.
"""

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn, Self

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tidings.core.secrets.master_key import KeyRingError, MalformedKeyError, decode_master_key
from tidings.core.secrets.secret import Secret

_VERSION: Final = b"\x01"
_NONCE_SIZE: Final = 12
_TAG_SIZE: Final = 16
# Fernet has no purpose, so a cookie's token could be moved into the key of a site.
_FERNET_PURPOSE: Final = "cookie"
_FERNET_PREFIX: Final = b"gAAAA"
_FERNET_KEY_SIZE: Final = 32
_DEFAULT_ID: Final = "k1"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")


class UnknownKeyError(KeyRingError):
    """A value was encrypted with a key that this ring does not have."""


class DecryptionError(KeyRingError):
    """The value was altered, moved from another place, or is not for this purpose or key."""


@dataclass(frozen=True, slots=True)
class _Place:
    purpose: str
    table: str
    column: str
    row: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} of row {self.row!r}"

    def encode(self, *, key_id: str) -> bytes:
        """The associated data. Each part has its length in front: `a, bc` and `ab, c` differ."""
        parts = [text.encode("utf-8", "surrogatepass") for text in (key_id, self.table, self.column, self.row)]
        return _VERSION + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@dataclass(frozen=True, slots=True, repr=False)
class _MasterKey:
    id: str
    text: str
    material: bytes


@dataclass(frozen=True, slots=True)
class FernetSalt:
    """How another program derived its Fernet key from a master key by PBKDF2-HMAC-SHA256."""

    salt: str
    iterations: int


class KeyRing:
    """Master keys by id. The first encrypts, all decrypt."""

    def __init__(self, keys: list[_MasterKey], *, fernet_salt: FernetSalt | None = None) -> None:
        self._keys = {key.id: key for key in keys}
        self._fernet_salt = fernet_salt
        self._fernets: dict[str, MultiFernet] = {}
        self._current = keys[0]
        self._ciphers: dict[tuple[str, str], AESGCM] = {}

    @classmethod
    def parse(cls, text: str | Secret, *, fernet_salt: FernetSalt | None = None) -> Self:
        """A ring from `k2:…,k1:…` or from one bare key, whose id is then `k1`. `fernet_salt`: of another program.

        Raises WeakKeyError or MalformedKeyError.
        """
        return cls(_parse_keys(text.reveal() if isinstance(text, Secret) else text), fernet_salt=fernet_salt)

    @property
    def current_id(self) -> str:
        return self._current.id

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Each key as it was written, for the redactor."""
        return tuple(Secret(key.text.rstrip("=")) for key in self._keys.values())

    def needs_rotation(self, key_id: str, *, blob: bytes | str | None = None) -> bool:
        """Whether a value should be encrypted again: its key is an older one or, with the blob given, it is Fernet."""
        return key_id != self.current_id or (blob is not None and _is_fernet(_to_bytes(blob)))

    def encrypt(self, plaintext: str | Secret, *, purpose: str, table: str, column: str, row: str) -> tuple[bytes, str]:
        """The blob for exactly this place, and the id of the key, to be kept beside it."""
        key, place = self._current, _Place(purpose, table, column, row)
        value = plaintext.reveal() if isinstance(plaintext, Secret) else plaintext
        nonce = os.urandom(_NONCE_SIZE)
        cipher = self._derive_cipher(key, purpose=purpose)
        sealed = cipher.encrypt(nonce, value.encode("utf-8", "surrogatepass"), place.encode(key_id=key.id))
        return _VERSION + nonce + sealed, key.id

    def decrypt(self, blob: bytes | str, *, key_id: str, purpose: str, table: str, column: str, row: str) -> Secret:
        """The secret that was encrypted for this place. Raises UnknownKeyError or DecryptionError."""
        place, data = _Place(purpose, table, column, row), _to_bytes(blob)
        key = self._find_key(key_id, place=place)
        may_be_fernet = purpose == _FERNET_PURPOSE and _is_fernet(data)
        opened = self._open_fernet(data, key=key) if may_be_fernet else self._open_blob(data, key=key, place=place)
        if opened is None:
            reason = "altered, moved from another row, or made for another purpose"
            raise DecryptionError(f"cannot decrypt {place} with key {key_id!r}: {reason}")
        return _decode_text(opened, place=place)

    def _find_key(self, key_id: str, *, place: _Place) -> _MasterKey:
        if key := self._keys.get(key_id):
            return key
        known = ", ".join(self._keys)
        raise UnknownKeyError(f"{place} is encrypted with key {key_id!r}, which is not in the key ring ({known})")

    def _open_blob(self, data: bytes, *, key: _MasterKey, place: _Place) -> bytes | None:
        if data[:1] != _VERSION or len(data) < 1 + _NONCE_SIZE + _TAG_SIZE:
            return None
        nonce, sealed = data[1 : 1 + _NONCE_SIZE], data[1 + _NONCE_SIZE :]
        try:
            return self._derive_cipher(key, purpose=place.purpose).decrypt(nonce, sealed, place.encode(key_id=key.id))
        except InvalidTag:
            return None

    def _open_fernet(self, data: bytes, *, key: _MasterKey) -> bytes | None:
        if key.id not in self._fernets:
            # Computed once, because PBKDF2 is slow on purpose.
            keys = map(base64.urlsafe_b64encode, _list_fernet_keys(key, self._fernet_salt))
            self._fernets[key.id] = MultiFernet([Fernet(each) for each in keys])
        try:
            return self._fernets[key.id].decrypt(data)
        except InvalidToken:
            return None

    def derive_key(self, purpose: str) -> bytes:
        """A key for keyed hashes, from the oldest master key, so that a new master key does not change the hashes."""
        oldest = list(self._keys.values())[-1]
        info = b"tidings/1/hmac-sha256/" + purpose.encode()
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(oldest.material)

    def _derive_cipher(self, key: _MasterKey, *, purpose: str) -> AESGCM:
        cipher = self._ciphers.get((key.id, purpose))
        if cipher is None:
            info = b"tidings/1/aes-256-gcm/" + purpose.encode()
            cipher = AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key.material))
            self._ciphers[key.id, purpose] = cipher
        return cipher

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a KeyRing cannot be pickled")


def _parse_keys(text: str) -> list[_MasterKey]:
    entries = [entry.strip() for entry in text.split(",")]
    if len(entries) == 1 and ":" not in text:
        return [_MasterKey(_DEFAULT_ID, entries[0], decode_master_key(entries[0]))]
    keys = [_parse_entry(entry, number=number) for number, entry in enumerate(entries, start=1)]
    if len({key.id for key in keys}) < len(keys):
        raise MalformedKeyError("the key ring names one id twice; every key needs an id of its own")
    return keys


def _parse_entry(entry: str, *, number: int) -> _MasterKey:
    key_id, colon, text = (part.strip() for part in entry.partition(":"))
    # The entry is not shown: without a colon it is the key itself.
    if not colon or not _ID.fullmatch(key_id):
        raise MalformedKeyError(f"entry {number} of the key ring is not id:key, as in k2:KEY,k1:KEY")
    return _MasterKey(key_id, text, decode_master_key(text, name=f"master key {key_id}"))


def _decode_text(opened: bytes, *, place: _Place) -> Secret:
    try:
        return Secret(opened.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        # Reached only for another program's Fernet token. `from None`, because the cause holds the content.
        raise DecryptionError(f"cannot decrypt {place}: what was encrypted is not text") from None


def _to_bytes(blob: bytes | str) -> bytes:
    return blob.encode("utf-8", "replace") if isinstance(blob, str) else bytes(blob)


def _is_fernet(data: bytes) -> bool:
    return data.startswith(_FERNET_PREFIX)


def _list_fernet_keys(key: _MasterKey, salt: FernetSalt | None) -> Iterator[bytes]:
    """The Fernet keys that programs derive from a master key, the cheap ones first: itself, its SHA-256, its PBKDF2."""
    text = key.text.encode()
    if len(key.material) == _FERNET_KEY_SIZE:
        yield key.material
    yield hashlib.sha256(text).digest()
    if salt is not None:
        yield hashlib.pbkdf2_hmac("sha256", text, salt.salt.encode(), salt.iterations, dklen=_FERNET_KEY_SIZE)
