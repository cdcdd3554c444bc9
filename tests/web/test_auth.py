"""Who may do what: the header alone counts, each scope opens its own routes, and guessing is slow."""

import asyncio
from datetime import timedelta
from ipaddress import ip_network

import pytest
from structlog.typing import EventDict

from tests.fakes import FakeClock
from tests.web.conftest import StageMaker
from tests.web.stage import ADMIN, FIXED, SOON, Stage
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.web.middleware.callers import MOST_ADDRESSES, WRONG_TRIES, WrongTries, find_caller

WRONG = "tid_" + "A" * 43
PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", f"Bearer {WRONG}")],
        [("authorization", "Bearer wrong")],
        [("authorization", f"Bearer {ADMIN}x")],
        [("authorization", f"Bearer {ADMIN[:-1]}")],
        [("authorization", "Bearer \xe9\xff")],
        [("authorization", f"Basic {ADMIN}")],
        [("authorization", ADMIN)],
        [("authorization", f"Bearer {ADMIN}"), ("authorization", "Bearer other")],
        [("cookie", f"token={ADMIN}; tidings_session={ADMIN}; authorization=Bearer {ADMIN}")],
        [("x-api-key", ADMIN), ("x-authorization", f"Bearer {ADMIN}"), ("proxy-authorization", f"Bearer {ADMIN}")],
    ],
)
@pytest.mark.parametrize("target", ["/things/one", "/metrics", "/openapi.json", "/nowhere", "/health"])
async def test_nothing_but_health_answers_without_a_right_bearer_token(
    stage: Stage, target: str, headers: list[tuple[str, str]]
) -> None:
    """Design 8, attack cases "API": 401 that asks for a bearer token, also where there is no such route."""
    answer = await stage.ask("GET", f"{target}?token={ADMIN.replace(' ', '%20')}", token=None, headers=headers)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json["code"] in {"token_missing", "token_wrong"}


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
async def test_health_is_open(stage: Stage, path: str) -> None:
    """Design 8: to everybody, with a wrong token too."""
    assert [(await stage.ask("GET", path, token=token)).status for token in (None, WRONG, ADMIN)] == [200] * 3


@pytest.mark.parametrize(
    ("method", "target", "scopes"),
    [
        ("GET", "/things/one", {Scope.ADMIN, Scope.CRAWL}),
        ("DELETE", "/things/one", {Scope.ADMIN}),
        ("GET", "/metrics", {Scope.ADMIN, Scope.METRICS}),
        ("GET", "/openapi.json", set(FIXED)),
    ],
)
async def test_each_scope_opens_its_own_routes_and_admin_opens_all(
    stage: Stage, method: str, target: str, scopes: set[Scope]
) -> None:
    """Design 8: tokens of the settings and of the database alike; a valid token without the scope gets 403."""
    for scope in FIXED:
        made = await stage.tokens.make(scope, name="made")
        for token in (FIXED[scope], made):
            answer = await stage.ask(method, target, token=token.reveal())
            assert (answer.status == 403) == (scope not in scopes), scope
            assert answer.status < 500


async def test_a_site_token_reaches_its_own_site_alone(stage: Stage) -> None:
    """A35: a deploy hook's token is good for one site, and for nothing else."""
    token = (await stage.tokens.make(Scope.SITE, site=7, name="hook")).reveal()
    answers = [await stage.ask("GET", f"/trigger?site={site}", token=token) for site in (7, 8)]
    assert [answer.status for answer in answers] == [200, 403]
    assert (await stage.ask("GET", "/things/one", token=token)).status == 403
    assert (await stage.ask("GET", "/trigger?site=8")).status == 200


async def test_the_strongest_scope_counts_where_one_token_is_set_for_several(make_stage: StageMaker) -> None:
    """Design 8: one token for everything is the operator's choice."""
    same = Secret("the same token")
    stage = make_stage(fixed_tokens={Scope.METRICS: same, Scope.ADMIN: same})
    assert (await stage.ask("DELETE", "/things/one", token=same.reveal())).status == 204


async def test_a_revoked_token_stops_working_at_once(stage: Stage) -> None:
    """Design 8: in this process with the next request."""
    token = (await stage.tokens.make(Scope.CRAWL, name="n8n")).reveal()
    assert (await stage.ask("GET", "/things/one", token=token)).status == 200
    await stage.tokens.revoke(Scope.CRAWL, name="n8n")
    assert (await stage.ask("GET", "/things/one", token=token)).status == 401


