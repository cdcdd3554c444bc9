"""A secret value that cannot print itself. Only `Secret` lives here: encryption is in `keyring`, the replacement of
secrets in text is in `redaction`. Creating a Secret does not register it: the code that loads one must add it to the
redactor.
"""

import hashlib
import hmac
from typing import Final, NoReturn, Self

_SHOWN: Final = "Secret(***)"
# An IndexNow key has at least 8 characters. For a shorter secret, 4 characters would be most of it.
_SHORTEST_WITH_HINT: Final = 8


class Secret:
    """Text that prints as `Secret(***)`; only `reveal()` returns it.

    Immutable and hashable. It refuses to be pickled, and is no `str`, so that JSON refuses it too.
    Copies are the object itself, so `dataclasses.asdict` keeps it closed.
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"a Secret is made of str, not {type(value).__name__}")
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        return self._value

    @property
    def hint(self) -> str:
        """The first 4 characters and `****`; of a secret shorter than 8 characters only `****`."""
        return f"{self._value[:4]}****" if len(self._value) >= _SHORTEST_WITH_HINT else "****"

    @property
    def masked(self) -> str:
        """The mask that an answer shows for every secret. It does not reveal the length."""
        return "****...****"

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits, the same on every machine, to compare two secrets."""
        return hashlib.blake2b(self._encode(), digest_size=6, person=b"tidings.secret").hexdigest()

    def _encode(self) -> bytes:
        return self._value.encode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._encode(), other._encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return _SHOWN

    def __str__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return _SHOWN

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret cannot be changed")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")
