"""How a Hypothesis machine is played: one event loop for all its examples, and the same settings for every machine."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

T = TypeVar("T")


class World:
    """An event loop, and what is open on it. The rules of a machine are no coroutines; they run them here."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def open(self, context: AbstractAsyncContextManager[T]) -> T:
        """Open something that stays open until the test ends."""
        return self.run(self._stack.enter_async_context(context))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._runner:
            self.run(self._stack.aclose())


class WorldMachine(RuleBasedStateMachine):
    """A machine in a world. What one example opens is closed after it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.stack = AsyncExitStack()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.world.run(coroutine)

    def open(self, context: AbstractAsyncContextManager[T]) -> T:
        """Open something that stays open until the example ends."""
        return self.run(self.stack.enter_async_context(context))

    def teardown(self) -> None:
        try:
            self.end()
        finally:
            self.run(self.stack.aclose())

    def end(self) -> None:
        """What must hold at the end of every example, however it went."""


def play(make: Callable[[], WorldMachine], *, examples: int, steps: int) -> None:
    """Try so many orders of events, with at most so many events each."""
    run_state_machine_as_test(
        make,  # type: ignore[arg-type] # any callable that makes one
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
