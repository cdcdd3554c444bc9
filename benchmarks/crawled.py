"""The crawl API in a process of its own, on one core, with a route beside it that does nothing behind the same layers:
`python -m benchmarks.crawled`, set up by its environment as `tidings serve` is.

The process says on its first line of output where it listens, and ends when its input does. With `PROFILE` in its
environment it writes there, at its end, where its time went (cProfile).
"""

import asyncio
import cProfile
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Annotated

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from benchmarks.child import CORE, Child
from tidings import __version__
from tidings.cli.session import Session
from tidings.collect.crawl.crawler import Crawler
from tidings.core.heap import prepare_heap
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.stop import Stop
from tidings.web.app import WebServices, create_app
from tidings.web.middleware.auth import require
from tidings.web.routes.collect.crawler import make_crawler_router
from tidings.web.server import serve
from tidings.web.service import make_monitoring_routers, make_site_routers
from tidings.wiring.crawl import open_crawler
from tidings.wiring.installation import Installation

EMPTY_PATH = "/crawler/empty"


class Crawled(Child):
    """The process, as its parent sees it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("benchmarks.crawled", environment)


def _make_app(installation: Installation, crawler: Crawler, *, stop: Stop) -> FastAPI:
    """The service's application, with the empty route where the crawl API's own are: the way to a route costs too."""
    router = make_crawler_router(crawler)

    @router.post("/empty")
    async def do_nothing(_grant: Annotated[Grant, require(Scope.CRAWL)]) -> JSONResponse:
        return JSONResponse({"cpu": time.process_time()})

    routers = (*make_monitoring_routers(installation), router, *make_site_routers(installation))
    return create_app(
        WebServices(
            tokens=installation.tokens,
            clock=installation.clock,
            stop=stop,
            version=__version__,
            checks={},
            routers=routers,
            fixed_tokens=installation.settings.tokens,
        )
    )


async def _serve() -> None:
    async with Session() as session, open_crawler(installation := await session.open(verbose=True)) as crawler:
        stop = Stop(clock=installation.clock)
        app = _make_app(installation, crawler, stop=stop)

        def tell(_: str, port: int) -> None:
            print(json.dumps({"port": port}), flush=True)

        serving = asyncio.create_task(serve(app, host="127.0.0.1", port=0, stop=stop, on_listening=tell))
        await asyncio.to_thread(sys.stdin.read)
        stop.request("the benchmark is over")
        await serving


def _run() -> None:
    prepare_heap()
    asyncio.run(_serve())


if __name__ == "__main__":
    os.sched_setaffinity(0, {CORE})
    if "PROFILE" in os.environ:
        cProfile.runctx("_run()", globals(), {}, os.environ["PROFILE"])
    else:
        _run()
