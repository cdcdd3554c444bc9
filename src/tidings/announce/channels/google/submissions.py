"""The table of sitemaps that were submitted to Google: their checksum then, and Google's status."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Integer, PrimaryKeyConstraint, Row, Table, Text, select
from sqlalchemy.ext.asyncio import AsyncConnection
from typing_extensions import TypedDict

from tidings.announce.channels.google.search_console import GoogleSitemap
from tidings.announce.execution.report_json import SitemapJson
from tidings.core.clock import read_timestamp, to_milliseconds, to_text
from tidings.core.db.database import Database, metadata

google_sitemaps = Table(
    "google_sitemaps",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("sitemap", Text, nullable=False),
    # Account and property that it was submitted with.
    Column("identity", Text),
    # The checksum of its files when it was submitted.
    Column("fingerprint", BigInteger),
    # Milliseconds since the epoch, as all times here: our last submission, and when Google was last asked.
    Column("submitted_at", BigInteger),
    Column("asked_at", BigInteger, nullable=False),
    # What Google said.
    Column("downloaded_at", BigInteger),
    Column("pending", Boolean, nullable=False),
    Column("warnings", Integer, nullable=False),
    Column("errors", Integer, nullable=False),
    # Why the last attempt failed; null after a success.
    Column("failure", Text),
    PrimaryKeyConstraint("site", "sitemap"),
    sqlite_with_rowid=False,
)


class SubmissionJson(TypedDict):
    sitemapUrl: str
    submittedAt: str | None
    lastDownloaded: str | None
    pending: bool
    warnings: int
    errors: int
    checkedAt: str | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class SitemapSubmission:
    """One sitemap at Google."""

    sitemap: str
    identity: str | None = None
    fingerprint: int | None = None
    submitted_at: datetime | None = None
    # When Google was last asked.
    asked_at: datetime | None = None
    # What Google said of it then.
    google: GoogleSitemap = field(default_factory=GoogleSitemap)
    # Why the last attempt failed.
    failure: str | None = None

    def to_json(self) -> SubmissionJson:
        return {
            "sitemapUrl": self.sitemap,
            "submittedAt": _show(self.submitted_at),
            "lastDownloaded": _show(self.google.downloaded_at),
            "pending": self.google.pending,
            "warnings": self.google.warnings,
            "errors": self.google.errors,
            "checkedAt": _show(self.asked_at),
            "failure": self.failure,
        }


@dataclass(frozen=True, slots=True)
class SitemapReport:
    """One sitemap at Google in one execution."""

    sitemap: str
    # It had changed, and Google took it.
    submitted: bool = False
    # What Google found in it.
    warnings: int = 0
    errors: int = 0
    # Why it could not be submitted or read, and what to do.
    failure: str | None = None
    advice: str = ""
    # The failure needs a person.
    lasting: bool = True

    def to_json(self) -> SitemapJson:
        return {
            "sitemapUrl": self.sitemap,
            "submitted": self.submitted,
            "warnings": self.warnings,
            "errors": self.errors,
            "failure": self.failure,
            "advice": self.advice or None,
        }


class SitemapSubmissions:
    """The sitemaps of one site at Google."""

    def __init__(self, database: Database, *, site: int) -> None:
        self._database = database
        self._site = site

    async def list(self) -> list[SitemapSubmission]:
        statement = (
            select(google_sitemaps).where(google_sitemaps.c.site == self._site).order_by(google_sitemaps.c.sitemap)
        )
        return [_read(row) for row in await self._database.fetch(statement)]

    async def store(self, connection: AsyncConnection, submission: SitemapSubmission, *, now: datetime) -> None:
        google = submission.google
        values = {
            "identity": submission.identity,
            "fingerprint": submission.fingerprint,
            "submitted_at": _to_number(submission.submitted_at),
            "asked_at": to_milliseconds(now),
            "downloaded_at": _to_number(google.downloaded_at),
            "pending": google.pending,
            "warnings": google.warnings,
            "errors": google.errors,
            "failure": submission.failure,
        }
        key = {"site": self._site, "sitemap": submission.sitemap}
        await self._database.store(connection, google_sitemaps, key=key, values=values)


def _read(row: Row[Any]) -> SitemapSubmission:
    return SitemapSubmission(
        row.sitemap,
        identity=row.identity,
        fingerprint=row.fingerprint,
        submitted_at=read_timestamp(row.submitted_at),
        asked_at=read_timestamp(row.asked_at),
        google=GoogleSitemap(
            downloaded_at=read_timestamp(row.downloaded_at),
            pending=bool(row.pending),
            warnings=row.warnings,
            errors=row.errors,
        ),
        failure=row.failure,
    )


def _show(at: datetime | None) -> str | None:
    return None if at is None else to_text(at)


def _to_number(at: datetime | None) -> int | None:
    return None if at is None else to_milliseconds(at)
