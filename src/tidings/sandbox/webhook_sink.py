"""A receiver of webhooks. It accepts every POST and keeps the body unchanged, so that tests can verify signatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from tidings.sandbox.wire.answers import SandboxAnswer
from tidings.sandbox.wire.request_log import Recorded
from tidings.sandbox.wire.stand_in import SandboxExchange, StandIn, read_object


@dataclass(frozen=True, slots=True)
class Message:
    """The body of one request."""

    # The text as it came.
    body: str
    # The JSON object in it; empty for any other text.
    document: Mapping[str, object]

    @property
    def urls(self) -> tuple[str, ...]:
        return ()

    @property
    def fields(self) -> Mapping[str, object]:
        return {"body": self.body, "document": self.document}


class SandboxSink(StandIn[Message]):
    """Answers 204 to a POST and 405 to other methods. `taken` are the accepted requests, in order."""

    def __init__(self) -> None:
        super().__init__("webhook")
        self._taken: list[Recorded] = []

    @property
    def address(self) -> str:
        return f"{self.origin}/hook"

    @property
    def taken(self) -> Sequence[Recorded]:
        return self._taken

    def describe(self, *, full: bool = False) -> dict[str, object]:
        return super().describe(full=full) | {"taken": len(self._taken)}

    def read_request(self, request: web.BaseRequest, body: bytes) -> Message:
        return Message(body.decode("utf-8", "replace"), read_object(body))

    async def judge(self, exchange: SandboxExchange, asked: Message) -> SandboxAnswer:
        if exchange.request.method != "POST":
            return SandboxAnswer(405, headers={"Allow": "POST"})
        return SandboxAnswer(204)

    def settle(self, recorded: Recorded, *, status: int) -> None:
        if 200 <= status < 300:
            self._taken.append(recorded)
