"""The page of watched keywords: a form with the choices of `tidings collect keywords add`, and the list."""

from dataclasses import dataclass
from datetime import date
from typing import Final, Self

from fastapi import Request
from fastapi.responses import Response

from tidings.collect.comments import MOST_COMMENTS
from tidings.collect.crawl.platforms.protocol import LONGEST_KEYWORD
from tidings.collect.crawl.platforms.registry import list_platforms
from tidings.collect.errors import CrawlError
from tidings.collect.watching import KeywordChecks
from tidings.collect.write.keywords import MOST_PAGES, NO_REFRESH, RefreshPlan, parse_refresh
from tidings.core.secrets.scopes import Scope
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import FormState, FormValues
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import PageView, make_link, make_page_router
from tidings.wiring.crawl import make_keyword_checks

router = make_page_router()

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


@router.get("/keywords")
async def show_keywords(request: Request) -> Response:
    return await _show(PageView(request, Scope.WORKFLOW), FormState({"pages": "1"}))


@router.post("/keywords")
async def add_keyword(request: Request) -> Response:
    view = PageView(request, Scope.WORKFLOW)
    form = await view.read_form()
    checks = make_keyword_checks(view.installation, crawler=view.dashboard.crawler)
    problems = _check_keyword(form, view.formats, checks=checks)
    if problems:
        labels = {name: view.texts(f"keywords.{name}") for name in _FIELDS}
        typed = {name: form.get(name) for name in _FIELDS}
        return await _show(view, FormState(typed, problems, labels), status=400)
    wish, keywords = KeywordWish.read(form), view.installation.collect.keywords
    await keywords.add(wish.platform, wish.keyword, pages=wish.pages, refresh=wish.refresh, comments=wish.comments)
    view.installation.wake()
    return view.redirect("/keywords", await _confirm(wish, checks=checks))


@router.get("/keywords/remove/confirm")
async def ask_keyword_removal(request: Request, platform: str, keyword: str) -> Response:
    view = PageView(request, Scope.WORKFLOW)
    return await view.ask(
        "remove_keyword",
        {"keyword": keyword, "platform": view.formats.platform(platform)},
        list_name="keywords",
        action="/keywords/remove",
        hidden={"platform": platform, "keyword": keyword},
    )


@router.post("/keywords/{action}")
async def change_keyword(request: Request, action: str) -> Response:
    view = PageView(request, Scope.WORKFLOW)
    form, keywords = await view.read_form(), view.installation.collect.keywords
    platform, keyword = form.get("platform"), form.get("keyword")
    if action == "remove":
        await keywords.remove(platform, keyword)
    elif action in ("pause", "resume"):
        await keywords.set_enabled(platform, keyword, enabled=action == "resume")
    return view.redirect("/keywords", PageMessage("saved"))


async def _show(view: PageView, form: FormState, *, status: int = 200) -> Response:
    rows = [
        (each, make_link("/notes", {"platform": each.platform, "keyword": each.keyword}))
        for each in await view.installation.collect.keywords.list_all()
    ]
    return await view.render(
        "keywords.html",
        status=status,
        rows=rows,
        platforms=list_platforms(),
        most_comments=view.formats.number(MOST_COMMENTS),
        form=form,
    )


async def _confirm(wish: KeywordWish, *, checks: KeywordChecks) -> PageMessage:
    """The message that the keyword is watched, with a warning if the platform's cookies are not enough."""
    values = {"keyword": wish.keyword}
    overload = await checks.find_overload(wish.platform)
    if overload is None:
        return PageMessage("keyword_added", values=values)
    values |= {"needed": str(overload.needed), "allowed": str(overload.allowed)}
    return PageMessage("keyword_overload", tone="warn", values=values)


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
