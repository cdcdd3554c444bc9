"""One execution of the built-in runner, from the lock to its end, also if the work fails."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidings.collect.run.report import EndedExecution
from tidings.collect.write.writer import Writer
from tidings.core.executions import Execution, ExecutionLostError, Executions, ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.stop import Stop, StopRequestedError

_log = get_logger(__name__)

# Returns the execution's final status; None lets the writer derive it from the failures that it counted.
Work = Callable[[Execution], Awaitable[ExecutionStatus | None]]


async def execute(workflow: str, work: Work, *, writer: Writer, executions: Executions, stop: Stop) -> EndedExecution:
    """Do the work as one execution with a request id of its own. If another execution holds the lock, do nothing.

    The execution ends as `interrupted` if the work raises StopRequestedError or is cancelled, and as `failed` with a
    reason if it raises anything else. A lost execution is left as it is. Raises database errors from outside the work.
    """
    with request_id_scope() as request_id:
        acquired = await writer.acquire(workflow)
        execution, status, reason = acquired.execution, ExecutionStatus.RUNNING, acquired.reason
        if execution is None:
            _log.info("workflow.busy", workflow=workflow, reason=reason)
        else:
            try:
                status, reason = await _work_and_finish(execution, work, writer, executions, stop)
            except ExecutionLostError as error:
                status, reason = ExecutionStatus.INTERRUPTED, str(error)
                _log.warning("workflow.lost", workflow=workflow, execution=execution.public_id)
        return EndedExecution(
            workflow=workflow, execution_id=acquired.execution_id, request_id=request_id, status=status, reason=reason
        )


async def _work_and_finish(
    execution: Execution, work: Work, writer: Writer, executions: Executions, stop: Stop
) -> tuple[ExecutionStatus, str | None]:
    """The execution's final status, and the reason if it did not succeed. Raises ExecutionLostError."""

    async def finish(status: ExecutionStatus | None, reason: str | None = None) -> tuple[ExecutionStatus, str | None]:
        result = None if reason is None else {"errors": [reason]}
        return (await writer.finish(execution, status=status, result=result)).status, reason

    try:
        async with executions.keep_alive(execution, heartbeat=writer.heartbeat):
            status = await work(execution)
    except StopRequestedError:
        return await finish(ExecutionStatus.INTERRUPTED, stop.reason)
    except ExecutionLostError:
        raise
    except Exception as error:  # noqa: BLE001 - the lock must be released after any error
        _log.exception("workflow.failed", workflow=execution.workflow_name, execution=execution.public_id)
        return await finish(ExecutionStatus.FAILED, f"it ended early: {type(error).__name__}")
    except asyncio.CancelledError:
        with suppress(ExecutionLostError):
            await finish(ExecutionStatus.INTERRUPTED, "the process cancelled it")
        raise
    return await finish(status)
