"""The description and the service agree: Schemathesis reads the one and sends generated requests to the other.

The quick test covers the bounds of every field of every operation. The slow test adds many random requests, and
sequences of requests."""

import asyncio
import errno
import itertools
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import schemathesis
from schemathesis.engine import from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
from schemathesis.engine.recorder import ScenarioRecorder
from starlette.types import Message, Receive, Scope, Send

from tests.web.api_stage import ApiStage, open_api, serve
from tests.web.stage import ADMIN, SOON
from tidings.announce.site.site import Site
from tidings.announce.site.table import Origin
from tidings.sandbox.site.site import SandboxSite

LEAST_CASES: Final = 2_000
EXAMPLES: Final = 45
FEW_EXAMPLES: Final = 3
SITE: Final = "example.com"
AUTHORIZED: Final = {"Authorization": f"Bearer {ADMIN}"}
_LONGEST_LINE: Final = 500
# What a good address, schedule or timestamp is cannot be said in a schema, nor that `bingApiKey` is required where
# `bingEnabled` is true, nor that a channel has to be on, nor that a note is of its batch's platform: of these, a
# request of the right shape may still be refused.
RULES_BEYOND_SHAPE: Final = frozenset(
    {
        "create_site",
        "update_site",
        "requeue_urls",
        "forget_entries",
        "announce_urls",
        "trigger_by_get",
        "trigger_by_post",
        "acquire_workflow",
        "add_candidates",
        "write_note",
        "settle_candidates",
        "settle_sources",
        "settle_comments",
        "export_all_notes",
        "add_keyword",
        "add_given_note",
        "retry_candidates",
        "find_url",
    }
)
# These pass on what a platform says, or that it says nothing: 502, 503 and 504 are honest answers of theirs.
ANSWER_FOR_OTHERS: Final = frozenset({"search_notes", "read_note", "read_notes", "read_comments"})

Result = TypeVar("Result")


class LoopbackLoop(asyncio.SelectorEventLoop):
    """Knows no names and reaches nothing but this machine: what is generated may name any address."""

    async def getaddrinfo(self, host: Any, port: Any, **_hints: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "there are no names here")

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        if not ip_address(address[0]).is_loopback:
            raise OSError(errno.ENETUNREACH, "there is nothing but loopback here")
        await super().sock_connect(sock, address)


class Bridge:
    """The application as Schemathesis calls it: from a thread of its own, into the loop where all of it lives."""

    def __init__(self, api: ApiStage, site: Site, loop: asyncio.AbstractEventLoop) -> None:
        self.answers: Counter[int] = Counter()
        self.web = api.web
        self._api = api
        self._site = site
        self._loop = loop
        self._peers = (str(IPv4Address("10.0.0.0") + number) for number in itertools.count())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError("the application is open already")
        body = [await receive()]
        while body[-1].get("more_body"):
            body.append(await receive())
        # From another address each time: the tries with wrong tokens would soon be too many of one.
        scope["client"] = (next(self._peers), 50_000)
        exchange = asyncio.run_coroutine_threadsafe(self._exchange(scope, body), self._loop)
        for message in await asyncio.wrap_future(exchange):
            await send(message)

    async def _exchange(self, scope: Scope, body: list[Message]) -> list[Message]:
        answers: list[Message] = []
        pending = body[::-1]

        async def receive() -> Message:
            if not pending:
                await asyncio.Event().wait()
            return pending.pop()

        async def send(message: Message) -> None:
            answers.append(dict(message))

        async with asyncio.timeout(SOON):
            await self._api.stage.app(scope, receive, send)
            if scope["method"] in {"PUT", "DELETE"} and answers[0]["status"] < 300:
                await self._api.installation.sites.save(self._site, origin=Origin.API)
        self.answers[answers[0]["status"]] += 1
        return answers


@contextmanager
def run_loop() -> Iterator[LoopbackLoop]:
    """A loop of its own thread, as long as the block."""
    loop = LoopbackLoop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SOON)
        loop.close()


