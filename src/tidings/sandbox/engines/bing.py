"""The stand-in of Bing's Webmaster API for submitted URLs: accounts and their sites, and quota per site and UTC day.
Each error answer, of both families, is a ready fault. The log never holds an API key.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from aiohttp import web

from tidings.sandbox.engines.indexnow_rules import split_url
from tidings.sandbox.engines.quota_stand_in import QuotaStandIn
from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault, answer_json
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded
from tidings.sandbox.wire.stand_in import MASK, Now, SandboxExchange, read_utc

DEMO_BING_KEY = "tidings-sandbox-bing-key-5d81c0e2"
BASE_PATH = "/webmaster/api.svc/json"
SUBMIT_PATH = f"{BASE_PATH}/SubmitUrlbatch"
QUOTA_PATH = f"{BASE_PATH}/GetUrlSubmissionQuota"
MOST_URLS = 500

_METHODS = {SUBMIT_PATH.lower(): "POST", QUOTA_PATH.lower(): "GET"}
_JSON = "application/json; charset=utf-8"
_HTML = {"Content-Type": "text/html"}
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MONTHLY_QUOTA = 3_100
# Matches everything that `_read_key` accepts as a key, so that no key stays unmasked.
_KEY = re.compile(r"(apikey=)[^&\s]*", re.IGNORECASE)


def refuse(code: int | str, message: str, *, status: int = 400) -> Fault:
    """An error answer of Bing, as a fault."""
    body = json.dumps({"ErrorCode": code, "Message": message}, separators=(",", ":"))
    return Fault(status=status, body=body)


def refuse_quota(*, remaining: int, submitted: int) -> Fault:
    """The live answer to a batch that is larger than what remains."""
    return refuse(2, f"ERROR!!! Quota remaining for today: {remaining}, Submitted: {submitted}")


def refuse_exceeded(*, quota: int) -> Fault:
    """The live answer where nothing remains."""
    return refuse(2, f"ERROR!!! You have exceeded your daily url submission quota : {quota}")


INVALID_URL = refuse(7, "ERROR!!! InvalidUrl")
INVALID_URL_DOCUMENTED = refuse("ERROR_INVALID_URL", "The URL is not valid")
INVALID_PARAMETER = refuse(8, "ERROR!!! InvalidParameter")
INVALID_API_KEY = refuse(3, "ERROR!!! InvalidApiKey")
INVALID_API_KEY_DOCUMENTED = refuse("ERROR_INVALID_API_KEY", "The API key is not valid", status=401)
# The source texts also show this form, with the number of an unknown error.
INVALID_API_KEY_IN_MESSAGE = refuse(2, "ERROR_INVALID_API_KEY", status=401)
UNAUTHORIZED = Fault(status=401)
NOT_AUTHORIZED = refuse(14, "ERROR!!! NotAuthorized")
QUOTA_EXCEEDED = refuse_exceeded(quota=100)
QUOTA_EXCEEDED_AS_8 = refuse(8, "ERROR!!! You have exceeded your daily url submission quota : 100")
QUOTA_EXCEEDED_DOCUMENTED = refuse("ERROR_QUOTA_EXCEEDED", "The daily quota is exceeded", status=403)
FORBIDDEN = Fault(status=403)
QUOTA_REMAINING = refuse_quota(remaining=27, submitted=73)
TOO_MANY_REQUESTS = Fault(status=429)
TOO_MANY_REQUESTS_RETRY_AFTER = Fault(status=429, headers={"Retry-After": "7"})
THROTTLE_USER = refuse(4, "ERROR!!! ThrottleUser")
THROTTLE_HOST = refuse(5, "ERROR!!! ThrottleHost")
THROTTLE_IP = refuse(17, "ERROR!!! ThrottleIP")
INTERNAL_ERROR = refuse(1, "ERROR!!! InternalError")
UNKNOWN_ERROR = refuse(2, "ERROR!!! UnknownError")
SERVER_ERROR = Fault(status=500)
UNAVAILABLE = Fault(status=503, headers=_HTML, body="<html><body>Service Unavailable</body></html>")
RESET = Fault(FaultKind.RESET)
RESET_AFTER_ACCEPTING = Fault(FaultKind.RESET_AFTER_ACCEPTING)
HANG = Fault(FaultKind.HANG)
# The answer of Bing's web framework to a request that it cannot parse.
UNREADABLE = Fault(status=400, headers=_HTML, body="<html><body>Request Error</body></html>")


@dataclass(frozen=True, slots=True)
class BingRequest:
    """The content of one request."""

    key: str | None = field(default=None, repr=False)
    # The field siteUrl, of any type.
    site: object = None
    urls: tuple[str, ...] = ()
    # What is wrong with its form. Bing checks the key first.
    fault: Fault | None = None

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields besides the URLs, without the key."""
        if self.site is None:
            return {}
        return {"siteUrl": _mask_key(self.site) if isinstance(self.site, str) else self.site}

    @property
    def origin(self) -> str | None:
        return _read_site(self.site)


