"""The confirmation page for actions that cannot be undone. It works without script."""

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
    """The action, its subject, and the target of the form."""

    # Key of the catalogue: `confirm.{key}.title`, `.text` and `.button`.
    key: str
    # The values that these texts show.
    values: Mapping[str, str]
    # Where the form is sent.
    action: str
    # The list in the menu that the subject belongs to: its URL and the key of its name.
    list_href: str
    list_key: str
    # The page of the subject, and its name; empty if it has none.
    back: str = ""
    name: str = ""
    # Fields that the form sends.
    hidden: Mapping[str, str] = field(default_factory=dict)
    # The text that must be typed; empty if the button is enough.
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
