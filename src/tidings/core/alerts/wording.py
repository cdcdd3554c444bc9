"""The text of an event: its title and the lines below it, in English and Chinese. Reasons and actions stay as given."""

import re
from typing import Final

from tidings.core.alerts.events import AlertEvent, EventType
from tidings.core.alerts.kinds import Language
from tidings.core.clock import to_text

_RESOLVED: Final = {Language.ENGLISH: "Resolved: ", Language.CHINESE: "已恢复："}
_COLON: Final = {Language.ENGLISH: ": ", Language.CHINESE: "："}
_REASON: Final = {Language.ENGLISH: "Reason", Language.CHINESE: "原因"}
_ACTION: Final = {Language.ENGLISH: "Action", Language.CHINESE: "建议"}
_COUNT: Final = {Language.ENGLISH: "Count", Language.CHINESE: "数量"}
_SINCE: Final = {Language.ENGLISH: "Since", Language.CHINESE: "开始"}
_UNTIL: Final = {Language.ENGLISH: "Until", Language.CHINESE: "恢复"}

# Mentions (@everyone, which Discord finds within a word too, and <!channel>), tags and links with another text, hidden
# and crossed-out text.
_MARKUP: Final = re.compile(r"(?<!\w)@(?=\w)|@(?=everyone|here)|<(?=[\w@!#&:/])|\](?=[(\[:])|([*~|`])(?=\1)")
_ZERO_WIDTH_SPACE: Final = "\u200b"


def write_title(event: AlertEvent) -> str:
    """One line: the kind's title and the subject."""
    language = event.language
    prefix = _RESOLVED[language] if event.type is EventType.RESOLVED else ""
    return f"{prefix}{event.title}{_COLON[language]}{event.subject}"


def write_body(event: AlertEvent) -> str:
    """One line for each known fact. A resolved alert needs no action."""
    is_over = event.type is EventType.RESOLVED
    lines = [
        (_REASON, event.reason),
        (_ACTION, "" if is_over else event.action),
        (_COUNT, "" if event.count is None else f"{event.count:,}"),
        (_SINCE, to_text(event.since)),
        (_UNTIL, to_text(event.occurred_at) if is_over else ""),
    ]
    language = event.language
    return "\n".join(f"{label[language]}{_COLON[language]}{value}" for label, value in lines if value)


def disarm_markup(text: str) -> str:
    """The text with an invisible character in everything that a messenger would read as a mention, a tag or a hidden
    link.

    Reasons may hold words of foreign sites. Messengers such as Discord and Mattermost read any text as Markdown.
    """
    return _MARKUP.sub(lambda found: f"{found[0]}{_ZERO_WIDTH_SPACE}", text)
