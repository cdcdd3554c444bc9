"""The fields of a site's settings form: how each is shown, and how an entered value becomes a change of the document.

Names are those of the site's document. Label and hint stand in the catalogue, under `setting` and the field's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tidings.announce.page_check.settings import PageCheckMode
from tidings.announce.site.channel_settings import AUTO, PagePriority
from tidings.announce.site.errors import SiteError
from tidings.announce.site.google_settings import IndexedContent
from tidings.announce.site.site import SubmitMethod
from tidings.web.pages.view.forms import FormValues

# A ticked box of this name and a field's name empties a secret.
CLEAR: Final = "clear."
# Errors name the first sitemap; in the form one field has all of them.
_ALIASES: Final = {"sitemapUrl": "sitemapUrls"}


class FieldKind(StrEnum):
    """`lines`: one value a line. `secret`: never shown, and an empty field keeps it. `switch`: a box to tick."""

    TEXT = "text"
    LINES = "lines"
    NUMBER = "number"
    CHOICE = "choice"
    SECRET = "secret"  # noqa: S105 - a kind of field
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class SettingField:
    """One field of the form."""

    # The field of the site's document.
    name: str
    kind: FieldKind = FieldKind.TEXT
    # The values of a choice; "" stands for none.
    choices: Sequence[str] = ()
    # A number may also be this word.
    word: str = ""
    # The secret is optional, so the form can delete it.
    can_clear: bool = False

    def read(self, form: FormValues) -> Any:
        """The entered value; None resets the field to its default. Raises SiteError."""
        match self.kind:
            case FieldKind.SWITCH:
                return form.has(self.name)
            case FieldKind.LINES:
                return form.get(self.name).replace(",", " ").split() or None
            case FieldKind.NUMBER:
                return self._read_number(form.get(self.name))
            case FieldKind.CHOICE if form.get(self.name) not in ("", *self.choices):
                raise SiteError(self.name, f"it must be one of {', '.join(filter(None, self.choices))}")
            case _:
                return form.get(self.name) or None

    def show(self, value: Any) -> str:
        """The stored value as the form shows it."""
        if self.kind is FieldKind.SWITCH:
            return "on" if value else ""
        if self.kind is FieldKind.LINES:
            return "\n".join(value)
        return "" if value is None or self.kind is FieldKind.SECRET else str(value)

    def _read_number(self, text: str) -> int | str | None:
        if not text or text == self.word:
            return text or None
        if not (text.isascii() and text.isdigit() and len(text) < 9):
            raise SiteError(self.name, "it must be a whole number")
        return int(text)


_PRIORITY: Final = tuple(PagePriority)
GROUPS: Final[Mapping[str, Sequence[SettingField]]] = {
    "pages": (
        SettingField("sitemapUrls", FieldKind.LINES),
        SettingField("backupSitemapUrls", FieldKind.LINES),
        SettingField("schedule"),
        SettingField("enabled", FieldKind.SWITCH),
        SettingField("announceRemoved", FieldKind.SWITCH),
    ),
    "indexnow": (
        SettingField("searchEngines", FieldKind.LINES),
        SettingField("indexnowKey", FieldKind.SECRET),
        SettingField("keyLocation", FieldKind.SECRET, can_clear=True),
        SettingField("submitMethod", FieldKind.CHOICE, tuple(SubmitMethod)),
    ),
    "bing": (
        SettingField("bingEnabled", FieldKind.SWITCH),
        SettingField("bingApiKey", FieldKind.SECRET),
        SettingField("bingDailyQuota", FieldKind.NUMBER, word=AUTO),
        SettingField("bingPriority", FieldKind.CHOICE, _PRIORITY),
    ),
    "baidu": (
        SettingField("baiduEnabled", FieldKind.SWITCH),
        SettingField("baiduToken", FieldKind.SECRET),
        SettingField("baiduSite"),
        SettingField("baiduDailyQuota", FieldKind.NUMBER),
        SettingField("baiduPriority", FieldKind.CHOICE, _PRIORITY),
    ),
    "google": (
        SettingField("googleCredentials", FieldKind.SECRET, can_clear=True),
        SettingField("googleProperty"),
        SettingField("googleIndexing", FieldKind.CHOICE, ("", *IndexedContent)),
        SettingField("googleDailyQuota", FieldKind.NUMBER),
        SettingField("googlePriority", FieldKind.CHOICE, _PRIORITY),
    ),
    "page_check": (
        SettingField("pageCheck", FieldKind.CHOICE, tuple(PageCheckMode)),
        SettingField("pageCheckLimit", FieldKind.NUMBER),
    ),
    "access": (
        SettingField("group"),
        SettingField("hookSecret", FieldKind.SECRET, can_clear=True),
    ),
}
FIELDS: Final = tuple(field for fields in GROUPS.values() for field in fields)
SECRETS: Final = frozenset(field.name for field in FIELDS if field.kind is FieldKind.SECRET)


def read_changes(form: FormValues) -> dict[str, Any]:
    """The form as changes of the site's document. An empty secret stays as it is. Raises SiteError."""
    changes = {}
    for field in FIELDS:
        value = field.read(form)
        if field.name not in SECRETS or value is not None or form.has(CLEAR + field.name):
            changes[field.name] = value
    return changes


def show_document(document: Mapping[str, Any]) -> dict[str, str]:
    """The values of a site's document as the form shows them."""
    return {field.name: field.show(document[field.name]) for field in FIELDS}


def find_field(error: SiteError) -> str:
    """The form's field that this error is about."""
    return _ALIASES.get(error.field, error.field)
