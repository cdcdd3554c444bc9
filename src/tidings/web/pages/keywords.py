"""The page of watched keywords: a form with the choices of `tidings collect keywords add`, and the list."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Self

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.collect.comments import MOST_COMMENTS
from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.crawl.platforms.registry import list_platforms
from tidings.collect.errors import CrawlError
from tidings.collect.watching import KeywordChecks
from tidings.collect.write.keywords import MOST_PAGES, NO_REFRESH, Keyword, RefreshPlan, parse_refresh
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.collect import name_error, name_platform
from tidings.web.pages.overview import make_link
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import FormState, FormValues, read_form
from tidings.web.pages.view.questions import Question, ask
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, make_page_router, require_scope
from tidings.wiring.crawl import make_keyword_checks

_FIELDS: Final = ("platform", "keyword", "pages", "since", "until", "refresh", "period", "comments")
_MOST_DIGITS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordWish:
    """The values of the form."""

    platform: str
    # The words, with the period as a part of them.
    keyword: str
    # How many pages of results a search reads.
    pages: int
    # None keeps the plan that the keyword has.
    refresh: RefreshPlan | None
    # How many comments of each note; None keeps the number.
    comments: int | None

    @classmethod
    def read(cls, form: FormValues) -> Self:
        """The wish of a form without problems."""
        days = (f"{name}:{day}" for name in ("since", "until") if (day := form.get(name)))
        comments = form.get("comments")
        return cls(
            platform=form.get("platform"),
            keyword=" ".join([form.get("keyword"), *days]),
            pages=int(form.get("pages", "1")),
            refresh=_read_plan(form),
            comments=int(comments) if comments else None,
        )


def make_keywords_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    _add_list(router, dashboard)
    _add_changes(router, dashboard)
    return router


def _add_list(router: APIRouter, dashboard: Dashboard) -> None:
    keywords, renderer = dashboard.installation.collect.keywords, dashboard.renderer

    async def show(request: Request, *, form: FormState | None = None, status: int = 200) -> Response:
        formats = renderer.formats(request)
        return await dashboard.render(
            request,
            "keywords.html",
            status=status,
            rows=[_describe_row(each, formats) for each in await keywords.list_all()],
            platforms=[(each, name_platform(each, formats)) for each in list_platforms()],
            most_comments=formats.number(MOST_COMMENTS),
            form=form or FormState({"pages": "1"}),
        )

    @router.get("/keywords")
    async def show_keywords(request: Request) -> Response:
        require_scope(request, Scope.WORKFLOW)
        return await show(request)

    @router.post("/keywords")
    async def add_keyword(request: Request) -> Response:
        require_scope(request, Scope.WORKFLOW)
        form, texts = await read_form(request), renderer.texts(request)
        checks = make_keyword_checks(dashboard.installation, crawler=dashboard.crawler)
        problems = _check_keyword(form, renderer.formats(request), checks=checks)
        if problems:
            labels = {name: texts(f"keywords.{name}") for name in _FIELDS}
            typed = {name: form.get(name) for name in _FIELDS}
            return await show(request, form=FormState(typed, problems, labels), status=400)
        wish = KeywordWish.read(form)
        await keywords.add(wish.platform, wish.keyword, pages=wish.pages, refresh=wish.refresh, comments=wish.comments)
        dashboard.installation.wake()
        return renderer.redirect("/keywords", await _confirm(wish, checks=checks))


async def _confirm(wish: KeywordWish, *, checks: KeywordChecks) -> PageMessage:
    """The message that the keyword is watched, with a warning if the platform's cookies are not enough."""
    values = {"keyword": wish.keyword}
    overload = await checks.find_overload(wish.platform)
    if overload is None:
        return PageMessage("keyword_added", values=values)
    values |= {"needed": str(overload.needed), "allowed": str(overload.allowed)}
    return PageMessage("keyword_overload", tone="warn", values=values)


