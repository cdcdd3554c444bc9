"""Faults that a stand-in shows on request: what goes wrong (`Fault`), and for which requests. `stand_in` and
`answers` carry them out.

    ValueError
    └── FaultError    a fault in JSON has an unknown field or an invalid value
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

Seconds = Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(hours=1), strict=False)]


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

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    kind: FaultKind = FaultKind.STATUS
    _: KW_ONLY
    # The answer of the kind STATUS.
    status: PositiveInt = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    # How many requests are hit. None: all until recovery.
    times: NonNegativeInt | None = None
    # Hit each n-th matching request.
    every: PositiveInt = 1
    # Skip this many matching requests first.
    after: NonNegativeInt = 0
    # Only requests with a URL, keyword or note that contains this text.
    matching: str | None = None
    # Only requests to this path.
    path: str | None = None
    # How long to wait before anything else, for every kind.
    latency: Seconds = timedelta(0)
    # The size of a piece of the kind DRIP, and the pause between two.
    drip_bytes: PositiveInt = 256
    drip_pause: Seconds = timedelta(milliseconds=20)

    def fits(self, *, path: str, urls: Sequence[str]) -> bool:
        if self.path is not None and self.path != path:
            return False
        return self.matching is None or any(self.matching in url for url in urls)


@dataclass(slots=True)
class ArmedFault:
    """A fault of one stand-in, and how many requests it fitted and hit."""

    fault: Fault
    met: int = 0
    fired: int = 0

    def meet(self) -> bool:
        """Count one more matching request. Returns whether the fault hits it."""
        self.met += 1
        number = self.met - self.fault.after
        spent = self.fault.times is not None and self.fired >= self.fault.times
        return number > 0 and number % self.fault.every == 0 and not spent


def strike(armed: Sequence[ArmedFault], *, path: str, urls: Sequence[str]) -> Fault | None:
    """The fault that hits this request: the oldest of those that apply. None where none does."""
    due = [each for each in armed if each.fault.fits(path=path, urls=urls) and each.meet()]
    if not due:
        return None
    due[0].fired += 1
    return due[0].fault


_reader = TypeAdapter(Fault)


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
    try:
        read = _reader.validate_json(json.dumps(given))
    except ValidationError as error:
        raise FaultError(describe_errors(error)) from None
    return replace(start, **{name: getattr(read, name) for name in given})


def describe_errors(error: ValidationError) -> str:
    """One line: each field that is wrong, and its rule; of a body that is no object at all, the rule alone."""
    return "; ".join(": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in error.errors())
