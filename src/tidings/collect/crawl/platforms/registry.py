"""The registry of platforms: the built-in ones, and those of installed packages (entry point group
`tidings.platforms`). A platform is imported when it is first used, so unused ones cost nothing.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from tidings.collect.crawl.platforms.protocol import PLATFORM_NAME, Platform, PlatformTools
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.logs.logger import get_logger

GROUP: Final = "tidings.platforms"
BUILT_IN: Final = {
    "bilibili": "tidings.collect.crawl.platforms.bilibili:Bilibili",
    "weibo": "tidings.collect.crawl.platforms.weibo:Weibo",
    "xiaohongshu": "tidings.collect.crawl.platforms.xiaohongshu:Xiaohongshu",
    "web": "tidings.collect.crawl.platforms.open_web.web:Web",
}

_log = get_logger(__name__)


class PlatformRegistry:
    """All platforms by name. `find_tools` returns the tools of a platform."""

    def __init__(self, find_tools: Callable[[str], PlatformTools]) -> None:
        self._find_tools = find_tools
        self._offered = _list_offered()
        self._built: dict[str, Platform] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return _name_all(self._offered)

    def get(self, name: str) -> Platform:
        """The platform of this name. Raises CrawlError if it is unknown or cannot be loaded."""
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    async def close(self) -> None:
        """Release what platforms hold, such as threads. `close` is optional for a platform."""
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
        raise CrawlError(ErrorCode.INVALID_INPUT, f"unknown platform; known are {', '.join(self.names)}")


def check_platform(name: str) -> None:
    """Raises CrawlError for an unknown platform, with the nearest name."""
    names = list_platforms()
    if name not in names:
        near = get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        message = f"there is no platform {name[:32]!r}{hint} The platforms are {', '.join(names)}"
        raise CrawlError(ErrorCode.INVALID_INPUT, message.replace("' The", "'; the"))


def list_platforms() -> tuple[str, ...]:
    """The names of all platforms, without loading one."""
    return _name_all(_list_offered())


def _name_all(offered: Iterable[str]) -> tuple[str, ...]:
    return (*BUILT_IN, *sorted(offered))


def _list_offered() -> dict[str, EntryPoint]:
    """The platforms of packages. A name in use is refused, because a platform gets the cookies of its name."""
    offered: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if not PLATFORM_NAME.fullmatch(entry.name) or entry.name in BUILT_IN or entry.name in offered:
            _log.warning("platform.refused", platform=entry.name[:64], package=_name_package(entry))
        else:
            offered[entry.name] = entry
    return offered


def _build_offered(entry: EntryPoint, tools: PlatformTools) -> Platform:
    try:
        platform = entry.load()(tools)
    except CrawlError:
        raise
    except Exception as error:  # noqa: BLE001 - the package may raise anything
        _log.error("platform.failed", platform=entry.name, package=_name_package(entry), exc_info=error)
        raise _refuse(entry, f"it cannot be loaded ({type(error).__name__})") from None
    if not isinstance(platform, Platform):
        raise _refuse(entry, "it lacks name, needs_cookie, search or detail")
    if platform.name != entry.name:
        raise _refuse(entry, "its name differs from its entry point")
    return platform


def _refuse(entry: EntryPoint, reason: str) -> CrawlError:
    """The error of a broken package: the request can be repeated once the package works."""
    package = _name_package(entry)
    remedy = f"try pip install --upgrade {package}"
    return CrawlError(ErrorCode.PLATFORM_ERROR, f"platform {entry.name} of package {package}: {reason}; {remedy}")


def _name_package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "?"
