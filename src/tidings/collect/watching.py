"""The checks of a keyword before it is watched, for commands, API and dashboard. Can the platform search for it with
the present settings? Are its cookies enough for all its searches?"""

from dataclasses import dataclass
from datetime import timedelta

from tidings.collect.crawl.crawler import Crawler
from tidings.collect.crawl.platforms.protocol import check_search
from tidings.collect.write.cookies import CookieRecords
from tidings.collect.write.keywords import Keywords, check_comments


@dataclass(frozen=True, slots=True)
class Overload:
    """The searches of a platform alone need more uses a day than its cookies allow."""

    # Uses of cookies a day.
    needed: int
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordChecks:
    """The two checks."""

    crawler: Crawler
    keywords: Keywords
    cookies: CookieRecords
    # The time between two searches of a keyword.
    every: timedelta

    def check(self, platform: str, keyword: str, *, comments: int | None = None) -> None:
        """Raises CrawlError if this keyword cannot be searched: an empty one, an unknown platform, a missing package,
        no feeds. The same if it asks for comments, and the platform's cannot be read."""
        check_search(keyword, page=1)
        check_comments(comments)
        self.crawler.check_keyword(platform, keyword, comments=comments)

    async def find_overload(self, platform: str) -> Overload | None:
        """None if the cookies are enough, and for a platform that needs none."""
        cookies = [cookie for cookie in await self.cookies.list_all() if cookie.platform == platform]
        watched = [each for each in await self.keywords.list_all() if each.platform == platform and each.enabled]
        needed = round(sum(each.pages for each in watched) * (timedelta(days=1) / self.every))
        allowed = sum(cookie.daily_limit for cookie in cookies)
        return Overload(needed, allowed) if cookies and needed > allowed else None
