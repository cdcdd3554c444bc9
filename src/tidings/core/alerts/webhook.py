"""A destination that takes signed JSON, in the form of Standard Webhooks: the headers webhook-id, webhook-timestamp and
webhook-signature, the last one `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from datetime import timedelta
from typing import Final

from tidings.core.alerts.events import AlertEvent, DeliveryError, DestinationError
from tidings.core.alerts.wording import write_title
from tidings.core.clock import Clock, to_text
from tidings.core.net.addresses import UrlError, parse_url
from tidings.core.net.client import FetchError, GuardedClient
from tidings.core.net.retry import parse_retry_after
from tidings.core.secrets.secret import Secret

_PREFIX: Final = "whsec_"
_SHORTEST_KEY: Final = 24
_LONGEST_KEY: Final = 64
_TIMEOUT: Final = timedelta(seconds=15)
_GONE: Final = 410
_ASKS_TO_WAIT: Final = (429, 503)


class WebhookDestination:
    """Posts to one URL, through the guarded client. The URL is never shown: many hold a token in their path.

    Raises DestinationError where the URL or the secret cannot be used.
    """

    def __init__(self, url: str, *, secret: Secret, client: GuardedClient, clock: Clock) -> None:
        self.name = "webhook"
        try:
            self._url = Secret(parse_url(url).text)
        except UrlError as error:
            raise DestinationError(f"the webhook's URL cannot be used: {error}") from None
        _read_key(secret)
        self._secret = secret
        self._client = client
        self._clock = clock

    async def send(self, event: AlertEvent) -> None:
        """The receiver has taken the event if it answers 2xx. Otherwise raises DeliveryError, without `retry` only for
        410 Gone."""
        body = json.dumps(_describe(event)).encode()
        try:
            async with self._client.stream(
                "POST", self._url.reveal(), headers=self._sign(event.id, body), body=body, timeout=_TIMEOUT
            ) as answer:
                status, retry_after = answer.status, answer.headers.get("Retry-After")
        except FetchError as error:
            raise DeliveryError(retry=True, reason=f"the request {error.verb}: {error.reason}") from None
        if 200 <= status < 300:
            return
        asked_for = parse_retry_after(retry_after, now=self._clock.now()) if status in _ASKS_TO_WAIT else None
        # Any other refusal may be a fault of the receiver that somebody repairs.
        raise DeliveryError(retry=status != _GONE, reason=f"the receiver answered {status}", retry_after=asked_for)

    def _sign(self, event_id: str, body: bytes) -> dict[str, str]:
        # The time of this attempt, not of the event: receivers refuse timestamps that are some minutes old.
        timestamp = str(int(self._clock.now().timestamp()))
        signed = f"{event_id}.{timestamp}.".encode() + body
        signature = base64.b64encode(hmac.digest(_read_key(self._secret), signed, hashlib.sha256)).decode()
        return {
            "Content-Type": "application/json",
            "webhook-id": event_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": f"v1,{signature}",
        }


def new_webhook_secret() -> Secret:
    """A secret to be shared with the receiver."""
    return Secret(_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode())


def _read_key(secret: Secret) -> bytes:
    text = secret.reveal()
    encoded = text.removeprefix(_PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_PREFIX) or not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise DestinationError(
            f"the webhook's secret must be {_PREFIX} and the base64 of {_SHORTEST_KEY} to {_LONGEST_KEY} random bytes"
        )
    return key


def _describe(event: AlertEvent) -> dict[str, object]:
    return {
        "type": f"alert.{event.type}",
        "timestamp": to_text(event.occurred_at),
        "data": {
            "kind": event.kind,
            "level": event.level.value,
            "subject": event.subject,
            "title": write_title(event),
            "reason": event.reason,
            "action": event.action,
            "count": event.count,
            "since": to_text(event.since),
        },
    }
