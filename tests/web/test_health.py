"""Health: open, short, and true."""

import asyncio
import gc
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi import FastAPI

from tests.web.conftest import StageMaker
from tests.web.stage import Stage
from tidings.core.db.database import Database, open_database
from tidings.web.routes.health import Check, check_database, make_health_router


async def pass_check() -> bool:
    return True


async def fail_check() -> bool:
    return False


async def break_check() -> bool:
    raise RuntimeError("the password is secret")


async def hang() -> bool:
    await asyncio.Event().wait()
    return True


async def cling() -> bool:
    """Needs to be cancelled twice, like a statement whose server hangs."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return await hang()


async def fail_late() -> bool:
    """A statement whose connection breaks after it was cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    raise OSError("the server closed the connection")


async def test_a_check_that_fails_after_its_answer_leaves_no_traceback(make_stage: StageMaker) -> None:
    """A39: at the end of an outage there would be one for each request of the hours before."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    app = FastAPI()
    app.include_router(make_health_router({"database": fail_late}, patience=timedelta(milliseconds=10)))
    built = make_stage()
    answer = await Stage(app=app, stop=built.stop, tokens=built.tokens).ask("GET", "/health/ready", token=None)
    assert answer.status == 503
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []


async def test_live_is_always_alive(make_stage: StageMaker) -> None:
    """Also while nothing else works."""
    answer = await make_stage(checks={"database": break_check}).ask("GET", "/health/live", token=None)
    assert (answer.status, answer.json) == (200, {"status": "alive"})


@pytest.mark.parametrize("check", [fail_check, break_check])
async def test_ready_names_what_failed_and_nothing_more(make_stage: StageMaker, check: object) -> None:
    """503 with the check's name; why is in the log."""
    checks = {"database": pass_check, "scheduler": check}
    answer = await make_stage(checks=checks).ask("GET", "/health/ready", token=None)
    assert answer.status == 503
    assert answer.json == {"status": "unready", "checks": {"database": "ok", "scheduler": "failed"}}


@pytest.mark.parametrize("check", [hang, cling])
async def test_a_check_that_hangs_has_failed(make_stage: StageMaker, check: Check) -> None:
    """The answer comes in time whatever the database does, even if it keeps a statement from being cancelled."""
    app = FastAPI()
    app.include_router(make_health_router({"database": check}, patience=timedelta(milliseconds=10)))
    built = make_stage()
    answer = await Stage(app=app, stop=built.stop, tokens=built.tokens).ask("GET", "/health/ready", token=None)
    assert (answer.status, answer.json["checks"]) == (503, {"database": "failed"})


async def test_the_database_s_check_asks_the_database(
    make_stage: StageMaker, database: Database, tmp_path: Path
) -> None:
    """On both databases; one that is not there fails."""
    gone = open_database(f"sqlite:///{tmp_path}/gone.db")
    (tmp_path / "gone.db").unlink()
    stage = make_stage(checks={"here": check_database(database), "gone": check_database(gone)})
    answer = await stage.ask("GET", "/health/ready", token=None)
    await gone.close()
    assert answer.json["checks"] == {"here": "ok", "gone": "failed"}
