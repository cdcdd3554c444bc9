"""How many candidates each platform has at each status, kept by triggers."""

from alembic import op

revision = "0031"
down_revision = "0030"

ADD = (
    "UPDATE candidate_counts SET number = number + 1 WHERE platform = new.platform AND status = new.status; "
    "INSERT INTO candidate_counts SELECT new.platform, new.status, 1 WHERE changes() = 0; "
)
REMOVE = "UPDATE candidate_counts SET number = number - 1 WHERE platform = old.platform AND status = old.status; "
COUNTERS = {
    "sqlite": (
        f"CREATE TRIGGER candidates_added AFTER INSERT ON tbl_candidate BEGIN {ADD}END",
        f"CREATE TRIGGER candidates_removed AFTER DELETE ON tbl_candidate BEGIN {REMOVE}END",
        "CREATE TRIGGER candidates_changed AFTER UPDATE OF status ON tbl_candidate "
        f"WHEN old.status <> new.status BEGIN {REMOVE}{ADD}END",
    ),
    "postgresql": (
        "CREATE FUNCTION count_candidates() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF TG_OP = 'INSERT' THEN INSERT INTO candidate_counts "
        "SELECT platform, status, count(*) FROM added GROUP BY platform, status; "
        "ELSIF TG_OP = 'DELETE' THEN INSERT INTO candidate_counts "
        "SELECT platform, status, -count(*) FROM removed GROUP BY platform, status; "
        "ELSIF TG_OP = 'TRUNCATE' THEN DELETE FROM candidate_counts; "
        "ELSE INSERT INTO candidate_counts SELECT platform, status, sum(number) FROM ("
        "SELECT platform, status, 1 AS number FROM added UNION ALL SELECT platform, status, -1 FROM removed"
        ") AS changed GROUP BY platform, status HAVING sum(number) <> 0; "
        "END IF; RETURN NULL; END $$",
        "CREATE TRIGGER candidates_added AFTER INSERT ON tbl_candidate "
        "REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
        "CREATE TRIGGER candidates_removed AFTER DELETE ON tbl_candidate "
        "REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
        "CREATE TRIGGER candidates_changed AFTER UPDATE ON tbl_candidate "
        "REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
        "CREATE TRIGGER candidates_emptied AFTER TRUNCATE ON tbl_candidate "
        "FOR EACH STATEMENT EXECUTE FUNCTION count_candidates()",
    ),
}


def upgrade() -> None:
    op.execute("CREATE TABLE candidate_counts (platform TEXT NOT NULL, status TEXT NOT NULL, number BIGINT NOT NULL)")
    op.execute(
        "INSERT INTO candidate_counts SELECT platform, status, count(*) FROM tbl_candidate GROUP BY platform, status"
    )
    for statement in COUNTERS[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for name in ("candidates_added", "candidates_removed", "candidates_changed"):
            op.execute(f"DROP TRIGGER {name}")
    else:
        op.execute("DROP FUNCTION count_candidates CASCADE")
    op.execute("DROP TABLE candidate_counts")
