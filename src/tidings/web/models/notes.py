"""Answer shapes of the routes of collected notes."""

from pydantic import BaseModel, Field

from tidings.web.models.crawler import NoteCounts, NoteDocument


class StoredNoteDocument(NoteDocument):
    """A collected note in its latest version, with the counts of its last reading, and how it was collected."""

    keyword: str = Field(description="The keyword that found it first.")
    version: int = Field(description="Begins with 1, and grows with each change of title or text.")
    idempotency_key: str
    collected_at: str


class NotesAnswer(BaseModel):
    """A page of notes, the newest collected first."""

    notes: list[StoredNoteDocument]
    next: str | None = Field(description="The cursor of the next page; null at the end.")


class SnapshotDocument(NoteCounts):
    """The counts of a note at one reading; null is unknown."""

    taken_at: str


class VersionDocument(BaseModel):
    """A version of a note. A changed title or text makes a new one."""

    version: int
    idempotency_key: str
    title: str
    text: str
    collected_at: str


class NoteAnswer(BaseModel):
    note: StoredNoteDocument
    versions: list[VersionDocument] = Field(description="The oldest first.")
    snapshots: list[SnapshotDocument] = Field(description="The counts over time, the oldest first.")