def wait_for(work: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    return asyncio.run_coroutine_threadsafe(work, loop).result(SOON)


@asynccontextmanager
async def open_bridge(database_url: str, folder: Path) -> AsyncIterator[Bridge]:
    """The real service with one site, which is there again whatever a request did to it."""
    async with open_api(database_url, folder) as api:
        await api.add_site(id=SITE)
        site = await api.installation.sites.find(SITE)
        assert site is not None
        # Served as well, so that the scheduler runs, by which the service is ready.
        async with serve(api):
            yield Bridge(api, site, asyncio.get_running_loop())


@pytest.fixture
def bridge(sqlite_url: str, tmp_path: Path) -> Iterator[Bridge]:
    with run_loop() as loop:
        opening = open_bridge(sqlite_url, tmp_path)
        yield wait_for(opening.__aenter__(), loop)
        wait_for(opening.__aexit__(None, None, None), loop)


def describe_run(web: SandboxSite, *, examples: int, phases: Mapping[str, Any]) -> schemathesis.Config:
    """All checks, with the same cases each time. Some values are good ones: no random text would be."""
    values = {
        "sitemapUrl": [web.sitemap_url],
        "keyLocation": [web.key_location],
        "host": [web.origin.partition("://")[2]],
        "id": ["first", "second", "third"],
        "schedule": ["0 0 * * *", "30 6 * * 1"],
        "since": ["2026-11-15", "2026-11-15T10:00Z"],
    }
    unsure = {
        "include-operation-id": sorted(RULES_BEYOND_SHAPE),
        "checks": {"positive_data_acceptance": {"enabled": False}},
    }
    for_others = {
        "include-operation-id": sorted(ANSWER_FOR_OTHERS),
        "checks": {"positive_data_acceptance": {"enabled": False}, "not_a_server_error": {"enabled": False}},
    }
    # A new site has no token of its own, so revoking it is a 404.
    without_token = {
        "include-operation-id": ["revoke_site_token"],
        "checks": {"ensure_resource_availability": {"enabled": False}},
    }
    return schemathesis.Config.from_dict(
        {
            "seed": 4,
            "headers": AUTHORIZED,
            "continue-on-failure": True,
            # They judge the machine and the generator, not the service. That enough requests came is counted below.
            "suppress-health-check": ["too_slow", "filter_too_much"],
            "phases": phases,
            "generation": {
                "max-examples": examples,
                "deterministic": True,
                # NUL is refused wherever it stands, which the attack cases show and no schema says.
                "allow-x00": False,
                "dictionaries": {"string": {"dictionary": "sitemapUrl", "probability": 0.5}},
            },
            "dictionaries": {name: {"values": good} for name, good in values.items()},
            "parameters": {f"body.{name}": {"dictionary": name, "probability": 0.8} for name in values},
            # Too many URLs can be too many bytes as well, which is said first.
            "checks": {"negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 409, 413, 415, 422]}},
            "operations": [unsure, for_others, without_token],
        }
    )


def case_path(recorder: ScenarioRecorder, case: str) -> str:
    return str(recorder.cases[case].value.formatted_path)


def list_failures(recorder: ScenarioRecorder) -> Iterator[str]:
    """What the checks found, with a line to try it again."""
    for case, checks in recorder.checks.items():
        for check in checks:
            # The bridge stores the site again after each removal.
            is_restored = check.name == "use_after_free" and case_path(recorder, case).startswith(f"/api/sites/{SITE}")
            if check.failure_info is not None and not is_restored:
                again = recorder.cases[case].value.as_curl_command()
                yield f"{recorder.label}: {check.name}: {check.failure_info.failure.message}\n{again[:_LONGEST_LINE]}"


def run_cases(bridge: Bridge, *, examples: int, **phases: Any) -> int:
    """Send the generated requests; returns how many. Fails if a check did, or if the service itself failed."""
    config = describe_run(bridge.web, examples=examples, phases=phases)
    schema = schemathesis.openapi.from_asgi("/openapi.json", bridge, config=config, headers=AUTHORIZED)
    cases = 0
    failures: set[str] = set()
    for event in from_schema(schema).execute():
        if isinstance(event, ScenarioFinished):
            cases += len(event.recorder.cases)
            failures.update(list_failures(event.recorder))
        elif isinstance(event, NonFatalError | FatalError):
            failures.add(repr(event))
    assert not failures, "\n\n".join(sorted(failures))
    assert {status for status in bridge.answers if status >= 500} <= {502, 503, 504}
    # Most generated requests are refused; each of these must have occurred.
    assert bridge.answers.keys() >= {200, 201, 202, 204, 400, 401, 404, 405, 409, 413, 415, 422}
    return cases


@pytest.mark.thorough
def test_every_answer_is_as_it_is_described(bridge: Bridge) -> None:
    """Attack cases "API": all checks; no failure of our own, no undocumented status, at least 2,000 cases."""
    assert run_cases(bridge, examples=FEW_EXAMPLES, stateful={"enabled": False}) >= LEAST_CASES


@pytest.mark.slow
def test_every_answer_to_random_requests_is_as_it_is_described(bridge: Bridge) -> None:
    """Attack cases "API": the same with many random requests, and with sequences of requests."""
    assert run_cases(bridge, examples=EXAMPLES) >= 2 * LEAST_CASES
