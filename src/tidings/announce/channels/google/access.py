"""Signs in at Google with a service account: a signed claim is exchanged for an access token, which lasts an hour.

A token is kept in memory for less than that, and shows in no log, answer or error. The address of the exchange comes
from the credentials, so it is used only if it is Google's own, or on the host of GOOGLE_API_BASE.
"""

import base64
import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict, clean_detail
from tidings.announce.channels.google.answers import ADVICE, CHECK_CREDENTIALS, judge_google
from tidings.announce.channels.quota.api import ChannelApi, hide_secrets, read_document
from tidings.announce.site.google_settings import GoogleSettings, ServiceAccount
from tidings.announce.site.site import find_origin
from tidings.core.net.client import Answer
from tidings.core.secrets.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

DEFAULT_GOOGLE_BASE: Final = "https://www.googleapis.com"
# Where Google's own credentials have their tokens exchanged.
TOKEN_ORIGINS: Final = frozenset(
    {"https://oauth2.googleapis.com", "https://accounts.google.com", "https://www.googleapis.com"}
)
GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"

_CLAIM_LASTS = timedelta(minutes=50)
_TOKEN_LASTS = timedelta(hours=1)
_MARGIN = timedelta(minutes=5)
# Refusals of a claim that a retry would not change.
_LASTING = ("invalid_client", "unauthorized_client", "account not found", "invalid jwt signature", "invalid signature")


class GoogleTokens:
    """Access tokens in memory, by service account and scope."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[str, str], tuple[Secret, datetime]] = {}

    def find(self, key: Secret, scope: str, *, now: datetime) -> Secret | None:
        token, until = self._tokens.get((key.fingerprint, scope), (None, now))
        return token if until > now else None

    def keep(self, key: Secret, scope: str, token: Secret, *, until: datetime) -> None:
        self._tokens[key.fingerprint, scope] = (token, until)

    def drop(self, key: Secret, scope: str) -> None:
        self._tokens.pop((key.fingerprint, scope), None)


@dataclass(frozen=True, slots=True)
class GoogleAccess(ChannelApi):
    """Requests to Google's APIs, signed in."""

    base: str = DEFAULT_GOOGLE_BASE
    tokens: GoogleTokens = field(default_factory=GoogleTokens)

    async def ask(
        self, settings: GoogleSettings, request: ChannelRequest, *, scope: str
    ) -> tuple[Outcome, Answer | None]:
        """Send one request and judge the answer; a lost connection is judged too. A stale token is replaced once."""
        key = settings.require_key()
        for is_last in (False, True):
            token = await self._find_token(settings, scope)
            if isinstance(token, Outcome):
                return token, None
            outcome, answer = await self._send(replace(request, bearer=token), secrets=(token, *settings.secrets))
            if outcome.status != 401 or is_last:
                break
            self.tokens.drop(key, scope)
        return outcome, answer

    async def _find_token(self, settings: GoogleSettings, scope: str) -> Secret | Outcome:
        key, now = settings.require_key(), self.clock.now()
        token = self.tokens.find(key, scope, now=now)
        return token or await self._fetch_token(settings, scope)

    async def _fetch_token(self, settings: GoogleSettings, scope: str) -> Secret | Outcome:
        account, now = settings.account, self.clock.now()
        if find_origin(account.token_uri) not in (*TOKEN_ORIGINS, find_origin(self.base)):
            reason = "the token_uri of the credentials is neither Google's nor on the host of GOOGLE_API_BASE"
            return _refuse(reason)
        claim = sign_claim(account, scope=scope, now=now)
        if claim is None:
            return _refuse("the private key of the credentials is not an RSA key")
        body = urlencode({"grant_type": GRANT, "assertion": claim.reveal()}).encode()
        request = ChannelRequest("POST", account.token_uri, body, content_type="application/x-www-form-urlencoded")
        outcome, answer = await self._send(request, secrets=(claim, *settings.secrets), reads_token=True)
        if not outcome.accepted or answer is None:
            return outcome
        document = read_document(answer.body) or {}
        token, seconds = document.get("access_token"), document.get("expires_in")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            return Outcome(Verdict.REFUSED, "no access token in Google's answer", ADVICE[Verdict.REFUSED])
        lasts = timedelta(seconds=seconds) if isinstance(seconds, int) and 0 < seconds < 86_400 else _TOKEN_LASTS
        self.tokens.keep(settings.require_key(), scope, Secret(token), until=now + min(lasts, _TOKEN_LASTS) - _MARGIN)
        return Secret(token)

    async def _send(
        self, request: ChannelRequest, *, secrets: tuple[Secret, ...], reads_token: bool = False
    ) -> tuple[Outcome, Answer | None]:
        answer = await self.send(request, advice=ADVICE)
        if isinstance(answer, Outcome):
            return answer, None
        shown = hide_secrets(answer, *secrets)
        if reads_token:
            return judge_token(shown), answer
        return judge_google(shown, now=self.clock.now()), answer


def _refuse(reason: str) -> Outcome:
    return Outcome(Verdict.REFUSED, reason, CHECK_CREDENTIALS)


def judge_token(answer: Answer) -> Outcome:
    """What the answer to a signed claim means."""
    if answer.status == 200:
        return Outcome(Verdict.ACCEPTED, "HTTP 200", status=200, elapsed=answer.elapsed)
    document = read_document(answer.body) or {}
    words = [str(document[name]) for name in ("error", "error_description") if isinstance(document.get(name), str)]
    message = clean_detail(": ".join(words)) or None
    verdict = Verdict.REFUSED
    if answer.status == 429:
        verdict = Verdict.RATE_LIMITED
    elif answer.status >= 500:
        verdict = Verdict.UNAVAILABLE
    elif message and any(words in message.lower() for words in _LASTING):
        verdict = Verdict.FORBIDDEN
    reason = f"Google does not sign the service account in: HTTP {answer.status}" + (f": {message}" if message else "")
    advice = ADVICE[verdict]
    if verdict is Verdict.REFUSED:
        advice = CHECK_CREDENTIALS
    # Without the status, because the caller would treat a 401 as a stale token.
    return Outcome(verdict, reason, advice, message=message, elapsed=answer.elapsed)


def sign_claim(account: ServiceAccount, *, scope: str, now: datetime) -> Secret | None:
    """A JSON Web Token with the signature RS256; None where the account's key is not an RSA key."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    key = _load_key(account.private_key)
    if key is None:
        return None
    issued = int(now.timestamp())
    claims = {
        "iss": account.email,
        "scope": scope,
        "aud": account.token_uri,
        "iat": issued,
        "exp": issued + int(_CLAIM_LASTS.total_seconds()),
    }
    unsigned = f"{_encode({'alg': 'RS256', 'typ': 'JWT'})}.{_encode(claims)}"
    signature = key.sign(unsigned.encode(), PKCS1v15(), SHA256())
    return Secret(f"{unsigned}.{_encode_bytes(signature)}")


# Loading a key takes longer than the rest of a claim, because the key is checked.
@lru_cache(maxsize=16)
def _load_key(pem: Secret) -> "RSAPrivateKey | None":
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.reveal().encode(), password=None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, RSAPrivateKey) else None


def _encode(document: dict[str, Any]) -> str:
    return _encode_bytes(json.dumps(document, separators=(",", ":")).encode())


def _encode_bytes(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
