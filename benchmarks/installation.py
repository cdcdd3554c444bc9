"""Tidings on a data directory of its own, run by its command line and measured. Each run is also checked: a
measurement of pages that were not read, or were sent twice, would be worth nothing."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg

from benchmarks.measurement import Cost, Subject, SubjectError
from benchmarks.postgresql import Server
from benchmarks.stage import Stage


class Installation:
    """One data directory, new and empty; with its own SQLite file, or on a new database of a PostgreSQL server."""

    def __init__(self, data_dir: Path, *, stage: Stage, server: Server | None = None) -> None:
        self._data_dir = data_dir
        self._stage = stage
        self._server = server
        self._url = None if server is None else server.make_database()

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
                **({} if self._url is None else {"TIDINGS_DATABASE_URL": self._url}),
            },
        )

    def announce(self, sitemap: str, *, pages: int, new: int, unchanged: int = 0) -> Cost:
        """Run it to its end, with so many pages, of which so many are new. Raises SubjectError.

        What a PostgreSQL server uses meanwhile is a part of the CPU.
        """
        before = 0.0 if self._server is None else self._server.read_cpu()
        cost = self.start(sitemap).wait()
        if self._server is not None:
            cost = replace(cost, cpu=cost.cpu + self._server.read_cpu() - before)
        seen = {name: cost.found[name] for name in ("status", "total", "submitted", "filesUnchanged")}
        wanted = {"status": "succeeded", "total": pages, "submitted": new, "filesUnchanged": unchanged}
        if seen != wanted:
            raise SubjectError(f"tidings was to come to {wanted}, and came to {cost.found}")
        return cost

    def forget_validators(self) -> None:
        """Let it fetch and read every file again, as if the server had never sent an ETag."""
        statement = "DELETE FROM sitemap_validators"
        if self._url is not None:
            with psycopg.connect(self._url) as server:
                server.execute(statement)
            return
        with closing(sqlite3.connect(self._data_dir / "tidings.db")) as file, file:
            file.execute(statement)
