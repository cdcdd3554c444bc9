"""The columns that hold other people's text: notes, comments and the URLs of sitemaps. A note may well mention
`web_session=…`, which is not our secret. The audit therefore searches these columns for the secrets of this
installation, and not for text that only looks like one.
"""

from collections.abc import Mapping
from typing import Final

_NOTE: Final = frozenset({"note_id", "note_url", "title"})

FOREIGN_COLUMNS: Final[Mapping[str, frozenset[str]]] = {
    "tbl_candidate": _NOTE,
    "tbl_source": _NOTE | {"idempotency_key", "author_id", "author_name", "content"},
    "tbl_comment": frozenset(
        {"note_id", "comment_id", "parent_id", "author_id", "author_name", "text", "images", "place"}
    ),
    "comment_threads": frozenset({"note_id", "note_url", "cursor"}),
    "note_snapshots": frozenset({"note_id"}),
    "note_terms": frozenset({"terms"}),
    "mirror_outbox": frozenset({"note_id"}),
    "mirror_records": frozenset({"note_id"}),
    "mirror_failures": frozenset({"note_id"}),
    "mirror_intents": frozenset({"body"}),
    "site_pages": frozenset({"url"}),
    "batches": frozenset({"pages"}),
    "executions": frozenset({"request"}),
}