class SandboxBing(QuotaStandIn[BingRequest]):
    """Bing's API with the accounts of `keys`, which lists the origins of the sites of each key.

    `now`: decides the UTC day that a URL counts for. `reports_remaining`: GetUrlSubmissionQuota answers the remaining
    quota, else the total. The monthly quota is only reported.
    """

    def __init__(
        self,
        *,
        keys: Mapping[str, Sequence[str]],
        daily_quota: int = 100,
        now: Now = read_utc,
        reports_remaining: bool = True,
    ) -> None:
        super().__init__("bing", daily_quota=daily_quota, now=now)
        self.reports_remaining = reports_remaining
        self._sites = {key: {_require_site(site) for site in sites} for key, sites in keys.items()}

    @property
    def address(self) -> str:
        return self.origin + BASE_PATH

    def add_site(self, site: str, *, key: str) -> None:
        """Add a site to an account, and the account if there is none. For a site whose port was unknown before."""
        self._sites.setdefault(key, set()).add(_require_site(site))

    def revoke(self, key: str) -> None:
        """Make a key unknown from now on."""
        del self._sites[key]

    def name_site(self, site: str) -> str:
        return _require_site(site)

    def read_request(self, request: web.BaseRequest, body: bytes) -> BingRequest:
        query = request.raw_path.partition("?")[2]
        if request.method == "POST":
            return _read_body(body, key=_read_key(query), request=request)
        values = {name.lower(): value for name, value in parse_qsl(query, keep_blank_values=True)}
        return BingRequest(_read_key(query), values.get("siteurl"))

    async def judge(self, exchange: SandboxExchange, asked: BingRequest) -> SandboxAnswer:
        allowed = _METHODS.get(exchange.request.path.lower())
        if allowed is None:
            return SandboxAnswer(404)
        if exchange.request.method != allowed:
            return SandboxAnswer(405, headers={"Allow": allowed})
        fault = self._find_stranger(asked)
        if fault is None and allowed == "POST":
            fault = self._find_refusal(asked)
        if fault is not None:
            return answer_fault(fault)
        return SandboxAnswer(body=b'{"d":null}', content_type=_JSON) if allowed == "POST" else self._tell_quota(asked)

    def settle(self, recorded: Recorded, *, status: int) -> None:
        site = _read_site(recorded.fields.get("siteUrl"))
        if status != 200 or site is None or not recorded.urls:
            return
        self.accepted.update(recorded.urls)
        self.spend(site, len(recorded.urls))

    def mask_path(self, raw_path: str) -> str:
        return _mask_key(raw_path)

    def mask_header(self, name: str, value: str) -> str:
        return _mask_key(value)

    def _find_stranger(self, call: BingRequest) -> Fault | None:
        """The refusal of an unknown key, or of a key without access to the site."""
        if call.key not in self._sites:
            return INVALID_API_KEY
        if call.fault is not None:
            return call.fault
        if call.site is None or call.site == "":
            return INVALID_PARAMETER
        return None if call.origin in self._sites[call.key] else NOT_AUTHORIZED

    def _find_refusal(self, call: BingRequest) -> Fault | None:
        """The refusal of the URLs: one invalid URL, or one too many, refuses the batch."""
        if not 0 < len(call.urls) <= MOST_URLS:
            return INVALID_PARAMETER
        if any(_read_origin(url) != call.origin for url in call.urls):
            return INVALID_URL
        remaining = self.count_remaining(str(call.origin))
        if remaining == 0:
            return refuse_exceeded(quota=self.daily_quota)
        if len(call.urls) > remaining:
            return refuse_quota(remaining=remaining, submitted=len(call.urls))
        return None

    def _tell_quota(self, call: BingRequest) -> SandboxAnswer:
        daily = self.count_remaining(str(call.origin)) if self.reports_remaining else self.daily_quota
        kind = "UrlSubmissionQuota:#Microsoft.Bing.Webmaster.Api"
        return answer_json({"d": {"__type": kind, "DailyQuota": daily, "MonthlyQuota": _MONTHLY_QUOTA}})


def _read_body(body: bytes, *, key: str | None, request: web.BaseRequest) -> BingRequest:
    if request.content_type != "application/json" or (request.charset or "utf-8").lower() != "utf-8":
        return BingRequest(key, fault=UNREADABLE)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return BingRequest(key, fault=UNREADABLE)
    if not isinstance(document, dict):
        return BingRequest(key, fault=UNREADABLE)
    listed = document.get("urlList")
    urls = tuple(url for url in listed if isinstance(url, str)) if isinstance(listed, list) else ()
    fault = None if isinstance(listed, list) and len(urls) == len(listed) else INVALID_PARAMETER
    return BingRequest(key, document.get("siteUrl"), urls, fault)


def _read_key(query: str) -> str | None:
    pairs = (pair.partition("=") for pair in query.split("&"))
    return next((unquote_plus(value) for name, _, value in pairs if name.lower() == "apikey"), None)


def _mask_key(text: str) -> str:
    return _KEY.sub(rf"\g<1>{MASK}", text)


def _require_site(site: str) -> str:
    origin = _read_site(site)
    if origin is None:
        raise ValueError(f"not the origin of a site: {site}")
    return origin


def _read_site(site: object) -> str | None:
    """The origin of a site URL, with or without a slash. None for anything else."""
    origin = _read_origin(site) if isinstance(site, str) else None
    if origin is None:
        return None
    split = urlsplit(str(site))
    return origin if split.path in ("", "/") and not split.query and not split.fragment else None


def _read_origin(url: str) -> str | None:
    """Scheme, host and port, without the default port. None for anything but an http(s) URL."""
    split = split_url(url)
    if split is None or "@" in split.netloc:
        return None
    shown = "" if split.port in (None, _DEFAULT_PORTS[split.scheme]) else f":{split.port}"
    return f"{split.scheme}://{split.hostname}{shown}"
