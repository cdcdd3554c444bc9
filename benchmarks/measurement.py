"""Starting a subject, waiting for it and reading what it cost. What the subjects are is in `subject`.

Exception
└── SubjectError    a subject failed, or did not do what it was started for
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent


class SubjectError(Exception):
    """A measurement of something that did not work would be worth nothing."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took: seconds of CPU (user and system) with all it started, bytes of memory, seconds by the clock.

    `imports` is the part of the CPU time that passed before the work began. `found` is what the subject said.
    """

    cpu: float
    imports: float
    peak: int
    wall: float
    found: Mapping[str, Any] = field(repr=False)

    @property
    def work(self) -> float:
        return self.cpu - self.imports


class Subject:
    """A subject that runs. `wait` is to be called once."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - `wait`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.subject", *arguments],
            cwd=ROOT,
            # Nothing of the caller's own settings.
            env={"PATH": os.environ.get("PATH", ""), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
        )

    def wait(self) -> Cost:
        """The cost, once it is done. Raises SubjectError."""
        try:
            _, status, usage = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if self._process.returncode is None:
                self._process.kill()
        lines, errors = _take_lines(self._output), _take_lines(self._errors)
        if self._process.returncode or len(lines) < 2:
            raise SubjectError(f"the subject ended with {self._process.returncode}: {[*lines[-3:], *errors[-9:]]}")
        return _read_cost(lines, cpu=usage.ru_utime + usage.ru_stime)


def measure(*arguments: str, environment: Mapping[str, str] | None = None) -> Cost:
    """Run a subject to its end. Raises SubjectError."""
    return Subject(*arguments, environment=environment).wait()


def _take_lines(file: IO[bytes]) -> Sequence[str]:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace").splitlines()


def _read_cost(lines: Sequence[str], *, cpu: float) -> Cost:
    found, cost = json.loads(lines[-2]), json.loads(lines[-1])
    return Cost(cpu=cpu, imports=cost["imports"], peak=cost["peak"], wall=cost["wall"], found=found)
