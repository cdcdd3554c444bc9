"""The platforms that notes come from, each behind the same small protocol. Nothing here writes to a database."""

from tidings.collect.crawl.platforms.pace import LocalPace
from tidings.collect.crawl.platforms.protocol import Hit, NoteReference, Pacing, Platform, PlatformTools, SearchPage
from tidings.collect.crawl.platforms.registry import Platforms

__all__ = ["Hit", "LocalPace", "NoteReference", "Pacing", "Platform", "PlatformTools", "Platforms", "SearchPage"]
