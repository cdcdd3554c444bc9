"""Answer shapes of the routes of collected notes."""

from pydantic import BaseModel, Field

from tidings.web.models.crawler import NoteDocument


class StoredNoteDocument(NoteDocument):
    """A collected note in its latest version: the note of the crawl API, and how it was collected."""

    keyword: str = Field(description="The keyword that found it first.")
    version: int = Field(description="1, and one more each time its text changed.")
    idempotency_key: str
    collected_at: str


class NotesAnswer(BaseModel):
    """A page of notes, the newest collected first."""

    notes: list[StoredNoteDocument]
    next: str | None = Field(description="The cursor of the next page; null at the end.")


class NoteAnswer(BaseModel):
    note: StoredNoteDocument
