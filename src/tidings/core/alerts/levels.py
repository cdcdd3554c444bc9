"""The least level of a destination: `?level=P1` in its URL. It is ours alone, and taken off before the URL is used."""

import re
from typing import Final

from tidings.core.alerts.events import DestinationError
from tidings.core.alerts.kinds import AlertLevel
from tidings.core.secrets.secret import Secret

_LEVEL: Final = re.compile(r"([?&])level=(P[0-9]+|info)(?=&|$|#)(&?)", re.IGNORECASE)


def read_level(url: Secret) -> tuple[Secret, AlertLevel]:
    """The URL without its level, and the least level that the destination wants. Raises DestinationError."""
    text = url.reveal()
    found = _LEVEL.search(text)
    if found is None:
        return url, AlertLevel.INFO
    wanted = next((level for level in AlertLevel if level.value.lower() == found[2].lower()), None)
    if wanted is None:
        raise DestinationError("level= in an alert's URL must be P0, P1, P2 or info")
    # What follows keeps the question mark.
    kept = found[1] if found[3] else ""
    return Secret(text[: found.start()] + kept + text[found.end() :]), wanted
