"""Answer shape of the route of workers."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import Field, PlainSerializer

from tidings.web.models.parts import AnswerPart, Timestamp


def _write_seconds(duration: timedelta) -> float:
    return round(duration.total_seconds(), 1)


class WorkerDocument(AnswerPart):
    """A process that takes jobs, `places` at once at most."""

    name: str
    machine: str
    release: str
    queues: Sequence[str]
    places: int
    jobs: int = Field(description="How many it does now.")
    started_at: Timestamp
    seen_at: Timestamp
    dead: bool = Field(description="It has shown no sign of life for too long.")


class QueueDocument(AnswerPart):
    queue: str
    waiting: int = Field(description="Jobs that no worker has taken yet.")
    oldest: Annotated[timedelta, PlainSerializer(_write_seconds), Field(serialization_alias="oldestSeconds")]


class WorkersAnswer(AnswerPart):
    workers: Sequence[WorkerDocument]
    queues: Sequence[QueueDocument]
