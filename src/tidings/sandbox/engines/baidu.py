"""The stand-in of Baidu's push API: tokens and their sites, quota per site and day (UTC+8), and every documented answer
as a ready fault. The log never holds a token.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta, timezone
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from tidings.sandbox.engines.quota_stand_in import QuotaStandIn
from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault, answer_json
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded
from tidings.sandbox.wire.stand_in import MASK, Now, SandboxExchange, read_utc

DEMO_BAIDU_TOKEN = "tidingssandbox16"  # noqa: S105 - the sandbox's own
PUSH_PATH = "/urls"
MOST_URLS = 2_000

_TOKEN = re.compile(r"(token=)[^&\s]*", re.IGNORECASE)


def refuse_push(code: int, message: str) -> Fault:
    """An error answer of Baidu, as a fault."""
    return Fault(status=code, body=json.dumps({"error": code, "message": message}))


OVER_QUOTA = refuse_push(400, "over quota")
TOO_MANY_URLS = refuse_push(400, "only 2000 urls are allowed once")
SITE_ERROR = refuse_push(400, "site error")
SITE_INIT_FAIL = refuse_push(400, "site init fail")
EMPTY_CONTENT = refuse_push(400, "empty content")
TOKEN_NOT_VALID = refuse_push(401, "token is not valid")
NOT_FOUND = refuse_push(404, "not found")
INTERNAL_ERROR = refuse_push(500, "internal error, please try later")


@dataclass(frozen=True, slots=True)
class Push:
    """The content of one request."""

    token: str = field(repr=False)
    # As the client wrote it.
    site: str
    urls: tuple[str, ...]

    @property
    def fields(self) -> Mapping[str, object]:
        return {"site": self.site}

    @property
    def host(self) -> str:
        return _find_host(self.site)


class SandboxBaidu(QuotaStandIn[Push]):
    """Baidu with the sites of `sites`, which names the token of each."""

    zone = timezone(timedelta(hours=8))

    def __init__(self, *, sites: Mapping[str, str], daily_quota: int = 10, now: Now = read_utc) -> None:
        super().__init__("baidu", daily_quota=daily_quota, now=now)
        self._tokens = {_find_host(site): token for site, token in sites.items()}

    def add_site(self, site: str, *, token: str) -> None:
        """Add a site. For one whose port was unknown before."""
        self._tokens[_find_host(site)] = token

    def name_site(self, site: str) -> str:
        return _find_host(site)

    def read_request(self, request: web.BaseRequest, body: bytes) -> Push:
        query = parse_qs(request.raw_path.partition("?")[2], keep_blank_values=True)
        urls = tuple(line.strip() for line in body.decode(errors="replace").split("\n") if line.strip())
        return Push(query.get("token", [""])[0], query.get("site", [""])[0], urls)

    async def judge(self, exchange: SandboxExchange, asked: Push) -> SandboxAnswer:
        if exchange.request.path != PUSH_PATH or exchange.request.method != "POST":
            return answer_fault(NOT_FOUND)
        fault = self._find_refusal(asked)
        if fault is not None:
            return answer_fault(fault)
        taken = _list_taken(asked.urls, asked.host)
        document: dict[str, object] = {"remain": self.count_remaining(asked.host) - len(taken), "success": len(taken)}
        valid = [url for url in asked.urls if _is_valid(url)]
        refused = {
            "not_same_site": [url for url in valid if _find_host(url) != asked.host],
            "not_valid": [url for url in asked.urls if not _is_valid(url)],
        }
        return answer_json(document | {name: urls for name, urls in refused.items() if urls})

    def settle(self, recorded: Recorded, *, status: int) -> None:
        host = _find_host(str(recorded.fields.get("site", "")))
        if status != 200 or recorded.path != PUSH_PATH:
            return
        taken = _list_taken(recorded.urls, host)
        self.accepted.update(taken)
        self.spend(host, len(taken))

    def mask_path(self, raw_path: str) -> str:
        return _TOKEN.sub(rf"\g<1>{MASK}", raw_path)

    def _find_refusal(self, push: Push) -> Fault | None:
        if push.host not in self._tokens:
            return SITE_ERROR
        if push.token != self._tokens[push.host]:
            return TOKEN_NOT_VALID
        if not push.urls:
            return EMPTY_CONTENT
        if len(push.urls) > MOST_URLS:
            return TOO_MANY_URLS
        return OVER_QUOTA if len(push.urls) > self.count_remaining(push.host) else None


def _find_host(site: str) -> str:
    return urlsplit(site if "://" in site else f"https://{site}").netloc


def _is_valid(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).netloc)


def _list_taken(urls: tuple[str, ...], host: str) -> list[str]:
    return [url for url in urls if _is_valid(url) and _find_host(url) == host]
