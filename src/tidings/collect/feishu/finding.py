"""Which record of Feishu's is which row: searched for by the text of the key, among those that are ours. Of records
with one key one is kept. What carries another's name, or none, is people's own or another installation's: it is
neither counted nor touched.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidings.collect.feishu.answers import FeishuError, Verdict, judge_unsettled
from tidings.collect.feishu.client import MOST_CONDITIONS, MOST_LOOKED_UP, BitableClient, Found
from tidings.collect.feishu.fields import Key, parse_key
from tidings.collect.feishu.ledger import Ledger
from tidings.core.logs.logger import get_logger

_MOST_IN_A_BATCH: Final = 500

_log = get_logger(__name__)


class Finder:
    """The searches of one table's delivery. Each raises FeishuError and ExecutionLostError."""

    def __init__(self, client: BitableClient, ledger: Ledger, *, table_id: str) -> None:
        self._client = client
        self._ledger = ledger
        self._table_id = table_id

    async def find(self, keys: Sequence[Key]) -> dict[Key, str]:
        """The records of these rows, as far as they stand in Feishu."""
        found: list[Found] = []
        for start in range(0, len(keys), MOST_CONDITIONS):
            await self._ledger.check()
            some = [key.text for key in keys[start : start + MOST_CONDITIONS]]
            found += await self._client.find(self._table_id, some)
        return await self._choose(found, mapped=await self._ledger.list_records(keys))

    async def find_all(self, *, same_target: bool) -> dict[Key, str]:
        """Every record that is ours: by the name that it carries, or because it is known to be."""
        await self._ledger.check()
        mapped = await self._ledger.list_records() if same_target else {}
        found = [record async for record in self._client.list_records(self._table_id)]
        return await self._choose(found, mapped=mapped)

    async def find_absent(self, record_ids: Sequence[str]) -> set[str]:
        """Those of these records that are no longer there. Asked by their ids: a search may lag behind."""
        absent: set[str] = set()
        for start in range(0, len(record_ids), MOST_LOOKED_UP):
            await self._ledger.check()
            absent |= await self._client.find_absent(self._table_id, record_ids[start : start + MOST_LOOKED_UP])
        return absent

    async def _choose(self, found: Sequence[Found], *, mapped: Mapping[str, Key]) -> dict[Key, str]:
        """One record for each key, the one that is known if there is one; our others are removed."""
        chosen: dict[Key, str] = {}
        spare: dict[str, Key] = {}
        for record in sorted(found, key=lambda record: record.record_id not in mapped):
            ours = record.owner == self._ledger.owner or record.record_id in mapped
            # A person may have written over the key of a record that is known.
            key = (mapped.get(record.record_id) or parse_key(record.key)) if ours else None
            if key is not None and chosen.setdefault(key, record.record_id) != record.record_id:
                spare[record.record_id] = key
        for start in range(0, len(spare), _MOST_IN_A_BATCH):
            await self._remove_spare(dict(list(spare.items())[start : start + _MOST_IN_A_BATCH]))
        return chosen

    async def _remove_spare(self, records: Mapping[str, Key]) -> None:
        await self._ledger.check(set(records.values()))
        try:
            await self._client.delete(self._table_id, list(records))
        except FeishuError as error:
            raise (judge_unsettled(error) if error.verdict is Verdict.MISSING else error) from None
        _log.warning("mirror.duplicates_removed", table=self._ledger.table_name, records=len(records))
