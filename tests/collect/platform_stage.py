"""What tests of platforms stand on: tools without waits, and the table of what a refusal must become."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from tidings.collect.crawl.platforms.pace import LocalPace
from tidings.collect.crawl.platforms.protocol import Hit, NoteReference, Pacing, PlatformTools
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.clock import Clock, SystemClock
from tidings.core.net.client import GuardedClient
from tidings.sandbox.wire.faults import Fault

USER_AGENT = "TidingsTests/1.0"


def make_tools(
    client: GuardedClient,
    base_url: str | None = None,
    *,
    clock: Clock | None = None,
    pace: Pacing | None = None,
    timeout: timedelta = timedelta(seconds=5),
    feeds: tuple[str, ...] = (),
) -> PlatformTools:
    used = clock or SystemClock()
    none = timedelta(0)
    return PlatformTools(
        client=client,
        clock=used,
        pace=pace or LocalPace(clock=used, platform_interval=none, cookie_interval=none),
        user_agent=USER_AGENT,
        base_url=base_url,
        timeout=timeout,
        feeds=feeds,
    )


def refer_to(hit: Hit) -> NoteReference:
    """The note of a hit, with all that a search gave."""
    return NoteReference(note_id=hit.note_id, url=hit.url, xsec_token=hit.xsec_token)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to be refused, and what it must be reported as."""

    name: str
    fault: Fault
    code: ErrorCode
    blames_cookie: bool = False
    captcha: bool = False
    blocked: bool = False


def as_parameters(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def check_case(case: Case, raised: CrawlError, *, secret: str) -> None:
    seen = (raised.code, raised.blames_cookie, raised.captcha, raised.blocked)
    assert seen == (case.code, case.blames_cookie, case.captcha, case.blocked)
    assert secret not in f"{raised!r} {raised} {raised.__cause__!r} {raised.__context__!r}"
