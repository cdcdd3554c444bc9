"""What an audit has found, and how that is told: where something is and what it is, never the thing itself. Every text
goes through the redactor on its way out, since the name of a file or of a row may itself hold a secret.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from tidings.core.secrets.redaction import Redactor

_MOST_TOLD: Final = 50


class CheckName(StrEnum):
    """What is looked at, in the order it is told."""

    DATABASE = "database"
    DATABASE_FILES = "database_files"
    LOGS = "logs"
    BACKUPS = "backups"
    REPOSITORY = "repository"
    FILE_MODES = "file_modes"
    MASTER_KEY = "master_key"
    ENCRYPTION = "encryption"
    ONE_WRITER = "one_writer"
    TOKENS = "tokens"


_CLEAN_UP: Final = "take it out, and replace what was seen there: a cookie, key or token in clear is no longer secret"
ADVICE: Final = {
    CheckName.DATABASE: _CLEAN_UP,
    CheckName.DATABASE_FILES: f"{_CLEAN_UP}; SQLite keeps deleted rows until VACUUM",
    CheckName.LOGS: _CLEAN_UP,
    CheckName.BACKUPS: _CLEAN_UP,
    CheckName.REPOSITORY: f"{_CLEAN_UP}; git keeps it in the history as well",
    CheckName.FILE_MODES: "chmod 700 the data directory, chmod 600 the files",
    CheckName.MASTER_KEY: "make a good key with `tidings keys new`, and keep it apart from the data",
    CheckName.ENCRYPTION: "put the missing key back into COOKIE_MASTER_KEY, or set the value again",
    CheckName.ONE_WRITER: "what crawls must know nothing of what writes: move it out of these packages",
    CheckName.TOKENS: "leave it out of the settings and make one with `tidings tokens new`",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something at a place."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was looked at, what is wrong, and what is only worth knowing."""

    name: CheckName
    covered: str
    findings: Sequence[Finding] = ()
    warnings: Sequence[Finding] = ()

    @property
    def passed(self) -> bool:
        return not self.findings

    def describe(self) -> dict[str, Any]:
        return {
            "check": self.name.value,
            "passed": self.passed,
            "covered": self.covered,
            "findings": [asdict(each) for each in self.findings],
            "warnings": [asdict(each) for each in self.warnings],
            "advice": None if self.passed else ADVICE[self.name],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All checks."""

    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def describe(self) -> dict[str, Any]:
        return {"passed": self.passed, "checks": [check.describe() for check in self.checks]}


class Notes:
    """Takes down what one check finds: each thing once, and no more than a person would read."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._findings: dict[Finding, None] = {}
        self._warnings: dict[Finding, None] = {}
        self._untold = 0

    def find(self, where: object, what: str) -> None:
        """Something is wrong: the audit does not pass."""
        self._note(self._findings, where, what)

    def warn(self, where: object, what: str) -> None:
        """Something should be known; the audit passes all the same."""
        self._note(self._warnings, where, what)

    def close(self, name: CheckName, covered: str) -> Check:
        """The check. Only here is anything redacted: by now every secret is known that was found on the way."""
        if self._untold:
            kept = self._findings or self._warnings
            kept[Finding("elsewhere", f"{self._untold:,} more that are not listed")] = None
        return Check(name, self._redactor.redact(covered), self._redact(self._findings), self._redact(self._warnings))

    def _note(self, kept: dict[Finding, None], where: object, what: str) -> None:
        finding = Finding(str(where), what)
        if finding in kept:
            return
        if len(kept) < _MOST_TOLD:
            kept[finding] = None
        else:
            self._untold += 1

    def _redact(self, kept: Iterable[Finding]) -> tuple[Finding, ...]:
        redact = self._redactor.redact
        return tuple(dict.fromkeys(Finding(redact(each.where), redact(each.what)) for each in kept))
