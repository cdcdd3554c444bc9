"""One execution of the built-in runner, from the right to run to its end, whatever its work does in between. What the
work is, is in `runner`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidings.collect.run.report import EndedExecution
from tidings.collect.write import Writer
from tidings.core.executions import Execution, ExecutionLostError, Executions, ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.stop import Stop, StopRequestedError

_log = get_logger(__name__)

# How it went; None leaves that to the writer, who has counted what failed.
Work = Callable[[Execution], Awaitable[ExecutionStatus | None]]


async def execute(workflow: str, work: Work, *, writer: Writer, executions: Executions, stop: Stop) -> EndedExecution:
    """Do the work as one execution with a request id of its own. Where another has the right to run, nothing is done.

    It ends in any case: as `interrupted` where the work raises StopRequestedError or is cancelled, as `failed` with its
    reason where it raises anything else. An execution that is taken away is left as it is. Raises what the database
    raises outside the work.
    """
    with request_id_scope() as request_id:
        acquired = await writer.acquire(workflow)
        execution, status, reason = acquired.execution, ExecutionStatus.RUNNING, acquired.reason
        if execution is None:
            _log.info("workflow.busy", workflow=workflow, reason=reason)
        else:
            try:
                status, reason = await _Run(execution, writer, executions, stop).carry_out(work)
            except ExecutionLostError as error:
                status, reason = ExecutionStatus.INTERRUPTED, str(error)
                _log.warning("workflow.lost", workflow=workflow, execution=execution.public_id)
        return EndedExecution(
            workflow=workflow, execution_id=acquired.execution_id, request_id=request_id, status=status, reason=reason
        )


class _Run:
    """An execution that has begun."""

    def __init__(self, execution: Execution, writer: Writer, executions: Executions, stop: Stop) -> None:
        self._execution = execution
        self._writer = writer
        self._executions = executions
        self._stop = stop

    async def carry_out(self, work: Work) -> tuple[ExecutionStatus, str | None]:
        """Its status at the end, and the reason for it where it is no good one. Raises ExecutionLostError."""
        execution = self._execution
        try:
            async with self._executions.keep_alive(execution, heartbeat=self._writer.heartbeat):
                status = await work(execution)
        except StopRequestedError:
            return await self._end(ExecutionStatus.INTERRUPTED, self._stop.reason)
        except ExecutionLostError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the workflow must not count as running
            _log.exception("workflow.broken", workflow=execution.workflow_name, execution=execution.public_id)
            return await self._end(ExecutionStatus.FAILED, f"it ended early: {type(error).__name__}")
        except asyncio.CancelledError:
            with suppress(ExecutionLostError):
                await self._end(ExecutionStatus.INTERRUPTED, "it was cut off")
            raise
        return await self._end(status)

    async def _end(
        self, status: ExecutionStatus | None, reason: str | None = None
    ) -> tuple[ExecutionStatus, str | None]:
        result = None if reason is None else {"errors": [reason]}
        finished = await self._writer.finish(self._execution, status=status, result=result)
        return finished.status, reason
