"""What every page of one site shares: the site, its summary, the head with its buttons, and rows of executions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from fastapi import Request
from fastapi.responses import Response

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.overview import SiteCondition, SiteSummary, find_summary
from tidings.announce.site.site import Site
from tidings.announce.status import describe_execution
from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.core.secrets.scopes import Scope
from tidings.web.errors import problem
from tidings.web.pages.site.outcome import describe_outcome
from tidings.web.pages.site.progress import describe_progress
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.routing import Dashboard, locate_site, require_scope


@dataclass(frozen=True, slots=True)
class SiteHead:
    """The head of every page of a site."""

    id: str
    # The address of its page.
    href: str
    condition: SiteCondition
    reason: str | None
    paused: bool
    # Pages that failed and are open.
    failed: int
    # What "Run now" offers.
    choices: Sequence[str]
    from_environment: bool


class SiteView:
    """One site for one request. `open` costs three queries."""

    def __init__(self, dashboard: Dashboard, request: Request, site: Site, summary: SiteSummary) -> None:
        self._dashboard = dashboard
        self._installation = dashboard.installation
        self._request = request
        self.site = site
        self.summary = summary
        self.formats: Formats = dashboard.renderer.formats(request)

    @classmethod
    async def open(cls, dashboard: Dashboard, request: Request, site_id: str) -> Self:
        """The site of this id, if the session may see it. Raises problems 403 and 404."""
        grant = require_scope(request, Scope.VIEWER)
        site = await dashboard.require_site(site_id)
        if not grant.allows_group(site.group):
            # A viewer of one group must not learn whether a site of another group exists.
            problem(404, "unknown_site", "there is no site of this id")
        installation = dashboard.installation
        summary = await find_summary(installation.database, site.number, clock=installation.clock)
        if summary is None:
            problem(404, "unknown_site", "there is no site of this id")
        return cls(dashboard, request, site, summary)

    async def render(self, template: str, *, tab: str, status: int = 200, **values: Any) -> Response:
        failed = await self._installation.service.count_failed(self.site)
        head = SiteHead(
            id=self.site.id,
            href=locate_site(self.site.id),
            condition=self.summary.condition,
            reason=self.formats.say(self.summary.reason) or None,
            paused=self.summary.paused,
            failed=failed,
            choices=list_choices(self.summary, self.site),
            from_environment=self._installation.is_from_environment(self.site.id),
        )
        return await self._dashboard.render(self._request, template, status=status, site=head, tab=tab, **values)

    async def list_executions(self, *, limit: int, before: str | None = None) -> list[ExecutionRecord]:
        return await self._installation.executions.list_recent(self.site.workflow_name, limit=limit, before=before)

    def describe_row(self, record: ExecutionRecord) -> dict[str, Any]:
        ended = record.completed_at
        return {
            "status": record.status,
            "href": f"{locate_site(self.site.id)}/executions/{record.public_id}",
            "started": self.formats.time(record.started_at),
            "took": self.formats.duration(None if ended is None else ended - record.started_at),
            "outcome": describe_outcome(record.status, self.read_result(record), self.formats),
        }

    def find_progress(self, records: Sequence[ExecutionRecord]) -> dict[str, Any] | None:
        """The progress of the running execution among these, with its worker."""
        running = next((each for each in records if each.status is ExecutionStatus.RUNNING), None)
        if running is None:
            return None
        return {**self.describe_progress(running), "worker": self.summary.running_worker}

    def describe_progress(self, record: ExecutionRecord) -> dict[str, Any]:
        # The present time, because a stream lasts longer than its page's time is valid.
        formats = replace(self.formats, now=self._installation.clock.now())
        return describe_progress(record, self.read_result(record), formats)

    def read_result(self, record: ExecutionRecord) -> Mapping[str, Any]:
        """The result; of a running execution, its live progress."""
        live = self._installation.service.live.describe(record.public_id)
        result: Mapping[str, Any] = describe_execution(record, live=live)["result"] or {}
        return result


def list_choices(summary: SiteSummary, site: Site) -> list[str]:
    """The channels that a person can run: all together, or one that is on."""
    on = {str(channel) for channel in summary.channels}
    if site.google.key is not None:
        on.add(ChannelChoice.GOOGLE)
    return [choice.value for choice in ChannelChoice if choice is ChannelChoice.ALL or choice.value in on]