async def test_after_a_flood_of_wrong_tokens_none_that_could_be_guessed_is_looked_at(
    stage: Stage, clock: FakeClock, events: list[EventDict]
) -> None:
    """Attack cases "API": 429 from the eleventh on, for this address alone, until a minute has passed."""
    floods = [await stage.ask("GET", "/things/one", token=f"wrong {number}") for number in range(WRONG_TRIES + 3)]
    assert [answer.status for answer in floods] == [401] * WRONG_TRIES + [429] * 3
    assert floods[-1].headers["retry-after"] == "60"
    assert floods[-1].json["code"] == "too_many_wrong_tokens"
    made = (await stage.tokens.make(Scope.ADMIN, name="n8n")).reveal()
    assert (await stage.ask("GET", "/things/one")).status == 429
    assert (await stage.ask("GET", "/things/one", token=made)).status == 200
    assert (await stage.ask("GET", "/things/one", peer="192.0.2.2")).status == 200
    assert (await stage.ask("GET", "/things/one", token=None)).status == 401
    assert (await stage.ask("GET", "/things/one", token=WRONG, peer="192.0.2.2")).status == 401
    clock.advance(timedelta(seconds=59))
    assert (await stage.ask("GET", "/things/one", token=WRONG)).headers["retry-after"] == "1"
    clock.advance(timedelta(seconds=1))
    assert (await stage.ask("GET", "/things/one")).status == 200
    warned = [event for event in events if event["event"] == "auth.wrong_token"]
    assert {event["caller"] for event in warned} == {"192.0.2.1", "192.0.2.2"}
    assert len(warned) == WRONG_TRIES + 1
    assert {event["log_level"] for event in events if event.get("status") in (401, 429)} == {"debug"}


def test_the_memory_for_wrong_tries_is_bounded(clock: FakeClock) -> None:
    """Attack cases "API": many addresses push out the longest silent one, never the one at work."""
    tries = WrongTries(clock=clock)
    for _ in range(WRONG_TRIES):
        assert tries.add("at work") is None
    for number in range(3 * MOST_ADDRESSES):
        assert tries.add(f"address {number}") is None
        assert len(tries) <= MOST_ADDRESSES
        if number % 1_000 == 0:
            assert tries.add("at work") == 60


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("192.0.2.9", [], "192.0.2.9"),
        ("192.0.2.9", ["198.51.100.1"], "192.0.2.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1, 10.9.9.9"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, nonsense"], "10.0.0.1"),
        ("::ffff:10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("2001:db8:1:2:3:4:5:6", [], "2001:db8:1:2::/64"),
        ("fd00::1", ["2001:db8:1:2:ffff::1"], "2001:db8:1:2::/64"),
        (None, ["198.51.100.1"], "unknown"),
    ],
)
def test_forwarded_addresses_are_believed_only_from_trusted_proxies(
    peer: str | None, forwarded: list[str], caller: str
) -> None:
    """Attack cases "API": `X-Forwarded-For` is read from its end; an IPv6 subscriber cannot move through its /64."""
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    connection = {"type": "http", "headers": headers, "client": peer and (peer, 1)}
    assert find_caller(connection, trusted_proxies=PROXIES) == caller


async def test_a_forged_forwarded_address_does_not_renew_the_tries(make_stage: StageMaker) -> None:
    """Attack cases "API": not trusted by default; behind a trusted proxy the clients are distinguished."""

    async def flood(stage: Stage, peer: str) -> int:
        statuses = [
            (
                await stage.ask(
                    "GET", "/trigger", token=WRONG, peer=peer, headers=[("X-Forwarded-For", f"198.51.100.{number}")]
                )
            ).status
            for number in range(WRONG_TRIES + 1)
        ]
        return statuses[-1]

    assert await flood(make_stage(), "10.0.0.1") == 429
    assert await flood(make_stage(trusted_proxies=PROXIES), "10.0.0.1") == 401
    assert await flood(make_stage(trusted_proxies=PROXIES), "192.0.2.1") == 429


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [("POST", "/things", b'{"name": "x"}'), ("DELETE", "/things/one", None), ("GET", "/trigger?site=7", None)],
)
@pytest.mark.parametrize(("origin", "refused"), [("cross-site", True), ("same-origin", False), ("none", False)])
async def test_a_page_of_another_site_cannot_change_anything(
    stage: Stage, method: str, target: str, body: bytes | None, origin: str, refused: bool
) -> None:
    """Attack cases "Dashboard", A35: also GET /trigger, even with a right token."""
    answer = await stage.ask(method, target, body=body, headers=[("Sec-Fetch-Site", origin)])
    assert (answer.status == 403) == refused
    assert answer.status in {200, 201, 204, 403}


@pytest.mark.parametrize("values", [("same-origin", "cross-site"), ("cross-site", "none"), ("Cross-Site",)])
async def test_a_header_that_is_sent_twice_is_read_the_strict_way(stage: Stage, values: tuple[str, ...]) -> None:
    """Attack cases "Dashboard": no order of the two lets a page of another site through."""
    headers = [("Sec-Fetch-Site", value) for value in values]
    assert (await stage.ask("DELETE", "/things/one", headers=headers)).status == 403


async def test_reading_from_another_site_s_link_is_not_refused(stage: Stage) -> None:
    """A35: only what changes something is."""
    assert (await stage.ask("GET", "/things/one", headers=[("Sec-Fetch-Site", "cross-site")])).status == 200


async def test_many_requests_at_once_each_get_their_own_grant(stage: Stage) -> None:
    """Design 8: one request's scope is never another's."""
    asked = [Scope.CRAWL, Scope.ADMIN, Scope.METRICS] * 20
    answers = await asyncio.wait_for(
        asyncio.gather(*(stage.ask("GET", "/things/x", token=FIXED[scope].reveal()) for scope in asked)), SOON
    )
    seen = [answer.json.get("scope", "refused") for answer in answers]
    assert seen == ["crawl", "admin", "refused"] * 20
