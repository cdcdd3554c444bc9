"""The page that asks before something is done that cannot be undone. It works without script."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastapi import Request
from fastapi.responses import Response

from tidings.web.pages.view.forms import FormState
from tidings.web.pages.view.routing import Dashboard

_PARTS: Final = ("title", "text", "button")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What would be done, to what, and where the answer goes."""

    # Key of the catalogue: `confirm.{key}.title`, `.text` and `.button`.
    key: str
    # The values that these texts show.
    values: Mapping[str, str]
    # Where the form is sent.
    action: str
    # The menu's list that the thing is in: its address and the key of its name.
    list_href: str
    list_key: str
    # The page of the thing itself, and its name there; empty where it has none.
    back: str = ""
    name: str = ""
    # Fields that the form sends.
    hidden: Mapping[str, str] = field(default_factory=dict)
    # Has to be typed; empty where a press of the button is enough.
    typed_name: str = ""


async def ask(dashboard: Dashboard, request: Request, question: Question) -> Response:
    texts = dashboard.renderer.texts(request)
    title, text, button = (texts(f"confirm.{question.key}.{part}", **question.values) for part in _PARTS)
    return await dashboard.render(
        request,
        "confirm.html",
        question=question,
        list_title=texts(question.list_key),
        title=title,
        text=text,
        button=button,
        form=FormState(),
    )
