"""The result of an audit. A finding says where a secret is and what it is, never the secret itself. Every text
passes the redactor, because the name of a file or a row may contain a secret.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from tidings.core.secrets.redaction import Redactor

_MOST_LISTED: Final = 50


class CheckName(StrEnum):
    """The checks, in the order of the report."""

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


_CLEAN_UP: Final = "remove it, and replace the cookie, key or token: once in clear, it is no longer secret"
ADVICE: Final = {
    CheckName.DATABASE: _CLEAN_UP,
    CheckName.DATABASE_FILES: f"{_CLEAN_UP}; SQLite keeps deleted rows until VACUUM",
    CheckName.LOGS: _CLEAN_UP,
    CheckName.BACKUPS: _CLEAN_UP,
    CheckName.REPOSITORY: f"{_CLEAN_UP}; git keeps it in the history as well",
    CheckName.FILE_MODES: "chown all to the user of the service, chmod 700 the data directory, chmod 600 the files",
    CheckName.MASTER_KEY: "make a strong key with `tidings keys new`, and keep it apart from the data",
    CheckName.ENCRYPTION: "put the missing key back into COOKIE_MASTER_KEY, or set the value again",
    CheckName.ONE_WRITER: "the crawl API must not know the writer: move this out of its packages",
    CheckName.TOKENS: "remove it from the settings and make one with `tidings tokens new`",
}


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A problem and its place."""

    # A file with line or byte, a table with column and row, or a setting.
    where: str
    # What is wrong, or which secret is there. Never the secret itself.
    what: str


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: CheckName
    # What was searched, for people: `3 files, 1.2 MB`.
    covered: str
    # Problems: the audit fails.
    findings: Sequence[AuditFinding] = ()
    # Hints: the audit passes all the same.
    warnings: Sequence[AuditFinding] = ()

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
class AuditReport:
    """All checks of one audit."""

    # In the order of `CheckName`.
    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def describe(self) -> dict[str, Any]:
        return {"passed": self.passed, "checks": [check.describe() for check in self.checks]}


def count_things(number: int, name: str) -> str:
    """Such as `1 file` and `1,204 files`."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


class CheckBuilder:
    """Collects the findings of one check: each once, and at most 50 of them."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._findings: dict[AuditFinding, None] = {}
        self._warnings: dict[AuditFinding, None] = {}
        self._unlisted = 0

    def find(self, where: object, what: str) -> None:
        """Add a problem: the audit fails."""
        self._add(self._findings, where, what)

    def warn(self, where: object, what: str) -> None:
        """Add a hint: the audit passes all the same."""
        self._add(self._warnings, where, what)

    def build(self, name: CheckName, covered: str) -> Check:
        """The check. Redacts only here, when the redactor knows every secret of the audit."""
        if self._unlisted:
            kept = self._findings or self._warnings
            kept[AuditFinding("elsewhere", f"{self._unlisted:,} more that are not listed")] = None
        return Check(name, self._redactor.redact(covered), self._redact(self._findings), self._redact(self._warnings))

    def _add(self, kept: dict[AuditFinding, None], where: object, what: str) -> None:
        finding = AuditFinding(str(where), what)
        if finding in kept:
            return
        if len(kept) < _MOST_LISTED:
            kept[finding] = None
        else:
            self._unlisted += 1

    def _redact(self, kept: Iterable[AuditFinding]) -> tuple[AuditFinding, ...]:
        redact = self._redactor.redact
        return tuple(dict.fromkeys(AuditFinding(redact(each.where), redact(each.what)) for each in kept))
