"""Alerts: those that are open, with what to do, and those that have ended. The overview shows them too."""

import re
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.execution.alerts import AnnounceAlert
from tidings.collect.alerts.conditions import SUBJECT
from tidings.collect.alerts.kinds import CollectAlert
from tidings.core.alerts.conditions import OpenCondition
from tidings.core.alerts.kinds import AlertKind, AlertLevel, Language
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.collect import name_platform
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.routing import Dashboard, locate_site, make_page_router, refuse_group, require_scope

_MOST: Final = 100
_LEVEL_PREFIX: Final = re.compile("^P[0-9](: |：)")
# The field of the settings form with the key of each channel. Engines use IndexNow's key.
_KEY_FIELDS: Final = {"bing": "bingApiKey", "baidu": "baiduToken", "google": "googleCredentials"}


def make_alerts_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()

    @router.get("/alerts")
    async def show_alerts(request: Request) -> Response:
        grant = require_scope(request, Scope.VIEWER)
        refuse_group(grant)
        formats = dashboard.renderer.formats(request)
        found = await dashboard.installation.alerts.list_open(limit=_MOST)
        shown = fold_alerts(found, formats, may_change=grant.scope is not Scope.VIEWER)
        past = [
            {
                "level": name_level(each.kind),
                "title": title_alert(each.kind, each.subject, formats),
                "text": formats.say(each.reason),
                "lasted": formats.span(each.ended_at - each.since),
                "at": each.ended_at,
            }
            for each in await dashboard.installation.alerts.list_past(limit=_MOST)
        ]
        return await dashboard.render(request, "alerts.html", alerts=shown, past=past)

    return router


def fold_alerts(alerts: Sequence[OpenCondition], formats: Formats, *, may_change: bool) -> list[dict[str, Any]]:
    """One card for each cause: alerts of the same site with the same reason are listed below the first one."""
    cards: list[tuple[OpenCondition, list[OpenCondition]]] = []
    for alert in sorted(alerts, key=lambda each: len(each.reason)):
        site = alert.subject.partition(" at ")[0]
        for first, followers in cards:
            if first.subject.partition(" at ")[0] == site and first.reason in alert.reason:
                followers.append(alert)
                break
        else:
            cards.append((alert, []))
    cards.sort(key=lambda card: alerts.index(card[0]))
    between = "；" if formats.is_chinese else "; "
    return [
        {
            **describe_alert(first, formats, may_change=may_change),
            "also": formats.texts.count(
                "alerts.also", len(others), titles=between.join(name_kind(each.kind, formats) for each in others)
            )
            if others
            else "",
        }
        for first, others in cards
    ]


def describe_alert(alert: OpenCondition, formats: Formats, *, may_change: bool) -> dict[str, Any]:
    """An alert as its card shows it, with a link to the page where a person can act."""
    href, action = _find_action(alert, may_change=may_change)
    kept = f"alerts.kept.{alert.kind}"
    return {
        "level": name_level(alert.kind),
        "title": title_alert(alert.kind, alert.subject, formats),
        # What happened, in the engine's own words where it said something; then what was kept and what to do.
        "text": formats.explain(alert.reason),
        # A viewer cannot follow the advice.
        "advice": formats.explain(
            formats.texts(kept) if formats.texts.has(kept) else "", alert.action if may_change else ""
        ),
        "also": "",
        "age": formats.lasting(alert.since),
        "href": href,
        "action": formats.texts(f"alerts.{action}"),
    }


def name_level(kind: str) -> str:
    """The level of a kind; P1 for one that another release knew."""
    found = find_kind(kind)
    return (found.level if found else AlertLevel.P1).value


def title_alert(kind: str, subject: str, formats: Formats) -> str:
    """The kind's title in the page's language, and its subject, unless that is collect as a whole."""
    title = name_kind(kind, formats)
    if subject == SUBJECT:
        return title
    site, _, engine = name_platform(subject, formats).partition(" at ")
    if formats.is_chinese:
        return f"{title}：{site}（{engine}）" if engine else f"{title}：{site}"
    return f"{title}: {site} at {engine}" if engine else f"{title}: {site}"


def name_kind(kind: str, formats: Formats) -> str:
    """The kind's title in the page's language, without its level, which has a badge; its own name for one that another
    release knew."""
    found = find_kind(kind)
    title = kind if found is None else found.titles[Language(formats.texts.language.value)]
    return formats.begin(_LEVEL_PREFIX.sub("", title))


def find_kind(name: str) -> AlertKind | None:
    """The kind of this name, of either pipeline."""
    return next((kind for kind in (*AnnounceAlert, *CollectAlert) if kind.value == name), None)


def _find_action(alert: OpenCondition, *, may_change: bool) -> tuple[str, str]:
    """The address and the words of the alert's button. A viewer may open no page of collect: there is no address."""
    if alert.kind in set(AnnounceAlert):
        site = locate_site(alert.subject.partition(" at ")[0])
        if alert.kind == AnnounceAlert.MANY_FAILURES:
            return f"{site}/failed", "to_failed"
        if may_change and alert.kind in (AnnounceAlert.CHANNEL_BROKEN, AnnounceAlert.CHANNEL_OFF):
            field = _KEY_FIELDS.get(alert.subject.partition(" at ")[2], "indexnowKey")
            return f"{site}/settings#field-{field}", "to_key"
        return site, "to_site"
    if not may_change:
        return "", "to_candidates"
    if "cookie" in alert.kind:
        return "/cookies", "to_cookies"
    return ("/keywords", "to_keywords") if "search" in alert.kind else ("/candidates", "to_candidates")
