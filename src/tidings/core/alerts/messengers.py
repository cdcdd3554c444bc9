"""Destinations that Apprise knows: mail, chat and push services, each named by one URL. Such a URL holds passwords, so
our messages do not show it, and the logs of Apprise and its libraries are switched off.

Apprise is loaded when it is first needed, not with this module: it costs 45 MB and most of a second.
"""

import asyncio
import logging
import re
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidings.core.alerts.events import AlertEvent, DeliveryError, DestinationError, EventType
from tidings.core.alerts.wording import disarm_markup, write_body, write_title
from tidings.core.secrets.secret import Secret

if TYPE_CHECKING:
    from apprise import Apprise

_TIME_LIMIT: Final = timedelta(seconds=45)
_BETWEEN_URLS: Final = re.compile(r"[\s,;]+(?=[A-Za-z0-9]+://)")
# Higher than every level, and inherited by the children of these loggers.
_SILENT: Final = logging.CRITICAL + 1
_LIBRARIES: Final = ("apprise", "requests", "requests_oauthlib", "oauthlib", "urllib3", "slixmpp", "paho")


class AppriseDestination:
    """One Apprise URL. `check` or else the first `send` finds out whether Apprise understands it."""

    def __init__(self, url: Secret, *, number: int, time_limit: timedelta = _TIME_LIMIT) -> None:
        self.name = f"apprise:{number}"
        self._url = url
        self._number = number
        self._apprise: Apprise | None = None
        self._seconds = time_limit.total_seconds()

    def check(self) -> None:
        """Raises DestinationError where Apprise does not understand the URL."""
        self._load()

    def _load(self) -> "Apprise":
        self._apprise = self._apprise or _load_apprise(self._url, number=self._number)
        return self._apprise

    async def send(self, event: AlertEvent) -> None:
        """Raises DeliveryError, always with `retry`, because Apprise does not say why it failed."""
        try:
            async with asyncio.timeout(self._seconds):
                taken = await asyncio.to_thread(self._notify, event)
        except TimeoutError:
            reason = f"Apprise did not finish in {self._seconds:g} s"
            raise DeliveryError(retry=True, reason=reason) from None
        except DestinationError as error:
            raise DeliveryError(retry=True, reason=str(error)) from None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, with its URL in the text
            raise DeliveryError(retry=True, reason=f"Apprise failed ({type(error).__name__})") from None
        if not taken:
            raise DeliveryError(retry=True, reason="Apprise could not deliver it")

    def _notify(self, event: AlertEvent) -> bool:
        outcome = self._load().notify(
            body=disarm_markup(write_body(event)),
            title=disarm_markup(write_title(event)),
            notify_type="success" if event.type is EventType.RESOLVED else "failure",
            body_format="text",
        )
        return bool(outcome)


def split_urls(urls: Secret) -> list[Secret]:
    """The Apprise URLs in one text, between commas, semicolons or white space (which may also stand inside a URL)."""
    parts = _BETWEEN_URLS.split(urls.reveal().strip(" \t\r\n,;"))
    return [Secret(part) for part in parts if part]


def _load_apprise(url: Secret, *, number: int) -> "Apprise":
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(_SILENT)
    from apprise import Apprise, AppriseAsset

    asset = AppriseAsset(app_id="Tidings", app_desc="Tidings")
    with warnings.catch_warnings():
        # Apprise loads all its plugins here, and some use deprecated parts of Python.
        warnings.simplefilter("ignore", DeprecationWarning)
        service = Apprise.instantiate(url.reveal(), asset=asset)
    if service is None:
        raise DestinationError(f"Apprise does not understand alert URL number {number}")
    loaded = Apprise(asset=asset)
    loaded.add(service)
    return loaded
