"""`tidings status` says whether a service runs, by what a living one leaves behind."""

import signal

import pytest

from tests.cli.terminal import Terminal, end, make_sandbox
from tests.waiting import wait_until

pytestmark = pytest.mark.one_database


@pytest.mark.thorough
async def test_status_promises_a_run_only_while_a_service_was_seen(terminal: Terminal) -> None:
    """A33, A38: before a service ever ran, nobody runs the site; a living one is seen, and its next execution is named.
    One that was stopped is known at once."""
    async with make_sandbox(pages=1) as sandbox:
        words = ("sites", "add", sandbox.site.sitemap_url, "--id", "mine", "--key", sandbox.site.key)
        assert (await terminal.run(*words)).code == 0
        before = await terminal.run("status", "mine")
        assert "but no service runs (last seen: never)" in before.out
        process = await terminal.start("serve", "--port", "0", "--quiet", TIDINGS_TOKEN="a-long-one-for-status-7Kp2")

        async def is_seen() -> bool:
            return bool((await terminal.run("status", "mine", "--json")).document["serviceRuns"])

        await wait_until(is_seen)
        seen = await terminal.run("status", "mine")
        assert ("runs next at" in seen.out, "no service runs" in seen.out) == (True, False)
        process.send_signal(signal.SIGTERM)
        assert (await end(process)).code == 0
        after = await terminal.run("status", "mine")
        assert ("runs next at" in after.out, "but no service runs (last seen: 20" in after.out) == (False, True)
