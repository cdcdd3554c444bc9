"""A module of ours in a process of its own, as its parent sees it: it is set up by its environment as `tidings serve`
is, says on its first line of output where it listens, and ends when its input does."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from benchmarks.measurement import ROOT, SubjectError

CORE, OTHER_CORE = 0, 1
TOKEN = "bench-7d20-not-a-secret"

_PATIENCE_SECONDS = 30


class Child:
    """The process. `answers` is what it said of itself; raises SubjectError where it does not start."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={"PATH": os.environ.get("PATH", ""), "TIDINGS_TOKEN": TOKEN, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Its log goes through the whole chain, as it would to a terminal or a journal.
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.answers: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        if not self.answers:
            raise SubjectError(f"{module} did not start: code {self._process.wait(_PATIENCE_SECONDS)}")
        self.port: int = self.answers["port"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
