"""The stand-in of Google: signs service accounts in, takes sitemaps of Search Console and pages of the Indexing API.

The token endpoint verifies a claim as Google does: signature, audience, times and scope. Every documented error is a
ready fault. The log holds neither tokens nor claims.
"""

import base64
import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault, answer_json
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded
from tidings.sandbox.wire.stand_in import MASK, Now, SandboxExchange, StandIn, read_object, read_utc

TOKEN_PATH = "/token"  # noqa: S105 - a path
# The sandbox's own JSON, in the form that Google offers for download.
CREDENTIALS_PATH = "/credentials.json"
PUBLISH_PATH = "/v3/urlNotifications:publish"
WEBMASTERS = "https://www.googleapis.com/auth/webmasters"
INDEXING = "https://www.googleapis.com/auth/indexing"
DEMO_ACCOUNT = "tidings@sandbox.iam.gserviceaccount.com"

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_SITES = "/webmasters/v3/sites/"
_LONGEST_CLAIM = timedelta(hours=1)
_SKEW = timedelta(minutes=5)
_TOKEN_LASTS = timedelta(seconds=3599)
# Midnight of the quota's day; summer time is left out.
_PACIFIC = timezone(timedelta(hours=-8))


def refuse_google(code: int, message: str, status: str, reason: str) -> Fault:
    """An error answer of Google's APIs, as a fault."""
    errors = [{"message": message, "domain": "global", "reason": reason}]
    document = {"error": {"code": code, "message": message, "status": status, "errors": errors}}
    return Fault(status=code, body=json.dumps(document))


def refuse_claim(error: str, description: str) -> Fault:
    """An error answer of the token endpoint, as a fault."""
    return Fault(status=400, body=json.dumps({"error": error, "error_description": description}), path=TOKEN_PATH)


