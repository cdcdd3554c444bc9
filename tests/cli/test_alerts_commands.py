"""`tidings alerts`: what is open, and whether messages arrive. A monitor outside hears of good executions."""

import pytest

from tests.cli.terminal import Terminal, announce_words, make_sandbox
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.webhook_sink import SandboxSink
from tidings.sandbox.wire.faults import Fault, FaultKind

pytestmark = pytest.mark.one_database


@pytest.mark.thorough
async def test_a_test_message_reaches_every_destination_and_says_which_failed(terminal: Terminal) -> None:
    """A24: exit 0 if all took it, 1 if one did not, 2 if there is none; nothing is stored."""
    none = await terminal.run("alerts", "test")
    async with SandboxSink() as sink:
        good = await terminal.run("alerts", "test", TIDINGS_WEBHOOK_URL=sink.address)
        assert (none.code, good.code, good.out) == (2, 0, "webhook: accepted\n")
        assert len(sink.requests) == 1
        sink.misbehave(Fault(status=500))
        bad = await terminal.run("alerts", "test", TIDINGS_WEBHOOK_URL=sink.address)
        assert (bad.code, bad.out) == (1, "webhook: failed: the receiver answered 500\n")
    unknown = await terminal.run("alerts", "test", TIDINGS_ALERT_URLS="carrier-pigeon://somewhere")
    assert (unknown.code, unknown.out) == (1, "apprise:1: failed: Apprise does not understand alert URL number 1\n")
    assert not terminal.data_dir.exists()


async def test_open_alerts_are_listed(terminal: Terminal) -> None:
    """A24: kind, subject and reason of what needs a person."""
    async with make_sandbox(pages=3) as sandbox:
        sandbox.site.misbehave(Fault(status=404, path="/sitemap.xml"))
        empty = await terminal.run("alerts", "list")
        assert (await terminal.run(*announce_words(sandbox))).code == 1
        listed = (await terminal.run("alerts", "list", "--json")).document["alerts"]
        chinese = await terminal.run("alerts", "list", TIDINGS_LANGUAGE="zh")
        assert empty.out == "No alert is open.\n"
        assert [(each["kind"], each["subject"]) for each in listed] == [("execution_failed", sandbox.site.host)]
        assert sandbox.site.host in chinese.out
        assert "读取失败：服务器返回 404，而不是站点地图" in chinese.out


async def test_a_monitor_outside_is_asked_after_a_good_run_only(terminal: Terminal) -> None:
    """A40: a private address of the settings is allowed; a monitor that hangs or fails harms no run."""
    async with make_sandbox(pages=3) as sandbox, SandboxSite(pages=1) as monitor:
        allowed = {"TIDINGS_PING_URL": f"{monitor.origin}/alive"}
        assert (await terminal.run(*announce_words(sandbox), **allowed)).code == 0
        assert [request.path for request in monitor.requests] == ["/alive"]
        sandbox.site.misbehave(Fault(status=404, path="/sitemap.xml"))
        assert (await terminal.run(*announce_words(sandbox), **allowed)).code == 1
        assert len(monitor.requests) == 1
        sandbox.site.recover()
        monitor.misbehave(Fault(FaultKind.RESET))
        assert (await terminal.run(*announce_words(sandbox), **allowed)).code == 0
        assert "ping.failed" in terminal.log
        assert monitor.origin not in terminal.log
