"""The sign of life of an execution while its holder works."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from tidings.core.clock import Clock
from tidings.core.execution_table import Execution, ExecutionLostError
from tidings.core.logs.logger import get_logger

HEARTBEAT_EVERY = timedelta(minutes=1)

_log = get_logger(__name__)


@asynccontextmanager
async def keep_alive(
    execution: Execution, *, send: Callable[[Execution], Awaitable[object]], clock: Clock
) -> AsyncIterator[None]:
    """Send a heartbeat every minute while the block runs. A lost execution cancels the block: ExecutionLostError."""
    owner = asyncio.current_task()
    lost = False

    async def beat() -> None:
        nonlocal lost
        while True:
            await clock.sleep(HEARTBEAT_EVERY)
            try:
                await send(execution)
            except ExecutionLostError:
                lost = True
                if owner is not None:
                    owner.cancel()
                return
            except Exception as error:  # noqa: BLE001 - one failed heartbeat must not end the others
                # The database is busy or away: thirty heartbeats may be missed before it matters.
                _log.warning("execution.heartbeat_failed", execution=execution.public_id, reason=type(error).__name__)

    task = asyncio.create_task(beat())
    try:
        yield
    except asyncio.CancelledError:
        if lost and owner is not None:
            owner.uncancel()
            raise ExecutionLostError(execution.public_id, execution.workflow_name) from None
        raise
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
