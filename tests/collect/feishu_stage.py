"""What the tests of the mirror share: rows with their markers, a mirror that talks to the stand-in, and the comparison
of what stands there with what the tables say."""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import delete, insert, select, text, update

from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.feishu.client import BitableClient, FeishuTarget
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.feishu.rows import BASE_TABLES, EXECUTION_TABLE, KEYWORD_TABLE, LONGEST_TEXT, drop_empty
from tidings.collect.mirror_tables import mirror_failures, mirror_outbox, mirror_state
from tidings.collect.run.feishu_requests import FeishuRequests
from tidings.collect.tables import candidates, sources
from tidings.collect.write.keywords import Keywords
from tidings.collect.write.writer import Writer
from tidings.core.alerts.service import Alerts
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database
from tidings.core.executions import SILENT_FOR, Executions
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.sandbox.feishu.bitable import DEMO_APP_ID, DEMO_APP_SECRET, DEMO_APP_TOKEN, SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType, Fields

CANDIDATES, SOURCES, COOKIES, EXECUTIONS = "tblCandidates", "tblSources", "tblCookies", "tblExecutions"
KEYWORDS = "tblKeywords"
# The id of each mirrored table in the base.
TABLES = {candidates.name: CANDIDATES, sources.name: SOURCES, cookies.name: COOKIES, EXECUTION_TABLE: EXECUTIONS}
BATCH_CREATE = f"/open-apis/bitable/v1/apps/{DEMO_APP_TOKEN}/tables/{CANDIDATES}/records/batch_create"
BATCH_UPDATE = BATCH_CREATE.replace("create", "update")
BATCH_DELETE = BATCH_CREATE.replace("create", "delete")
SEARCH = BATCH_CREATE.replace("batch_create", "search")
FIELDS = BATCH_CREATE.replace("records/batch_create", "fields")
WRITES = (BATCH_CREATE, BATCH_UPDATE, BATCH_DELETE)

_NOW = 1_800_000_000_000


def make_service(**options: Any) -> SandboxBitable:
    """A base whose tables have every field already, which saves some sixty requests; and that takes all that comes."""
    tables = {
        table_id: {field: BitableFieldType(int(kind.type)) for field, kind in BASE_TABLES[name].items()}
        for name, table_id in (*TABLES.items(), (KEYWORD_TABLE, KEYWORDS))
    }
    return SandboxBitable(tables=tables, **{"limits": None} | options)


def make_target(service: SandboxBitable, *, secret: str = DEMO_APP_SECRET, **tables: str) -> FeishuTarget:
    """A target with these tables; by default all of them, and the keywords."""
    keyword_table = None if tables else KEYWORDS
    return FeishuTarget(
        DEMO_APP_ID, Secret(secret), DEMO_APP_TOKEN, tables or TABLES, keyword_table, base_url=service.origin
    )


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
        reads: bool = False,
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
    reads: bool = False,
) -> FeishuMirror:
    """`reads`: whether it also reads what people ask for, as the product's own does."""
    used, target = clock or SystemClock(), target or make_target(service)
    executions = Executions(database, clock=used, process_lock=ProcessLock(folder), silent_for=silent_for)
    writer = Writer(database, executions=executions, clock=used, mirrored=target.tables)
    requests = FeishuRequests(
        writer=writer,
        keywords=Keywords(database, clock=used),
        check=lambda _platform, _keyword, _comments: None,
    )
    return FeishuMirror(
        database,
        client=BitableClient(target, client=client, clock=used, redactor=redactor, timeout=timeout),
        executions=executions,
        alerts=Alerts(database, clock=used, destinations=()),
        clock=used,
        read_requests=requests.read if reads else None,
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
        "author_id": "",
        "author_name": "someone",
        "source_keyword": "",
        "published_at": _NOW,
        "dated_at": _NOW,
        "version": 1,
        "is_latest": True,
        "content": json.dumps(note),
        "status": "pending",
        "retry_count": 0,
        "due_at": _NOW,
        "exec_meta": json.dumps({"request_id": f"req-{name}"}),
        "collected_at": _NOW,
    }
    async with database.write() as connection:
        await connection.execute(insert(sources), [row | values])
        await _mark(connection, sources.name, [("weibo", f"{name}_v1")])


