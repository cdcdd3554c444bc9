"""Alerts: those that are open, with what to do, and those that have ended. The overview shows them too."""

import re
from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response

from tidings.announce.execution.alerts import AnnounceAlert
from tidings.collect.alerts.conditions import SUBJECT
from tidings.collect.alerts.kinds import CollectAlert
from tidings.core.alerts.conditions import OpenCondition
from tidings.core.alerts.kinds import AlertKind, AlertLevel, Language
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.rendering import locate_site
from tidings.web.pages.view.routing import PageView, make_page_router

router = make_page_router()

_MOST: Final = 100
_LEVEL_PREFIX: Final = re.compile("^P[0-9](: |：)")
# The field of the settings form with the key of each channel. Engines use IndexNow's key.
_KEY_FIELDS: Final = {"bing": "bingApiKey", "baidu": "baiduToken", "google": "googleCredentials"}


@router.get("/alerts")
async def show_alerts(request: Request) -> Response:
    view = PageView(request, Scope.VIEWER)
    view.refuse_group()
    found = await view.installation.alerts.list_open(limit=_MOST)
    past = [
        {
            "level": _name_level(each.kind),
            "title": _title_alert(each.kind, each.subject, view.formats),
            "ended": each,
        }
        for each in await view.installation.alerts.list_past(limit=_MOST)
    ]
    return await view.render("alerts.html", alerts=fold_alerts(found, view), past=past)


def fold_alerts(alerts: Sequence[OpenCondition], view: PageView) -> list[dict[str, Any]]:
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
    return [{**_describe_alert(first, view), "also": _list_followers(others, view)} for first, others in cards]


def _list_followers(others: Sequence[OpenCondition], view: PageView) -> str:
    if not others:
        return ""
    between = "；" if view.formats.is_chinese else "; "
    titles = between.join(_name_kind(each.kind, view.formats) for each in others)
    return view.texts.count("alerts.also", len(others), titles=titles)


def _describe_alert(alert: OpenCondition, view: PageView) -> dict[str, Any]:
    """An alert as its card shows it, with a link to the page where a person can act."""
    formats = view.formats
    href, action = _find_action(alert, may_change=view.may_change)
    return {
        "level": _name_level(alert.kind),
        "title": _title_alert(alert.kind, alert.subject, formats),
        # What happened, in the engine's own words where it said something; then what was kept and what to do.
        "text": formats.explain(alert.reason),
        # A viewer cannot follow the advice.
        "advice": formats.explain(
            view.texts.find(f"alerts.kept.{alert.kind}"), alert.action if view.may_change else ""
        ),
        "age": formats.lasting(alert.since),
        "href": href,
        "action": view.texts(f"alerts.{action}"),
    }


def _name_level(kind: str) -> str:
    """The level of a kind; P1 for one that another release knew."""
    found = _find_kind(kind)
    return (found.level if found else AlertLevel.P1).value


def _title_alert(kind: str, subject: str, formats: Formats) -> str:
    """The kind's title in the page's language, and its subject, unless that is collect as a whole."""
    title = _name_kind(kind, formats)
    if subject == SUBJECT:
        return title
    site, _, engine = formats.platform(subject).partition(" at ")
    if formats.is_chinese:
        return f"{title}：{site}（{engine}）" if engine else f"{title}：{site}"
    return f"{title}: {site} at {engine}" if engine else f"{title}: {site}"


def _name_kind(kind: str, formats: Formats) -> str:
    """The kind's title in the page's language, without its level, which has a badge; its own name for one that another
    release knew."""
    found = _find_kind(kind)
    title = kind if found is None else found.titles[Language(formats.texts.language.value)]
    return formats.begin(_LEVEL_PREFIX.sub("", title))


def _find_kind(name: str) -> AlertKind | None:
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
