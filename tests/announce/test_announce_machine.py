"""Hypothesis plays site owner, engines and clock in any order, and compares Tidings with a model of a few lines.

The model knows what was published, how often each page may have been sent, and how much Bing may get. Everything else
is real: the announcer, both databases, and HTTP over loopback to the sandbox's site, engines and Bing.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.announce.stage import AdjustableClock
from tests.machines import World, WorldMachine, play
from tests.stage import open_stage
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.protocols.bing import BING_KIND
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.channels.quota.quota import Quota
from tidings.announce.due.pages import hash_urls
from tidings.announce.execution.report import Report
from tidings.announce.ledger.corrections import forget_since
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import SubmitMethod, make_site
from tidings.announce.site.table import Origin
from tidings.core.executions import ExecutionStatus
from tidings.core.stop import Stop
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded
from tidings.wiring.installation import Installation

pytestmark = pytest.mark.slow

KEY = "b1a2c3d4e5f60718293a4b5c6d7e8f90"
QUOTA = 5
MOST_PAGES = 12
# Entries of the ledger expire after thirty days; the model leaves that to other tests.
LONGEST = timedelta(days=14)
DAYS_FOR_ALL = 12

CHOICES = st.sampled_from([ChannelChoice.ALL, ChannelChoice.INDEXNOW, ChannelChoice.BING])
FAULTS = st.sampled_from([
    Fault(status=503, times=1),
    Fault(status=503),
    Fault(status=429, times=2),
    Fault(status=422, times=1),
    Fault(status=422, times=3),
    Fault(FaultKind.RESET, times=1),
    Fault(FaultKind.TRUNCATE, times=1),
    Fault(FaultKind.RESET_AFTER_ACCEPTING, times=1),
])  # fmt: skip


class AnnounceMachine(WorldMachine):
    """One site of a few pages, two engines, and Bing with a quota of at most five pages a day."""

    def __init__(self, world: World, installation: Installation, bing: SandboxBing, clock: AdjustableClock) -> None:
        super().__init__(world)
        self.installation, self.bing, self.clock = installation, bing, clock
        self.passed = timedelta()
        self.quota = QUOTA
        # Faults that may still come: the receiver takes pages, and nobody knows of it, so it is asked once more.
        self.doubts: Counter[str] = Counter()
        # Whether Bing may fail to answer, and the days on which that may have happened: such pages stay charged.
        self.is_doubtful = False
        self.doubtful: set[date] = set()
        self.pages: dict[str, str] = {}
        # How often each page may have reached a receiver, and how often it had reached it at its last change.
        self.allowed: Counter[tuple[str, str]] = Counter()
        self.before: Counter[tuple[str, str]] = Counter()
        self.web = self.open(SandboxSite(pages=1))
        self.alpha, self.beta = self.open(SandboxEngine("alpha")), self.open(SandboxEngine("beta"))
        self.bing.add_site(self.web.origin, key=KEY)
        self.receivers: dict[str, SandboxEngine | SandboxBing] = {
            "alpha": self.alpha,
            "beta": self.beta,
            "bing": self.bing,
        }
        site = make_site(
            sitemap_urls=[f"{self.web.origin}/model.xml"],
            key=self.web.key,
            engines=[self.alpha.endpoint, self.beta.endpoint],
            submit_method=SubmitMethod.AUTO,
            bing=self.describe_bing(),
        )
        self.site = self.run(self.installation.sites.save(site, origin=Origin.API))
        self.publish()

    def describe_bing(self) -> BingSettings:
        return BingSettings.make(enabled=True, key=KEY, daily_quota=self.quota)

    def publish(self) -> None:
        """Write the sitemap again."""
        blocks = "".join(f"<url><loc>{url}</loc><lastmod>{at}</lastmod></url>" for url, at in self.pages.items())
        self.web.serve("/model.xml", f"<urlset>{blocks}</urlset>", content_type="application/xml")

    def allow(self, url: str) -> None:
        """The page is new or has changed, so it goes out to everybody.

        Where somebody waits for the version before, that one may go out as well: nobody knows who heard of
        which one when.
        """
        waits = any(
            receiver.accepted[url] <= self.before[name, url]
            for name, receiver in self.receivers.items()
            if (name, url) in self.before
        )
        for name, receiver in self.receivers.items():
            self.allowed[name, url] = receiver.accepted[url] + (2 if waits else 1) + self.doubts[name]
            self.before[name, url] = receiver.accepted[url]

    def now(self) -> str:
        return self.clock.now().isoformat()

    @precondition(lambda self: len(self.pages) < MOST_PAGES)
    @rule(count=st.integers(1, 4))
    def add(self, count: int) -> None:
        for _ in range(count):
            url = f"{self.web.origin}/page/{len(self.pages)}"
            self.pages[url] = self.now()
            self.allow(url)
        self.publish()

    @precondition(lambda self: self.pages)
    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        self.change_pages(data.draw(st.sets(st.sampled_from(sorted(self.pages)), min_size=1)))

    def change_pages(self, urls: Collection[str]) -> None:
        # A change is later than what was sent before it.
        self.clock.advance(timedelta(seconds=2))
        for url in urls:
            self.pages[url] = self.now()
            self.allow(url)
        self.publish()

    @rule(name=st.sampled_from(["alpha", "beta", "bing"]), fault=FAULTS)
    def break_receiver(self, name: str, fault: Fault) -> None:
        self.receivers[name].misbehave(fault)
        self.is_doubtful |= name == "bing" and fault.status not in (422, 429)
        if fault.kind in (FaultKind.RESET_AFTER_ACCEPTING, FaultKind.TRUNCATE):
            self.doubts[name] += 1
            self.allowed.update((name, url) for url in self.pages)

    @precondition(lambda self: len(self.pages) > 1)
    @rule(name=st.sampled_from(["alpha", "beta"]), data=st.data())
    def refuse_one_page(self, name: str, data: st.DataObject) -> None:
        """All pages change, and an engine refuses one of them: it takes the others, and the other engine takes all."""
        self.change_pages(list(self.pages))
        url = data.draw(st.sampled_from(sorted(self.pages)))
        self.receivers[name].misbehave(Fault(status=422, matching=url))
        self.announce(ChannelChoice.INDEXNOW, None)

    @rule(name=st.sampled_from(["alpha", "beta", "bing"]))
    def heal(self, name: str) -> None:
        self.receivers[name].recover()
        self.doubts[name] = 0
        self.is_doubtful &= name != "bing"

    @rule(quota=st.integers(1, QUOTA))
    def set_quota(self, quota: int) -> None:
        """Less than what is planned already, perhaps: then only the reservation right before a request keeps to it."""
        self.quota = quota
        site = replace(self.site, bing=self.describe_bing())
        self.site = self.run(self.installation.sites.save(site, origin=Origin.API))

    @precondition(lambda self: self.pages)
    @rule(quota=st.integers(1, 2))
    def leave_more_open_than_the_quota_allows(self, quota: int) -> None:
        """Pages are planned and not taken; then the owner lowers the quota."""
        self.break_receiver("bing", Fault(status=503))
        self.announce(ChannelChoice.BING, None)
        self.heal("bing")
        self.set_quota(quota)

    @precondition(lambda self: self.passed < LONGEST)
    @rule(hours=st.integers(1, 30))
    def pass_time(self, hours: int) -> None:
        self.passed += timedelta(hours=hours)
        self.clock.advance(timedelta(hours=hours))

    @rule(channel=CHOICES, requests=st.none() | st.integers(1, 3))
    def announce(self, channel: ChannelChoice, requests: int | None) -> None:
        """Run to the end, or stop after so many requests."""
        stop = Stop(clock=self.clock, budget=timedelta(minutes=5))
        seen = 0

        def count(_: Recorded) -> None:
            nonlocal seen
            seen += 1
            if seen == requests:
                stop.request("SIGTERM")

        for receiver in self.receivers.values():
            receiver.on_request = count
        self.execute(stop, channel)

    def execute(self, stop: Stop, channel: ChannelChoice = ChannelChoice.ALL) -> Report:
        today = self.clock.now().date()
        before = self.bing.used(self.web.origin, today)
        if self.is_doubtful:
            self.doubtful.add(today)
        report = self.run(self.installation.announcer.announce(self.site, stop=stop, channel=channel))
        assert self.bing.used(self.web.origin, today) <= max(before, self.quota)
        return report

    @precondition(lambda self: self.pages)
    @rule(hours=st.integers(0, 48))
    def forget(self, hours: int) -> None:
        since = self.clock.now() - timedelta(hours=hours)
        self.run(
            forget_since(
                self.site,
                since,
                channel=ChannelChoice.ALL,
                database=self.installation.database,
                executions=self.installation.executions,
            )
        )
        self.allowed.update((name, url) for name in self.receivers for url in self.pages)

    @invariant()
    def nothing_is_sent_more_often_than_it_may_be(self) -> None:
        for name, receiver in self.receivers.items():
            for url in self.pages:
                assert receiver.accepted[url] <= self.allowed[name, url], (name, url)

    @invariant()
    def the_ledger_holds_only_what_somebody_took(self) -> None:
        entered = self.run(self.find_entered(Channel.INDEXNOW))
        assert entered <= {*self.alpha.accepted, *self.beta.accepted}
        assert self.run(self.find_entered(Channel.BING)) <= {*self.bing.accepted}

    @invariant()
    def the_quota_is_never_undercounted_and_exact_without_doubt(self) -> None:
        today = self.clock.now().date()
        used, counted = self.bing.used(self.web.origin, today), self.run(self.count_used(today))
        assert counted >= used
        assert counted == used or today in self.doubtful

    async def find_entered(self, channel: Channel) -> set[str]:
        urls = list(self.pages)
        asked = dict(zip(hash_urls(url.encode() for url in urls), urls, strict=True))
        ledger = Ledger(self.installation.database, site=self.site.number, channel=channel)
        return {asked[url_hash] for url_hash in await ledger.find_entries(sorted(asked))}

    async def count_used(self, day: date) -> int:
        database, number = self.installation.database, self.site.number
        quota = Quota(database, terms=BING_KIND, site=number, day=day, limit=self.quota, clock=self.clock)
        return (await quota.read()).used

    def end(self) -> None:
        """Once everybody is well again, every page reaches everybody."""
        for name, receiver in self.receivers.items():
            receiver.on_request = None
            self.heal(name)
        self.set_quota(QUOTA)
        for _ in range(DAYS_FOR_ALL):
            self.clock.advance(timedelta(days=1))
            report = self.execute(Stop(clock=self.clock, budget=timedelta(minutes=5)))
            self.the_quota_is_never_undercounted_and_exact_without_doubt()
        if self.pages:
            assert report.status is ExecutionStatus.SUCCEEDED
        for name, receiver in self.receivers.items():
            for url in self.pages:
                assert receiver.accepted[url] > self.before[name, url], (name, url)
        self.nothing_is_sent_more_often_than_it_may_be()


def test_any_order_of_events_ends_with_every_page_sent_once(database_url: str, tmp_path: Path) -> None:
    """A11, A13, A20, A26, A29: nothing is lost, nothing is sent twice, and the quota holds."""
    clock = AdjustableClock()
    # Bing itself would take more: only Tidings keeps to the site's quota.
    bing = SandboxBing(keys={KEY: []}, daily_quota=20 * QUOTA, now=clock.now)
    with World() as world:
        world.open(bing)
        stage = open_stage(database_url, tmp_path, clock=clock, bases=ApiBases(bing=bing.address))
        installation = world.open(stage)
        play(partial(AnnounceMachine, world, installation, bing, clock), examples=25, steps=25)
