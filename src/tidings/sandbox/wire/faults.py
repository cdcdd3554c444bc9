"""Faults that a stand-in shows on request: what goes wrong (`Fault`), and for which requests (`Faults`). `stand_in` and
`answers` carry them out.

    ValueError
    └── FaultError    a fault in JSON has an unknown field or an invalid value
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any


class FaultError(ValueError):
    """A fault in JSON has an unknown field or an invalid value."""


class FaultKind(StrEnum):
    STATUS = "status"  # answers `status`, `headers`, `body` without looking at the request
    SLOW = "slow"  # answers as always, after `latency`
    HANG = "hang"  # never answers, until the client goes away or the stand-in is closed
    RESET = "reset"  # resets the connection (RST) without looking at the request
    RESET_AFTER_ACCEPTING = "reset_after_accepting"  # processes the request as always, then closes without an answer
    DRIP = "drip"  # sends the body in pieces of `drip_bytes`, `drip_pause` apart
    TRUNCATE = "truncate"  # promises the whole body, sends half of it and closes


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and the requests that it hits."""

    kind: FaultKind = FaultKind.STATUS
    _: KW_ONLY
    # The answer of the kind STATUS.
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    # How many requests are hit. None: all until recovery.
    times: int | None = None
    # Hit each n-th matching request.
    every: int = 1
    # Skip this many matching requests first.
    after: int = 0
    # Only requests with a URL, keyword or note that contains this text.
    matching: str | None = None
    # Only requests to this path.
    path: str | None = None
    # How long to wait before anything else, for every kind.
    latency: timedelta = timedelta(0)
    # The size of a piece of the kind DRIP, and the pause between two.
    drip_bytes: int = 256
    drip_pause: timedelta = timedelta(milliseconds=20)

    def fits(self, *, path: str, urls: Sequence[str]) -> bool:
        if self.path is not None and self.path != path:
            return False
        return self.matching is None or any(self.matching in url for url in urls)


class Faults:
    """The faults of one stand-in, with the number of requests that matched each."""

    def __init__(self) -> None:
        self._armed: list[_ArmedFault] = []

    def arm(self, fault: Fault) -> None:
        self._armed.append(_ArmedFault(fault))

    def clear(self) -> None:
        self._armed.clear()

    def strike(self, *, path: str, urls: Sequence[str]) -> Fault | None:
        """The fault that hits this request: the oldest of those that apply. None where none does."""
        due = [armed for armed in self._armed if armed.fault.fits(path=path, urls=urls) and armed.meet()]
        if not due:
            return None
        due[0].fired += 1
        return due[0].fault


@dataclass(slots=True)
class _ArmedFault:
    fault: Fault
    met: int = 0
    fired: int = 0

    def meet(self) -> bool:
        """Count one more matching request. Returns whether the fault hits it."""
        self.met += 1
        number = self.met - self.fault.after
        spent = self.fault.times is not None and self.fired >= self.fault.times
        return number > 0 and number % self.fault.every == 0 and not spent


def parse_fault(document: object, *, named: Mapping[str, Fault] | None = None) -> Fault:
    """A fault from JSON: fields of `Fault` by name, durations in seconds. Raises FaultError.

    `named`: faults that the field `name` may begin with.
    """
    if not isinstance(document, dict):
        raise FaultError("a fault is a JSON object")
    given = dict(document)
    start = Fault()
    if (name := given.pop("name", None)) is not None:
        if named is None or name not in named:
            raise FaultError(f"name: it must be one of {', '.join(sorted(named or ())) or 'none'}")
        start = named[name]
    return replace(start, **{name: _parse_field(name, value) for name, value in given.items()})


def _parse_field(name: str, value: object) -> Any:
    if name not in _FIELDS:
        raise FaultError(f"{name} is not a field of a fault")
    try:
        return _FIELDS[name](value)
    except (TypeError, ValueError) as error:
        raise FaultError(f"{name}: {error}") from None


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("must be a text")
    return value


def _parse_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("must be a whole number from 0")
    return value


def _parse_positive(value: object) -> int:
    if _parse_count(value) == 0:
        raise ValueError("must be at least 1")
    return _parse_count(value)


def _parse_seconds(value: object) -> timedelta:
    if not isinstance(value, int | float) or not 0 <= value <= 3600:
        raise ValueError("must be a number of seconds from 0 to 3600")
    return timedelta(seconds=value)


def _parse_headers(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError("must be an object of texts")
    return {_parse_text(name): _parse_text(text) for name, text in value.items()}


_FIELDS: dict[str, Callable[[object], object]] = {
    "kind": lambda value: FaultKind(_parse_text(value)),
    "status": _parse_positive,
    "headers": _parse_headers,
    "body": _parse_text,
    "times": lambda value: None if value is None else _parse_count(value),
    "every": _parse_positive,
    "after": _parse_count,
    "matching": _parse_text,
    "path": _parse_text,
    "latency": _parse_seconds,
    "drip_bytes": _parse_positive,
    "drip_pause": _parse_seconds,
}
