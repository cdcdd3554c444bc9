"""Checks a site before anything is sent: fetches its key file as an engine does, and reads the first pages of its
sitemap. Sends nothing to an engine.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from tidings.announce.due.pages import Dropped, PageFilter
from tidings.announce.site.site import Site
from tidings.announce.sitemap.crawl import Crawl
from tidings.announce.sitemap.events import PagesRead
from tidings.core.clock import Clock, write_duration
from tidings.core.net.client import Answer, FetchError, GuardedClient
from tidings.core.net.retry import RetryPolicy
from tidings.core.stop import Stop, StopRequestedError

KEY_FILE_TIMEOUT = timedelta(seconds=30)
LONGEST_KEY_FILE = 64 * 1024
LONGEST_CHECK = timedelta(minutes=1)
_MOST_TROUBLES = 3

_PRIVATE = "Use its public address: search engines reach no other. TIDINGS_ALLOW_NETWORKS lets Tidings read this one."

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SiteFinding:
    """The result of one check."""

    # What was checked: `key file` or `sitemap`.
    subject: str
    good: bool
    # What was found, for people.
    message: str
    # What to do. Empty where the result is good.
    advice: str = ""


async def check_site(site: Site, *, client: GuardedClient, clock: Clock) -> list[SiteFinding]:
    """Make all checks."""
    return [await check_key_file(site, client=client), await check_sitemap(site, client=client, clock=clock)]


async def check_key_file(site: Site, *, client: GuardedClient) -> SiteFinding:
    """Check that the key file is where engines look for it, and holds the key and nothing else."""
    place = site.key_location.replace(site.key.reveal(), site.key.hint)
    try:
        answer = await client.request(
            "GET", site.key_location, timeout=KEY_FILE_TIMEOUT, limit=LONGEST_KEY_FILE, follow_redirects=True
        )
    except FetchError as error:
        # Without the URL: the error may have cut it within the key, where the redactor would not find it.
        message, advice = f"{place}: {error.reason}", "Make it reachable from the internet."
        return SiteFinding("key file", good=False, message=message, advice=advice)
    problem = _judge_key_file(answer, site)
    if problem is None:
        redirected = (
            " (after a redirect, which not every engine follows)" if answer.url.text != site.key_location else ""
        )
        return SiteFinding("key file", good=True, message=f"{place} holds the key{redirected}")
    message, advice = problem
    return SiteFinding("key file", good=False, message=f"{place} {message}", advice=advice)


def _judge_key_file(answer: Answer, site: Site) -> tuple[str, str] | None:
    """What is wrong with the key file, and what to do. None where it is right."""
    put = "Put a plain text file there that holds the key and nothing else."
    if answer.status in (404, 410):
        return f"is missing (HTTP {answer.status})", put
    if answer.status != 200:
        return f"answers HTTP {answer.status} instead of the key", "Let everybody read the file, search engines too."
    key = site.key.reveal().encode()
    text = answer.body.removeprefix(_BOM).strip()
    if text == key:
        return None
    if text.lower().startswith((b"<!doctype", b"<html")):
        return "is an HTML page, not the key", f"{put} Many sites answer every unknown address with a page."
    if not text:
        return "is empty", put
    if key in text:
        return "holds more than the key", put
    if text.lower() == key.lower():
        return "differs from the key in upper and lower case", "Use the key exactly as the file has it."
    return "holds another key", "Set the key that is in the file, or put this key into the file."


async def check_sitemap(site: Site, *, client: GuardedClient, clock: Clock) -> SiteFinding:
    """Check that the sitemap can be read and that it lists pages of this site. Ends after about `LONGEST_CHECK`."""
    crawl = Crawl(
        site,
        client=client,
        clock=clock,
        policy=RetryPolicy(retries=0),
        stop=Stop(clock=clock, budget=LONGEST_CHECK),
    )
    pages = PageFilter(site)
    try:
        async with aclosing(crawl.events()) as events:
            async for event in events:
                if isinstance(event, PagesRead) and pages.read(event.pairs):
                    return SiteFinding("sitemap", good=True, message=f"{event.file} lists pages of {site.host}")
    except StopRequestedError:
        message = f"the files that were read in {write_duration(LONGEST_CHECK)} list no pages of {site.host}"
        advice = "List the files with this site's pages first, or give their addresses as sitemaps."
        return SiteFinding("sitemap", good=False, message=message, advice=advice)
    message, advice = explain_emptiness(pages.dropped, host=site.host)
    if crawl.result.troubles and not pages.dropped.by_settings:
        message = _join(crawl.result.troubles)
        advice = _PRIVATE if crawl.result.is_private else advice
    return SiteFinding("sitemap", good=False, message=message, advice=advice)


def _join(troubles: Sequence[str]) -> str:
    """The first troubles: an index may name thousands of missing files."""
    more = len(troubles) - _MOST_TROUBLES
    return "; ".join([*troubles[:_MOST_TROUBLES], *([f"and {more:,} more"] if more > 0 else [])])


def explain_emptiness(dropped: Dropped, *, host: str) -> tuple[str, str]:
    """Why a sitemap has no page that can be announced, and what to do. `dropped`: the entries that it has instead."""
    if dropped.outside_key_location:
        advice = "Put the key file at the root of the site, or in a folder above its pages."
        return "its URLs lie outside the key file's folder", advice
    if dropped.foreign_host:
        advice = "Check that host and sitemap belong together (www. or not, the port, the key file's folder)."
        return f"none of its URLs is of {host}", advice
    return "it lists no pages that can be announced", "Open the address in a browser and look at it."
