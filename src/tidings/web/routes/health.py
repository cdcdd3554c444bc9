"""Routes of health, open to everybody: is the process alive, and can it work."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final, Literal

from fastapi import Response
from pydantic import BaseModel
from sqlalchemy import text

from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger
from tidings.web.description import OF_EVERY_ROUTE, ApiRouter

Check = Callable[[], Awaitable[bool]]

LIVE_PATH: Final = "/health/live"
READY_PATH: Final = "/health/ready"
PATIENCE: Final = timedelta(seconds=2)

_log = get_logger(__name__)


class Liveness(BaseModel):
    status: Literal["alive"] = "alive"


class Readiness(BaseModel):
    status: Literal["ready", "unready"]
    checks: dict[str, Literal["ok", "failed"]]


def check_database(database: Database) -> Check:
    """A check that the database answers."""

    async def ask() -> bool:
        await database.fetch(text("SELECT 1"))
        return True

    return ask


def make_health_router(checks: Mapping[str, Check], *, patience: timedelta = PATIENCE) -> ApiRouter:
    """Both routes. A check that raises, returns False or takes too long has failed."""
    router = ApiRouter(tags=["health"], problems=OF_EVERY_ROUTE)

    @router.get(LIVE_PATH, summary="Is the process alive?")
    async def read_liveness() -> Liveness:
        return Liveness()

    @router.get(
        READY_PATH,
        summary="Can it work?",
        responses={503: {"model": Readiness, "description": "A check has failed."}},
    )
    async def read_readiness(response: Response) -> Readiness:
        results = await asyncio.gather(*(_run(name, check, patience) for name, check in checks.items()))
        if not all(results):
            response.status_code = 503
        return Readiness(
            status="ready" if all(results) else "unready",
            checks={name: "ok" if passed else "failed" for name, passed in zip(checks, results, strict=True)},
        )

    return router


async def _run(name: str, check: Check, patience: timedelta) -> bool:
    running = asyncio.ensure_future(check())
    try:
        # Not `asyncio.timeout`, which would wait until a hanging statement is cancelled.
        done, _ = await asyncio.wait({running}, timeout=patience.total_seconds())
        if not done:
            raise TimeoutError
        return running.result()
    except Exception as error:  # noqa: BLE001 - a check that raises has failed
        _log.warning("health.check_failed", check=name, reason=type(error).__name__)
        return False
    finally:
        # A cancelled statement may still fail, minutes later. Nobody waits for that.
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        running.cancel()
