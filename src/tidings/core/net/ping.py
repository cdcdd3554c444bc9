"""Calls an external monitor, a GET to the operator's URL, because a dead machine cannot raise alerts."""

from datetime import timedelta
from typing import Final

from tidings.core.logs.logger import get_logger
from tidings.core.net.client import FetchError, GuardedClient
from tidings.core.secrets.secret import Secret

_TIMEOUT: Final = timedelta(seconds=5)

_log = get_logger(__name__)


class Ping:
    """One monitor; without a URL it does nothing. The URL is never shown, because it is the monitor's key."""

    def __init__(self, url: Secret | None = None, *, client: GuardedClient | None = None) -> None:
        self._url = url
        self._client = client

    async def send(self) -> None:
        """Send one GET. A failure is only logged: the monitor notices the missing call by itself."""
        if self._url is None or self._client is None:
            return
        try:
            async with self._client.stream("GET", self._url.reveal(), timeout=_TIMEOUT) as answer:
                if answer.status >= 400:
                    _log.warning("ping.refused", status=answer.status)
        except FetchError as error:
            _log.warning("ping.failed", reason=error.reason)
