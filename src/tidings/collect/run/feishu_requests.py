"""Requests that people enter in Feishu. New rows of the keyword table become watched keywords if they can be searched.
A failed candidate that a person set to `pending` is tried again. No other change there has an effect.

The mirror calls `FeishuRequests.read` every few minutes while it holds its lock, so no delivery runs meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select, text

from tidings.collect.crawl.platforms.protocol import check_search
from tidings.collect.crawl.platforms.registry import check_platform
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.feishu.client import MOST_RECORDS, BitableClient
from tidings.collect.feishu.errors import FeishuError, FeishuErrorKind
from tidings.collect.feishu.rows import RowChange, parse_key
from tidings.collect.feishu.store import MirrorStore
from tidings.collect.mirror_tables import mirror_requests
from tidings.collect.tables import CandidateStatus, candidates
from tidings.collect.write.keywords import MOST_PAGES, Keywords, RefreshPlan, parse_refresh
from tidings.collect.write.writer import Writer
from tidings.core.clock import to_milliseconds
from tidings.core.logs.logger import get_logger

# Rows without our answer in `status` are new.
_IS_NEW: Final = {"field_name": "status", "operator": "isEmpty", "value": []}
# A candidate that failed has an error code; this leaves out those that were never tried.
_IS_PENDING: Final = (
    {"field_name": "status", "operator": "is", "value": [CandidateStatus.PENDING.value]},
    {"field_name": "last_error_code", "operator": "isNotEmpty", "value": []},
)
_WATCHED: Final = {"en": "watched", "zh": "监控中"}
_REFUSED: Final = {"en": "not watched: {reason}", "zh": "未监控：{reason}"}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuRequests:
    """Reads the requests of people and carries them out."""

    writer: Writer
    keywords: Keywords
    # Raises CrawlError for a platform, a keyword and a number of comments that cannot be watched.
    check: Callable[[str, str, int | None], None]
    # The language of our answers, and the translation of the reasons into it.
    language: str = "en"
    translate: Callable[[str], str] = str

    async def read(self, client: BitableClient, store: MirrorStore, *, has_candidates: bool) -> None:
        """Read and carry out people's requests. Raises FeishuError and ExecutionLostError.

        `store` is that of the candidates. `has_candidates`: whether the client's target has its records.
        """
        if client.target.keyword_table is not None:
            await self._read_keywords(client, store, client.target.keyword_table)
        if has_candidates:
            await self._read_retries(client, store, client.target.tables[candidates.name])

    async def _read_keywords(self, client: BitableClient, store: MirrorStore, table_id: str) -> None:
        await store.check()
        # All fields: a table that was made by an earlier version lacks some, and their names would be refused.
        found = client.search(table_id, chosen={"conjunction": "and", "conditions": [_IS_NEW]})
        # A row that lacks one of the two is not finished.
        rows = {
            record_id: fields async for record_id, fields in found if fields.get("keyword") and fields.get("platform")
        }
        known = await self._find_read(table_id, list(rows))
        answers = {}
        for record_id, fields in rows.items():
            problem = await self._watch(fields, is_new=record_id not in known)
            if record_id not in known:
                await self._record_read(table_id, record_id)
            answers[record_id] = {"status": self._write_answer(problem)}
        for start in range(0, len(answers), MOST_RECORDS):
            await store.check()
            await _answer(client, table_id, dict(list(answers.items())[start : start + MOST_RECORDS]))

    async def _watch(self, fields: Mapping[str, Any], *, is_new: bool) -> str | None:
        """Watch the keyword of a row. A row that was read before is only checked. Returns why a row is refused."""
        platform, keyword = str(fields["platform"]).strip().lower(), str(fields["keyword"])
        try:
            pages, comments = _read_number(fields, "pages"), _read_number(fields, "comments")
            refresh = _read_refresh(fields)
            check_search(keyword, page=1 if pages is None else pages, most_pages=MOST_PAGES)
            check_platform(platform)
            self.check(platform, keyword, comments)
            if is_new:
                await self.keywords.add(platform, keyword, pages=pages, refresh=refresh, comments=comments)
                _log.info("keyword.requested", platform=platform, pages=pages)
        except CrawlError as error:
            return error.message
        return None

    def _write_answer(self, problem: str | None) -> str:
        if problem is None:
            return _WATCHED[self.language]
        return _REFUSED[self.language].format(reason=self.translate(problem))

    async def _find_read(self, table_id: str, record_ids: Sequence[str]) -> set[str]:
        columns = mirror_requests.c
        statement = select(columns.record_id).where(columns.table_id == table_id, columns.record_id.in_(record_ids))
        return {row.record_id for row in await self.writer.database.fetch(statement)}

    async def _record_read(self, table_id: str, record_id: str) -> None:
        values = {"table_id": table_id, "record_id": record_id, "read_at": to_milliseconds(self.writer.clock.now())}
        statement = self.writer.database.insert(mirror_requests).values(values).on_conflict_do_nothing()
        await self.writer.database.change(statement)

    async def _read_retries(self, client: BitableClient, store: MirrorStore, table_id: str) -> None:
        """Make failed candidates due again. Another candidate gets its own status back in Feishu."""
        if not await self._has_failed():
            # Nothing can be tried again: save the request.
            return
        await store.check()
        asked = await _find_changed(client, store, table_id)
        failed: dict[str, list[str]] = defaultdict(list)
        for change in asked:
            if _read_status(change) == CandidateStatus.FAILED:
                failed[change.key.platform].append(change.key.note_id)
        for platform, note_ids in failed.items():
            await self.writer.corrections.requeue(platform, note_ids=note_ids)
        others = [change.key for change in asked if _read_status(change) != CandidateStatus.FAILED]
        await store.mark_changed(others, forget=True)

    async def _has_failed(self) -> bool:
        some = select(candidates.c.note_id).where(text("tbl_candidate.status = 'failed'")).limit(1)
        return bool(await self.writer.database.fetch(some))


def _read_number(fields: Mapping[str, Any], name: str) -> int | None:
    """A whole number of a row; None if the cell is empty. Raises CrawlError."""
    value = fields.get(name)
    if value in (None, ""):
        return None
    if not isinstance(value, int | float) or value != int(value):
        raise CrawlError(ErrorCode.INVALID_INPUT, f"{name} must be a whole number")
    return int(value)


def _read_refresh(fields: Mapping[str, Any]) -> RefreshPlan | None:
    every, period = (str(fields.get(name) or "").strip() for name in ("refresh", "for"))
    if not every and period:
        raise CrawlError(ErrorCode.INVALID_INPUT, "`for` needs `refresh`")
    return parse_refresh(every, period or None) if every else None


async def _find_changed(client: BitableClient, store: MirrorStore, table_id: str) -> list[RowChange]:
    """The candidates that Feishu shows as pending although we delivered another status: a person set it."""
    found = client.list_records(table_id, chosen={"conjunction": "and", "conditions": list(_IS_PENDING)})
    shown = {record.record_id: parse_key(record.key) async for record in found}
    changes = await store.read_changes([key for key in shown.values() if key is not None])
    suspects = {
        str(change.record_id): change
        for change in changes.values()
        if change.record_id in shown and change.is_delivered and _read_status(change) != CandidateStatus.PENDING
    }
    if not suspects:
        return []
    await store.check()
    # A search may be seconds behind, and show the status before our last update.
    now = await client.read_records(table_id, list(suspects))
    return [change for record_id, change in suspects.items() if _is_set_pending(now.get(record_id))]


def _is_set_pending(fields: Mapping[str, Any] | None) -> bool:
    return fields is not None and fields.get("status") == CandidateStatus.PENDING


def _read_status(change: RowChange) -> object:
    return None if change.content is None else change.content.fields["status"]


async def _answer(client: BitableClient, table_id: str, answers: Mapping[str, Mapping[str, str]]) -> None:
    try:
        await client.update_records(table_id, answers)
    except FeishuError as error:
        # A person deleted one of the rows meanwhile. The others get their answer at the next reading.
        if error.kind is not FeishuErrorKind.MISSING_RECORD:
            raise
