"""`tidings worker`, `workers` and `stop`: a worker refuses to start where it could do harm."""

import asyncio
import signal

import psycopg
import pytest

from tests.cli.terminal import Terminal, end
from tests.postgres import Server as PostgresServer
from tests.waiting import wait_until
from tidings.core.secrets.master_key import new_master_key

SITE = ("sites", "add", "https://example.com/sitemap.xml", "--key", "abcdefgh12345678")
SOON = 60.0


@pytest.mark.parametrize(
    ("variables", "words", "reason"),
    [
        ({"TIDINGS_DATABASE_URL": None}, (), "a worker needs PostgreSQL"),
        ({"COOKIE_MASTER_KEY": None}, (), "a worker needs COOKIE_MASTER_KEY"),
        ({"TIDINGS_WEBHOOK_URL": "https://example.com/hook"}, (), "a worker needs TIDINGS_WEBHOOK_SECRET"),
        ({"COOKIE_MASTER_KEY": "another"}, (), "the stored keys and cookies cannot be opened"),
        ({}, ("--queue", "nowhere"), "there is no queue 'nowhere'"),
    ],
    ids=["SQLite", "no master key", "no webhook secret", "another key", "no such queue"],
)
async def test_a_worker_refuses_to_start_where_it_could_do_harm(
    terminal: Terminal, postgres_url: str, variables: dict[str, str | None], words: tuple[str, ...], reason: str
) -> None:
    """C22, A4: it would take work from the others and fail at it, or sign with a secret of its own."""
    terminal.variables["TIDINGS_DATABASE_URL"] = postgres_url
    assert (await terminal.run(*SITE)).code == 0
    if variables.get("COOKIE_MASTER_KEY") == "another":
        variables = {"COOKIE_MASTER_KEY": new_master_key()}
    ended = await terminal.run("worker", *words, **variables)
    assert (ended.code, reason in ended.complaint) == (2, True), ended.err


async def test_a_second_machine_without_the_master_key_is_refused_and_keeps_no_key(
    terminal: Terminal, postgres_url: str
) -> None:
    """C22: `tidings serve` on another data directory made a key of its own, and failed at every site it took."""
    terminal.variables["TIDINGS_DATABASE_URL"] = postgres_url
    assert (await terminal.run(*SITE)).code == 0
    ended = await terminal.run("serve", "--port", "0", "--quiet", COOKIE_MASTER_KEY=None)
    assert ended.code == 2
    assert "Set it to the master key of the machine that stored them" in ended.complaint
    assert not (terminal.data_dir / "master.key").exists()


async def test_a_worker_is_seen_while_it_works_and_ends_at_a_signal(terminal: Terminal, postgres_url: str) -> None:
    """Who takes jobs is seen from anywhere. Before it begins, it opens a stored cookie."""
    terminal.variables["TIDINGS_DATABASE_URL"] = postgres_url
    assert (await terminal.pipe("cookies", "add", "mine", "--platform", "weibo", given="SUB=1")).code == 0
    assert (await terminal.run("workers")).out == "No worker takes jobs.\n"
    process = await terminal.start("worker", "--queue", "announce", "--quiet")
    async with asyncio.timeout(SOON):
        assert b"takes jobs of announce" in await process.stdout.readline()
        while not (found := (await terminal.run("workers", "--json")).document["workers"]):
            pass
    assert [(each["queues"], each["places"], each["dead"]) for each in found] == [(["announce"], 4, False)]
    process.send_signal(signal.SIGTERM)
    assert (await end(process)).code == 0
    assert (await terminal.run("workers", "--json")).document["workers"] == []


@pytest.mark.thorough
async def test_a_worker_creates_no_tables_and_waits_for_those_of_the_server(
    terminal: Terminal, postgres_server: PostgresServer
) -> None:
    """A41: in a roll-out the server migrates, once; a worker that came first goes on then."""
    terminal.variables["TIDINGS_DATABASE_URL"] = url = postgres_server.make_database(empty=True)
    looks = set[tuple[object, ...]]()
    with psycopg.connect(url, autocommit=True) as connection:
        # A process that wants to create tables would wait for this, and not look a second time.
        connection.execute("SELECT pg_advisory_lock(hashtext('tidings.migrations'))")
        process = await terminal.start("worker", "--quiet")
        line = asyncio.create_task(process.stdout.readline())

        async def has_looked_often() -> bool:
            """It looks once a second, in a transaction of its own."""
            ended = "datname = current_database() AND state = 'idle' AND query = 'COMMIT'"
            looks.update(connection.execute(f"SELECT state_change FROM pg_stat_activity WHERE {ended}"))
            return len(looks) > 4

        await wait_until(has_looked_often)
        assert not line.done()
        connection.execute("SELECT pg_advisory_unlock_all()")
        assert (await terminal.run("database", "upgrade")).code == 0
    async with asyncio.timeout(SOON):
        assert b"takes jobs of announce, collect" in await line
    process.send_signal(signal.SIGTERM)
    assert (await end(process)).code == 0
    postgres_server.drop_database(url)


async def test_only_answering_needs_somebody_else_to_do_the_work(terminal: Terminal, postgres_url: str) -> None:
    """A41: on SQLite no other process does it."""
    ended = await terminal.run("serve", "--no-work", "--port", "0")
    assert (ended.code, "--no-work needs PostgreSQL" in ended.err) == (2, True)
    stopped = await terminal.run("stop", TIDINGS_DATABASE_URL=postgres_url)
    assert stopped.code == 2