async def put_cookie(database: Database, name: str, **values: Any) -> None:
    """A new cookie; nobody marks it."""
    numbers = dict.fromkeys(("priority", "daily_used", "consecutive_errors", "total_errors"), 0)
    row = {
        "cookie_name": name,
        "platform": "weibo",
        "cookie_encrypted": b"sealed-cookie-bytes",
        "encryption_key_id": "k1",
        "status": "active",
        **numbers,
        "daily_limit": 500,
        "created_at": _NOW,
        "updated_at": _NOW,
        "used_on": "2026-11-16",
        "enabled_at": _NOW,
    }
    async with database.write() as connection:
        await connection.execute(insert(cookies), [row | values])


# What the base shows of each table, by the names of the source's own columns. The mirror's code has no part in it.
_SHOWN: dict[str, str] = {
    candidates.name: """
        platform || ':' || note_id AS key, platform, note_id, note_url, title, status, processing_lock, locked_at,
        retry_count, source_keyword, exec_meta, due_at, last_error_code, last_error, created_at, updated_at""",
    sources.name: """
        platform || ':' || idempotency_key AS key, platform, note_id, idempotency_key, note_url, kind, title,
        author_name, source_keyword, published_at, content, version, status, processing_lock, locked_at, retry_count,
        due_at, last_error_code, last_error, exec_meta, collected_at""",
    cookies.name: """
        platform || ':' || cookie_name AS key, cookie_name, platform, encryption_key_id, status, priority, daily_used,
        daily_limit, consecutive_errors, total_errors, cooling_until, created_at, updated_at""",
    EXECUTION_TABLE: """
        'collect:' || execution_id AS key, workflow_name, execution_id, status, started_at, heartbeat_at, completed_at,
        items_processed, items_failed""",
}


async def read_expected(database: Database) -> dict[str, list[Fields]]:
    """What the tables of the base should hold, by their ids; sorted, since the order is not promised."""
    found: dict[str, list[Fields]] = {}
    async with database.read() as connection:
        for name, table_id in TABLES.items():
            owner = await read_owner(database, name)
            rows = (await connection.execute(text(f"SELECT {_SHOWN[name]} FROM {name}"))).mappings()
            found[table_id] = [_expect_record({**row, "managed_by": owner}) for row in rows]
    return {table_id: _sort(rows) for table_id, rows in found.items()}


def _expect_record(row: dict[str, Any]) -> Fields:
    """A row as a record: the note's JSON in its parts, and no empty value."""
    if "content" in row:
        try:
            note = json.loads(row.pop("content"))
        except ValueError:
            note = {}
        note = note if isinstance(note, dict) else {}
        counts, tags = note.get("counts", {}), note.get("tags")
        row |= {name: count for name, count in counts.items() if isinstance(count, int)}
        row |= {"text": _clean(note.get("text", "")), "tags": ", ".join(tags) if isinstance(tags, list) else None}
    return {name: value for name, value in drop_empty(row).items() if value != ""}


def _clean(shown: str) -> str:
    return shown.encode("utf-16", "surrogatepass").decode("utf-16", "replace")[:LONGEST_TEXT]


async def read_owner(database: Database, table_name: str = candidates.name) -> str | None:
    """What the records of this database carry."""
    async with database.read() as connection:
        chosen = select(mirror_state.c.owner).where(mirror_state.c.table_name == table_name)
        return (await connection.execute(chosen)).scalar_one_or_none()


def read_mirrored(service: SandboxBitable) -> dict[str, list[Fields]]:
    return {table_id: _sort(service.rows(table_id)) for table_id in TABLES.values()}


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