NOT_AN_OWNER = refuse_google(
    403, "User does not have sufficient permission for site.", "PERMISSION_DENIED", "forbidden"
)
URL_NOT_OWNED = refuse_google(
    403, "Permission denied. Failed to verify the URL ownership.", "PERMISSION_DENIED", "forbidden"
)
API_DISABLED = refuse_google(
    403,
    "Web Search Indexing API has not been used in project 1 before or it is disabled.",
    "PERMISSION_DENIED",
    "accessNotConfigured",
)
INVALID_TOKEN = refuse_google(401, "Request had invalid authentication credentials.", "UNAUTHENTICATED", "authError")
INVALID_URL = refuse_google(400, "Invalid value at 'url_notification.url'.", "INVALID_ARGUMENT", "badRequest")
UNKNOWN_SITEMAP = refuse_google(404, "Requested entity was not found.", "NOT_FOUND", "notFound")
QUOTA_PER_DAY = refuse_google(
    429,
    "Quota exceeded for quota metric 'Publish requests' and limit 'Publish requests per day'.",
    "RESOURCE_EXHAUSTED",
    "rateLimitExceeded",
)
QUOTA_PER_MINUTE = refuse_google(
    429,
    "Quota exceeded for quota metric 'All requests' and limit 'All requests per minute'.",
    "RESOURCE_EXHAUSTED",
    "rateLimitExceeded",
)
BACKEND_ERROR = refuse_google(503, "The service is currently unavailable.", "UNAVAILABLE", "backendError")
BAD_SIGNATURE = refuse_claim("invalid_grant", "Invalid JWT Signature.")
UNKNOWN_ACCOUNT = refuse_claim("invalid_grant", "Invalid grant: account not found")
BAD_TIMES = refuse_claim(
    "invalid_grant",
    "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
    "Check your iat and exp values in the JWT claim.",
)
BAD_AUDIENCE = refuse_claim("invalid_grant", "Invalid JWT: Failed audience check.")
BAD_SCOPE = refuse_claim("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
BAD_GRANT = refuse_claim("unsupported_grant_type", "Invalid grant_type")


@dataclass(frozen=True, slots=True)
class GoogleRequest:
    """The content of one request."""

    # The property and the sitemap, of Search Console's paths.
    site: str = ""
    feed: str = ""
    urls: tuple[str, ...] = ()
    # Of the token endpoint.
    grant: str = field(default="", repr=False)
    claim: str = field(default="", repr=False)

    @property
    def fields(self) -> Mapping[str, object]:
        return {"site": self.site, "feed": self.feed}


class SandboxGoogle(StandIn[GoogleRequest]):
    """Google with one service account. `now` decides about times and the quota's day."""

    def __init__(self, *, daily_quota: int = 200, now: Now = read_utc) -> None:
        super().__init__("google", now=now)
        self.daily_quota = daily_quota
        # Pages that the Indexing API took.
        self.accepted: Counter[str] = Counter()
        # Sitemaps that were submitted, each with the last time, and what Google says of some.
        self.sitemaps: dict[tuple[str, str], datetime] = {}
        self.findings: dict[str, dict[str, Any]] = {}
        self.claims = 0
        self._owned: set[str] = set()
        self._tokens: dict[str, tuple[str, datetime]] = {}
        self._used: Counter[date] = Counter()

    @property
    def credentials(self) -> str:
        """The JSON of the service account, as Google hands it out."""
        pem = _make_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return json.dumps(
            {
                "type": "service_account",
                "project_id": "sandbox",
                "private_key_id": "1",
                "private_key": pem,
                "client_email": DEMO_ACCOUNT,
                "token_uri": self.origin + TOKEN_PATH,
            },
            indent=2,
        )

    def add_property(self, name: str) -> None:
        """Make the account an owner: `https://example.com/` or `sc-domain:example.com`."""
        self._owned.add(name)

    def expire_tokens(self) -> None:
        """Take back every access token."""
        self._tokens.clear()

    def describe(self, *, full: bool = False) -> dict[str, object]:
        counts: dict[str, object] = {"acceptedUrls": len(self.accepted), "sitemaps": len(self.sitemaps)}
        shown = {"accepted": dict(self.accepted), "sitemaps": sorted(feed for _, feed in self.sitemaps)}
        return super().describe(full=full) | counts | (shown if full else {})

    def read_request(self, request: web.BaseRequest, body: bytes) -> GoogleRequest:
        path = request.raw_path.partition("?")[0]
        if path == TOKEN_PATH:
            form = parse_qs(body.decode(errors="replace"))
            return GoogleRequest(grant=form.get("grant_type", [""])[0], claim=form.get("assertion", [""])[0])
        if path == PUBLISH_PATH:
            return GoogleRequest(urls=tuple(filter(None, [str(read_object(body).get("url", ""))])))
        site, _, feed = path.removeprefix(_SITES).partition("/sitemaps/")
        return GoogleRequest(site=unquote(site), feed=unquote(feed), urls=(unquote(feed),))

    async def judge(self, exchange: SandboxExchange, asked: GoogleRequest) -> SandboxAnswer:
        method, path = exchange.request.method, exchange.request.raw_path.partition("?")[0]
        if (method, path) == ("POST", TOKEN_PATH):
            return self._sign_in(asked)
        if (method, path) == ("GET", CREDENTIALS_PATH):
            return SandboxAnswer(200, self.credentials.encode(), {}, "application/json")
        scope = INDEXING if path == PUBLISH_PATH else WEBMASTERS
        if not self._is_signed_in(exchange.request.headers.get("Authorization", ""), scope):
            return answer_fault(INVALID_TOKEN)
        if (method, path) == ("POST", PUBLISH_PATH):
            fault = self._find_refusal(asked)
            return answer_json({"urlNotificationMetadata": {}}) if fault is None else answer_fault(fault)
        if not path.startswith(_SITES) or method not in ("GET", "PUT"):
            return answer_fault(UNKNOWN_SITEMAP)
        if asked.site not in self._owned:
            return answer_fault(NOT_AN_OWNER)
        return SandboxAnswer(204, b"", {}, "text/plain") if method == "PUT" else self._show_sitemap(asked)

    def settle(self, recorded: Recorded, *, status: int) -> None:
        if recorded.path == PUBLISH_PATH and status == 200:
            self.accepted.update(recorded.urls)
            self._used[self._today()] += 1
        if recorded.method == "PUT" and status == 204:
            self.sitemaps[str(recorded.fields["site"]), str(recorded.fields["feed"])] = self._now()

    def mask_header(self, name: str, value: str) -> str:
        return MASK if name.lower() == "authorization" else value

    def _sign_in(self, asked: GoogleRequest) -> SandboxAnswer:
        self.claims += 1
        claims = _read_claim(asked.claim)
        fault = BAD_GRANT if asked.grant != _GRANT else self._check_claims(claims)
        if fault is not None or claims is None:
            return answer_fault(fault or BAD_SIGNATURE)
        token = f"ya29.{secrets.token_urlsafe(24)}"
        self._tokens[token] = (str(claims["scope"]), self._now() + _TOKEN_LASTS)
        lasts = int(_TOKEN_LASTS.total_seconds())
        return answer_json({"access_token": token, "expires_in": lasts, "token_type": "Bearer"})

    def _check_claims(self, claims: Mapping[str, Any] | None) -> Fault | None:
        if claims is None:
            return BAD_SIGNATURE
        if claims.get("iss") != DEMO_ACCOUNT:
            return UNKNOWN_ACCOUNT
        if claims.get("aud") != self.origin + TOKEN_PATH:
            return BAD_AUDIENCE
        issued, expires, now = claims.get("iat"), claims.get("exp"), self._now().timestamp()
        if not (isinstance(issued, int) and isinstance(expires, int)):
            return BAD_TIMES
        skew = _SKEW.total_seconds()
        if not (issued - skew <= now < expires and expires - issued <= _LONGEST_CLAIM.total_seconds()):
            return BAD_TIMES
        return None if claims.get("scope") in (WEBMASTERS, INDEXING) else BAD_SCOPE

    def _is_signed_in(self, header: str, scope: str) -> bool:
        granted, until = self._tokens.get(header.removeprefix("Bearer "), ("", self._now()))
        return granted == scope and until > self._now()

    def _find_refusal(self, asked: GoogleRequest) -> Fault | None:
        if not asked.urls or urlsplit(asked.urls[0]).scheme not in ("http", "https"):
            return INVALID_URL
        if not any(_covers(name, asked.urls[0]) for name in self._owned):
            return URL_NOT_OWNED
        return QUOTA_PER_DAY if self._used[self._today()] >= self.daily_quota else None

    def _show_sitemap(self, asked: GoogleRequest) -> SandboxAnswer:
        submitted = self.sitemaps.get((asked.site, asked.feed))
        if submitted is None:
            return answer_fault(UNKNOWN_SITEMAP)
        known = {
            "path": asked.feed,
            "lastSubmitted": submitted.isoformat(),
            "isPending": False,
            "isSitemapsIndex": False,
            "lastDownloaded": submitted.isoformat(),
            # Google writes numbers as text.
            "warnings": "0",
            "errors": "0",
        }
        return answer_json(known | self.findings.get(asked.feed, {}))

    def _today(self) -> date:
        return self._now().astimezone(_PACIFIC).date()


@cache
def _make_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65_537, key_size=2_048)


def _read_claim(claim: str) -> dict[str, Any] | None:
    """The claims of a token whose signature is right, or None."""
    try:
        unsigned, _, signature = claim.rpartition(".")
        head, _, body = unsigned.partition(".")
        if read_object(_decode(head)).get("alg") != "RS256":
            return None
        _make_key().public_key().verify(_decode(signature), unsigned.encode(), PKCS1v15(), SHA256())
        return read_object(_decode(body))
    except (ValueError, InvalidSignature):
        return None


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _covers(name: str, url: str) -> bool:
    if name.startswith("sc-domain:"):
        host = urlsplit(url).hostname or ""
        domain = name.removeprefix("sc-domain:")
        return host == domain or host.endswith(f".{domain}")
    return url.startswith(name)
