"""Tidings on a data directory of its own, run by its command line and measured. Each run is also checked: a
measurement of pages that were not read, or were sent twice, would be worth nothing."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measurement import Cost, Subject, SubjectError
from benchmarks.stage import Stage


class Installation:
    """One data directory, new and empty."""

    def __init__(self, data_dir: Path, *, stage: Stage) -> None:
        self._data_dir = data_dir
        self._stage = stage

    def start(self, sitemap: str, *, method: str = "auto", engines: Sequence[str] = ()) -> Subject:
        """Begin `tidings announce`; without `engines`, to the stage's own."""
        asked = [word for each in engines or [self._stage.endpoint] for word in ("--engine", each)]
        return Subject(
            "tidings",
            *("announce", sitemap, "--key", self._stage.key, *asked),
            *("--method", method, "--json"),
            environment={
                "TIDINGS_DATA_DIR": str(self._data_dir),
                "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
                "TIDINGS_RUN_BUDGET_SECONDS": "900",
                # An engine that is down costs retries, not minutes of waiting.
                "TIDINGS_RETRY_SCALE": "0.01",
            },
        )

    def announce(self, sitemap: str, *, pages: int, new: int, unchanged: int = 0) -> Cost:
        """Run it to its end, with so many pages, of which so many are new. Raises SubjectError."""
        cost = self.start(sitemap).wait()
        seen = {name: cost.found[name] for name in ("status", "total", "submitted", "filesUnchanged")}
        wanted = {"status": "succeeded", "total": pages, "submitted": new, "filesUnchanged": unchanged}
        if seen != wanted:
            raise SubjectError(f"tidings was to come to {wanted}, and came to {cost.found}")
        return cost

    def forget_validators(self) -> None:
        """Let it fetch and read every file again, as if the server had never sent an ETag."""
        connection = sqlite3.connect(self._data_dir / "tidings.db")
        with connection:
            connection.execute("DELETE FROM sitemap_validators")
        connection.close()
