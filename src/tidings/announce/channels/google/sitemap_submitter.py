"""Google's part of an execution: submits sitemaps that changed since their last submission, and reads Google's status
of them. Its errors do not affect the rest of the execution.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidings.announce.channels.answer import TROUBLES, Outcome, Verdict, find_delay
from tidings.announce.channels.channel import ExecutionContext
from tidings.announce.channels.google.search_console import GoogleSitemap, SearchConsole, name_property
from tidings.announce.channels.google.submissions import SitemapReport, SitemapSubmission, SitemapSubmissions
from tidings.announce.site.site import Site
from tidings.core.executions import ExecutionLostError
from tidings.core.logs.logger import get_logger
from tidings.core.stop import Stop, StopRequestedError

# A robots.txt may name thousands of sitemaps.
MOST_SITEMAPS = 100

# With these, every other sitemap of the site would fail, too.
_LASTING = frozenset({Verdict.FORBIDDEN, *TROUBLES})

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class SitemapSubmitter:
    """Submits the sitemaps of one site."""

    context: ExecutionContext
    console: SearchConsole

    @property
    def site(self) -> Site:
        return self.context.site

    @property
    def _submissions(self) -> SitemapSubmissions:
        return SitemapSubmissions(self.context.database, site=self.site.number)

    @property
    def _identity(self) -> str:
        """Another account or property has to get the sitemaps again."""
        return f"{self.site.google.account.email} {name_property(self.site)}"

    async def run(self, fingerprints: Mapping[str, int], *, stop: Stop) -> None:
        """Submit what changed. `fingerprints`: the present state of each sitemap."""
        try:
            known = {each.sitemap: each for each in await self._submissions.list()}
            for sitemap in sorted(fingerprints)[:MOST_SITEMAPS]:
                before = known.get(sitemap, SitemapSubmission(sitemap))
                if not await self._tell(before, fingerprints[sitemap], stop=stop):
                    break
        except StopRequestedError:
            # The next execution continues, because the other sitemaps still count as changed.
            return
        except ExecutionLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the other channels must go on, and be saved
            self.context.emit(
                SitemapReport("", failure=f"unexpected trouble, {type(error).__name__}; the log says more")
            )
            _log.exception("google.broken", site=self.site.id)

    async def _tell(self, before: SitemapSubmission, fingerprint: int, *, stop: Stop) -> bool:
        """Submit a sitemap if it changed, and read its status. Returns whether to go on with the next one."""
        after, outcome = before, None
        changed = before.fingerprint != fingerprint or before.identity != self._identity
        if changed:
            outcome = await self._try(before.sitemap, stop=stop)
            if outcome.accepted:
                now = self.context.clock.now()
                after = replace(before, identity=self._identity, fingerprint=fingerprint, submitted_at=now)
                _log.info("google.sitemap_submitted", site=self.site.id, sitemap=before.sitemap)
        if outcome is None or outcome.accepted:
            async with self.context.pace.turn(self.console.access.host, stop=stop):
                said = await self.console.describe(self.site, before.sitemap)
            if isinstance(said, GoogleSitemap):
                after, outcome = replace(after, google=said), None
            else:
                outcome = said
        failure = None if outcome is None else outcome.reason
        if outcome is not None:
            _log.error("google.sitemap_failed", site=self.site.id, sitemap=before.sitemap, reason=failure)
        after = replace(after, failure=failure)
        async with self.context.transaction() as connection:
            await self._submissions.store(connection, after, now=self.context.clock.now())
        submitted = after.submitted_at if after.submitted_at != before.submitted_at else None
        self.context.emit(
            SitemapReport(
                before.sitemap,
                submitted=submitted is not None,
                warnings=after.google.warnings,
                errors=after.google.errors,
                failure=failure,
                advice="" if outcome is None else outcome.advice,
                # Temporary failures raise no alert.
                lasting=outcome is not None and outcome.verdict not in TROUBLES,
            )
        )
        return outcome is None or outcome.verdict not in _LASTING

    async def _try(self, sitemap: str, *, stop: Stop) -> Outcome:
        """Submit, with retries. Raises StopRequestedError."""
        attempts = 0
        while True:
            async with self.context.pace.turn(self.console.access.host, stop=stop):
                outcome = await self.console.submit(self.site, sitemap)
            attempts += 1
            delay = find_delay(outcome, retry=attempts, policy=self.context.policy, stop=stop)
            if delay is None:
                return outcome
            _log.warning("google.retry", site=self.site.id, wait_s=delay.total_seconds(), reason=outcome.reason)
            await stop.sleep(delay)
