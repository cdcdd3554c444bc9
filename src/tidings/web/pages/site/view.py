"""What every page of one site shares: the site, its summary, the head with its buttons, and its executions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from fastapi import Request
from fastapi.responses import Response

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.overview import SiteSummary, find_summary
from tidings.announce.site.site import Site
from tidings.announce.status import describe_execution
from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.site.outcome import SiteOutcome, describe_outcome
from tidings.web.pages.site.progress import describe_progress
from tidings.web.pages.view.forms import FormValues
from tidings.web.pages.view.rendering import locate_site
from tidings.web.pages.view.routing import PageView
from tidings.web.routes.announce.site_lookup import refuse_unknown_site


class SiteView(PageView):
    """One site for one request. `open` costs three queries."""

    site: Site
    summary: SiteSummary

    @classmethod
    async def open(cls, request: Request, site_id: str, *scopes: Scope) -> Self:
        """The site of this id, if the session may see it. Raises problems 403 and 404."""
        view = cls(request, *scopes)
        view.site = await view.require_site(site_id)
        installation = view.installation
        summary = await find_summary(installation.database, view.site.number, clock=installation.clock)
        # A viewer of one group must not learn whether a site of another group exists.
        if summary is None or not view.grant.allows_group(view.site.group):
            refuse_unknown_site()
        view.summary = summary
        return view

    async def render_tab(self, template: str, tab: str, *, status: int = 200, **values: Any) -> Response:
        """A page of this site, below the head with its buttons and tabs."""
        head = {
            "id": self.site.id,
            "href": locate_site(self.site.id),
            "condition": self.summary.condition,
            "reason": self.formats.say(self.summary.reason),
            "paused": self.summary.paused,
            # Pages that failed and are open.
            "failed": await self.installation.service.count_failed(self.site),
            "choices": self._list_choices(),
            "from_environment": self.installation.is_from_environment(self.site.id),
        }
        return await self.render(template, status=status, site=head, tab=tab, **values)

    def _list_choices(self) -> list[str]:
        """The channels that a person can run: all together, or one that is on."""
        on = {ChannelChoice.ALL.value, *map(str, self.summary.channels)}
        if self.site.google.key is not None:
            on.add(ChannelChoice.GOOGLE.value)
        return [choice.value for choice in ChannelChoice if choice.value in on]

    async def list_executions(self, *, limit: int, before: str | None = None) -> list[ExecutionRecord]:
        return await self.installation.executions.list_recent(self.site.workflow_name, limit=limit, before=before)

    def describe_rows(self, records: Sequence[ExecutionRecord]) -> list[tuple[ExecutionRecord, SiteOutcome]]:
        """Executions with their outcomes."""
        return [(each, describe_outcome(each.status, self._read_result(each), self.formats)) for each in records]

    def find_progress(self, records: Sequence[ExecutionRecord]) -> dict[str, Any] | None:
        """The progress of the running execution among these, with its worker."""
        running = next((each for each in records if each.status is ExecutionStatus.RUNNING), None)
        if running is None:
            return None
        return {**self.describe_progress(running), "worker": self.summary.running_worker}

    def describe_progress(self, record: ExecutionRecord) -> dict[str, Any]:
        # The present time, because a stream lasts longer than its page's time is valid.
        formats = replace(self.formats, now=self.installation.clock.now())
        return describe_progress(record, self._read_result(record), formats)

    def _read_result(self, record: ExecutionRecord) -> Mapping[str, Any]:
        """The result; of a running execution, its live progress."""
        live = self.installation.service.live.describe(record.public_id)
        result: Mapping[str, Any] = describe_execution(record, live=live)["result"] or {}
        return result


async def open_form(request: Request, site_id: str) -> tuple[PageView, FormValues, Site]:
    """A form about one site, which an admin has sent. Raises problems 403 and 404."""
    view = PageView(request)
    return view, await view.read_form(), await view.require_site(site_id)
