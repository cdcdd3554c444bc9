"""Forms: reads a urlencoded body, and keeps what was typed next to each field's problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from fastapi import Request

from tidings.web.errors import problem
from tidings.web.middleware.auth import refuse_cross_site

LARGEST_FORM = 64 * 1024
MOST_FIELDS = 1_000


@dataclass(frozen=True, slots=True)
class FormValues:
    """The fields of a submitted form."""

    fields: Mapping[str, Sequence[str]]

    def get(self, name: str, default: str = "") -> str:
        """The first value of this field, without white space around it."""
        return self.fields.get(name, (default,))[0].strip()

    def list(self, name: str) -> Sequence[str]:
        return self.fields.get(name, ())

    def has(self, name: str) -> bool:
        """Whether a box of this name is ticked."""
        return name in self.fields


@dataclass(frozen=True, slots=True)
class FormState:
    """A form as a page shows it: entered values, labels, and the problem of each field that has one."""

    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    # A secret was typed, which no page shows again.
    lost_secret: bool = False


async def read_open_form(request: Request) -> FormValues:
    """A form without a session, such as sign-in. Raises a 403 problem for one that another site's page sent: nobody
    may sign a person in to an account of theirs.
    """
    refuse_cross_site(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        problem(415, "not_a_form", "send the form as application/x-www-form-urlencoded")
    body = await request.body()
    if len(body) > LARGEST_FORM:
        problem(413, "form_too_large", f"a form has at most {LARGEST_FORM:,} bytes")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        problem(400, "form_unreadable", "this form cannot be read as UTF-8")
    return FormValues(fields)
