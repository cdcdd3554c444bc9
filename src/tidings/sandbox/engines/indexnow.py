"""The stand-in of an IndexNow engine. It checks form, key, key file, host and folder as real engines do, by the rules
of `indexnow_rules`.
"""

import ipaddress
from collections import Counter
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from tidings.sandbox.engines.indexnow_rules import Submission, find_fault, key_file_url, read_body, read_query
from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded
from tidings.sandbox.wire.stand_in import SandboxExchange, StandIn, describe_accepted

# Both bodies are those of Bing and api.indexnow.org, with their spelling.
NOT_VERIFIED = Fault(status=403, body='{"errorCode":"SiteVerificationNotCompleted"}')
FORBIDDEN = Fault(
    status=403,
    body='{"errorCode":"UserForbiddedToAccessSite","message":"User is unauthorized to access the site.'
    ' Please verify the site using the key and try again"}',
)

_ACCEPTED = (200, 202)
_KEY_TIMEOUT = aiohttp.ClientTimeout(total=5)


class SandboxEngine(StandIn[Submission]):
    """One engine. Unless it `checks_keys`, it accepts every key, for hosts that cannot be reached from here."""

    def __init__(self, name: str, *, checks_keys: bool = True) -> None:
        super().__init__(name)
        self.accepted: Counter[str] = Counter()
        self._checks_keys = checks_keys
        self._known_keys: set[tuple[str, str]] = set()
        self._client: aiohttp.ClientSession | None = None

    async def start(self, *, port: int | None = None) -> None:
        await super().start(port=port)
        # One connection per fetch: an open one would delay the closing of a site.
        connector = aiohttp.TCPConnector(force_close=True)
        agent = {"User-Agent": f"tidings-sandbox-engine/{self.name}"}
        self._client = aiohttp.ClientSession(connector=connector, timeout=_KEY_TIMEOUT, headers=agent)

    async def close(self) -> None:
        await super().close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @property
    def endpoint(self) -> str:
        return f"{self.origin}/indexnow"

    def describe(self, *, full: bool = False) -> dict[str, object]:
        return super().describe(full=full) | describe_accepted(self.accepted, full=full)

    def read_request(self, request: web.BaseRequest, body: bytes) -> Submission:
        if request.method == "POST":
            return read_body(body, content_type=request.content_type)
        return read_query(request.raw_path.partition("?")[2])

    async def judge(self, exchange: SandboxExchange, asked: Submission) -> SandboxAnswer:
        request = exchange.request
        if request.path.lower() != "/indexnow":
            return SandboxAnswer(404)
        if request.method not in ("GET", "POST"):
            return SandboxAnswer(405, headers={"Allow": "GET, POST"})
        fault = find_fault(asked) or await self._check_key_file(str(asked.key), key_file_url(asked))
        return SandboxAnswer(200) if fault is None else answer_fault(fault)

    def settle(self, recorded: Recorded, *, status: int) -> None:
        if status in _ACCEPTED:
            self.accepted.update(recorded.urls)

    async def _check_key_file(self, key: str, location: str) -> Fault | None:
        """A key file that was right once is not fetched again."""
        if not self._checks_keys or (key, location) in self._known_keys:
            return None
        if self._client is None or not _is_loopback(location):
            return NOT_VERIFIED
        try:
            async with self._client.get(location, allow_redirects=False) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError):
            return NOT_VERIFIED
        if response.status != 200:
            return NOT_VERIFIED
        if content.strip() != key.encode():
            return FORBIDDEN
        self._known_keys.add((key, location))
        return None


def _is_loopback(url: str) -> bool:
    """Whether a URL is on this machine. The sandbox fetches nothing from elsewhere."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