def _describe_row(keyword: Keyword, formats: Formats) -> Mapping[str, Any]:
    return {
        "platform": keyword.platform,
        "platform_name": name_platform(keyword.platform, formats),
        "keyword": keyword.keyword,
        "pages": keyword.pages,
        "refresh": keyword.refresh,
        "comments": keyword.comments,
        "enabled": keyword.enabled,
        "last": formats.ago(keyword.last_run_at),
        "found": keyword.last_found,
        "created": keyword.last_created,
        "notes": make_link("/notes", {"platform": keyword.platform, "keyword": keyword.keyword}),
        "error": name_error(keyword.last_error_code, formats),
    }


def _add_changes(router: APIRouter, dashboard: Dashboard) -> None:
    keywords, renderer = dashboard.installation.collect.keywords, dashboard.renderer

    @router.get("/keywords/remove/confirm")
    async def ask_removal(request: Request, platform: str, keyword: str) -> Response:
        require_scope(request, Scope.WORKFLOW)
        question = Question(
            key="remove_keyword",
            values={"keyword": keyword, "platform": name_platform(platform, renderer.formats(request))},
            action="/keywords/remove",
            list_href="/keywords",
            list_key="nav.keywords",
            hidden={"platform": platform, "keyword": keyword},
        )
        return await ask(dashboard, request, question)

    @router.post("/keywords/{action}")
    async def change_keyword(request: Request, action: str) -> Response:
        require_scope(request, Scope.WORKFLOW)
        form = await read_form(request)
        platform, keyword = form.get("platform"), form.get("keyword")
        if action == "remove":
            await keywords.remove(platform, keyword)
        elif action in ("pause", "resume"):
            await keywords.set_enabled(platform, keyword, enabled=action == "resume")
        return renderer.redirect("/keywords", PageMessage("saved"))


def _read_plan(form: FormValues) -> RefreshPlan | None:
    """The refresh plan; None keeps the keyword's present one. Raises CrawlError."""
    every = form.get("refresh")
    if not every:
        return None
    return NO_REFRESH if every == "off" else parse_refresh(every, form.get("period") or None)


def _check_keyword(form: FormValues, formats: Formats, *, checks: KeywordChecks) -> dict[str, str]:
    """The problem of each field that has one."""
    problems, texts = {}, formats.texts
    if form.get("platform") not in list_platforms():
        problems["platform"] = texts("keywords.platform_unknown")
    if not 1 <= len(form.get("keyword")) <= LONGEST_KEYWORD:
        problems["keyword"] = texts("keywords.keyword_length", most=LONGEST_KEYWORD)
    if not _is_within(form.get("pages", "1"), 1, MOST_PAGES):
        problems["pages"] = texts("keywords.pages_range", most=MOST_PAGES)
    if form.get("comments") and not _is_within(form.get("comments"), 0, MOST_COMMENTS):
        problems["comments"] = texts("keywords.comments_range", most=formats.number(MOST_COMMENTS))
    problems |= {
        name: texts("keywords.day_unknown")
        for name in ("since", "until")
        if form.get(name) and not _is_day(form.get(name))
    }
    if form.get("period") and not form.get("refresh"):
        problems["period"] = texts("keywords.period_alone")
    try:
        _read_plan(form)
    except CrawlError as error:
        problems["refresh"] = formats.explain(error.message)
    return problems or _check_wish(KeywordWish.read(form), formats, checks=checks)


def _check_wish(wish: KeywordWish, formats: Formats, *, checks: KeywordChecks) -> dict[str, str]:
    """Whether the platform can do it with the present settings."""
    try:
        checks.check(wish.platform, wish.keyword, comments=wish.comments)
    except CrawlError as error:
        return {"keyword": formats.texts("keywords.cannot_work", reason=formats.explain(error.message))}
    return {}


def _is_within(text: str, least: int, most: int) -> bool:
    return text.isascii() and text.isdigit() and least <= int(text[:_MOST_DIGITS]) <= most


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
