"""Sends the envelope of `collect.crawl.envelope` over HTTP, under the paths of the crawl API and of the writer."""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter

from tidings.collect.crawl.envelope import Envelope, Meta, wrap_data
from tidings.collect.errors import ErrorCode
from tidings.core.clock import Clock
from tidings.core.logs.request_id import NO_REQUEST, current_request_id

ENVELOPED: Final = ("/crawler", "/workflow")
# The HTTP status of a crawl that failed; 500 for every other code.
STATUSES: Final[Mapping[ErrorCode, int]] = MappingProxyType(
    {
        ErrorCode.INVALID_INPUT: 422,
        ErrorCode.COOKIE_EXHAUSTED: 503,
        ErrorCode.COOKIE_INVALID: 502,
        ErrorCode.PLATFORM_ERROR: 502,
        ErrorCode.NETWORK_ERROR: 502,
        ErrorCode.TIMEOUT_ERROR: 504,
    }
)

# The type of any route's answer, for run time.
_ANYTHING: Final = TypeAdapter[Any](Any)

Parameters = ParamSpec("Parameters")
Data = TypeVar("Data")
Route = Callable[Parameters, Awaitable[Data]]


class EnvelopeResponse(JSONResponse):
    """Serialises dataclasses field by field. It does not validate them again, which would cost more than the whole
    route."""

    def render(self, content: Any) -> bytes:
        return _ANYTHING.dump_json(content)


def is_enveloped(path: str) -> bool:
    """Whether every answer at this path is an envelope."""
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in ENVELOPED)


class EnvelopeRoutes:
    """Registers routes that return data and sends the data in an envelope. Their return type describes the answer."""

    def __init__(self, router: APIRouter, *, clock: Clock) -> None:
        self._router = router
        self._clock = clock

    def add(
        self, method: str, path: str, summary: str, *, responses: Mapping[int | str, dict[str, Any]]
    ) -> Callable[[Route[Parameters, Data]], Route[Parameters, Data]]:
        """Decorates a route; `responses` are its problems, besides those that every route has."""

        def register(route: Route[Parameters, Data]) -> Route[Parameters, Data]:
            shape = route.__annotations__["return"]
            self._router.add_api_route(
                path,
                self._wrap(route),
                methods=[method],
                summary=summary,
                response_model=Envelope[shape],  # type: ignore[valid-type]
                responses=dict(responses),
            )
            return route

        return register

    def _wrap(self, route: Route[Parameters, Data]) -> Route[Parameters, EnvelopeResponse]:
        @wraps(route)
        async def answer(*args: Parameters.args, **kwargs: Parameters.kwargs) -> EnvelopeResponse:
            began = self._clock.monotonic()
            data = await route(*args, **kwargs)
            latency = round((self._clock.monotonic() - began) * 1000)
            meta = Meta(request_id=current_request_id() or NO_REQUEST, latency_ms=latency, cookie_used=None)
            return EnvelopeResponse(wrap_data(data, meta=meta))

        return answer
