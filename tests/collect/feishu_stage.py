"""What the tests of the mirror share: rows with their markers, a mirror that talks to the stand-in, and the comparison
of what stands there with what the tables say."""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import delete, insert, select, update

from tidings.collect.feishu.client import FeishuTarget
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.feishu.rows import MIRRORED_TABLES, OWNER_FIELD, drop_empty
from tidings.collect.tables import candidates, mirror_failures, mirror_outbox, mirror_state, sources
from tidings.core.alerts import Alerts
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database
from tidings.core.executions import SILENT_FOR, Executions
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, DEMO_TABLES, SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType, Fields

CANDIDATES, SOURCES = DEMO_TABLES
BATCH_CREATE = f"/open-apis/bitable/v1/apps/{DEMO_APP_TOKEN}/tables/{CANDIDATES}/records/batch_create"
BATCH_UPDATE = BATCH_CREATE.replace("create", "update")
BATCH_DELETE = BATCH_CREATE.replace("create", "delete")
SEARCH = BATCH_CREATE.replace("batch_create", "search")
FIELDS = BATCH_CREATE.replace("records/batch_create", "fields")
WRITES = (BATCH_CREATE, BATCH_UPDATE, BATCH_DELETE)

_NOW = 1_800_000_000_000


def make_service(**options: Any) -> SandboxBitable:
    """A base whose tables have every field already, which saves some thirty requests; and that takes all that comes."""
    tables = {
        table_id: {name: BitableFieldType(int(kind)) for name, kind in MIRRORED_TABLES[table.name].fields.items()}
        for table, table_id in ((candidates, CANDIDATES), (sources, SOURCES))
    }
    return SandboxBitable(tables=tables, **{"limits": None} | options)


def make_target(service: SandboxBitable, *, secret: str = DEMO_APP_SECRET, **tables: str) -> FeishuTarget:
    chosen = tables or {candidates.name: CANDIDATES, sources.name: SOURCES}
    return FeishuTarget(DEMO_APP_ID, Secret(secret), DEMO_APP_TOKEN, chosen, base_url=service.origin)


class MirrorMaker(Protocol):
    """Builds a mirror of its own, as a process has that was just started."""

    def __call__(
        self,
        service: SandboxBitable,
        *,
        database: Database = ...,
        folder: Path = ...,
        clock: Clock | None = None,
        target: FeishuTarget | None = None,
        redactor: Redactor | None = None,
        timeout: timedelta = ...,
        silent_for: timedelta = ...,
    ) -> FeishuMirror: ...


def build_mirror(
    service: SandboxBitable,
    *,
    database: Database,
    folder: Path,
    client: GuardedClient,
    clock: Clock | None = None,
    target: FeishuTarget | None = None,
    redactor: Redactor | None = None,
    timeout: timedelta = timedelta(seconds=10),
    silent_for: timedelta = SILENT_FOR,
) -> FeishuMirror:
    used = clock or SystemClock()
    return FeishuMirror(
        database,
        target=target or make_target(service),
        client=client,
        executions=Executions(database, clock=used, process_lock=ProcessLock(folder), silent_for=silent_for),
        alerts=Alerts(database, clock=used, destinations=()),
        clock=used,
        redactor=redactor,
        timeout=timeout,
    )


def make_candidate(name: str, platform: str) -> dict[str, Any]:
    return {
        "platform": platform,
        "note_id": name,
        "note_url": f"https://m.weibo.cn/status/{name}",
        "title": f"candidate {name}",
        "status": "pending",
        "retry_count": 0,
        "source_keyword": "咖啡",
        "exec_meta": json.dumps({"request_id": f"req-{name}"}),
        "due_at": _NOW,
        "created_at": _NOW,
        "updated_at": _NOW,
    }


async def put_candidates(database: Database, names: Iterable[str], *, platform: str = "weibo", **values: Any) -> None:
    """New candidates, each with its marker, as the writer makes them."""
    rows = [make_candidate(name, platform) | values for name in names]
    async with database.write() as connection:
        await connection.execute(insert(candidates), rows)
        await _mark(connection, candidates.name, [(platform, row["note_id"]) for row in rows])


async def change_candidates(database: Database, names: Iterable[str], **values: Any) -> None:
    listed = list(names)
    async with database.write() as connection:
        await connection.execute(update(candidates).where(candidates.c.note_id.in_(listed)).values(values))
        await _mark(connection, candidates.name, [("weibo", name) for name in listed])


async def remove_candidates(database: Database, names: Iterable[str]) -> None:
    listed = list(names)
    async with database.write() as connection:
        await connection.execute(delete(candidates).where(candidates.c.note_id.in_(listed)))
        await _mark(connection, candidates.name, [("weibo", name) for name in listed])


async def put_source(database: Database, name: str, *, note: Mapping[str, object], **values: Any) -> None:
    row = {
        "platform": "weibo",
        "note_id": name,
        "idempotency_key": f"{name}_v1",
        "note_url": f"https://m.weibo.cn/status/{name}",
        "kind": "text",
        "title": f"note {name}",
        "author_name": "someone",
        "published_at": _NOW,
        "content": json.dumps(note),
        "retry_count": 0,
        "exec_meta": json.dumps({"request_id": f"req-{name}"}),
        "collected_at": _NOW,
    }
    async with database.write() as connection:
        await connection.execute(insert(sources), [row | values])
        await _mark(connection, sources.name, [("weibo", name)])


async def read_expected(database: Database) -> dict[str, list[Fields]]:
    """What both tables of the base should hold, by their ids; sorted, since the order is not promised."""
    found: dict[str, list[Fields]] = {}
    async with database.read() as connection:
        for table, table_id in ((candidates, CANDIDATES), (sources, SOURCES)):
            owner = {OWNER_FIELD: await read_owner(database, table.name)}
            rows = await connection.execute(select(table))
            found[table_id] = [{**drop_empty(MIRRORED_TABLES[table.name].read_cells(row) | owner)} for row in rows]
    return {table_id: _sort(rows) for table_id, rows in found.items()}


async def read_owner(database: Database, table_name: str = candidates.name) -> str | None:
    """What the records of this database carry."""
    async with database.read() as connection:
        chosen = select(mirror_state.c.owner).where(mirror_state.c.table_name == table_name)
        return (await connection.execute(chosen)).scalar_one_or_none()


def read_mirrored(service: SandboxBitable) -> dict[str, list[Fields]]:
    return {table_id: _sort(service.rows(table_id)) for table_id in DEMO_TABLES}


async def count_waiting(database: Database) -> int:
    async with database.read() as connection:
        return len((await connection.execute(select(mirror_outbox.c.id))).all())


async def list_refused(database: Database) -> list[Any]:
    """The rows that Feishu did not take."""
    async with database.read() as connection:
        return list(await connection.execute(select(mirror_failures)))


def list_calls(service: SandboxBitable, *paths: str) -> list[str]:
    """What was asked, by the last part of the path, in order."""
    return [entry.path.rpartition("/")[2] for entry in service.requests if entry.path in (paths or WRITES)]


def _sort(rows: Iterable[Fields]) -> list[Fields]:
    return sorted(rows, key=lambda row: str(row.get("key", "")))


async def _mark(connection: Any, table_name: str, keys: Iterable[tuple[str, str]]) -> None:
    rows = [
        {"table_name": table_name, "platform": platform, "note_id": note_id, "created_at": _NOW}
        for platform, note_id in keys
    ]
    await connection.execute(insert(mirror_outbox), rows)
