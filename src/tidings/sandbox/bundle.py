"""A site, its engines and channels, the media platforms, Feishu and a receiver of webhooks, started and closed
together, in a test or as `tidings sandbox`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses of a running sandbox, for people and scripts."""

    # Host and port of the site.
    host: str
    sitemap_url: str
    robots_url: str
    # The IndexNow key, and the URL of its file.
    key: str
    key_location: str
    # IndexNow endpoints by the name of the engine.
    endpoints: Mapping[str, str]
    control_url: str
    # The base of Bing's API. None without Bing.
    bing_url: str | None = None
    bing_key: str = DEMO_BING_KEY
    # The base of Baidu's API. None without Baidu.
    baidu_url: str | None = None
    baidu_token: str = DEMO_BAIDU_TOKEN
    # The base of Google's APIs. None without Google.
    google_url: str | None = None
    # Base URLs by the name of the platform.
    platforms: Mapping[str, str] = field(default_factory=dict)
    # Feishu's server, and the webhook of a group's bot there. None without Feishu.
    feishu_url: str | None = None
    bot_url: str | None = None
    # Takes signed webhooks. None without a receiver.
    webhook_url: str | None = None


class Sandbox:
    """All stand-ins together, as an async context manager.

    With `port`, the site listens there, and engines, channels, platforms, Feishu and the receiver of webhooks on the
    following ports. Without it, each listens on a free port.
    """

    def __init__(
        self,
        *,
        site: SandboxSite | None = None,
        engines: Sequence[SandboxEngine] | None = None,
        bing: SandboxBing | None = None,
        baidu: SandboxBaidu | None = None,
        google: SandboxGoogle | None = None,
        platforms: Sequence[StandIn[Any]] = (),
        feishu: SandboxBitable | None = None,
        sink: SandboxSink | None = None,
        port: int | None = None,
    ) -> None:
        self.site = site or SandboxSite()
        self.engines = list(engines) if engines is not None else [SandboxEngine("alpha"), SandboxEngine("beta")]
        self.bing = bing
        self.baidu = baidu
        self.google = google
        self.platforms = list(platforms)
        self.feishu = feishu
        self.sink = sink
        self._port = port
        self._running = AsyncExitStack()
        named = {engine.name: engine for engine in self.engines}
        if len(named) < len(self.engines):
            raise ValueError("two engines of one sandbox have the same name")
        others: dict[str, StandIn[Any]] = {each.name: each for each in (*self._channels(), *self.platforms)}
        others |= {} if feishu is None else {"feishu": feishu}
        others |= {} if sink is None else {"webhook": sink}
        self.site.control = Control(site=self.site, engines=named, others=others)

    async def __aenter__(self) -> Self:
        """Start all or none. Raises OSError if a port is taken."""
        async with AsyncExitStack() as starting:
            for offset, stand_in in enumerate(self._stand_ins()):
                await stand_in.start(port=self._port + offset if self._port else None)
                starting.push_async_callback(stand_in.close)
            self._running = starting.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    def engine(self, name: str) -> SandboxEngine:
        return next(engine for engine in self.engines if engine.name == name)

    @property
    def addresses(self) -> Addresses:
        return Addresses(
            host=self.site.host,
            sitemap_url=self.site.sitemap_url,
            robots_url=self.site.robots_url,
            key=self.site.key,
            key_location=self.site.key_location,
            endpoints={engine.name: engine.endpoint for engine in self.engines},
            control_url=self.site.origin + CONTROL_PREFIX,
            bing_url=self.bing.base_url if self.bing is not None else None,
            baidu_url=self.baidu.base_url if self.baidu is not None else None,
            google_url=self.google.base_url if self.google is not None else None,
            platforms={platform.name: platform.origin for platform in self.platforms},
            feishu_url=self.feishu.origin if self.feishu is not None else None,
            bot_url=self.feishu.bot_url if self.feishu is not None else None,
            webhook_url=self.sink.url if self.sink is not None else None,
        )

    def _stand_ins(self) -> list[StandIn[Any]]:
        others = [stand_in for stand_in in (self.feishu, self.sink) if stand_in is not None]
        return [self.site, *self.engines, *self._channels(), *self.platforms, *others]

    def _channels(self) -> list[StandIn[Any]]:
        return [channel for channel in (self.bing, self.baidu, self.google) if channel is not None]


async def serve_sandbox(*, port: int, pages: int = 3000, on_ready: Callable[[Addresses], None]) -> None:
    """Run a site of `pages` pages, two engines, Bing, Baidu, Google, the media platforms, an empty base of Feishu and
    a receiver of webhooks until cancelled.

    They listen from `port` on (0: on free ports), and `on_ready` is called then. Raises OSError if a port is taken.
    """
    bing = SandboxBing(keys={DEMO_BING_KEY: []})
    platforms = (SandboxBilibili(), SandboxXiaohongshu(), SandboxWeibo(), SandboxOpenWeb())
    baidu = SandboxBaidu(sites={})
    google = SandboxGoogle()
    site = SandboxSite(pages=pages)
    # A new base of Feishu has one table.
    feishu = SandboxBitable(tables={"tblDefault": {"文本": BitableFieldType.TEXT}})
    async with Sandbox(
        site=site,
        bing=bing,
        baidu=baidu,
        google=google,
        platforms=platforms,
        feishu=feishu,
        sink=SandboxSink(),
        port=port,
    ) as sandbox:
        bing.add_site(sandbox.site.origin, key=DEMO_BING_KEY)
        baidu.add_site(sandbox.site.origin, token=DEMO_BAIDU_TOKEN)
        google.add_property(f"{sandbox.site.origin}/")
        on_ready(sandbox.addresses)
        await asyncio.Event().wait()
