"""The custom bot of a Feishu group: messages that it took, and its refusals, which are HTTP 200 with a code."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from tidings.sandbox.wire.stand_in import Now

BOT_PATH: Final = "/open-apis/bot/v2/hook/"
DEMO_BOT: Final = "tidings-sandbox-bot"
MOST_BYTES: Final = 20_000

_HOUR: Final = 3600


class GroupBot:
    """One bot. With a `secret` it checks signatures; with a `keyword` it takes only messages that contain it."""

    secret = ""
    keyword = ""

    def __init__(self, *, now: Now) -> None:
        self.messages: list[Mapping[str, Any]] = []
        self._now = now

    def take(self, document: Mapping[str, Any], *, size: int) -> dict[str, object]:
        """The answer to a message."""
        code = self._judge(document, size=size)
        if code:
            return {"code": code, "msg": "refused", "data": {}}
        self.messages.append(document)
        return {"code": 0, "msg": "success", "data": {}, "StatusCode": 0, "StatusMessage": "success"}

    def _judge(self, document: Mapping[str, Any], *, size: int) -> int:
        if size > MOST_BYTES or document.get("msg_type") not in ("text", "post", "interactive"):
            return 9499
        if self.secret and not self._is_signed(document):
            return 19021
        return 19024 if self.keyword and self.keyword not in str(document) else 0

    def _is_signed(self, document: Mapping[str, Any]) -> bool:
        timestamp = str(document.get("timestamp", ""))
        if not timestamp.isdigit() or abs(self._now().timestamp() - int(timestamp)) > _HOUR:
            return False
        expected = hmac.digest(f"{timestamp}\n{self.secret}".encode(), b"", hashlib.sha256)
        return hmac.compare_digest(base64.b64encode(expected).decode(), str(document.get("sign")))
