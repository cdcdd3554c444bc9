"""The servers that the subjects talk to, in a process of their own: `python -m benchmarks.stage large|small …`.

`large` serves files from disk, as a web server does, with ETag and Last-Modified; `small` is a few sites of the
sandbox. Both have one engine of the sandbox, and an address that tells what that engine has got; `large` has two more,
one of which answers every request with 503. The process says on its first line of output where everything is, and ends
when its input does, and so never outlives its parent.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

from aiohttp import web

from benchmarks.files import KEY, Variant, write_site
from benchmarks.measurement import ROOT
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault

_PATIENCE_SECONDS = 10


class Stage:
    """The process, as its parent sees it. `sitemaps` are the addresses in the order in which they were asked for."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stage", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._places: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        if not self._places:
            raise RuntimeError(f"the servers did not start: code {self._process.wait(_PATIENCE_SECONDS)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    @property
    def sitemaps(self) -> Sequence[str]:
        urls: list[str] = self._places["sitemaps"]
        return urls

    @property
    def key(self) -> str:
        return str(self._places["key"])

    @property
    def endpoint(self) -> str:
        return str(self._places["endpoint"])

    @property
    def second_endpoint(self) -> str:
        """Another engine that works."""
        return str(self._places["second"])

    @property
    def down_endpoint(self) -> str:
        """An engine that is down all the time."""
        return str(self._places["down"])

    def ask_engine(self) -> dict[str, Any]:
        """What the engine has got so far: `accepted` URLs, how many of them `twice`, and all `arrivals` in seconds."""
        with urlopen(self._places["control"]) as answer:
            shown: dict[str, Any] = json.load(answer)
            return shown


async def serve_large(folder: Path, variant: Variant, sizes: Sequence[int]) -> None:
    async with (
        SandboxEngine("engine") as engine,
        SandboxEngine("second") as second,
        SandboxEngine("down") as down,
        _serve(engine, folder=folder) as origin,
    ):
        down.misbehave(Fault(status=503))
        sitemaps = await asyncio.to_thread(write_site, folder, origin=origin, sizes=sizes, variant=variant)
        await _wait_for_end(
            sitemaps=sitemaps,
            key=KEY,
            endpoint=engine.endpoint,
            second=second.endpoint,
            down=down.endpoint,
            control=f"{origin}/recorded",
        )


async def serve_small(sizes: Sequence[int]) -> None:
    # What is measured here is when a request arrives, not when this process got round to it. Only root may do this.
    with suppress(PermissionError):
        os.nice(-15)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(SandboxEngine("engine"))
        origin = await stack.enter_async_context(_serve(engine))
        sites = [await stack.enter_async_context(SandboxSite(pages=size)) for size in sizes]
        await _wait_for_end(
            sitemaps=[site.sitemap_url for site in sites],
            key=sites[0].key,
            endpoint=engine.endpoint,
            control=f"{origin}/recorded",
        )


@asynccontextmanager
async def _serve(engine: SandboxEngine, *, folder: Path | None = None) -> AsyncIterator[str]:
    """Serve what the engine has got, and the files in `folder`; gives the origin."""

    async def tell(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "accepted": len(engine.accepted),
                "twice": sum(times > 1 for times in engine.accepted.values()),
                "arrivals": [request.at for request in engine.requests],
            }
        )

    app = web.Application()
    app.router.add_get("/recorded", tell)
    if folder is not None:
        app.router.add_static("/", folder)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        server = web.TCPSite(runner, "127.0.0.1", 0)
        await server.start()
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await runner.cleanup()


async def _wait_for_end(**places: object) -> None:
    print(json.dumps(places), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _main() -> None:
    match sys.argv[1:]:
        case ["large", folder, variant, *sizes]:
            asyncio.run(serve_large(Path(folder), Variant(variant), [int(size) for size in sizes]))
        case ["small", *sizes]:
            asyncio.run(serve_small([int(size) for size in sizes]))


if __name__ == "__main__":
    _main()
