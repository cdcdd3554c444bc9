"""The service in a process of its own, on one core, with an application beside it on a second port that does nothing:
`python -m benchmarks.served`, set up by its environment as `tidings serve` is.

Both answer in the same process and on the same event loop, so whatever slows one down slows the other. The second
application also tells what the process has used of its core, and makes the once-a-minute rounds on request. The
process says on its first line of output where both are, and ends when its input does.
"""

import asyncio
import dataclasses
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import uvicorn
from fastapi import FastAPI

from benchmarks.child import CORE, TOKEN, Child
from tidings.announce.schedule.table import Schedules
from tidings.cli.session import Session
from tidings.core.clock import SystemClock
from tidings.core.stop import Stop
from tidings.web.service import Service
from tidings.wiring.crawl import open_crawler
from tidings.wiring.installation import Installation


class Served(Child):
    """The process, as its parent sees it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("benchmarks.served", environment)
        self.empty_port: int = self.answers["empty"]

    def read_cpu(self) -> float:
        """Seconds of CPU so far."""
        return float(self._ask(self.empty_port, "/cpu")["cpu"])

    def read_waiting(self) -> float:
        """Seconds so far in which it could have run, and the core was busy with somebody else."""
        tasks = Path("/proc", str(self._process.pid), "task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9

    def make_rounds(self, times: int, *, hours: int, late: bool = False) -> float:
        """Milliseconds of CPU for one round, when it is so many hours later."""
        return float(self._ask(self.empty_port, f"/rounds?times={times}&hours={hours}&late={late}")["ms"])

    def ask(self, target: str, *, body: Any = None, method: str = "GET") -> Any:
        """One request to the service."""
        return self._ask(self.port, target, body=body, method=method)

    def _ask(self, port: int, target: str, *, body: Any = None, method: str = "GET") -> Any:
        request = Request(
            f"http://127.0.0.1:{port}{target}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        with urlopen(request, timeout=300) as answer:
            return json.load(answer)


class _LaterClock(SystemClock):
    """A clock that is some hours ahead: then every site is due."""

    def __init__(self, hours: int) -> None:
        self._ahead = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._ahead


async def _make_rounds(installation: Installation, *, times: int, hours: int, late: bool) -> float:
    """What a tick does. The runs themselves are left out, and so each is due as long as it is."""
    clock = _LaterClock(hours)
    schedules = Schedules(installation.database, clock=clock)
    service = dataclasses.replace(installation.service, schedules=schedules) if late else installation.service
    began = time.process_time()
    for _ in range(times):
        await service.watch_over()
        await installation.executions.recover()
        async with installation.dispatcher.open_tick() as connection:
            await schedules.list_due(connection, limit=installation.settings.max_executions)
    return (time.process_time() - began) / times * 1000


def _make_empty_app(installation: Installation) -> FastAPI:
    app = FastAPI()

    @app.get("/empty")
    async def do_nothing() -> dict[str, str]:
        return {}

    @app.get("/cpu")
    async def read_cpu() -> dict[str, float]:
        return {"cpu": time.process_time()}

    @app.get("/rounds")
    async def make_rounds(times: int, hours: int, late: bool) -> dict[str, float]:
        return {"ms": await _make_rounds(installation, times=times, hours=hours, late=late)}

    return app


class _PlainServer(uvicorn.Server):
    """Uvicorn as it is, with the service's HTTP implementation and without its hold on signals."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(uvicorn.Config(app, port=0, http="h11", ws="none", log_config=None, access_log=False))
        self.listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set_result(self.servers[0].sockets[0].getsockname()[1])


async def _serve() -> None:
    async with Session() as session:
        installation = await session.open(verbose=True)
        stop = Stop(clock=installation.clock)
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(_run(installation, stop, listening))
        plain = _PlainServer(_make_empty_app(installation))
        serving_plain = asyncio.create_task(plain.serve())
        print(json.dumps({"port": await listening, "empty": await plain.listening}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        plain.should_exit = True
        stop.request("the benchmark is over")
        await asyncio.gather(serving, serving_plain)


async def _run(installation: Installation, stop: Stop, listening: asyncio.Future[int]) -> None:
    async with open_crawler(installation) as crawler:
        await Service(installation, crawler=crawler, stop=stop).run(
            host="127.0.0.1", port=0, on_listening=lambda _, port: listening.set_result(port)
        )


if __name__ == "__main__":
    os.sched_setaffinity(0, {CORE})
    asyncio.run(_serve())
