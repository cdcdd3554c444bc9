"""The API's description for programs, /openapi.json. People read it as a page of the dashboard, /docs."""

from typing import Annotated

from fastapi import Request
from fastapi.responses import JSONResponse

from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter
from tidings.web.middleware.auth import require


def make_docs_router() -> ApiRouter:
    router = ApiRouter(tags=["operations"])

    @router.get("/openapi.json", summary="This API as OpenAPI", response_class=JSONResponse)
    async def read_description(request: Request, _grant: Annotated[Grant, require(*Scope)]) -> JSONResponse:
        return JSONResponse(request.app.openapi())

    return router
