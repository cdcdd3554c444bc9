"""A destination in a Feishu or Lark group: the custom bot's webhook, through the guarded client.

Feishu answers most refusals with HTTP 200 and a code in the body. Apprise's plugin takes every 200 for success and has
no signature, so this destination is our own.
"""

import base64
import hashlib
import hmac
import json
import re
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tidings.core.alerts.events import AlertEvent, DeliveryError, DestinationError, EventType
from tidings.core.alerts.kinds import AlertLevel
from tidings.core.alerts.wording import write_body, write_title
from tidings.core.clock import Clock
from tidings.core.net.client import FetchError, GuardedClient
from tidings.core.secrets.secret import Secret

_PATH: Final = "/open-apis/bot/v2/hook/"
_ORIGINS: Final = {"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_TIMEOUT: Final = timedelta(seconds=15)
_LONGEST_ANSWER: Final = 64 * 1024
# Feishu takes 20 KB; a character may need six bytes as JSON.
_MOST_CHARACTERS: Final = 2_500
_COLOURS: Final = {AlertLevel.P0: "red", AlertLevel.P1: "orange", AlertLevel.P2: "yellow", AlertLevel.INFO: "blue"}
_BUSY: Final = 11232
_MEANINGS: Final = MappingProxyType(
    {
        9499: "it does not take the message",
        _BUSY: "it is busy",
        19001: "it does not know the bot; copy its address again",
        19021: "the signature is wrong, or the clock is more than an hour off; check secret=",
        19022: "this address may not use the bot; check the bot's IP whitelist",
        19024: "none of the bot's keywords is in the message; add keyword=",
    }
)


class FeishuBotDestination:
    """One bot. Its address holds a token, so it is never shown. Raises DestinationError for an unusable URL.

    The URL is the one that Feishu shows, or `feishu://TOKEN`, `lark://TOKEN`; `secret` and `keyword` are in its query.
    """

    def __init__(self, url: Secret, *, number: int, client: GuardedClient, clock: Clock) -> None:
        self.name = f"feishu:{number}"
        split = urlsplit(url.reveal())
        # A short form has its token in the place of a host, and no path.
        short = split.netloc if split.path in ("", "/") else ""
        token = short if split.scheme in _ORIGINS else split.path.removeprefix(_PATH)
        origin = _ORIGINS.get(split.scheme, f"{split.scheme}://{split.netloc}")
        is_safe = origin.startswith("https://") or split.hostname in _LOOPBACK
        if not _TOKEN.fullmatch(token) or not is_safe or "@" in split.netloc:
            raise DestinationError(f"alert URL number {number} is no address of a Feishu bot")
        query = parse_qs(split.query)
        self._url = Secret(f"{origin}{_PATH}{token}")
        self._secret = query.get("secret", [""])[0]
        self._keyword = query.get("keyword", [""])[0]
        self._client = client
        self._clock = clock

    async def send(self, event: AlertEvent) -> None:
        """Feishu has taken the event if its answer has code 0. Otherwise raises DeliveryError, always with `retry`."""
        body = json.dumps(self._sign() | {"msg_type": "interactive", "card": self._write_card(event)}).encode()
        try:
            answer = await self._client.request(
                "POST",
                self._url.reveal(),
                headers={"Content-Type": "application/json; charset=utf-8"},
                body=body,
                timeout=_TIMEOUT,
                limit=_LONGEST_ANSWER,
            )
        except FetchError as error:
            raise DeliveryError(retry=True, reason=f"the request {error.verb}: {error.reason}") from None
        code = _read_code(answer.body)
        if code != 0 or answer.status != 200:
            named = f"code {code}" if code else f"HTTP {answer.status}"
            raise DeliveryError(retry=True, reason=f"Feishu: {_MEANINGS.get(code or 0, 'it refused')} ({named})")

    def _sign(self) -> dict[str, str]:
        if not self._secret:
            return {}
        timestamp = str(int(self._clock.now().timestamp()))
        signature = hmac.digest(f"{timestamp}\n{self._secret}".encode(), b"", hashlib.sha256)
        return {"timestamp": timestamp, "sign": base64.b64encode(signature).decode()}

    def _write_card(self, event: AlertEvent) -> dict[str, Any]:
        """A card whose colour shows the level. Its text is plain, so no reason can contain markup or a mention."""
        title, text = write_title(event), write_body(event)[:_MOST_CHARACTERS]
        level = "" if event.level is AlertLevel.INFO or event.level.value in title else f"{event.level.value} "
        if self._keyword and self._keyword not in title + text:
            text = f"{text}\n{self._keyword}"
        colour = "green" if event.type is EventType.RESOLVED else _COLOURS[event.level]
        return {
            "config": {"wide_screen_mode": True},
            "header": {"title": {"tag": "plain_text", "content": f"{level}{title}"[:500]}, "template": colour},
            "elements": [{"tag": "div", "text": {"tag": "plain_text", "content": text}}],
        }


def is_feishu_bot(url: Secret) -> bool:
    """Whether an alert URL names a bot of Feishu or Lark."""
    split = urlsplit(url.reveal())
    return split.scheme in _ORIGINS or (split.scheme in ("http", "https") and split.path.startswith(_PATH))


def _read_code(body: bytes) -> int | None:
    try:
        code = json.loads(body)["code"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return code if isinstance(code, int) else None
