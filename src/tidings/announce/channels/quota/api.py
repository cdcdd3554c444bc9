"""The common part of the APIs of channels with a quota: sending a request, classifying a failed one, and advice."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidings.announce.channels.answer import LONGEST_ANSWER, ChannelRequest, Outcome, Verdict, exchange
from tidings.announce.site.site import find_origin
from tidings.core.clock import Clock
from tidings.core.net.client import Answer, FetchError, GuardedClient, NetworkError
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

# Of a request's URL.
LONGEST_REQUEST = 8_192
# The next batch would get the same answer.
CLOSED_AT_ONCE = {
    Verdict.RATE_LIMITED: 1,
    Verdict.UNAVAILABLE: 1,
    Verdict.UNCERTAIN: 1,
    Verdict.QUOTA_FULL: 1,
    Verdict.FORBIDDEN: 1,
}


@dataclass(frozen=True, slots=True)
class ChannelApi:
    """The API of a channel with a quota."""

    client: GuardedClient
    clock: Clock
    # Its address, without a slash at the end.
    base: str

    @property
    def host(self) -> str:
        """The host that requests are paced by."""
        return find_origin(self.base).partition("://")[2]

    async def send(
        self, request: ChannelRequest, *, advice: Mapping[Verdict, str], longest: int = LONGEST_ANSWER
    ) -> Answer | Outcome:
        """Send a request. Returns its answer, or the outcome if none came."""
        return await exchange(
            request,
            client=self.client,
            clock=self.clock,
            url_limit=LONGEST_REQUEST,
            judge_failure=partial(_judge_failure, advice=advice),
            longest=longest,
        )


def hide_secrets(answer: Answer, *secrets: Secret) -> Answer:
    """Remove the keys: an answer may repeat them, and the reason is stored and shown."""
    text = Redactor(secrets).redact(answer.body.decode(errors="replace"))
    return replace(answer, body=text.encode())


def _judge_failure(error: FetchError, *, advice: Mapping[Verdict, str]) -> Outcome:
    """The outcome of a request that got no answer. The reason has no address, because that may hold a key."""
    verdict, reason = Verdict.UNAVAILABLE, error.reason
    if not isinstance(error, NetworkError):
        verdict = Verdict.REFUSED
    elif error.sent:
        verdict, reason = Verdict.UNCERTAIN, f"no answer: {error.reason}"
    return Outcome(verdict, reason, advice[verdict])


def make_advice(name: str, *, midnight: str, setting: str) -> dict[Verdict, str]:
    """Advice for each verdict, for all these channels."""
    again = "it is sent again next time"
    return {
        Verdict.ACCEPTED: "",
        Verdict.QUOTA_FULL: f"Nothing to do: the rest follows when the quota is new, at midnight {midnight}.",
        Verdict.RATE_LIMITED: f"{name} is asked too often; {again}.",
        Verdict.UNAVAILABLE: f"{name} has trouble; what failed is sent again next time.",
        Verdict.UNCERTAIN: f"{name} may have taken it; {again}, and stays counted against the quota.",
        Verdict.REFUSED: f"Look at the reason; where it is not {name}'s own answer, check {setting}.",
    }


def read_document(body: bytes) -> dict[str, Any] | None:
    """A JSON object, or None."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
