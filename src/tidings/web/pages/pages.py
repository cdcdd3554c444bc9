"""Every page of the dashboard, as routers."""

from collections.abc import Sequence

from fastapi import APIRouter

from tidings.web.pages.alerts import make_alerts_router
from tidings.web.pages.collect import make_collect_router
from tidings.web.pages.keywords import make_keywords_router
from tidings.web.pages.notes import make_notes_pages_router
from tidings.web.pages.overview import make_overview_router
from tidings.web.pages.site.actions import make_site_actions_router
from tidings.web.pages.site.executions import make_site_executions_router
from tidings.web.pages.site.failed import make_site_failed_router
from tidings.web.pages.site.first_site import make_first_site_router
from tidings.web.pages.site.settings import make_site_settings_router
from tidings.web.pages.site.site import make_site_router
from tidings.web.pages.system import make_system_router
from tidings.web.pages.view.routing import Dashboard


def make_page_routers(dashboard: Dashboard) -> Sequence[APIRouter]:
    """In the order in which paths are matched: `/sites/new` before `/sites/{site_id}`."""
    makers = (
        make_overview_router,
        make_first_site_router,
        make_site_router,
        make_site_executions_router,
        make_site_failed_router,
        make_site_actions_router,
        make_site_settings_router,
        make_alerts_router,
        make_notes_pages_router,
        make_keywords_router,
        make_collect_router,
        make_system_router,
    )
    return [make(dashboard) for make in makers]
