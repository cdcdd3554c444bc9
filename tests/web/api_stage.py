"""The real service on a test's own database: an installation, its application, and beside it a site, engines and a
Bing of the sandbox, which are all that it ever talks to. Requests go to the application within this process; `serve`
puts it on a socket, with its scheduler, where that matters.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from tests.stage import open_stage
from tests.waiting import wait_until
from tests.web.stage import ADMIN, Answer, Stage, listen
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.service import RUN
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.request_log import Recorded
from tidings.web.service import Service
from tidings.wiring.crawl import open_crawler
from tidings.wiring.installation import Installation

KEY: Final = "canary-indexnow-7c31e0a95b"
BING_KEY: Final = "canarybing5d81c0e29b7f43a6"
MASK: Final = "****...****"

_SAY_NOTHING: Final = object()
_PATIENCE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class ApiStage:
    """The service and what it announces to."""

    installation: Installation
    service: Service
    worker: "StageWorker"
    stage: Stage
    web: SandboxSite
    engines: Sequence[SandboxEngine]
    bing: SandboxBing

    @property
    def engine(self) -> SandboxEngine:
        """The first one; most tests need no other."""
        return self.engines[0]

    async def ask(
        self,
        method: str,
        target: str,
        document: object = _SAY_NOTHING,
        *,
        token: str | None = ADMIN,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """One request; `document` is its JSON body."""
        body = None if document is _SAY_NOTHING else json.dumps(document).encode()
        return await self.stage.ask(method, target, token=token, headers=headers, body=body)

    async def read(self, target: str) -> Any:
        """What a GET answers, which has to be a success."""
        answer = await self.ask("GET", target)
        assert answer.status == 200, answer.body
        return answer.json

    def describe(self, **fields: Any) -> dict[str, Any]:
        """The fields of a new site that is the sandbox's; None takes one out."""
        given = {
            "sitemapUrl": self.web.sitemap_url,
            "indexnowKey": self.web.key,
            "searchEngines": [engine.endpoint for engine in self.engines],
            **fields,
        }
        return {name: value for name, value in given.items() if value is not None}

    async def add_site(self, **fields: Any) -> dict[str, Any]:
        """Set the sandbox's site up, and tell what is answered."""
        answer = await self.ask("POST", "/api/sites", self.describe(**fields))
        assert answer.status == 201, answer.body
        site: dict[str, Any] = answer.json["site"]
        return site

    async def run(self, **query: str) -> dict[str, Any]:
        """Run the only site, or the one that is named, to its end; returns its result."""
        written = "".join(f"&{name}={value}" for name, value in query.items())
        answer = await self.ask("POST", f"/trigger?wait=true{written}")
        assert answer.status == 200, answer.body
        result: dict[str, Any] = answer.json["result"]
        return result

    async def start_held(self, target: str = "/trigger") -> str:
        """Start an execution that stands still at the engine; returns its id. Only within `hold`."""
        arrived = len(self.engine.requests)
        answer = await self.ask("POST", target)
        assert answer.status == 202, answer.body
        await self.engine.wait_for_requests(arrived + 1, timeout=_PATIENCE)
        execution: str = answer.json["executionId"]
        return execution

    async def wait_for_end(self, site: str, execution: str) -> dict[str, Any]:
        """An execution's description, once it has ended."""
        state: dict[str, Any] = {}

        async def has_ended() -> bool:
            state.update(await self.read_execution(site, execution))
            return bool(state["status"] != "running")

        await wait_until(has_ended)
        return state

    async def read_execution(self, site: str, execution: str) -> dict[str, Any]:
        described: dict[str, Any] = (await self.read(f"/api/sites/{site}/executions/{execution}"))["execution"]
        return described


@asynccontextmanager
async def open_api(
    database_url: str, folder: Path, *, pages: int = 20, engines: int = 1, key: str = KEY, **settings: Any
) -> AsyncIterator[ApiStage]:
    """Open the service, and end what still runs when the block ends. `settings` are those of the environment."""
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(SandboxSite(pages=pages, key=key))
        names = ("alpha", "beta")[:engines]
        asked = [await stack.enter_async_context(SandboxEngine(name)) for name in names]
        bing = await stack.enter_async_context(SandboxBing(keys={BING_KEY: [web.origin]}))
        given: dict[str, Any] = {
            "engines": tuple(engine.endpoint for engine in asked),
            "tokens": {Scope.ADMIN: Secret(ADMIN)},
            "secrets": {"TIDINGS_TOKEN": Secret(ADMIN)},
            "bases": ApiBases(bing=bing.address),
        }
        installation = await stack.enter_async_context(open_stage(database_url, folder, **{**given, **settings}))
        stop = Stop(clock=installation.clock)
        crawler = await stack.enter_async_context(open_crawler(installation))
        service = Service(installation, crawler=crawler, stop=stop)
        worker = StageWorker(installation)
        stack.push_async_callback(worker.end)
        stage = Stage(app=service.make_app(), stop=stop, tokens=installation.tokens)
        yield ApiStage(installation, service, worker, stage, web, asked, bing)


class StageWorker:
    """Does what is asked for, without the schedule, until it ends or the whole service is served."""

    def __init__(self, installation: Installation) -> None:
        self._stop = Stop(clock=installation.clock)
        work = installation.dispatcher.work({RUN: installation.service.run}, self._stop, drain=_PATIENCE)
        self._task = asyncio.create_task(work)

    async def end(self) -> None:
        self._stop.request("the test is over")
        await self._task


@asynccontextmanager
async def hold(engine: SandboxEngine) -> AsyncIterator[None]:
    """The engine answers nothing before the block ends; then it answers what waits."""
    released = asyncio.Event()

    async def wait(_recorded: Recorded) -> None:
        await released.wait()

    engine.on_request = wait
    try:
        yield
    finally:
        engine.on_request = None
        released.set()


@asynccontextmanager
async def serve(api: ApiStage) -> AsyncIterator[int]:
    """The whole service on a free port of 127.0.0.1, which is what this gives; stops it at the end."""
    await api.worker.end()
    async with listen(api.stage.stop, api.service.run) as port:
        yield port
