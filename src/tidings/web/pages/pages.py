"""Every page of the dashboard, as routers."""

from typing import Final

from tidings.web.pages import access, alerts, collect, keywords, notes, overview, system
from tidings.web.pages.site import actions, executions, failed, first_site, settings, site

# In the order in which paths are matched: `/sites/new` before `/sites/{site_id}`.
PAGE_ROUTERS: Final = (
    access.router,
    overview.router,
    first_site.router,
    site.router,
    executions.router,
    failed.router,
    actions.router,
    settings.router,
    alerts.router,
    notes.router,
    keywords.router,
    collect.router,
    system.router,
)
