"""A site, its engines and channels, the media platforms, Feishu and a receiver of webhooks, started and closed
together, in a test or as `tidings sandbox`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from tidings.sandbox.control import Control
from tidings.sandbox.engines.baidu import DEMO_BAIDU_TOKEN, SandboxBaidu
from tidings.sandbox.engines.bing import DEMO_BING_KEY, SandboxBing
from tidings.sandbox.engines.google import SandboxGoogle
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType
from tidings.sandbox.media.bilibili import SandboxBilibili
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.sandbox.media.weibo import SandboxWeibo
from tidings.sandbox.media.xiaohongshu import SandboxXiaohongshu
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.webhook_sink import SandboxSink
from tidings.sandbox.wire.stand_in import CONTROL_PREFIX, StandIn


class Sandbox:
    """All stand-ins together, as an async context manager.

    With `port`, the site listens there, and engines, Bing and `others` on the following ports. Without it, each listens
    on a free port.
    """

    def __init__(
        self,
        *,
        site: SandboxSite | None = None,
        engines: Sequence[SandboxEngine] | None = None,
        bing: SandboxBing | None = None,
        others: Sequence[StandIn[Any]] = (),
        port: int | None = None,
    ) -> None:
        self.site = site or SandboxSite()
        self.engines = list(engines) if engines is not None else [SandboxEngine("alpha"), SandboxEngine("beta")]
        self.bing = bing
        others = [each for each in (bing, *others) if each is not None]
        self.others = {each.name: each for each in others}
        self._port = port
        self._running = AsyncExitStack()
        named = {engine.name: engine for engine in self.engines}
        if len(named) < len(self.engines) or len(self.others) < len(others):
            raise ValueError("two stand-ins of one sandbox have the same name")
        self.site.control = Control(site=self.site, engines=named, others=self.others)

    async def __aenter__(self) -> Self:
        """Start all or none. Raises OSError if a port is taken."""
        stand_ins: tuple[StandIn[Any], ...] = (self.site, *self.engines, *self.others.values())
        async with AsyncExitStack() as starting:
            for offset, stand_in in enumerate(stand_ins):
                await stand_in.start(port=self._port + offset if self._port else None)
                starting.push_async_callback(stand_in.close)
            self._running = starting.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    def engine(self, name: str) -> SandboxEngine:
        return next(engine for engine in self.engines if engine.name == name)

    @property
    def control_url(self) -> str:
        return self.site.origin + CONTROL_PREFIX


async def serve_sandbox(*, port: int, pages: int, on_ready: Callable[[Sandbox], None]) -> None:
    """Run a site of `pages` pages, two engines, Bing, Baidu, Google, the media platforms, an empty base of Feishu and
    a receiver of webhooks until cancelled.

    They listen from `port` on (0: on free ports), and `on_ready` is called then. Raises OSError if a port is taken.
    """
    bing, baidu, google = SandboxBing(keys={}), SandboxBaidu(sites={}), SandboxGoogle()
    platforms = (SandboxBilibili(), SandboxXiaohongshu(), SandboxWeibo(), SandboxOpenWeb())
    # A new base of Feishu has one table.
    feishu = SandboxBitable(tables={"tblDefault": {"文本": BitableFieldType.TEXT}})
    others = (baidu, google, *platforms, feishu, SandboxSink())
    async with Sandbox(site=SandboxSite(pages=pages), bing=bing, others=others, port=port) as sandbox:
        bing.add_site(sandbox.site.origin, key=DEMO_BING_KEY)
        baidu.add_site(sandbox.site.origin, token=DEMO_BAIDU_TOKEN)
        google.add_property(f"{sandbox.site.origin}/")
        on_ready(sandbox)
        await asyncio.Event().wait()
