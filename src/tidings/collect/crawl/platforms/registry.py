"""Which platforms there are: those built in, and those that installed packages offer through the entry point group
`tidings.platforms`. A platform is loaded and built when it is first asked for, so that others cost nothing.
"""

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from tidings.collect.crawl.platforms.protocol import Platform, PlatformTools
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.logs.logger import get_logger

GROUP: Final = "tidings.platforms"
BUILT_IN: Final = {
    "bilibili": "tidings.collect.crawl.platforms.bilibili:Bilibili",
    "weibo": "tidings.collect.crawl.platforms.weibo:Weibo",
    "xiaohongshu": "tidings.collect.crawl.platforms.xiaohongshu:Xiaohongshu",
    "web": "tidings.collect.crawl.platforms.web:Web",
}

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")

_log = get_logger(__name__)


class PlatformRegistry:
    """All platforms by name; `find_tools` gives each what it works with."""

    def __init__(self, find_tools: Callable[[str], PlatformTools]) -> None:
        self._find_tools = find_tools
        self._offered = _list_offered()
        self._built: dict[str, Platform] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return _name_all(self._offered)

    def get(self, name: str) -> Platform:
        """The platform of this name. Raises CrawlError for one that there is not, or that cannot be loaded."""
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    async def close(self) -> None:
        """Let go of what platforms hold, such as threads. One that holds nothing needs no `close`."""
        for platform in self._built.values():
            if (close := getattr(platform, "close", None)) is not None:
                await close()

    def _build(self, name: str) -> Platform:
        if name in BUILT_IN:
            module, _, attribute = BUILT_IN[name].partition(":")
            make: Callable[[PlatformTools], Platform] = getattr(import_module(module), attribute)
            return make(self._find_tools(name))
        if name in self._offered:
            return _build_offered(self._offered[name], self._find_tools(name))
        raise CrawlError(ErrorCode.INVALID_INPUT, f"there is no such platform; there are {', '.join(self.names)}")


def list_platforms() -> tuple[str, ...]:
    """The names of all platforms, without loading one."""
    return _name_all(_list_offered())


def _name_all(offered: Iterable[str]) -> tuple[str, ...]:
    return (*BUILT_IN, *sorted(offered))


def _list_offered() -> dict[str, EntryPoint]:
    """What packages offer. A name that is taken is refused: whoever had it would be given its cookies."""
    offered: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if not _NAME.fullmatch(entry.name) or entry.name in BUILT_IN or entry.name in offered:
            _log.warning("platform.refused", platform=entry.name[:64], package=_name_package(entry))
        else:
            offered[entry.name] = entry
    return offered


def _build_offered(entry: EntryPoint, tools: PlatformTools) -> Platform:
    try:
        platform = entry.load()(tools)
    except CrawlError:
        raise
    except Exception as error:  # noqa: BLE001 - it is not our code, and may raise anything
        _log.error("platform.not_loaded", platform=entry.name, package=_name_package(entry), exc_info=error)
        raise _refuse(entry, f"it cannot be loaded ({type(error).__name__})") from None
    if not isinstance(platform, Platform):
        raise _refuse(entry, "it lacks name, needs_cookie, search or detail")
    if platform.name != entry.name:
        raise _refuse(entry, "its name is not the one it is installed under")
    return platform


def _refuse(entry: EntryPoint, reason: str) -> CrawlError:
    """The package is to blame and not the question, which can be asked again once the package works."""
    package = _name_package(entry)
    remedy = f"pip install --upgrade {package} brings what it needs"
    return CrawlError(ErrorCode.PLATFORM_ERROR, f"platform {entry.name} of package {package}: {reason}; {remedy}")


def _name_package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "?"
