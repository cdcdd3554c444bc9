"""How many candidates each platform has at each status, kept by triggers of the database, so that no query counts a
million rows.

The table `candidate_counts` is no part of the metadata: like a full-text index it follows from another table, and a
backup leaves it out. SQLite has one row for each platform and status. On PostgreSQL every statement adds rows with the
difference that it made, because writers that change one row would wait for each other; `fold_counts` sums them up.
"""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, column, event, func, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.tables import CandidateStatus
from tidings.core.db.database import metadata

_counts = table("candidate_counts", column("platform"), column("status"), column("number"))

# As in the migration, word by word.
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS candidate_counts (platform TEXT NOT NULL, status TEXT NOT NULL, number BIGINT NOT NULL)"
)
_ADD: Final = (
    "UPDATE candidate_counts SET number = number + 1 WHERE platform = new.platform AND status = new.status; "
    "INSERT INTO candidate_counts SELECT new.platform, new.status, 1 WHERE changes() = 0; "
)
_REMOVE: Final = (
    "UPDATE candidate_counts SET number = number - 1 WHERE platform = old.platform AND status = old.status; "
)
_COUNTERS: Final = {
    "sqlite": (
        f"CREATE TRIGGER IF NOT EXISTS candidates_added AFTER INSERT ON tbl_candidate BEGIN {_ADD}END",
        f"CREATE TRIGGER IF NOT EXISTS candidates_removed AFTER DELETE ON tbl_candidate BEGIN {_REMOVE}END",
        "CREATE TRIGGER IF NOT EXISTS candidates_changed AFTER UPDATE OF status ON tbl_candidate "
        f"WHEN old.status <> new.status BEGIN {_REMOVE}{_ADD}END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION count_candidates() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF TG_OP = 'INSERT' THEN INSERT INTO candidate_counts "
        "SELECT platform, status, count(*) FROM added GROUP BY platform, status; "
        "ELSIF TG_OP = 'DELETE' THEN INSERT INTO candidate_counts "
        "SELECT platform, status, -count(*) FROM removed GROUP BY platform, status; "
        "ELSIF TG_OP = 'TRUNCATE' THEN DELETE FROM candidate_counts; "
        "ELSE INSERT INTO candidate_counts SELECT platform, status, sum(number) FROM ("
        "SELECT platform, status, 1 AS number FROM added UNION ALL SELECT platform, status, -1 FROM removed"
        ") AS changed GROUP BY platform, status HAVING sum(number) <> 0; "
        "END IF; RETURN NULL; END $$",
        "CREATE OR REPLACE TRIGGER candidates_added AFTER INSERT ON tbl_candidate "
        "REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
        "CREATE OR REPLACE TRIGGER candidates_removed AFTER DELETE ON tbl_candidate "
        "REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
        "CREATE OR REPLACE TRIGGER candidates_changed AFTER UPDATE ON tbl_candidate "
        "REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
        "CREATE OR REPLACE TRIGGER candidates_emptied AFTER TRUNCATE ON tbl_candidate "
        "FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
    ),
}
# Writers never wait for this: it skips uncommitted rows and rows that another process is summing up.
_FOLD: Final = text(
    """
    WITH gone AS (
        DELETE FROM candidate_counts
        WHERE ctid = ANY(ARRAY(SELECT ctid FROM candidate_counts FOR UPDATE SKIP LOCKED))
        RETURNING platform, status, number
    )
    INSERT INTO candidate_counts
    SELECT platform, status, sum(number) FROM gone GROUP BY platform, status HAVING sum(number) <> 0
    """
)


@event.listens_for(metadata, "after_create")
def _create_counters(_target: object, connection: Connection, **_: object) -> None:
    for statement in (_TABLE, *_COUNTERS[connection.dialect.name]):
        connection.exec_driver_sql(statement)


async def count_candidates(connection: AsyncConnection) -> dict[str, dict[CandidateStatus, int]]:
    """The number of candidates by platform and status."""
    number = func.sum(_counts.c.number)
    statement = (
        select(_counts.c.platform, _counts.c.status, number)
        .group_by(_counts.c.platform, _counts.c.status)
        .having(number > 0)
        .order_by(_counts.c.platform)
    )
    rows = await connection.execute(statement)
    return nest_counts((platform, CandidateStatus(status), int(found)) for platform, status, found in rows)


def nest_counts(rows: Iterable[Any]) -> dict[str, dict[Any, int]]:
    """Numbers by platform and then by status or code, from rows of these three."""
    counts: dict[str, dict[Any, int]] = {}
    for platform, name, number in rows:
        counts.setdefault(platform, {})[name] = number
    return counts


async def fold_counts(connection: AsyncConnection) -> None:
    """Sum up the differences that statements left; SQLite has none."""
    if connection.dialect.name == "postgresql":
        await connection.execute(_FOLD)
