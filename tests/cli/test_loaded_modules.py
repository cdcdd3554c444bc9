"""Commands load only what they use: each in a process of its own, which lists its modules when it ends."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE

import pytest

from tests.cli.terminal import Terminal, announce_words, make_sandbox
from tidings.sandbox.bundle import Sandbox

HEAVY = {"sqlalchemy", "aiohttp", "rich", "structlog", "cryptography", "pydantic", "fastapi", "apprise", "alembic"}
NOT_FOR_ANNOUNCING = {
    *("tidings.web", "tidings.collect", "tidings.audit", "tidings.sandbox"),
    *("tidings.announce.service", "tidings.core.queue.embedded"),
    *("apprise", "alembic", "fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client"),
    *("trafilatura", "lxml", "feedparser", "procrastinate", "psycopg", "sqlalchemy.dialects.postgresql"),
    # With --json, as a cron job has it: tables and bars are for people.
    "rich",
}
# A new database gets the tables of both pipelines.
TABLES = {
    *("tidings.collect", "tidings.collect.notes", "tidings.collect.candidate_counts"),
    *("tidings.collect.crawl", "tidings.collect.crawl.cookies"),
}

PROGRAM = """
import atexit, json, sys
from pathlib import Path
atexit.register(lambda: Path("modules.json").write_text(json.dumps(sorted(sys.modules))))
from tidings.cli import main
sys.argv = ["tidings", *sys.argv[1:]]
main()
"""


async def list_modules(terminal: Terminal, *words: str, **variables: str) -> tuple[int | None, set[str]]:
    """Run a command; its exit code, and the modules that it had loaded in the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *words),
        cwd=terminal.folder,
        env={**terminal.variables, **variables},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    await process.communicate()
    return process.returncode, set(json.loads((terminal.folder / "modules.json").read_text()))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        (["sites", "add", "--help"], 0),
        (["collect", "run", "--help"], 0),
        (["announce"], 2),
        (["run", "shop", "--channel", "nowhere"], 2),
        (["colect"], 2),
        (["keys", "new"], 0),
    ],
    ids=str,
)
async def test_help_and_usage_errors_load_nothing_heavy(terminal: Terminal, words: list[str], code: int) -> None:
    """Interfaces: every cron job and every key stroke of completion pays for what is loaded."""
    ended, modules = await list_modules(terminal, *words)
    assert ended == code
    assert modules & (HEAVY | {"tidings.settings", "tidings.wiring"}) == set()


async def test_completion_loads_nothing_heavy(terminal: Terminal) -> None:
    """Interfaces: also where the values of an option are completed."""
    words = "tidings run x --channel b"
    ended, modules = await list_modules(
        terminal, _TIDINGS_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" "))
    )
    assert ended == 0
    assert modules & HEAVY == set()


@pytest.mark.thorough
async def test_announcing_loads_neither_the_service_nor_collect(terminal: Terminal) -> None:
    """Interfaces: `announce` and `run`; only where the database is new, collect's tables are defined, too."""
    async with make_sandbox(pages=3) as sandbox:
        first = await list_modules(terminal, *announce_words(sandbox, "--json"))
        again = await list_modules(terminal, *announce_words(sandbox, "--json"))
        stored = await _store(terminal, sandbox)
        ran = await list_modules(terminal, "run", sandbox.site.host, "--json")
        assert (first[0], again[0], stored, ran[0]) == (0, 0, 0, 0)
        assert _find(again[1]) == _find(ran[1]) == set()
        defining = (".table", ".tables", "_tables", ".states")
        assert {name for name in _find(first[1]) if name not in TABLES and not name.endswith(defining)} == set()


async def _store(terminal: Terminal, sandbox: Sandbox) -> int:
    engines = [word for engine in sandbox.engines for word in ("--engine", engine.endpoint)]
    ended = await terminal.run("sites", "add", sandbox.site.sitemap_url, "--key", sandbox.site.key, *engines)
    return ended.code


def _find(modules: set[str]) -> set[str]:
    return {name for name in modules for forbidden in NOT_FOR_ANNOUNCING if f"{name}.".startswith(f"{forbidden}.")}
