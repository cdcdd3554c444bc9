"""Ends streamed answers, such as server-sent events, when the service stops. The route sees a disconnected client, and
the client gets a complete answer. Other answers have time to finish.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings.core.stop import Stop, StopRequestedError


class StreamMiddleware:
    """Ends open streams at the stop signal."""

    def __init__(self, app: ASGIApp, *, stop: Stop) -> None:
        self._app = app
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        open_answer = body_read = False

        async def receive_until_stopped() -> Message:
            nonlocal body_read
            if not body_read:
                message = await receive()
                body_read = not message.get("more_body", False)
                return message
            return await self._wait_for_end(receive)

        async def watch_send(message: Message) -> None:
            nonlocal open_answer
            open_answer = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        await self._app(scope, receive_until_stopped, watch_send)
        if open_answer and self._stop.requested:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait_for_end(self, receive: Receive) -> Message:
        async def wait() -> Message:
            return await receive()

        try:
            return await self._stop.wait_for(wait())
        except StopRequestedError:
            return {"type": "http.disconnect"}
